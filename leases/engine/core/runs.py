"""Start and stop runs, mark dependent leases for release, and wake runs that wait for leases."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any

from blueprints import registry
from blueprints.contract import Kind, Plan, acts_of
from drydock.core.errors import NotFound
from leases.engine.core.database import leases_by_id, rows, short
from leases.messaging import hints
from leases.models import Run

Phase = Run.Phase


def plan(kind: Kind, phase: str) -> Plan:
    """Return the kind's plan for a phase, or an empty one if the kind has none."""
    make = getattr(kind, phase, None)
    return make() if make is not None else ()


def plan_of(kind_name: str, phase: str, wanted: Mapping[str, Any]) -> Plan:
    """Return the plan of the kind with this name for a phase.

    If the phase is an act, `wanted` contains the act's name. Raises NotFound if the kind is not installed or does not
    declare the act.
    """
    kind = registry.kind(kind_name)
    if phase != Phase.ACT:
        return plan(kind, phase)
    act = acts_of(kind).get(name_of(phase, wanted))
    if act is None:
        raise NotFound(f"The kind {kind_name} as installed here has no act {name_of(phase, wanted)!r}.")
    return act.plan()


def name_of(phase: str, wanted: Mapping[str, Any]) -> str:
    """Return the user-facing name of a run: the name of its act or, for any other phase, the phase."""
    return str(wanted.get("act", "")) if phase == Phase.ACT else phase


MAINTAINS = (
    "((n.maintenance ->> 'resource')::bigint = r.id OR n.maintenance -> 'earlier' @> jsonb_build_array("
    "jsonb_build_object('resource', r.id)))"
)
"""SQL that is true if run `n` has asked for maintenance of resource `r`, now or earlier in its phase."""
_START = """
    INSERT INTO leases_run (resource_id, lease_id, phase, asked, wanted)
    VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING RETURNING id"""


def start(
    *,
    resource_id: int,
    phase: str,
    lease_id: int | None = None,
    asked: Any = None,
    wanted: dict[str, Any] | None = None,
) -> int | None:
    """Start a run and return its id, or return None if the lease or resource already has a run.

    Call inside a transaction.
    """
    body = None if asked is None else json.dumps(asked)
    found = rows(_START, (resource_id, lease_id, phase, body, json.dumps(wanted or {})))
    if not found:
        return None
    hints.after_commit("step", found[0][0])
    return int(found[0][0])


_STOP = "DELETE FROM leases_run WHERE {whose} = %s AND {free} RETURNING id"
_CANCEL = (
    "UPDATE leases_run SET cancel_wanted = TRUE, due_at = CASE WHEN uninterruptible THEN due_at ELSE clock_timestamp() END"
    " WHERE {whose} = %s RETURNING id"
)
_FREE = "NOT in_call AND NOT uninterruptible"


def stop(*, lease_id: int | None = None, resource_id: int | None = None) -> bool:
    """Stop the run of a lease or resource: at once if it can be interrupted, or else after its current step.

    Returns True if no run is left.
    """
    whose = "lease_id" if lease_id is not None else "lease_id IS NULL AND resource_id"
    key = (lease_id if lease_id is not None else resource_id,)
    rows(_STOP.format(whose=whose, free=_FREE), key)
    left = rows(_CANCEL.format(whose=whose), key)
    for (run_id,) in left:
        hints.after_commit("step", run_id)
    return not left


_RIGHTFUL = "state IN ('pending', 'acquired', 'active')"
_SIBLINGS = "SELECT o.id FROM leases_lease l JOIN leases_lease o ON o.group_id = l.group_id WHERE l.id = %s"
_WAITING = f"state = 'pending' AND release_wanted = '' AND id IN ({_SIBLINGS})"
_STANDING = (
    f"state IN ('acquired', 'active') AND release_wanted = '' AND facts ->> 'stands_on' = %s AND id IN ({_SIBLINGS})"
)
_MARK = "UPDATE leases_lease SET release_wanted = {reason}, release_actor = {actor} WHERE {which} RETURNING id"


def end_children(*, for_lease: int | None = None, for_resource: int | None = None, phase: str | None = None) -> None:
    """Mark for release all leases that a lease or resource holds, or only those that it holds for `phase`."""
    column = "for_lease_id" if for_lease is not None else "for_resource_id"
    only = " AND need_phase = %s" if phase is not None else ""
    params: list[Any] = [for_lease if for_lease is not None else for_resource, *([phase] if phase is not None else [])]
    which = leases_by_id(f"{column} = %s AND {_RIGHTFUL}{only}")
    for (child,) in rows(_MARK.format(reason="'parent_ended'", actor="'drydock'", which=which), params):
        hints.after_commit("end", child)


_GIVE_BACK = (
    "UPDATE leases_lease SET release_wanted = 'parent_ended', release_actor = 'drydock', need_phase = %s"
    " WHERE {which} RETURNING id"
)


def give_back(resource_id: int, names: Sequence[str], phase: str) -> None:
    """Mark for release the leases that a resource holds under these names, and does not depend on any more.

    They are bound to the phase, so that none of them counts any longer as one that the resource needs for life.
    """
    which = leases_by_id(f"for_resource_id = %s AND need = ANY(%s) AND {_RIGHTFUL}")
    for (child,) in rows(_GIVE_BACK.format(which=which), (phase, resource_id, list(names))):
        hints.after_commit("end", child)


@short
def end_siblings(lease_id: int) -> None:
    """Mark leases for release that cannot continue because a lease of their group has ended.

    These are the pending leases, because a group is granted all together or not at all, and the leases that use the
    ended lease (`LeaseView.members`).

    Runs in its own transaction, after the end of the lease is committed. The leases are locked in the order of their
    ids, and a transaction that already holds the lock of one lease must not wait for a lease with a lower id. Until the
    leases are marked, none of them can be granted (`pending.members_of`). After a crash the sweep marks them
    (`lease_checks.left_in_groups`).
    """
    which = leases_by_id(f"({_WAITING}) OR ({_STANDING})")
    marked = rows(
        _MARK.format(reason="'group_ended'", actor="'drydock'", which=which), (lease_id, str(lease_id), lease_id)
    )
    for (other,) in marked:
        hints.send("end", other)


def want_release(lease_id: int, *, reason: str, actor: str) -> None:
    """Mark a lease for release in the caller's transaction. If the lease is pending, mark all leases of its group.

    One statement marks the whole group and locks its members in the order of their ids. Otherwise two transactions that
    release several members could deadlock.
    """
    own = f"id = %s AND {_RIGHTFUL} AND release_wanted = ''"
    group = f"{_WAITING} AND EXISTS (SELECT FROM leases_lease l WHERE l.id = %s AND l.state = 'pending')"
    rows(
        _MARK.format(
            reason="CASE WHEN id = %s THEN %s ELSE 'group_ended' END",
            actor="CASE WHEN id = %s THEN %s ELSE 'drydock' END",
            which=leases_by_id(f"({own}) OR ({group})"),
        ),
        (lease_id, reason, lease_id, actor[:150], lease_id, lease_id, lease_id),
    )


def hints_for_holder(lease_id: int) -> None:
    """After the commit, send hints to the runs that may be waiting for this lease."""
    hints.once_committed(_wake_holder, lease_id)


def _wake_holder(lease_id: int) -> None:

    wake_for(lease_id)


def undo_activation(lease_id: int, resource_id: int) -> None:
    """Start the deactivation of a lease whose activation was cancelled or failed."""
    start(resource_id=resource_id, lease_id=lease_id, phase="deactivate")


def wake_for(lease_id: int) -> None:
    """Let the runs that wait for this lease continue. Call this when the lease has become active or ended."""
    for (run_id,) in rows(
        "UPDATE leases_run n SET due_at = clock_timestamp() FROM leases_lease c WHERE c.id = %s"
        " AND n.waits_for = 'leases' AND n.due_at IS NULL AND ((c.for_lease_id IS NOT NULL AND n.lease_id = c.for_lease_id)"
        " OR (c.for_resource_id IS NOT NULL AND n.lease_id IS NULL AND n.resource_id = c.for_resource_id)) RETURNING n.id",
        (lease_id,),
    ):
        hints.send("step", run_id)
