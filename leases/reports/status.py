"""The status of a resource in the words that operators of machines use."""

from __future__ import annotations

from collections.abc import Collection

from drydock_client.values import CleaningInfo
from leases.models import Resource, Run
from leases.reports import cleaning
from leases.states import LeaseState, ResourceState

ENROLLING, AVAILABLE, DEPLOYING, IN_USE = "enrolling", "available", "deploying", "in use"
RESCUE, QUARANTINED, DRAINED, MAINTENANCE = "rescue", "quarantined", "drained", "maintenance"
UNREACHABLE, REMOVING, REMOVED, BROKEN = "unreachable", "removing", "removed", "broken"
STATUSES = (
    QUARANTINED, BROKEN, UNREACHABLE, cleaning.OWED, cleaning.CLEANING, ENROLLING, DEPLOYING, RESCUE, MAINTENANCE,
    DRAINED, IN_USE, AVAILABLE, REMOVING, REMOVED,
)  # fmt: skip
"""Every status, those that need attention first."""
_ACTS = {"rescue": RESCUE, "erase": cleaning.CLEANING}
_ENDS = {
    ResourceState.PENDING: ENROLLING, ResourceState.RELEASED: REMOVING, ResourceState.DESTROYED: REMOVED,
    ResourceState.BROKEN: BROKEN,
}  # fmt: skip


def status(
    row: Resource, run: Run | None, unclean: CleaningInfo | None, leases: Collection[str], *, rescued: bool
) -> str:
    """Return the status of a resource.

    Needs its own run, the cleaning that it needs, the states of its leases, and whether it runs a rescue system.
    """
    if row.gone_at is not None:
        return REMOVED
    if row.quarantined:
        return QUARANTINED
    if row.state in _ENDS:
        return _ENDS[ResourceState(row.state)]
    if unclean is not None:
        return unclean.state
    if run is not None and run.phase == Run.Phase.ACT and (found := _ACTS.get(run.wanted.get("act", ""))):
        return found
    if rescued:
        return RESCUE
    return _of_leases(leases) or _idle(row)


def _of_leases(leases: Collection[str]) -> str:
    """Return the status that follows from the leases on a resource, or an empty string if there are none."""
    if LeaseState.ACTIVE in leases:
        return IN_USE
    if LeaseState.ACQUIRED in leases:
        return DEPLOYING
    return cleaning.CLEANING if LeaseState.RELEASED in leases else ""


def _idle(row: Resource) -> str:
    """Return the status of a resource that no lease holds."""
    if row.suspect_since is not None:
        return UNREACHABLE
    if row.in_maintenance:
        return MAINTENANCE
    return DRAINED if row.drained else AVAILABLE
