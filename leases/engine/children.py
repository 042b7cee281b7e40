"""Leases that other leases, and resources, hold."""

from __future__ import annotations

from typing import Any

from leases import hints
from leases.engine.transaction import rows


def end_children(*, for_lease: int | None = None, for_resource: int | None = None, phase: str | None = None) -> None:
    """Ask for the end of the leases that a lease, a resource, or a phase of it held."""
    column = "for_lease_id" if for_lease is not None else "for_resource_id"
    only = " AND need_phase = %s" if phase is not None else ""
    params: list[Any] = [for_lease if for_lease is not None else for_resource, *([phase] if phase is not None else [])]
    found = rows(
        f"UPDATE leases_lease SET release_wanted = 'parent_ended', release_actor = 'drydock' WHERE {column} = %s"
        f" AND state IN ('pending', 'acquired', 'active'){only} RETURNING id",
        params,
    )
    for (child,) in found:
        hints.after_commit("end", child)


def end_waiting_siblings(lease_id: int) -> None:
    """Ask for the end of those of its group that wait: they would wait for a whole that can no longer be."""
    found = rows(
        "UPDATE leases_lease o SET release_wanted = 'group_ended', release_actor = 'drydock' FROM leases_lease l"
        " WHERE l.id = %s AND o.group_id = l.group_id AND o.state = 'pending' AND o.id <> l.id RETURNING o.id",
        (lease_id,),
    )
    for (other,) in found:
        hints.after_commit("end", other)
