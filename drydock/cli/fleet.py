"""`drydock fleet` and `drydock orphans`: backends with their capacity and cost, and objects without a row."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from drydock.cli.toolkit import options as o
from drydock.cli.toolkit import output
from drydock.cli.toolkit.exits import REFUSED, guarded
from drydock.core.units import in_words

if TYPE_CHECKING:
    from drydock_client.values import BackendInfo, OrphanInfo


def add_fleet(app: typer.Typer) -> None:
    """Add `drydock fleet`."""
    app.command("fleet", rich_help_panel="Operators")(fleet)


@guarded
def fleet(
    *, capabilities: Annotated[
        bool,
        typer.Option("--capabilities", help="Also show the capabilities of each cloud, which loads its client library.")
    ] = False, as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Show the backends in the order in which they are tried."""
    found = o.client().fleet(capabilities=capabilities)
    if as_json:
        return output.emit(found)
    output.table(_BACKEND_COLUMNS, [_backend_row(one) for one in found], empty="No blueprints.")
    if capabilities:
        _matrix(found)
    cost = sum(one.price + one.orphans_price for one in found)
    unpriced = sum(one.unpriced for one in found)
    return output.say(
        f"Current cost: ${cost:.4f} per hour"
        + (f", plus {unpriced} machines without a known price." if unpriced else ".")
    )


_BACKEND_COLUMNS = (
    "order", "name", "kind", "account", "regions", "confidential", "cpu", "ram", "from", "machines", "drift", "$/hour",
    "orphans", "read", "problems",
)  # fmt: skip


def _backend_row(one: BackendInfo) -> tuple[Any, ...]:
    ages = [age for age in one.ages.values() if age is not None]
    read = "" if not one.ages else "not yet" if len(ages) < len(one.ages) else in_words(max(ages))
    standing = "" if one.enabled and not one.drained else " (disabled)" if not one.enabled else " (drained)"
    return (
        one.order, one.name + standing, one.kind, one.account, _few(one.regions), list(one.confidential),
        f"{one.largest_cpu_millicores / 1000:g}" if one.largest_cpu_millicores else "",
        f"{one.largest_ram_mib / 1024:g} GiB" if one.largest_ram_mib else "",
        "" if one.cheapest is None else f"{one.cheapest:.4f}", _counts(one.machines), _counts(one.drift),
        f"{one.price:.4f}", one.orphans or "", read, len(one.failing) + len(one.errors) or "",
    )  # fmt: skip


def _few(names: tuple[str, ...]) -> str:
    """Return the first few names, and the number of the others."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _counts(counts: Any) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))


def _matrix(found: list[BackendInfo]) -> None:
    """Show the capabilities of each kind and its cloud."""
    kinds = {one.kind: {*one.can, *(one.capabilities or ())} for one in found}
    names = sorted(set().union(*kinds.values())) if kinds else []
    rows = [(name, *("yes" if name in can else "" for can in kinds.values())) for name in names]
    output.table(("capability", *kinds), rows)


Orphan = Annotated[int, typer.Argument(metavar="ORPHAN", help="The orphan's number.")]

DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print what would be done.")]

Yes = Annotated[bool, typer.Option("--yes", help="Do not ask for confirmation.")]


def add_orphans(app: typer.Typer) -> None:
    """Add `drydock orphans`."""
    group = o.group(list_orphans, "Provider objects without a row in the database: list, destroy, adopt.")
    for name, command in (("list", list_orphans), ("destroy", destroy_orphan), ("adopt", adopt_orphan)):
        group.command(name)(command)
    app.add_typer(group, name="orphans", rich_help_panel="Installation")


@guarded
def list_orphans(*, as_json: o.AsJson = False) -> None:
    """List orphans, suspects and rows without machines, with costs. The exit code is 6 if there are any."""
    found = o.client().orphans()
    if as_json:
        output.emit(found)
    else:
        output.table(_ORPHAN_COLUMNS, [_orphan_row(one) for one in found], empty="None.")
        cost = sum(one.price or 0.0 for one in found)
        if found:
            unknown = sum(one.price is None for one in found)
            output.say(
                f"Total cost: ${cost:.4f} per hour" + (f", plus {unknown} without a known price." if unknown else ".")
            )
    if found:
        raise typer.Exit(REFUSED)


_ORPHAN_COLUMNS = ("number", "key", "what", "blueprint", "where", "$/hour", "proof", "first seen", "becomes")


def _orphan_row(one: OrphanInfo) -> tuple[object, ...]:
    return (
        one.id or f"resource {one.resource}", one.key, one.what, one.blueprint, one.zone or one.location,
        "unknown" if one.price is None else f"{one.price:.4f}", one.proof,
        "" if one.first_seen_at is None else output.ago(one.first_seen_at), one.message,
    )  # fmt: skip


@guarded
def destroy_orphan(orphan: Orphan, *, dry_run: DryRun = False, yes: Yes = False, as_json: o.AsJson = False) -> None:
    """Destroy an orphan once it has been seen again, long enough after the first time."""
    _settle(orphan, "destroy", dry_run, yes, as_json)


@guarded
def adopt_orphan(orphan: Orphan, *, dry_run: DryRun = False, yes: Yes = False, as_json: o.AsJson = False) -> None:
    """Adopt the machine of an orphan as a quarantined resource, which serves no leases and counts towards the cost."""
    _settle(orphan, "adopt", dry_run, yes, as_json)


def _settle(orphan: int, act: str, dry_run: bool, yes: bool, as_json: bool) -> None:
    client = o.client()
    if not (dry_run or yes):
        output.say(client.settle_orphan(orphan, act, dry_run=True).message)
        typer.confirm("Continue?", abort=True, err=True)
    found = client.settle_orphan(orphan, act, dry_run=dry_run)
    output.emit(found) if as_json else output.line(found.message)
