"""`drydock fleet`: every backend with what it can serve, what stands there, what is wrong, and what it costs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

from drydock.cli import options as o
from drydock.cli import output
from drydock.cli.exits import guarded
from drydock.core.units import in_words

if TYPE_CHECKING:
    from leases.client import BackendInfo


def add_to(app: typer.Typer) -> None:
    """Add the commands of this module."""
    app.command("fleet", rich_help_panel="Operators")(fleet)


@guarded
def fleet(
    *, capabilities: Annotated[
        bool, typer.Option("--capabilities", help="Also what their clouds can do; loads the clouds' clients.")
    ] = False, as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """The backends in the order in which they are tried."""
    found = o.client().fleet(capabilities=capabilities)
    if as_json:
        return output.emit(found)
    output.table(_COLUMNS, [_row(one) for one in found], empty="No blueprints.")
    if capabilities:
        _matrix(found)
    cost = sum(one.price + one.orphans_price for one in found)
    unpriced = sum(one.unpriced for one in found)
    return output.say(f"${cost:.4f} an hour now" + (f", and {unpriced} machines without a price." if unpriced else "."))


_COLUMNS = (
    "order", "name", "kind", "account", "regions", "confidential", "cpu", "ram", "from", "machines", "drift", "$/hour",
    "orphans", "read", "problems",
)  # fmt: skip


def _row(one: BackendInfo) -> tuple[Any, ...]:
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
    """The first ones, and how many more."""
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _counts(counts: Any) -> str:
    return ", ".join(f"{number} {name}" for name, number in sorted(counts.items()))


def _matrix(found: list[BackendInfo]) -> None:
    """What each kind and its cloud can do."""
    kinds = {one.kind: {*one.can, *(one.capabilities or ())} for one in found}
    names = sorted(set().union(*kinds.values())) if kinds else []
    rows = [(name, *("yes" if name in can else "" for can in kinds.values())) for name in names]
    output.table(("capability", *kinds), rows)
