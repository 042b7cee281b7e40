"""`drydock orphans`: what stands at providers without a row, and rows without what they stand for."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from drydock.cli import options as o
from drydock.cli import output
from drydock.cli.exits import REFUSED, guarded

if TYPE_CHECKING:
    from leases.client import OrphanInfo

Orphan = Annotated[int, typer.Argument(metavar="ORPHAN", help="The orphan's number.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]
Yes = Annotated[bool, typer.Option("--yes", help="Without asking.")]


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    group = o.group(list_, "What stands at providers without a row: list, destroy, adopt.")
    for name, command in (("list", list_), ("destroy", destroy), ("adopt", adopt)):
        group.command(name)(command)
    app.add_typer(group, name="orphans", rich_help_panel="Installation")


@guarded
def list_(*, as_json: o.AsJson = False) -> None:
    """Orphans, suspects, and rows without their machines, with what they cost; exit code 6 when there is any."""
    found = o.client().orphans()
    if as_json:
        output.emit(found)
    else:
        output.table(_COLUMNS, [_row(one) for one in found], empty="None.")
        cost = sum(one.price or 0.0 for one in found)
        if found:
            unknown = sum(one.price is None for one in found)
            output.say(f"${cost:.4f} an hour in all" + (f", {unknown} without a known price." if unknown else "."))
    if found:
        raise typer.Exit(REFUSED)


_COLUMNS = ("number", "key", "what", "blueprint", "where", "$/hour", "proof", "first seen", "becomes")


def _row(one: OrphanInfo) -> tuple[object, ...]:
    return (
        one.id or f"resource {one.resource}", one.key, one.what, one.blueprint, one.zone or one.location,
        "unknown" if one.price is None else f"{one.price:.4f}", one.proof,
        "" if one.first_seen_at is None else output.ago(one.first_seen_at), one.message,
    )  # fmt: skip


@guarded
def destroy(orphan: Orphan, *, dry_run: DryRun = False, yes: Yes = False, as_json: o.AsJson = False) -> None:
    """Have one destroyed, when it is seen again long enough after the first time."""
    _settle(orphan, "destroy", dry_run, yes, as_json)


@guarded
def adopt(orphan: Orphan, *, dry_run: DryRun = False, yes: Yes = False, as_json: o.AsJson = False) -> None:
    """Give a machine a row again: quarantined, serving nobody, counting its cost, to be looked at and retired."""
    _settle(orphan, "adopt", dry_run, yes, as_json)


def _settle(orphan: int, act: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    client = o.client()
    if not (dry_run or yes):
        output.say(client.settle_orphan(orphan, act, dry_run=True).message)
        typer.confirm("Shall it be so?", abort=True, err=True)
    found = client.settle_orphan(orphan, act, dry_run=dry_run)
    output.emit(found) if as_json else output.line(found.message)
