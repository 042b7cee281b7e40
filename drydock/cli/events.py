"""`drydock events`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from drydock.cli import options as o
from drydock.cli import output
from drydock.cli.exits import guarded
from drydock.cli.holding import event_row
from drydock.cli.signals import stoppable

if TYPE_CHECKING:
    from leases.client import EventInfo


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("events", rich_help_panel="Leases")(events)


@guarded
def events(
    *, follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on with what comes.")] = False,
    lease: o.LeaseOption = None,
    resource: Annotated[int | None, typer.Option("--resource", help="Of this resource.")] = None,
    blueprint: Annotated[str, typer.Option("--blueprint", help="Of this blueprint.")] = "",
    kind: Annotated[str, typer.Option("--kind", help="Whose kind begins so: lease., resource., step.")] = "",
    after: Annotated[int | None, typer.Option("--after", help="From the event after this one.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n")] = 50, as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """What happened, the last 50 events; --follow goes on. With --json one document a line."""
    with stoppable():
        client = o.client()
        found = client.events(
            lease=lease, resource=resource, blueprint=blueprint, kind=kind, after=after or 0, limit=limit,
            newest=after is None,
        )  # fmt: skip
        if not follow and not as_json:
            return output.table(("at", "what", "took", "who", "message"), [_row(e) for e in found], empty="No events.")
        for event in found:
            _print(event, as_json)
        if follow:
            last = found[-1].id if found else after
            stream = client.follow(lease=lease, resource=resource, blueprint=blueprint, kind=kind, after=last)
            for event in stream:
                _print(event, as_json)
    return None


def _row(event: EventInfo) -> tuple[object, ...]:
    at, what, took, who, message = event_row(event)
    about = f"lease {event.lease}" if event.lease else f"resource {event.resource}" if event.resource else ""
    return (at, f"{about} {what}".strip(), took, who, message)


def _print(event: EventInfo, as_json: bool) -> None:
    if as_json:
        return output.emit_line(event)
    output.line("  ".join(output.text(cell) for cell in _row(event) if output.text(cell)))
    return None
