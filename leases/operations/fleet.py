"""The fleet: blueprints as backends with capacity and cost, and orphans (provider objects without a resource)."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from typing import Any

from django.conf import settings
from django.db.models import Q

from blueprints import registry
from blueprints.contract import Offers, capabilities
from blueprints.models import Blueprint
from blueprints.offers import Sought
from drydock.core.errors import Conflict, DrydockError, InvalidRequest, NotFound
from drydock_client.values import BackendInfo, OrphanInfo
from leases.engine.core import specs
from leases.engine.core.installation import current
from leases.engine.core.transitions import record_event
from leases.engine.sync import orphan_actions, orphans
from leases.models import Resource, Stray
from leases.operations import credentials
from leases.operations.callers import Caller, operator_only
from leases.reasons import Reason
from leases.reports import fleet
from leases.reports.fleet import Offered, There
from leases.validation.input_checks import checked


def backends(who: Caller, *, able: bool = False) -> list[BackendInfo]:
    """Return all backends in the order in which they are tried. Raises NotAllowed.

    If `able` is true, also load the clients of the clouds, and return the capabilities of the clouds.
    """
    operator_only(who, "see the fleet")
    rows = list(fleet.backends())
    sought = {row.pk: found for row in rows if (found := _sought(row)) is not None}
    offered = fleet.offered([(row.pk, row.kind, sought[row.pk]) for row in rows if row.pk in sought])
    there, strays, errors, read = fleet.there(), fleet.orphans(), fleet.errors(), fleet.readings()
    clouds = _clouds(rows) if able else {}
    return [
        BackendInfo(
            **_about(row), **_holds(there.get(row.pk, There())),
            **_serves(offered.get(row.pk), there.get(row.pk, There())), **_read(row, sought.get(row.pk), read),
            capabilities=clouds.get(row.kind), orphans=strays.get(row.pk, (0, 0.0))[0],
            orphans_price=round(strays.get(row.pk, (0, 0.0))[1], 6), errors=errors.get(row.pk, ()),
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
    found = credentials.pollers({row.kind for row in rows}, able=True)
    return {one.kind: one.capabilities for one in found}


def _sought(row: Blueprint) -> Sought | None:
    """Return a blueprint's query for offers, or None if its kind uses no offers or its config cannot be read."""
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
    """Return what a backend can serve: by its offers or, if its kind has no offers, by its existing machines."""
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


MOST_ORPHANS = 1000

SUSPECT = Stray.Proof.SUSPECT

MISSING = Q(gone_at=None) & (Q(state="active", observed="missing") | Q(state="broken", reason=Reason.LOST))
"""Query condition for resources whose machine the last poll of the provider did not find."""

_ROW = "{said} The machine is considered lost if a second listing omits it too; anything left of it is then destroyed."

_DONE = {"destroy": "destroyed", "adopt": "adopted"}


def list_orphans(who: Caller) -> list[OrphanInfo]:
    """Return provider objects without a resource, then resources without a provider object. Raises NotAllowed."""
    operator_only(who, "see orphans")
    strays = Stray.objects.select_related("blueprint").order_by("proof", "id")[:MOST_ORPHANS]
    missing = (
        Resource.objects.filter(MISSING).select_related("blueprint").defer("secrets").order_by("id")[:MOST_ORPHANS]
    )
    return [*(orphan_info(one) for one in strays), *(_orphan_row(one) for one in missing)]


@checked
def settle_orphan(who: Caller, stray_id: int, act: str, *, dry_run: bool = False) -> OrphanInfo:
    """Request that an orphan be destroyed (`destroy`) or adopted as a resource (`adopt`).

    The request is carried out by the next search that finds the orphan long enough after the first search that found
    it. If `dry_run` is true, nothing is written, and `message` says what would be done. Raises NotFound, NotAllowed,
    InvalidRequest, and Conflict in a suspended installation, for a suspect (which is never changed), and for adopting
    anything other than a machine.
    """
    operator_only(who, f"{act} orphans")
    if act not in _DONE:
        raise InvalidRequest(
            f"{act!r} is not an action on an orphan.", field="act", hint="Choose one of: destroy, adopt."
        )
    stray = Stray.objects.select_related("blueprint").filter(pk=stray_id).first()
    if stray is None:
        raise NotFound(f"Orphan {stray_id} does not exist. It may have been removed meanwhile.", field="orphan")
    _may(stray, act)
    message = _promise(stray, act)
    if dry_run:
        stray.message = f"Dry run: {message}"
        return orphan_info(stray)
    Stray.objects.filter(pk=stray_id).update(wanted=act, wanted_by=who.actor[:150], message=message)
    record_event(
        "orphan.wanted", f"{stray.key} will be {_DONE[act]}.", actor=who.actor, blueprint_id=stray.blueprint_id
    )
    orphans.soon(stray.blueprint_id)
    stray.refresh_from_db()
    return orphan_info(stray)


def _may(stray: Stray, act: str) -> None:
    if stray.proof == SUSPECT:
        raise Conflict(
            f"{stray.key} is not provably ours, so it is never changed. {stray.message}",
            hint="Inspect it with the provider's own tools.",
        )
    if problem := current().problem:
        raise Conflict(f"The installation is suspended: {problem}", hint="drydock confirm-installation")
    if act == "adopt" and not orphan_actions.adoptable(stray.what):
        raise Conflict(
            f"{stray.key} is not a machine but part of one ({stray.what}). Only machines can be adopted.",
            hint="Destroy it instead.",
        )
    if act == "adopt" and (stray.position or stray.memo):
        raise Conflict(f"{stray.key} is already being destroyed.")


def _promise(stray: Stray, act: str) -> str:
    things = stray.facts.get("things") or [f"{stray.what or 'resource'} {stray.key}"]
    done = (
        "destroyed"
        if act == "destroy"
        else "adopted as a quarantined resource, which is never leased and whose cost is counted,"
    )
    return f"{', '.join(map(str, things))} is {done} when it is seen again after {_not_before(stray):%Y-%m-%d %H:%M}."


def _not_before(stray: Stray) -> dt.datetime:
    return stray.first_seen_at + dt.timedelta(seconds=settings.DRYDOCK.orphan_apart_seconds)


def orphan_info(stray: Stray) -> OrphanInfo:
    """Return an orphan as a frozen value. The blueprint of the orphan's row must be loaded."""
    facts, suspect = stray.facts, stray.proof == SUSPECT
    return OrphanInfo(
        id=stray.pk, side="object", key=stray.key, what=stray.what or stray.blueprint.resource_type,
        things=tuple(map(str, facts.get("things") or filter(None, [facts.get("instance_id")]))),
        **_where(stray.blueprint, facts), price=stray.price, proof=stray.proof,
        resource=None if suspect else stray.resource_number, made_at=stray.made_at,
        first_seen_at=stray.first_seen_at, seen_at=stray.seen_at, sightings=stray.sightings, wanted=stray.wanted,
        wanted_by=stray.wanted_by, not_before=None if suspect else _not_before(stray), message=stray.message,
    )  # fmt: skip


def _where(blueprint: Blueprint, facts: dict[str, object]) -> dict[str, str]:
    found = {name: str(facts.get(name) or "") for name in ("location", "zone", "type")}
    return {"blueprint": blueprint.name, "kind": blueprint.kind, **found}


def _orphan_row(row: Resource) -> OrphanInfo:
    said = row.attributes
    facts = {"location": said.get("region"), "zone": said.get("zone") or row.zone, "type": said.get("instance_type")}
    return OrphanInfo(
        id=None, side="row", key=row.name, what=row.type, things=(), **_where(row.blueprint, facts), price=row.price,
        proof="row", resource=row.pk, made_at=row.created_at, first_seen_at=None, seen_at=row.observed_at,
        sightings=0, wanted="", wanted_by="", not_before=None,
        message=_ROW.format(said=f"Not seen by {row.missed} discoveries." if row.state == "active" else row.message).strip(),
    )  # fmt: skip
