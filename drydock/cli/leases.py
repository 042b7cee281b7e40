"""`drydock lease` and `explain`, and the commands for existing leases: show, wait, release, extend, hold, retry."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drydock.cli.toolkit import lease_run, output, together, waiting
from drydock.cli.toolkit import options as o
from drydock.cli.toolkit.exits import REFUSED, Stopped, guarded, stoppable
from drydock.cli.toolkit.lease_run import CLEANING, LeaseRun, seconds
from drydock.core.errors import InvalidRequest, TimedOut
from drydock.core.units import in_words

if TYPE_CHECKING:
    from drydock_client.protocol import Client
    from drydock_client.values import LeaseInfo


def add_requests(app: typer.Typer) -> None:
    """Add `drydock lease` and `drydock explain`."""
    app.command("lease", rich_help_panel="Leases")(lease)
    app.command("explain", rich_help_panel="Leases")(explain)


@guarded
def lease(
    type_: o.Type, command: o.Command = None, *,
    vcpus: o.Vcpus = None, ram: o.Ram = None, disk: o.Disk = None, slots: o.Slots = None, extra: o.Extra = None,
    exclusive: o.Exclusive = False, require: o.Require = None, trait: o.Trait = None, forbid_trait: o.Forbid = None,
    prefer_trait: o.Prefer = None, blueprint: o.Blueprints = None, exclude_blueprint: o.Exclude = None,
    ttl: o.Ttl = None, until: o.Until = None, wait_limit: o.WaitLimit = None, heartbeat_limit: o.Heartbeat = None,
    priority: o.Priority = 0, name: o.Name = "", label: o.Label = None, key: o.Key = None,
    public_key: o.PublicKey = None, serve_again: o.ServeAgain = False, choose: o.Choose = "", charge: o.Charge = None,
    count: Annotated[
        int,
        typer.Option("--count", "--group-size", min=1, max=100, help="Number of leases, all granted together or none."),
    ] = 1,
    with_: o.With = None, same: o.Same = "", near: o.Near = "",
    different: Annotated[str, typer.Option(help="With --count: a separate `resource` or `parent` for each.")] = "",
    wait: Annotated[str | None, typer.Option("--wait", metavar="SPAN", help="Stop waiting after this time.")] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the lease, and print how to use it.")] = False,
    stdin: Annotated[bool, typer.Option("--stdin", "-i", help="Pass standard input to the command.")] = False,
    cwd: Annotated[str, typer.Option(help="Folder to run the command in, relative to the lease's home.")] = "",
    env: Annotated[list[str] | None, typer.Option("--env", "-e", metavar="KEY=VALUE", help="Variable to set.")] = None,
    run: o.Run = None, container: o.Container = "", archive: o.Archive = "", port: o.Ports = None,
    metrics: o.Metrics = False,
    owner: o.Owner = None, as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Lease a resource, run a command on it, and release it.

    Waits until the lease is active, showing why it is not active yet. Runs COMMAND and exits with its exit code.

    The lease is released in any case (end of the command, Ctrl-C, an error) unless --keep is given.

    Without a command the lease is held until Ctrl-C.

    With --with other resources are leased together with it, all or none; by default all in one host. The command runs
    on the first lease, with the variables of the devices.

    With --run, --container or --archive the lease itself runs a workload once, and ends with it: this program shows its
    output, and exits with its exit code. With --keep it does not wait for the workload; `drydock watch LEASE` does.

    [dim]drydock lease host --vcpus 2 --ttl 2h -- uname -a[/dim]
    """
    given = o.request(
        type_, vcpus=vcpus, ram=ram, disk=disk, slots=slots, extra=extra, exclusive=exclusive, require=require,
        traits=trait, forbidden_traits=forbid_trait, preferred_traits=prefer_trait, allowed_blueprints=blueprint,
        excluded_blueprints=exclude_blueprint, ttl=ttl, until=until, wait_limit=wait_limit,
        heartbeat_limit=heartbeat_limit, priority=priority, name=name, label=label, key=key, public_key=public_key,
        serve_again=serve_again, choose=choose, charge=charge, metrics=metrics,
    )  # fmt: skip
    _give_heartbeat(given, heartbeat_limit, keeps=keep or bool(run or container or archive))
    others = together.companions(given, with_, count)
    rule = together.rule(same, different, near, others, count)
    within = {"image": container, "archive": archive, "ports": port or []}
    if work := lease_run.requested_workload(run, within, command or [], cwd, o.variables(env), stdin=stdin):
        given["workload"] = work
    errand = (lease_run.WorkloadRun if work else LeaseRun)(
        command=command or [], keep=keep, limit=seconds(wait), quiet=as_json, cwd=cwd, env=o.variables(env),
        stdin=sys.stdin.buffer.read() if stdin else b"", together=bool(others),
    )  # fmt: skip
    with stoppable():
        client = o.client(owner)
        if command and not work:
            _refuse_without_commands(client, given)
        with client.attended() as attended:
            code = errand.run(client, attended, lambda: _ask(client, given, count, others, rule))
    raise typer.Exit(code)


HEARTBEAT = "60s"

"""The default heartbeat limit of a lease that lasts as long as this program. If the program is killed, its lease
ends."""


def _give_heartbeat(given: dict[str, Any], wanted: str | None, *, keeps: bool) -> None:
    """Add a heartbeat limit to a lease that lasts as long as this program. `none` sets no limit."""
    if wanted == "none":
        del given["heartbeat_limit"]
    elif wanted is None and not keeps:
        given["heartbeat_limit"] = HEARTBEAT


def _refuse_without_commands(client: Client, given: dict[str, Any]) -> None:
    """Raise InvalidRequest before anything is requested if no lease of this type could run the command."""
    found = {kind.name: kind.interfaces for kind in client.kinds(type=given["type"])}
    named = given.get("allowed_blueprints")
    usable = [one for one in client.blueprints(type=given["type"]) if named is None or one.name in named]
    having = [found[one.kind] for one in usable if one.kind in found] or list(found.values())
    if having and not any("command" in interfaces for interfaces in having):
        others = ", ".join(sorted(set().union(*having)))
        raise InvalidRequest(
            f"A lease on a {given['type']} cannot run commands; its interfaces are: {others}.", field="command",
            hint=f"Omit the command: drydock lease {given['type']} --keep",
        )  # fmt: skip


def _ask(
    client: Client, given: dict[str, Any], count: int, others: list[dict[str, Any]], rule: Mapping[str, str]
) -> list[int]:
    if count == 1 and not others:
        return [client.request(given).id]
    key = given.pop("idempotency_key", None)
    asked = [given | {"count": count}, *others]
    return [info.id for info in client.request_group(asked, key=key, **rule)]


@guarded
def explain(
    type_: o.Type, *,
    vcpus: o.Vcpus = None, ram: o.Ram = None, disk: o.Disk = None, slots: o.Slots = None, extra: o.Extra = None,
    exclusive: o.Exclusive = False, require: o.Require = None, trait: o.Trait = None, forbid_trait: o.Forbid = None,
    prefer_trait: o.Prefer = None, blueprint: o.Blueprints = None, exclude_blueprint: o.Exclude = None,
    ttl: o.Ttl = None, until: o.Until = None, priority: o.Priority = 0, choose: o.Choose = "", charge: o.Charge = None,
    count: Annotated[int, typer.Option("--count", min=1, max=100, help="Number of leases, all together.")] = 1,
    with_: o.With = None, same: o.Same = "", near: o.Near = "",
    owner: o.Owner = None, as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Show what would happen to a request now, with the verdict on every blueprint. Writes nothing.

    With --with or --count, show the verdict on every host: whether it has room for all of them, how far apart the
    devices would be, and what it lacks.
    """
    given = o.request(
        type_, vcpus=vcpus, ram=ram, disk=disk, slots=slots, extra=extra, exclusive=exclusive, require=require,
        traits=trait, forbidden_traits=forbid_trait, preferred_traits=prefer_trait, allowed_blueprints=blueprint,
        excluded_blueprints=exclude_blueprint, ttl=ttl, until=until, priority=priority, choose=choose, charge=charge,
        label=None, public_key=None, key=None,
    )  # fmt: skip
    others = together.companions(given, with_, count)
    rule = together.rule(same, "", near, others, count)
    if others or count > 1:
        found = o.client(owner).explain_group([given | {"count": count}, *others], **rule)
    else:
        found = o.client(owner).explain(given)
    if as_json:
        output.emit(found)
    else:
        candidate = "host" if rule.get("same") in ("host", "whole") or near else "blueprint"
        output.pairs(
            _headline(found.outcome, found.message),
            [("waiting before", found.waiting_before or None), ("again at", found.retry_at), ("offer", found.offer)],
        )
        rows = [(v.blueprint, v.answer, v.offer, v.sentence) for v in found.verdicts]
        output.table((candidate, "answer", "offer", "why"), rows, empty=f"No {candidate} was considered.")
    if found.outcome == "refuse":
        raise typer.Exit(REFUSED)


def _headline(outcome: str, message: str) -> str:
    """Return the message after the outcome, or alone if it begins with that word."""
    return message if message.lower().startswith(outcome) else f"{outcome}: {message}"


Ids = Annotated[
    list[int], typer.Argument(metavar="LEASE...", parser=o.lease_reference, help="Numbers or names of leases.")
]


def add_leases(app: typer.Typer) -> None:
    """Add the commands for existing leases."""
    for name, command in (
        ("leases", leases), ("show", show), ("wait", wait), ("release", release), ("extend", extend),
        ("heartbeat", heartbeat), ("hold", hold), ("unhold", unhold), ("retry", retry), ("key", key),
        ("note", note), ("transfer", transfer),
    ):  # fmt: skip
        app.command(name, rich_help_panel="Leases")(command)


@guarded
def leases(
    *, type_: Annotated[str, typer.Option("--type", help="Only leases of this type.")] = "",
    state: Annotated[list[str] | None, typer.Option("--state", help="Only leases in this state; repeatable.")] = None,
    all_: Annotated[bool, typer.Option("--all", help="Include leases that have ended.")] = False,
    label: Annotated[str, typer.Option("--label", help="Only leases with this label: KEY or KEY=VALUE.")] = "",
    name: Annotated[str, typer.Option("--name")] = "",
    held: Annotated[bool, typer.Option("--held", help="Include leases held by other leases or by resources.")] = False,
    search: Annotated[str, typer.Option("--search", help="Beginning of a name, or words in a note.")] = "",
    limit: Annotated[int, typer.Option("--limit")] = 200,
    owner: o.Owner = None, as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """List leases, newest first; by default those that have not ended."""
    every = ("pending", "acquired", "active", "released", "destroyed", "broken")
    states = state or (every if all_ else None)
    found = o.client(owner).leases(
        states=states, type=type_, label=label, name=name, held=held, limit=limit, search=search
    )
    if as_json:
        return output.emit(found)
    rows = [
        (i.id, i.type, i.state, i.reason, i.name, i.owner, i.resource_name, output.ago(i.since), i.until, i.message)
        for i in found
    ]
    output.table(
        ("id", "type", "state", "reason", "name", "owner", "on", "since", "until", "message"), rows, empty="No leases."
    )
    return None


@guarded
def wait(
    leases: Ids, *,
    until: Annotated[
        str, typer.Option("--for", metavar="active|ended|STATE", help="The state to wait for.")
    ] = "active",
    timeout: Annotated[
        str | None, typer.Option("--timeout", metavar="SPAN", help="Stop waiting after this time.")
    ] = None,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Wait for leases, showing why they are not active yet.

    The exit code is 0 on success, 5 after a timeout, 6 if a lease can no longer reach the state, and 8 if no worker is
    alive.

    With --for ended, the exit code is that of the first workload that failed, or 6 if a lease is broken.
    """
    from drydock_client.leases import ENDED, checked, end_of

    client, limit = o.client(), seconds(timeout)
    checked(until)
    with stoppable(), client.attended() as attended:
        try:
            infos = waiting.until_reached(client, leases, attended, until, limit=limit, quiet=as_json)
        except (TimedOut, Stopped):
            output.say(f"No lease was released. To release: drydock release {' '.join(map(str, leases))}")
            raise
        ends = [end_of(client, info) for info in infos] if until == ENDED else []
    if as_json:
        output.emit(ends or infos)
    for end in () if as_json else ends:
        priced = any(one.price or one.energy_wh is None for one in end.usage)
        cost = f"; cost: ${end.cost:.4f}" if priced else ""
        energy = "" if end.energy_wh is None else f"; energy: {end.energy_wh / 1000:.3f} kWh"
        output.say(f"{waiting.sentence(end.lease)}{cost}{energy}")
    codes = [
        lease_run.workload_exit_code(one.workload) if one.workload else REFUSED * (one.state == "broken")
        for one in infos
    ]
    raise typer.Exit(next((code for code in codes if code), 0) if ends else 0)


@guarded
def show(lease: o.LeaseId, *, as_json: o.AsJson = False) -> None:
    """Show everything about a lease, with the verdict on every blueprint and its history."""
    client = o.client()
    info = client.lease(lease)
    events = client.events(lease=lease, newest=True, limit=50)
    if as_json:
        from drydock_client.values import to_json

        return output.emit({**to_json(info), "events": to_json(events)})
    output.pairs(waiting.sentence(info), _facts(info))
    if info.waiting is not None and info.waiting.siblings:
        group = [(one.lease, one.state, one.resource) for one in info.waiting.siblings]
        output.table(("lease of its group", "state", "resource"), group)
    if info.verdicts:
        rows = [(v.blueprint, v.answer, v.offer, v.sentence) for v in info.verdicts]
        output.table(("blueprint", "answer", "offer", "why"), rows)
    output.table(("at", "what", "took", "who", "message"), [event_row(e) for e in events])
    return None


def event_row(event: object) -> tuple[object, ...]:
    """Return an event as a row of a table."""
    from drydock_client.values import EventInfo

    assert isinstance(event, EventInfo)
    return (event.at, event.kind, event.duration, event.actor, event.message or event.reason)


def _facts(info: LeaseInfo) -> list[tuple[str, object]]:
    sizes = {
        "slots": info.slots, "cpu_millicores": info.cpu_millicores, "ram_mib": info.ram_mib, "disk_mib": info.disk_mib,
    }  # fmt: skip
    return [
        ("type", info.type), ("name", info.name), ("owner", info.owner), ("resource", info.resource),
        ("blueprint", info.blueprint), ("sizes", {k: v for k, v in sizes.items() if v} | dict(info.extra)),
        ("exclusive", info.exclusive), ("requirements", dict(info.requirements)),
        ("labels", dict(info.labels)), ("note", info.note),
        ("until", info.until), ("heartbeat limit", info.heartbeat_limit), ("group", info.group),
        ("distance", info.distance),
        ("builds take about", in_words(info.progress.estimate) if info.progress and info.progress.estimate else None),
        ("held until", info.hold_until if info.held else None), ("replaced by", info.replaced_by),
        ("interfaces", list(info.interfaces)), *lease_run.workload_facts(info), *readable_facts(info.facts),
    ]  # fmt: skip


def readable_facts(facts: Mapping[str, object]) -> list[tuple[str, object]]:
    """Return the facts that are shown to people; --json also includes the others."""
    return [(name, value) for name, value in facts.items() if not isinstance(value, dict)]


@guarded
def release(
    lease: Ids, *,
    wait: Annotated[bool, typer.Option(
        help="Wait until the leases are cleaned. Only has an effect if this command runs its own worker.",
    )] = True,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Release leases, or cancel pending ones; idempotent."""
    client = o.client()
    infos = [client.release(pk) for pk in lease]
    if wait and any(not info.over for info in infos):
        with client.attended() as attended:
            if attended.look() and attended.private:
                # In a pipe the last word, below, says it all.
                waiting.until_over(client, lease, attended, limit=CLEANING, quiet=as_json or not sys.stderr.isatty())
        infos = [client.lease(pk) for pk in lease]
    _tell(infos, as_json)


def _tell(infos: list[LeaseInfo], as_json: bool) -> None:
    if as_json:
        output.emit(infos if len(infos) != 1 else infos[0])
    else:
        for info in infos:
            output.line(waiting.sentence(info))


@guarded
def extend(
    lease: o.LeaseId,
    ttl: Annotated[str | None, typer.Argument(metavar="SPAN", help="Duration from now, such as 2h.")] = None, *,
    until: o.Until = None, as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Extend a lease to SPAN from now, or --until a time."""
    info = o.client().extend(lease, ttl=ttl, until=o.moment(until))
    output.emit(info) if as_json else output.line(f"lease {lease} lasts until {output.text(info.until)}")


@guarded
def heartbeat(lease: o.LeaseId, *, as_json: o.AsJson = False) -> None:
    """Send a heartbeat for a lease with a heartbeat limit."""
    o.client().heartbeat(lease)
    if as_json:
        output.emit({"lease": lease, "heartbeat": True})


@guarded
def hold(
    lease: o.LeaseId, *,
    ttl: Annotated[str | None, typer.Option("--ttl", help="Duration of the hold; one day by default.")] = None,
    reason: Annotated[str, typer.Option("--reason", help="Reason, shown to other users.")] = "",
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Keep the resource of a lease as it is after the lease ends, for debugging. You can still use it."""
    info = o.client().hold(lease, ttl=ttl, reason=reason)
    if as_json:
        return output.emit(info)
    output.line(f"lease {lease} is held until {output.text(info.hold_until) or 'unhold'}")
    if info.active_at is not None:
        output.say(f"you can continue to use it, also after its end, until then or `drydock unhold {lease}`")
    return None


@guarded
def unhold(lease: o.LeaseId, *, as_json: o.AsJson = False) -> None:
    """End a hold. A lease that has ended is cleaned now."""
    _tell([o.client().unhold(lease)], as_json)


@guarded
def retry(lease: o.LeaseId, *, as_json: o.AsJson = False) -> None:
    """Retry a lease or step that waits for its next attempt."""
    _tell([o.client().retry(lease)], as_json)


@guarded
def note(
    lease: o.LeaseId, text: Annotated[str, typer.Argument(metavar="TEXT", help="The new note; \"\" removes it.")], *,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Replace the note of a lease. `drydock leases --search WORD` finds it."""
    _tell([o.client().set_note(lease, note=text)], as_json)


@guarded
def transfer(
    lease: o.LeaseId, to: Annotated[str, typer.Argument(metavar="USER", help="The new owner.")], *,
    message: Annotated[str, typer.Option("--message", help="Reason, stored with the event.")] = "",
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Transfer an active lease to another user, with its files.

    Its processes end, and its keys are replaced. The lease then counts against the other user's quota and budgets, and
    only the other user has access.
    """
    o.client().transfer(lease, to=to, message=message)
    output.emit({"lease": lease, "owner": to}) if as_json else output.line(f"lease {lease} belongs to {to}")


@guarded
def key(lease: o.LeaseId) -> None:
    """Print the lease's generated private key. Only its owner may do this, and every call is recorded."""
    output.line(o.client().private_key(lease), end="")
