"""`drydock events`, and manual upkeep: `attention`, `reclaim`, `sweep` and `resolve`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from drydock.cli.leases import event_row
from drydock.cli.toolkit import options as o
from drydock.cli.toolkit import output
from drydock.cli.toolkit.exits import FAILURE, guarded, stoppable
from drydock.core import clock

if TYPE_CHECKING:
    from drydock_client.protocol import Client
    from drydock_client.values import EventInfo


def add_events(app: typer.Typer) -> None:
    """Add `drydock events`."""
    app.command("events", rich_help_panel="Leases")(events)


@guarded
def events(
    *, follow: Annotated[bool, typer.Option("--follow", "-f", help="Continue with new events.")] = False,
    lease: o.LeaseOption = None,
    resource: Annotated[int | None, typer.Option("--resource", help="Only events of this resource.")] = None,
    blueprint: Annotated[str, typer.Option("--blueprint", help="Only events of this blueprint.")] = "",
    kind: Annotated[str, typer.Option("--kind", help="Only kinds with this prefix: lease., resource., step.")] = "",
    after: Annotated[int | None, typer.Option("--after", help="Start after the event with this id.")] = None,
    limit: Annotated[int, typer.Option("--limit", "-n")] = 50, as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Show the last 50 events; --follow continues with new ones. With --json, print one document per line."""
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


def add_upkeep(app: typer.Typer) -> None:
    """Add the commands for manual upkeep."""
    for name, command in (("attention", attention), ("reclaim", reclaim), ("sweep", sweep), ("resolve", resolve)):
        app.command(name, rich_help_panel="Operators")(command)


@guarded
def attention(
    *, exit_code: Annotated[bool, typer.Option("--exit-code", help="Exit with 1 if anything needs attention.")] = False,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """List items that need attention (broken, quarantined, held, stuck, failing), with a remedy for each."""
    found = o.client().attention()
    if as_json:
        output.emit(found)
    else:
        rows = [
            (f"{a.kind} {a.id or ''} {a.name}".strip(), a.what, output.ago(a.since), a.message, a.mend) for a in found
        ]
        output.table(("where", "what", "since", "message", "action"), rows, empty="Nothing needs attention.")
    if found and exit_code:
        raise typer.Exit(FAILURE)


@guarded
def reclaim(
    *, type_: Annotated[str, typer.Option("--type", help="Only resources of this type.")] = "",
    blueprint: Annotated[str, typer.Option("--blueprint", help="Only resources of this blueprint.")] = "",
    wait: Annotated[bool, typer.Option(
        help="Wait up to 60 seconds until the resources are removed. Only has an effect if this command runs its own "
        "worker.",
    )] = True,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Remove idle resources and the leases that they hold."""
    client = o.client()
    ids = client.reclaim(type=type_, blueprint=blueprint)
    with client.attended() as attended:
        until = clock.monotonic() + (60 if wait and ids and attended.look() and attended.private else 0)
        while clock.monotonic() < until:
            attended.look()
            gone = _gone(client, ids)
            # Those that were held by the ones given up become idle in turn.
            more = client.reclaim(type=type_, blueprint=blueprint)
            if gone and not more:
                break
            ids += more
            clock.sleep(0.2)
    output.emit({"reclaimed": ids}) if as_json else output.line(
        f"{len(ids)} idle resource{'' if len(ids) == 1 else 's'} removed" + (f" ({output.text(ids)})" if ids else "")
    )


def _gone(client: Client, ids: list[int]) -> bool:
    """Return whether the resources no longer exist and the leases that they held have been returned."""
    return all(client.resource(pk).gone_at for pk in ids) and not any(
        lease.for_resource in ids for lease in client.leases(held=True, limit=1000)
    )


@guarded
def sweep(*, as_json: o.AsJson = False) -> None:
    """Run every periodic check once; without a worker, do the work here."""
    found = o.client().sweep()
    output.emit({"found": found}) if as_json else output.line(f"{found} items were due")


@guarded
def resolve(
    *, lease: o.LeaseOption = None,
    resource: Annotated[int | None, typer.Option("--resource")] = None,
    yes: Annotated[bool, typer.Option("--yes/--no", help="Yes: the task is done, or the answer is yes.")] = True,
    message: Annotated[str, typer.Option("--message", "-m", help="Text that the step receives.")] = "",
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Answer a held step that waits for a person. The step receives the answer and continues."""
    from drydock.core.errors import InvalidRequest

    if (lease is None) == (resource is None):
        raise InvalidRequest("Give either --lease or --resource.", field="lease")
    o.client().resolve(lease=lease, resource=resource, yes=yes, message=message)
    if as_json:
        output.emit({"resolved": True, "yes": yes})
