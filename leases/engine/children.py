"""Leases that other leases and resources hold, and the leases of one group."""

from __future__ import annotations

from typing import Any

from leases import hints
from leases.engine.transaction import leases_by_id, rows, short

_RIGHTFUL = "state IN ('pending', 'acquired', 'active')"
_SIBLINGS = "SELECT o.id FROM leases_lease l JOIN leases_lease o ON o.group_id = l.group_id WHERE l.id = %s"
_WAITING = f"state = 'pending' AND release_wanted = '' AND id IN ({_SIBLINGS})"
_MARK = "UPDATE leases_lease SET release_wanted = {reason}, release_actor = {actor} WHERE {which} RETURNING id"


def end_children(*, for_lease: int | None = None, for_resource: int | None = None, phase: str | None = None) -> None:
    """Mark the leases that a lease, a resource, or one of its phases holds for release."""
    column = "for_lease_id" if for_lease is not None else "for_resource_id"
    only = " AND need_phase = %s" if phase is not None else ""
    params: list[Any] = [for_lease if for_lease is not None else for_resource, *([phase] if phase is not None else [])]
    which = leases_by_id(f"{column} = %s AND {_RIGHTFUL}{only}")
    for (child,) in rows(_MARK.format(reason="'parent_ended'", actor="'drydock'", which=which), params):
        hints.after_commit("end", child)


@short
def end_waiting_siblings(lease_id: int) -> None:
    """Mark the leases of an ended lease's group that still wait for release: a group is granted whole or not at all.

    Runs in a transaction of its own, after the lease's end is committed: it locks the siblings by id, and a
    transaction that holds one of them must not wait for another with a lower id. Until then no member can be
    granted (`members`), and after a crash the sweep finds them (`lease_looks.left_in_groups`).
    """
    which = leases_by_id(_WAITING)
    for (other,) in rows(_MARK.format(reason="'group_ended'", actor="'drydock'", which=which), (lease_id,)):
        hints.send("end", other)


def want_release(lease_id: int, *, reason: str, actor: str) -> None:
    """Mark a lease for release in the caller's transaction, and with a waiting lease its whole group.

    The group is marked at once, so that a transaction that releases several members locks all of them by id, in
    whatever order it names them.
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
