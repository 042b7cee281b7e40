"""The fleet: every backend with what it can serve, what stands there, what is wrong, and what it costs now."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from blueprints import registry
from blueprints.contract import Offers, capabilities
from blueprints.models import Blueprint
from blueprints.offers import Sought
from drydock.core.errors import DrydockError
from leases.client.values import BackendInfo
from leases.engine.core import specs
from leases.operations import readings
from leases.operations.callers import Caller, operator_only
from leases.reports import fleet
from leases.reports.fleet import Offered, There


def backends(who: Caller, *, able: bool = False) -> list[BackendInfo]:
    """Every backend in the order in which they are tried. `able`: also what their clouds can do, for which the
    clouds' clients are loaded. Raises NotAllowed."""
    operator_only(who, "look at the fleet")
    rows = list(fleet.backends())
    sought = {row.pk: found for row in rows if (found := _sought(row)) is not None}
    offered = fleet.offered([(row.pk, row.kind, sought[row.pk]) for row in rows if row.pk in sought])
    there, orphans, errors, read = fleet.there(), fleet.orphans(), fleet.errors(), fleet.readings()
    clouds = _clouds(rows) if able else {}
    return [
        BackendInfo(
            **_about(row), **_holds(there.get(row.pk, There())),
            **_serves(offered.get(row.pk), there.get(row.pk, There())), **_read(row, sought.get(row.pk), read),
            capabilities=clouds.get(row.kind), orphans=orphans.get(row.pk, (0, 0.0))[0],
            orphans_price=round(orphans.get(row.pk, (0, 0.0))[1], 6), errors=errors.get(row.pk, ()),
        )
        for row in rows
    ]  # fmt: skip


def _about(row: Blueprint) -> dict[str, Any]:
    return {
        "name": row.name, "kind": row.kind, "type": row.resource_type, "order": row.order, "enabled": row.enabled,
        "drained": row.drained, "max_resources": row.max_resources, "can": _can(row.kind),
    }  # fmt: skip


def _can(kind: str) -> tuple[str, ...]:
    try:
        return tuple(sorted(capabilities(registry.kind(kind))))
    except DrydockError:
        return ()


def _clouds(rows: list[Blueprint]) -> dict[str, tuple[str, ...] | None]:
    found = readings.readers({row.kind for row in rows}, able=True)
    return {one.kind: one.capabilities for one in found}


def _sought(row: Blueprint) -> Sought | None:
    """What the blueprint looks for among offers; None where its kind has none, or its config cannot be read."""
    try:
        kind = registry.kind(row.kind)
        return kind.sought(specs.config(row.kind, row.config), None) if isinstance(kind, Offers) else None
    except DrydockError:
        return None


def _holds(there: There) -> dict[str, Any]:
    return {
        "machines": there.states, "drift": there.drift, "price": round(there.price, 6), "unpriced": there.unpriced,
    }  # fmt: skip


def _serves(offered: Offered | None, there: There) -> dict[str, Any]:
    """By its offers; a kind without offers serves with what is there."""
    card = there.known if offered is None else offered
    return {
        "regions": card.regions, "confidential": card.confidential, "gpus": card.gpus, "offers": card.number,
        "largest_cpu_millicores": card.cpu_millicores, "largest_ram_mib": card.ram_mib, "cheapest": card.cheapest,
    }  # fmt: skip


def _read(row: Blueprint, sought: Sought | None, read: Mapping[tuple[str, str], Any]) -> dict[str, Any]:
    account = "" if sought is None else sought.account
    found = read.get((account, row.kind), []) if account else []
    return {
        "account": account, "ages": {what: age for what, age, _ in found},
        "failing": tuple(said for *_, failing in found for said in failing),
    }  # fmt: skip
