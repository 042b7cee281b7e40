"""Orphans: what stands at providers without a row, rows without what they stand for, and what becomes of them."""

from __future__ import annotations

import datetime as dt

from django.conf import settings
from django.db.models import Q

from blueprints.models import Blueprint
from drydock.core.errors import Conflict, InvalidRequest, NotFound
from leases.client.values import OrphanInfo
from leases.engine.core.installation import current
from leases.engine.core.transitions import record_event
from leases.engine.sync import orphan_actions, orphans
from leases.given import checked
from leases.models import Resource, Stray
from leases.operations.callers import Caller, operator_only
from leases.reasons import Reason

AT_MOST = 1000
SUSPECT = Stray.Proof.SUSPECT
MISSING = Q(gone_at=None) & (Q(state="active", observed="missing") | Q(state="broken", reason=Reason.LOST))
"""Rows whose thing was not there when it was last looked for."""
_ROW = "{said} It counts as lost when two listings in a row miss it; what is left of it is destroyed then."
_DONE = {"destroy": "destroyed", "adopt": "adopted"}


def list_(who: Caller) -> list[OrphanInfo]:
    """Things without a row, suspects among them, then rows without a thing. Raises NotAllowed."""
    operator_only(who, "look at orphans")
    strays = Stray.objects.select_related("blueprint").order_by("proof", "id")[:AT_MOST]
    missing = Resource.objects.filter(MISSING).select_related("blueprint").defer("secrets").order_by("id")[:AT_MOST]
    return [*(info(one) for one in strays), *(_row(one) for one in missing)]


@checked
def settle(who: Caller, stray_id: int, act: str, *, dry_run: bool = False) -> OrphanInfo:
    """Have an orphan destroyed (`destroy`) or given a row again (`adopt`): by the next search that sees it long enough
    after the first one. `dry_run`: nothing is written; `message` says what would be done.

    Raises NotFound, NotAllowed, InvalidRequest; Conflict for a suspect, which is never touched, in a suspended
    installation, and for adopting what is no machine.
    """
    operator_only(who, f"{act} orphans")
    if act not in _DONE:
        raise InvalidRequest(f"{act!r} cannot be done to an orphan.", field="act", hint="There are: destroy, adopt.")
    stray = Stray.objects.select_related("blueprint").filter(pk=stray_id).first()
    if stray is None:
        raise NotFound(f"No orphan {stray_id}; it may be gone by now.", field="orphan")
    _may(stray, act)
    message = _promise(stray, act)
    if dry_run:
        stray.message = f"Dry run: {message}"
        return info(stray)
    Stray.objects.filter(pk=stray_id).update(wanted=act, wanted_by=who.actor[:150], message=message)
    record_event(
        "orphan.wanted", f"{stray.key} is to be {_DONE[act]}.", actor=who.actor, blueprint_id=stray.blueprint_id
    )
    orphans.soon(stray.blueprint_id)
    stray.refresh_from_db()
    return info(stray)


def _may(stray: Stray, act: str) -> None:
    if stray.proof == SUSPECT:
        raise Conflict(
            f"{stray.key} is not provably ours, so nothing is ever done to it. {stray.message}",
            hint="Look at it with the provider's own tools.",
        )
    if problem := current().problem:
        raise Conflict(f"The installation is suspended: {problem}", hint="drydock confirm-installation")
    if act == "adopt" and not orphan_actions.adoptable(stray.what):
        raise Conflict(
            f"{stray.key} is not a machine but what is left of one ({stray.what}), and only machines are adopted.",
            hint="Have it destroyed.",
        )
    if act == "adopt" and (stray.position or stray.memo):
        raise Conflict(f"{stray.key} is being destroyed already.")


def _promise(stray: Stray, act: str) -> str:
    things = stray.facts.get("things") or [f"{stray.what or 'resource'} {stray.key}"]
    done = "destroyed" if act == "destroy" else "adopted: a quarantined resource that serves nobody and counts its cost"
    return f"{', '.join(map(str, things))} is {done}, when it is seen again after {_not_before(stray):%Y-%m-%d %H:%M}."


def _not_before(stray: Stray) -> dt.datetime:
    return stray.first_seen_at + dt.timedelta(seconds=settings.DRYDOCK.orphan_apart_seconds)


def info(stray: Stray) -> OrphanInfo:
    """A row with its blueprint at hand."""
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


def _row(row: Resource) -> OrphanInfo:
    said = row.attributes
    facts = {"location": said.get("region"), "zone": said.get("zone") or row.zone, "type": said.get("instance_type")}
    return OrphanInfo(
        id=None, side="row", key=row.name, what=row.type, things=(), **_where(row.blueprint, facts), price=row.price,
        proof="row", resource=row.pk, made_at=row.created_at, first_seen_at=None, seen_at=row.observed_at,
        sightings=0, wanted="", wanted_by="", not_before=None,
        message=_ROW.format(said=f"Missed {row.missed} times." if row.state == "active" else row.message).strip(),
    )  # fmt: skip
