"""`drydock resources`: list, drain, quarantine, register, check, power and destroy resources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from drydock.cli.credentials import File, Secrets, read_secrets
from drydock.cli.leases import event_row, readable_facts
from drydock.cli.machines import LONGEST, PAUSE, failure_text
from drydock.cli.toolkit import options as o
from drydock.cli.toolkit import output
from drydock.cli.toolkit.exits import guarded
from drydock.core import clock
from drydock.core.errors import DrydockError, InvalidRequest, NotFound, TimedOut

if TYPE_CHECKING:
    from collections.abc import Callable

    from drydock_client.values import ActInfo, CleaningInfo, Progress, ResourceInfo


Id = Annotated[str, typer.Argument(metavar="RESOURCE", help="The resource's number or name.")]


def add_resources(app: typer.Typer) -> None:
    """Add `drydock resources`."""
    group = o.group(list_, "Resources: list, show, drain, quarantine, register, check, power, act, destroy.")
    for name, command in (
        ("list", list_), ("show", show), ("drain", drain), ("undrain", undrain), ("quarantine", quarantine),
        ("unquarantine", unquarantine), ("retire", retire), ("destroy", destroy), ("power", power), ("check", check),
        ("scan", scan), ("register", register), ("change", change), ("remove", remove), ("acts", acts), ("act", act),
        ("cancel", cancel), ("credential", credential),
        ("no-reboots", no_reboots), ("allow-reboots", allow_reboots),
        ("update", update),
    ):  # fmt: skip
        group.command(name)(command)
    app.add_typer(group, name="resources", rich_help_panel="Operators")


@guarded
def list_(
    *, type_: Annotated[str, typer.Option("--type", help="Only resources of this type.")] = "",
    blueprint: Annotated[str, typer.Option("--blueprint", help="Only resources of this blueprint.")] = "",
    state: Annotated[str, typer.Option("--state")] = "",
    gone: Annotated[bool, typer.Option("--gone", help="Include resources that no longer exist.")] = False,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """List resources."""
    found = o.client().resources(type=type_, blueprint=blueprint, state=state, gone=gone)
    if as_json:
        return output.emit(found)
    rows = [
        (r.id, r.name, r.type, r.blueprint, r.state, _used(r), _flags(r), output.ago(r.since), _says(r))
        for r in found
    ]  # fmt: skip
    output.table(
        ("id", "name", "type", "blueprint", "state", "slots", "flags", "since", "message"), rows, empty="No resources."
    )
    return None


def _says(info: ResourceInfo) -> str:
    """Return the problems of a resource, its update and its message."""
    update = "" if info.update is None else info.update.sentence
    return " ".join(filter(None, (*info.problems, update, info.message))) or info.note


def _used(info: ResourceInfo) -> str:
    return f"{info.capacity['slots'].used}/{info.capacity['slots'].total}"


def _flags(info: ResourceInfo) -> list[str]:
    flags = ["suspect"] if info.suspect_since is not None and info.gone_at is None else []
    flags += [n for n in ("drained", "quarantined") if getattr(info, n)]
    flags += [_cleaning_state(info.cleaning)] if info.cleaning else ["in_maintenance"] if info.in_maintenance else []
    flags += ["outdated"] if info.outdated else []
    flags += [info.health] if info.health != "ok" and info.gone_at is None else []
    flags += ["no reboots"] if info.no_reboots else []
    return flags + ([f"power {info.power}"] if info.power else [])


def _cleaning_state(info: CleaningInfo) -> str:
    return info.state if info.percent is None else f"{info.state} {info.percent} %"


def _cleaning(info: CleaningInfo | None) -> str:
    """Return the state of a cleaning with its leases, what is being done, and the last failure."""
    if info is None:
        return ""
    after = f"after lease {', '.join(map(str, info.leases))}" if info.leases else ""
    failed = f"Failed {info.failures} times: {info.failure}" if info.failures else ""
    again = f"Next attempt: {info.next_at:%Y-%m-%d %H:%M:%S} UTC." if info.failures and info.next_at else ""
    return " ".join(filter(None, (_cleaning_state(info), after, info.sentence, failed, again)))


@guarded
def show(resource: Id, *, as_json: o.AsJson = False) -> None:
    """Show everything about a resource, with its history."""
    client = o.client()
    info = client.resource(number(resource))
    if as_json:
        return output.emit(info)
    _facts(info)
    events = client.events(resource=info.id, newest=True, limit=30)
    return output.table(("at", "what", "took", "who", "message"), [event_row(e) for e in events])


def _facts(info: ResourceInfo) -> None:
    now = info.progress
    step = "" if now is None else f"{now.act or now.phase}: {_step(now)}"
    output.pairs(
        f"{info.name} {info.state} {info.message}".strip(),
        [
            ("type", info.type), ("blueprint", info.blueprint), ("kind", info.kind), ("origin", info.origin),
            ("identity", info.identity), ("identities", list(info.identities)),
            ("part of", info.part_of), ("locality", " > ".join(filter(None, info.locality))),
            ("flags", _flags(info)), ("note", info.note),
            ("own credential", list(info.credential_fields)),
            ("health", f"{info.health}: {info.health_reason}".removesuffix(": ")),
            ("problems", list(info.problems)), ("update", "" if info.update is None else info.update.sentence),
            ("now", step.strip()), ("cleaning", _cleaning(info.cleaning)), ("observed", info.observed),
            ("last failure", failure_text(info.failure)), ("$/hour", info.price), ("dies at", info.dies_at),
            ("used", {name: f"{u.used}/{u.total}" for name, u in info.capacity.items() if u.total}),
            ("attributes", dict(info.attributes)), ("traits", list(info.traits)), ("leases", list(info.leases)),
            ("parts", [f"{p['class']} {p['identity']}" for p in info.parts]), *readable_facts(info.facts),
        ],
    )  # fmt: skip


def _step(now: Progress) -> str:
    """Return the step of a run with its percentage and its sentence."""
    percent = "" if now.percent is None else f"{now.percent} %"
    return " ".join(part for part in (now.step, percent, now.sentence) if part)


def number(resource: str) -> int:
    """Return the number of a resource given by number or name. Raises InvalidRequest, NotFound."""
    if resource.isascii() and resource.isdecimal():
        return int(resource)
    found = o.client().resources(name=resource)
    if not found:
        raise NotFound(
            f"Resource {resource!r} does not exist.", field="resource", hint="`drydock resources list` lists them."
        )
    if len(found) > 1:
        numbers = ", ".join(str(one.id) for one in found)
        raise InvalidRequest(f"Several resources are named {resource!r}: {numbers}.", field="resource",
                             hint="Use one of these numbers.")  # fmt: skip
    return found[0].id


def _act(resource: str, act: str, as_json: bool, **given: Any) -> None:
    info = o.client().change_resource(number(resource), act, **given)
    if as_json:
        return output.emit(info)
    output.line(" ".join([f"resource {info.id} {info.name} is {info.state}", *_flags(info)]))
    return None


@guarded
def drain(resource: Id, *, reason: Annotated[str, typer.Option()] = "", as_json: o.AsJson = False) -> None:
    """Drain a resource: no new leases are placed on it, and it is removed once idle."""
    _act(resource, "drain", as_json, reason=reason)


@guarded
def undrain(resource: Id, *, as_json: o.AsJson = False) -> None:
    """Undrain a resource."""
    _act(resource, "undrain", as_json)


@guarded
def quarantine(resource: Id, note: Annotated[str, typer.Argument(help="Why.")], *, as_json: o.AsJson = False) -> None:
    """Take a resource out of service as it is. Its leases stay."""
    _act(resource, "quarantine", as_json, message=note)


@guarded
def unquarantine(resource: Id, *, as_json: o.AsJson = False) -> None:
    """Put a quarantined resource back into service."""
    _act(resource, "unquarantine", as_json)


@guarded
def no_reboots(resource: Id, reason: Annotated[str, typer.Argument(help="Why.")], *, as_json: o.AsJson = False) -> None:
    """Keep maintenance from rebooting a resource. Builds that need the reboot wait."""
    _act(resource, "no_reboots", as_json, reason=reason)


@guarded
def allow_reboots(resource: Id, *, as_json: o.AsJson = False) -> None:
    """Let maintenance reboot a resource again."""
    _act(resource, "allow_reboots", as_json)


@guarded
def update(resource: Id, reason: Annotated[str, typer.Argument(help="Why.")], *, as_json: o.AsJson = False) -> None:
    """Update a leased resource now, although this disturbs its leases. Their owners are told the reason."""
    _act(resource, "update", as_json, reason=reason)


@guarded
def retire(resource: Id, *, as_json: o.AsJson = False) -> None:
    """Remove a resource that no lease holds."""
    _act(resource, "retire", as_json)


@guarded
def destroy(
    resource: Id, *,
    force: Annotated[
        bool, typer.Option("--force", help="Record that the resource is gone, whatever its provider reports.")
    ] = False,
    reason: Annotated[str, typer.Option("--reason", help="With --force: the reason.")] = "",
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Destroy an idle or vanished resource. With --force, break its leases and record that it is gone."""
    if force:
        return _act(resource, "force_destroy", as_json, reason=reason)
    return _act(resource, "retire", as_json)


@guarded
def power(
    resource: Id, wanted: Annotated[str, typer.Argument(metavar="on|off|cycle")], *, as_json: o.AsJson = False
) -> None:
    """Switch a resource on or off, or cycle its power."""
    _act(resource, "power", as_json, wanted=wanted)


@guarded
def check(resource: Id, *, as_json: o.AsJson = False) -> None:
    """Start a health check now."""
    _act(resource, "check", as_json)


@guarded
def register(
    blueprint: Annotated[str, typer.Argument(metavar="BLUEPRINT")],
    fields: Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE...", help="Its fields.")] = None,
    *, file: Annotated[str, typer.Option("--file", "-f", metavar="FILE", help="JSON file; - is standard input.")] = "",
    secret: Annotated[
        list[str] | None,
        typer.Option("--credential", metavar="FIELD[=@FILE|=-]", help="A secret of this resource; repeat for more."),
    ] = None,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Register a resource by hand. `drydock blueprints schema KIND` shows the fields."""
    given = {**o.document(file), **o.values(fields, "fields")}
    if not given:
        raise InvalidRequest("Give the fields of the resource as KEY=VALUE or as a file.", field="fields")
    if secret:
        given["credential"] = read_secrets(secret, "")
    info = o.client().register(blueprint, given)
    output.emit(info) if as_json else output.line(f"resource {info.id} {info.name} is {info.state}")


@guarded
def scan(
    blueprint: Annotated[str, typer.Argument(metavar="BLUEPRINT")],
    address: Annotated[str, typer.Argument(metavar="ADDRESS")],
    *, port: Annotated[int, typer.Option("--port")] = 22, as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Show the host keys that a host presents now. Compare them on its console: `ssh-keygen -lf KEY.pub`."""
    found = o.client().host_keys(blueprint, address, port=port)
    if as_json:
        return output.emit(found)
    return output.table(("fingerprint", "host_keys line"), [(one.fingerprint, one.key) for one in found])


@guarded
def change(
    resource: Id,
    fields: Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE...", help="Fields to change.")] = None,
    *, file: Annotated[str, typer.Option("--file", "-f", metavar="FILE", help="JSON file; - is standard input.")] = "",
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Correct a registered resource: address, port, user, host_keys, ...

    The resource is checked before it is leased again.
    """
    given = {**o.document(file), **o.values(fields, "fields")}
    if not given:
        raise InvalidRequest("Give the fields to change as KEY=VALUE or as a file.", field="fields")
    info = o.client().change_registration(number(resource), given)
    output.emit(info) if as_json else output.line(f"resource {info.id} {info.name} is {info.state}: {info.message}")


@guarded
def credential(
    resource: Id, secrets: Secrets = None, *, file: File = "",
    removed: Annotated[bool, typer.Option("--remove", help="Remove the credential.")] = False,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Store secrets of one resource, such as those of its BMC, encrypted. They replace earlier ones.

    [dim]drydock resources credential 7 password=@$HOME/bmc-7[/dim]
    """
    given = None if removed else read_secrets(secrets, file)
    info = o.client().set_resource_credential(number(resource), secrets=given)
    if as_json:
        return output.emit(info)
    stored = f"has its own {', '.join(info.credential_fields)}" if info.credential_fields else "has no own credential"
    return output.line(f"resource {info.id} {info.name} {stored}")


@guarded
def remove(resource: Id, *, as_json: o.AsJson = False) -> None:
    """Remove an idle resource.

    A registered resource is cleaned and handed back, even if it was never reached.
    """
    _act(resource, "retire", as_json)


@guarded
def acts(resource: Id, *, as_json: o.AsJson = False) -> None:
    """List the acts of a resource: whether you can start each, its progress, and its last outcome.

    `drydock blueprints acts` shows their arguments.
    """
    found = o.client().acts(number(resource))
    if as_json:
        return output.emit(found)
    rows = [(one.name, one.summary, _last(one), one.refused) for one in found]
    return output.table(("act", "what it does", "last", "not now, because"), rows, empty="This resource has no acts.")


def _last(info: ActInfo) -> str:
    if info.progress is not None:
        return _step(info.progress)
    return "" if info.at is None else f"{info.outcome} {output.ago(info.at)}: {info.message}"


@guarded
def act(
    resource: Id, name: Annotated[str, typer.Argument(metavar="ACT", help="`drydock resources acts` lists them.")],
    arguments: Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE...", help="Its arguments.")] = None,
    *, file: Annotated[str, typer.Option("--file", "-f", metavar="FILE", help="JSON file; - is standard input.")] = "",
    wait: Annotated[bool, typer.Option(help="Wait until the act has ended.")] = True,
    yes: Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")] = False,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Start an act that the kind of a resource declares, such as programming, and wait until it has ended.

    [dim]drydock resources act card-1 program image=blinky[/dim]
    """
    info = start_act(resource, name, {**o.document(file), **o.values(arguments, "arguments")}, wait=wait, yes=yes)
    output.emit(info) if as_json else output.line(f"{name}: {info.message}")


def start_act(resource: str, name: str, given: dict[str, Any], *, wait: bool, yes: bool) -> ActInfo:
    """Start an act on a resource given by number or name, and wait until it has ended if `wait` is true.

    Asks for confirmation if the act is dangerous, unless `yes` is true.
    """
    client, resource_id = o.client(), number(resource)
    if not yes and any(one.name == name and one.dangerous for one in client.acts(resource_id)):
        typer.confirm(f"{name} can lose data or make resource {resource} unusable. Continue?", abort=True, err=True)
    info = client.start_act(resource_id, name, arguments=given)
    if wait:
        with client.attended() as attended:
            info = _until_ended(lambda: _one(client.acts(resource_id), name), resource, attended.look)
    return info


def _one(found: list[ActInfo], name: str) -> ActInfo:
    return next(one for one in found if one.name == name)


def _until_ended(look: Callable[[], ActInfo], resource: str, alive: Callable[[], bool]) -> ActInfo:
    """Wait until an act has ended, and return it. Raises DrydockError if it did not succeed, TimedOut."""
    until, told = clock.monotonic() + LONGEST, ""
    while (info := look()).outcome in ("asked", "cancelling"):
        said = _last(info) if alive() else "no worker is running"
        if info.progress is None:
            raise DrydockError(f"The act {info.name} ended because its resource {resource} was removed.")
        if said and said != told:
            told = said
            output.say(f"{info.name}: {said}")
        if clock.monotonic() > until:
            hint = "`drydock resources acts` shows its progress."
            raise TimedOut(f"The act {info.name} on resource {resource} has not ended yet.", hint=hint)
        clock.sleep(PAUSE)
    if info.outcome != "done":
        raise DrydockError(f"{info.name} {info.outcome}: {info.message}")
    return info


@guarded
def cancel(
    resource: Id, name: Annotated[str, typer.Argument(metavar="ACT", help="The act that is running.")],
    *, as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Cancel a running act: at once, or after a step that cannot be interrupted."""
    info = o.client().cancel_act(number(resource), name)
    output.emit(info) if as_json else output.line(f"{name}: {info.message}")
