"""`drydock attention`, `reclaim`, `sweep` and `resolve`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from drydock.cli import options as o
from drydock.cli import output
from drydock.cli.exits import FAILURE, guarded
from drydock.core import clock

if TYPE_CHECKING:
    from leases.client import Client


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    for name, command in (("attention", attention), ("reclaim", reclaim), ("sweep", sweep), ("resolve", resolve)):
        app.command(name, rich_help_panel="Operators")(command)


@guarded
def attention(
    *, exit_code: Annotated[bool, typer.Option("--exit-code", help="End with 1 when there is something.")] = False,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """What a person should look at: broken, quarantined, held, stuck, sick, failing; and what to do about it."""
    found = o.client().attention()
    if as_json:
        output.emit(found)
    else:
        rows = [
            (f"{a.kind} {a.id or ''} {a.name}".strip(), a.what, output.ago(a.since), a.message, a.mend) for a in found
        ]
        output.table(("where", "what", "since", "says", "do"), rows, empty="Nothing needs attention.")
    if found and exit_code:
        raise typer.Exit(FAILURE)


@guarded
def reclaim(
    *, type_: Annotated[str, typer.Option("--type", help="Only of this type.")] = "",
    blueprint: Annotated[str, typer.Option("--blueprint", help="Only of this blueprint.")] = "",
    wait: Annotated[bool, typer.Option(help="Wait until they are gone, where a worker of ours does it.")] = True,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Give up idle resources, and what they hold themselves."""
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
    """Whether resources are gone, and what they held is returned."""
    return all(client.resource(pk).gone_at for pk in ids) and not any(
        lease.for_resource in ids for lease in client.leases(held=True, limit=1000)
    )


@guarded
def sweep(*, as_json: o.AsJson = False) -> None:
    """Look once over everything that may be due; without a worker, carry it out here."""
    found = o.client().sweep()
    output.emit({"found": found}) if as_json else output.line(f"{found} found due")


@guarded
def resolve(
    *, lease: o.LeaseOption = None,
    resource: Annotated[int | None, typer.Option("--resource")] = None,
    message: Annotated[str, typer.Option("--message", "-m", help="What was done.")] = "", as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Say that you have done what a held step waits for."""
    from drydock.core.errors import InvalidRequest

    if (lease is None) == (resource is None):
        raise InvalidRequest("Name either --lease or --resource.", field="lease")
    o.client().resolve(lease=lease, resource=resource, message=message)
    if as_json:
        output.emit({"resolved": True})
