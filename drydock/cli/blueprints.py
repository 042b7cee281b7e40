"""`drydock blueprints`: list, change and check blueprints, and show the config that kinds accept."""

from __future__ import annotations

import json
import textwrap
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import typer

from drydock.cli.toolkit import options as o
from drydock.cli.toolkit import output
from drydock.cli.toolkit.exits import REFUSED, guarded

if TYPE_CHECKING:
    from drydock_client.values import BlueprintChange, BlueprintInfo


Fields = Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE...", help="Config of the kind.")]

File = Annotated[str, typer.Option("--file", "-f", metavar="FILE", help="Config as JSON; - is standard input.")]

Order = Annotated[
    int | None, typer.Option("--order", help="Rank in the order in which blueprints are tried; the lowest is first.")
]

Audience = Annotated[
    str | None, typer.Option("--audience", help="Who may use the blueprint: `everyone`, or only `authorized` owners.")
]

Maximum = Annotated[int | None, typer.Option("--max", help="Maximum number of resources.")]

Ready = Annotated[int | None, typer.Option("--ready", help="Number of idle resources that are kept ready.")]

Builds = Annotated[int | None, typer.Option("--max-builds", help="Maximum number of builds at the same time.")]

Outdated = Annotated[
    int | None,
    typer.Option("--max-outdated", help="Number of outdated resources that are replaced at the same time; 0: none."),
]

Idle = Annotated[
    str | None,
    typer.Option(
        "--idle-timeout",
        metavar="SPAN",
        help="Remove resources that are idle for longer than this; use 15m for clouds.",
    ),
]

Life = Annotated[
    str | None, typer.Option("--max-lifetime", metavar="SPAN", help="Replace resources that are older than this.")
]

Check = Annotated[str | None, typer.Option("--check-interval", metavar="SPAN", help="Interval between health checks.")]

Discovery = Annotated[
    str | None, typer.Option("--discovery-interval", metavar="SPAN", help="Interval between discoveries.")
]

DefaultTtl = Annotated[
    str | None, typer.Option("--default-ttl", metavar="SPAN", help="Duration of leases that specify no end.")
]

MaxTtl = Annotated[
    str | None, typer.Option("--max-ttl", metavar="SPAN", help="Longest duration of leases; operators can exceed it.")
]

Note = Annotated[str | None, typer.Option("--note")]

Clear = Annotated[list[str] | None, typer.Option("--clear", help="Setting to remove: max, idle-timeout, ...")]


def _blueprint_change(**given: Any) -> BlueprintChange:
    from drydock_client.values import BlueprintChange

    return BlueprintChange(**{name: value for name, value in given.items() if value is not None})


def _cleared_columns(clear: list[str] | None) -> list[str]:
    """Return the names of the columns to clear."""
    return [{"max": "max_resources"}.get(one, one).replace("-", "_") for one in clear or ()]


@guarded
def add(
    name: Name, kind: Annotated[str, typer.Argument(metavar="KIND", help="`drydock blueprints kinds` lists them.")],
    config: Fields = None, *, file: File = "", order: Order = None, audience: Audience = None, maximum: Maximum = None,
    ready: Ready = None, max_builds: Builds = None, idle_timeout: Idle = None, max_lifetime: Life = None,
    check_interval: Check = None, discovery_interval: Discovery = None, max_outdated: Outdated = None,
    default_ttl: DefaultTtl = None,
    max_ttl: MaxTtl = None, note: Note = None, clear: Clear = None,
    disabled: Annotated[bool, typer.Option("--disabled", help="Do not enable the blueprint yet.")] = False,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Add a blueprint, check it and enable it.

    You may use the blueprint; --audience sets who else may.

    [dim]drydock blueprints add this local_host slots=4[/dim]
    """
    wanted = _blueprint_change(
        order=order, audience=audience, max_resources=maximum, min_ready=ready, max_builds=max_builds,
        idle_timeout=idle_timeout, max_lifetime=max_lifetime, check_interval=check_interval,
        discovery_interval=discovery_interval,
        max_outdated=max_outdated, default_ttl=default_ttl, max_ttl=max_ttl, note=note, clear=_cleared_columns(clear),
    )  # fmt: skip
    given = {**o.document(file), **o.values(config, "config")}
    _tell_and_exit(o.client().add_blueprint(name, kind, given, wanted, enabled=not disabled), as_json)


@guarded
def change(
    name: Name, config: Fields = None, *, file: File = "", kind: Annotated[str | None, typer.Option()] = None,
    order: Order = None, audience: Audience = None, maximum: Maximum = None, ready: Ready = None,
    max_builds: Builds = None, idle_timeout: Idle = None, max_lifetime: Life = None, check_interval: Check = None,
    discovery_interval: Discovery = None, max_outdated: Outdated = None, default_ttl: DefaultTtl = None,
    max_ttl: MaxTtl = None, note: Note = None,
    clear: Clear = None,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Change a blueprint. KEY=VALUE changes single values of its config; --file replaces the config."""
    client = o.client()
    found: dict[str, Any] | None = None
    if config or file:
        found = {**(o.document(file) if file else dict(client.blueprint(name).config)), **o.values(config, "config")}
    wanted = _blueprint_change(
        kind=kind, config=found, order=order, audience=audience, max_resources=maximum, min_ready=ready,
        max_builds=max_builds, idle_timeout=idle_timeout, max_lifetime=max_lifetime, check_interval=check_interval,
        discovery_interval=discovery_interval,
        max_outdated=max_outdated, default_ttl=default_ttl, max_ttl=max_ttl, note=note, clear=_cleared_columns(clear),
    )  # fmt: skip
    _tell(client.change_blueprint(name, wanted), as_json, full=True)


Name = Annotated[str, typer.Argument(metavar="BLUEPRINT")]


def add_blueprints(app: typer.Typer) -> None:
    """Add `drydock blueprints`."""
    group = o.group(
        list_blueprints,
        "Instructions for building resources: list, add, change, check, enable, disable, drain, remove.",
    )
    for name, command in (
        ("list", list_blueprints), ("show", show), ("add", add), ("change", change),
        ("check", check), ("enable", enable),
        ("disable", disable), ("drain", drain), ("undrain", undrain), ("remove", remove), ("kinds", kinds),
        ("schema", schema), ("acts", acts), ("forget", forget),
    ):  # fmt: skip
        group.command(name)(command)
    app.add_typer(group, name="blueprints", rich_help_panel="Operators")


@guarded
def list_blueprints(*, type_: Annotated[str, typer.Option("--type")] = "", as_json: o.AsJson = False) -> None:
    """List blueprints in the order in which they are tried."""
    found = o.client().blueprints(type=type_)
    if as_json:
        return output.emit(found)
    rows = [
        (b.name, b.kind, b.type, _state(b), b.audience, _there(b), b.building or "", _remarks(b))
        for b in found
    ]  # fmt: skip
    empty = "No blueprints yet. To lease this machine: drydock blueprints add this local_host"
    return output.table(
        ("name", "kind", "type", "state", "audience", "there", "building", "remarks"), rows, empty=empty
    )


def _there(info: BlueprintInfo) -> str:
    return str(info.there) if info.max_resources is None else f"{info.there}/{info.max_resources}"


def _remarks(info: BlueprintInfo) -> str:
    return "; ".join(str(error["message"]) for error in info.errors) or info.note


@guarded
def show(blueprint: Name, *, as_json: o.AsJson = False) -> None:
    """Show everything about a blueprint."""
    _tell(o.client().blueprint(blueprint), as_json, full=True)


@guarded
def check(blueprint: Name, *, as_json: o.AsJson = False) -> None:
    """Check whether a blueprint could work, without creating anything."""
    info = o.client().switch_blueprint(blueprint, "check")
    if not as_json and not info.problems:
        output.say("no problem found")
    _tell_and_exit(info, as_json)


@guarded
def enable(blueprint: Name, *, as_json: o.AsJson = False) -> None:
    """Check a blueprint, and put it into service."""
    _tell_and_exit(o.client().switch_blueprint(blueprint, "enable"), as_json)


@guarded
def disable(blueprint: Name, *, as_json: o.AsJson = False) -> None:
    """Take a blueprint out of service. Its leases stay."""
    _tell(o.client().switch_blueprint(blueprint, "disable"), as_json)


@guarded
def drain(blueprint: Name, *, as_json: o.AsJson = False) -> None:
    """Drain a blueprint: build nothing new, and remove idle resources."""
    _tell(o.client().switch_blueprint(blueprint, "drain"), as_json)


@guarded
def undrain(blueprint: Name, *, as_json: o.AsJson = False) -> None:
    """Put a drained blueprint back into service."""
    _tell(o.client().switch_blueprint(blueprint, "undrain"), as_json)


@guarded
def remove(blueprint: Name, *, as_json: o.AsJson = False) -> None:
    """Remove a blueprint that no resource or lease needs. Its history stays."""
    o.client().remove_blueprint(blueprint)
    output.emit({"removed": blueprint}) if as_json else output.line(f"{blueprint} is removed")


@guarded
def forget(blueprint: Annotated[str, typer.Argument(metavar="[BLUEPRINT]")] = "", *, as_json: o.AsJson = False) -> None:
    """Forget remembered errors, so that offers that failed are tried again at once."""
    cleared = o.client().clear_errors(blueprint=blueprint)
    output.emit({"cleared": cleared}) if as_json else output.line(f"{cleared} forgotten")


FAKE, WIDTH = "fake", 100

"""The prefix of the names of kinds for tests, and the width of a table of kinds."""


@guarded
def kinds(
    *, type_: Annotated[str, typer.Option("--type", help="Only kinds of this type.")] = "",
    all_: Annotated[bool, typer.Option("--all", help="Include the fake kinds, which are for tests.")] = False,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """List the kinds that a blueprint may select. `blueprints schema KIND` describes one in detail."""
    found = [one for one in o.client().kinds(type=type_) if all_ or type_ or not one.name.startswith(FAKE)]
    if as_json:
        return output.emit(found)
    columns = [(k.name, k.type, " ".join(k.interfaces)) for k in found]
    taken = sum(max(map(len, column)) + 2 for column in zip(*columns, ("kind", "type", "interfaces"), strict=True))
    rows = [
        (*column, textwrap.shorten(k.description, WIDTH - taken, placeholder=" ..."))
        for column, k in zip(columns, found, strict=True)
    ]
    return output.table(("kind", "type", "interfaces", "description"), rows, empty="No kinds.")


@guarded
def schema(kind: Annotated[str, typer.Argument(metavar="KIND")], *, as_json: o.AsJson = False) -> None:
    """Show the fields of a kind: config, requirements of leases, registration. With --json, print JSON Schemas."""
    found = o.client().kind(kind)
    if as_json:
        return output.emit(found)
    output.line(f"{found.name}: {found.description}")
    for title, of in (
        ("config", found.config),
        ("requirements", found.requirements),
        ("registration", found.registration),
    ):
        rows = [
            (n, _type(p), p.get("default"), p.get("description", ""))
            for n, p in (of or {}).get("properties", {}).items()
        ]
        if rows:
            output.line(f"\n{title}")
            output.table(("field", "type", "default", "description"), rows)
    return None


@guarded
def acts(
    blueprint: Annotated[str, typer.Argument(metavar="[BLUEPRINT]", help="Default: all blueprints.")] = "",
    *, as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """List the acts that can be started on resources of blueprints, with their arguments.

    [dim]drydock resources act RESOURCE ACT KEY=VALUE[/dim]
    """
    client = o.client()
    kinds = {one.kind for one in ([client.blueprint(blueprint)] if blueprint else client.blueprints())}
    found = {kind: client.kind(kind).acts for kind in sorted(kinds)}
    if as_json:
        return output.emit(found)
    rows = [
        (kind, act.name, act.summary, f"{act.by}{', off' if act.power == 'off' else ''}", act.holders, argument)
        for kind, declared in found.items() for act in declared for argument in _arguments(act.arguments) or ("",)
    ]  # fmt: skip
    return output.table(("kind", "act", "what it does", "by", "leases", "argument"), rows, empty="No acts.")


def _arguments(schema: Mapping[str, Any]) -> list[str]:
    """Return each argument of an act with its type, default and description, in one line."""
    needed = schema.get("required", ())
    return [
        f"{name}: {_type(p)}{' (required)' if name in needed else f' = {json.dumps(p.get(_DEFAULT))}'}"
        f" {p.get('description', '')}".rstrip()
        for name, p in schema.get("properties", {}).items()
    ]  # fmt: skip


_DEFAULT = "default"


def _type(of: dict[str, Any]) -> str:
    if "$ref" in of:
        return str(of["$ref"]).rsplit("/", 1)[-1]
    if "anyOf" in of:
        return "|".join(_type(one) for one in of["anyOf"] if one.get("type") != "null")
    return str(of.get("type", "any"))


def _state(info: BlueprintInfo) -> str:
    """Return the state of a blueprint in one word."""
    return "drained" if info.drained else "enabled" if info.enabled else "disabled"


def _tell(info: BlueprintInfo, as_json: bool, *, full: bool = False) -> None:
    """Print the status of a blueprint with its problems, or everything about it if `full` is true."""
    if as_json:
        return output.emit(info)
    facts: list[tuple[str, object]] = [
        ("kind", info.kind), ("type", info.type), ("config", dict(info.config)), ("audience", info.audience),
        ("order", info.order), ("generation", info.generation), ("there", info.there), ("building", info.building),
        ("max", info.max_resources), ("ready", info.min_ready or None), ("idle timeout", info.idle_timeout),
        ("max lifetime", info.max_lifetime), ("check interval", info.check_interval),
        ("discovery interval", info.discovery_interval),
        ("default lease", info.default_ttl), ("longest lease", info.max_ttl), ("note", info.note),
    ]  # fmt: skip
    shown = facts if full else [("idle timeout", info.idle_timeout)]
    output.pairs(f"{info.name} is {_state(info)}", shown)
    for found in (*info.problems, *info.errors):
        where = found.get("field") or found.get("key") or ""
        word = "problem" if found.get("fatal", True) else "remark"
        output.line(f"  {word}: {where + ': ' if where else ''}{found['message']}")
    if info.drained:
        output.line(f"  undrain it: drydock blueprints undrain {info.name}")
    elif not info.enabled:
        mended = " once the problem is solved" if any(found.get("fatal", True) for found in info.problems) else ""
        output.line(f"  enable it{mended}: drydock blueprints enable {info.name}")
    return None


def _tell_and_exit(info: BlueprintInfo, as_json: bool) -> None:
    """Print the status of a blueprint, and exit with REFUSED if its check found a fatal problem."""
    _tell(info, as_json)
    if any(problem["fatal"] for problem in info.problems):
        raise typer.Exit(REFUSED)
