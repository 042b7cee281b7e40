"""Record the erasures of disks that steps report, with an event for each."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from blueprints.answers import Answer, Failed, Ready
from blueprints.identities import OF_BMC, SWITCH_PORT
from blueprints.records.erasures import Erasure
from leases.models import Debt, ErasureRecord, Event, Lease, ResourceIdentity, Run

MOST = 1000
"""Maximum number of erasures that are recorded from one answer."""
_MOST_IDENTITIES = 64
_LARGEST = (1 << 63) - 1
_LONGEST_PROBLEM = 2000
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")


def record(current: Run, step: str, answer: Answer | None) -> None:
    """Record the erasures in the answer of a step.

    Call in the transaction that applies the answer, with the resource locked. Erasures that are already recorded are
    left out.
    """
    if not isinstance(answer, Ready | Failed) or not answer.erasures:
        return
    found = [_columns(one) for one in answer.erasures[:MOST]]
    new = _unknown(current.resource_id, found)
    if not new:
        return
    about = _machine(current) | _lease(current) | _run(current, step)
    made = ErasureRecord.objects.bulk_create([ErasureRecord(**about, **columns) for columns in new])
    Event.objects.bulk_create([_event(one) for one in made])


def _columns(one: Erasure) -> dict[str, Any]:
    """Return the columns of one erasure. Texts come from firmware, so they are cut and freed of control characters."""
    return {
        "disk": _text(one.disk) or "?", "serial": _text(one.serial), "wwn": _text(one.wwn), "model": _text(one.model),
        "size_bytes": _count(one.size_bytes), "method": _text(one.method, 63), "bytes": _count(one.bytes),
        "started_at": one.started_at, "ended_at": one.ended_at, "verified": one.verified,
        "problem": _text(one.problem, _LONGEST_PROBLEM),
    }  # fmt: skip


def _text(value: str, most: int = 255) -> str:
    return _CONTROL.sub(" ", value).strip()[:most].strip()


def _count(value: int) -> int:
    return min(max(int(value), 0), _LARGEST)


def _unknown(resource_id: int, found: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the erasures that are not recorded yet, each once."""
    times = {columns["started_at"] for columns in found}
    known = set(
        ErasureRecord.objects.filter(resource=resource_id, started_at__in=times).values_list(
            "disk", "serial", "started_at"
        )
    )
    new = []
    for columns in found:
        key = (columns["disk"], columns["serial"], columns["started_at"])
        if key not in known:
            known.add(key)
            new.append(columns)
    return new


def _machine(current: Run) -> dict[str, Any]:
    """Return the columns about the machine, without the address of its BMC, because owners read them."""
    resource = current.resource
    identities = ResourceIdentity.objects.filter(resource=resource).exclude(namespace__in=(OF_BMC, SWITCH_PORT))
    return {
        "resource_id": resource.pk, "resource_name": resource.name, "blueprint": resource.blueprint.name,
        "kind": resource.blueprint.kind, "identities": [str(one) for one in identities.order_by("namespace", "value")[:_MOST_IDENTITIES]],
    }  # fmt: skip


def _lease(current: Run) -> dict[str, Any]:
    """Return the columns about the lease whose content was on the disks, if the run is for one."""
    pk = _lease_id(current)
    lease = None if pk is None else Lease.objects.select_related("owner").only("name", "owner").filter(pk=pk).first()
    if lease is None:
        return {}
    owner = lease.owner
    return {
        "lease_id": lease.pk, "lease_name": lease.name, "owner_id": lease.owner_id,
        "owner": "" if owner is None else owner.get_username(),
    }  # fmt: skip


def _lease_id(current: Run) -> int | None:
    if current.debt_id is not None:
        return Debt.objects.values_list("lease_id", flat=True).filter(pk=current.debt_id).first()
    return current.lease_id or current.wanted.get("lease")


def _run(current: Run, step: str) -> dict[str, Any]:
    act = str(current.wanted.get("act", "")) if current.phase == Run.Phase.ACT else ""
    return {
        "run_id": current.pk, "phase": current.phase, "act": act, "step": step[:63],
        "requested_by": _requested_by(current)[:150],
    }  # fmt: skip


def _requested_by(current: Run) -> str:
    """Return who requested the act, or ended the lease or the resource, from the event that recorded it."""
    events = Event.objects.order_by("-id").values_list("actor", flat=True)
    lease_id = _lease_id(current)
    if current.phase == Run.Phase.ACT:
        events = events.filter(resource=current.resource_id, kind="act.asked")
    elif lease_id is not None:
        events = events.filter(lease=lease_id, kind__in=("lease.released", "lease.broken"))
    else:
        events = events.filter(resource=current.resource_id, kind="resource.released")
    return events.first() or "drydock"


def _event(one: ErasureRecord) -> Event:
    disk = f"{one.model or 'Disk'} {one.serial or one.disk}"
    message = f"{disk} is not proven to be erased: {one.problem or 'it was not verified.'}"
    if one.verified:
        message = f"{disk} was erased ({one.method or 'unknown method'}) and verified."
    return Event(
        kind="resource.erased" if one.verified else "resource.erasure_failed", message=message, actor="drydock", resource_id=one.resource_id, lease_id=one.lease_id,
        details={"record": one.pk, "disk": one.disk, "serial": one.serial, "method": one.method},
    )  # fmt: skip
