"""`drydock blueprints add` and `change`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from drydock.cli import options as o
from drydock.cli.exits import guarded
from drydock.cli.standing import end, tell

if TYPE_CHECKING:
    from leases.client import BlueprintChange

Name = Annotated[str, typer.Argument(metavar="BLUEPRINT")]
Fields = Annotated[list[str] | None, typer.Argument(metavar="KEY=VALUE...", help="Config of the kind.")]
File = Annotated[str, typer.Option("--file", "-f", metavar="FILE", help="Config as JSON; - is standard input.")]
Order = Annotated[int | None, typer.Option("--order", help="Tried from low to high.")]
Audience = Annotated[str | None, typer.Option("--audience", help="`everyone`, or `authorized` owners only.")]
Maximum = Annotated[int | None, typer.Option("--max", help="Resources at most.")]
Ready = Annotated[int | None, typer.Option("--ready", help="Idle resources kept ready.")]
Builds = Annotated[int | None, typer.Option("--max-builds", help="Builds at the same time.")]
Outdated = Annotated[
    int | None, typer.Option("--max-outdated", help="Outdated resources replaced at the same time; 0: none.")
]
Idle = Annotated[str | None, typer.Option("--idle-timeout", metavar="SPAN", help="Idle longer: removed; clouds: 15m.")]
Life = Annotated[str | None, typer.Option("--max-lifetime", metavar="SPAN", help="Older: replaced.")]
Check = Annotated[str | None, typer.Option("--check-interval", metavar="SPAN", help="Between health checks.")]
DefaultTtl = Annotated[
    str | None, typer.Option("--default-ttl", metavar="SPAN", help="How long a lease lasts that names no end.")
]
MaxTtl = Annotated[
    str | None, typer.Option("--max-ttl", metavar="SPAN", help="No lease lasts longer; operators can let one.")
]
Note = Annotated[str | None, typer.Option("--note")]
Clear = Annotated[list[str] | None, typer.Option("--clear", help="max, idle-timeout, ...: none at all.")]


def _change(**given: Any) -> BlueprintChange:
    from leases.client import BlueprintChange

    return BlueprintChange(**{name: value for name, value in given.items() if value is not None})


def _columns(clear: list[str] | None) -> list[str]:
    """What is to be empty, as columns are called."""
    return [{"max": "max_resources"}.get(one, one).replace("-", "_") for one in clear or ()]


@guarded
def add(
    name: Name, kind: Annotated[str, typer.Argument(metavar="KIND", help="See `drydock blueprints kinds`.")],
    config: Fields = None, *, file: File = "", order: Order = None, audience: Audience = None, maximum: Maximum = None,
    ready: Ready = None, max_builds: Builds = None, idle_timeout: Idle = None, max_lifetime: Life = None,
    check_interval: Check = None, max_outdated: Outdated = None, default_ttl: DefaultTtl = None,
    max_ttl: MaxTtl = None, note: Note = None, clear: Clear = None,
    disabled: Annotated[bool, typer.Option("--disabled", help="Do not enable it yet.")] = False,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Add a blueprint, check it and enable it. You may use it; others as --audience says.

    [dim]drydock blueprints add this local_host slots=4[/dim]
    """
    wanted = _change(
        order=order, audience=audience, max_resources=maximum, min_ready=ready, max_builds=max_builds,
        idle_timeout=idle_timeout, max_lifetime=max_lifetime, check_interval=check_interval,
        max_outdated=max_outdated, default_ttl=default_ttl, max_ttl=max_ttl, note=note, clear=_columns(clear),
    )  # fmt: skip
    given = {**o.document(file), **o.values(config, "config")}
    end(o.client().add_blueprint(name, kind, given, wanted, enabled=not disabled), as_json)


@guarded
def change(
    name: Name, config: Fields = None, *, file: File = "", kind: Annotated[str | None, typer.Option()] = None,
    order: Order = None, audience: Audience = None, maximum: Maximum = None, ready: Ready = None,
    max_builds: Builds = None, idle_timeout: Idle = None, max_lifetime: Life = None, check_interval: Check = None,
    max_outdated: Outdated = None, default_ttl: DefaultTtl = None, max_ttl: MaxTtl = None, note: Note = None,
    clear: Clear = None,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Change a blueprint. KEY=VALUE changes single values of its config, --file replaces it."""
    client = o.client()
    found: dict[str, Any] | None = None
    if config or file:
        found = {**(o.document(file) if file else dict(client.blueprint(name).config)), **o.values(config, "config")}
    wanted = _change(
        kind=kind, config=found, order=order, audience=audience, max_resources=maximum, min_ready=ready,
        max_builds=max_builds, idle_timeout=idle_timeout, max_lifetime=max_lifetime, check_interval=check_interval,
        max_outdated=max_outdated, default_ttl=default_ttl, max_ttl=max_ttl, note=note, clear=_columns(clear),
    )  # fmt: skip
    tell(client.change_blueprint(name, wanted), as_json, full=True)
