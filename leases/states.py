"""The states of leases and resources as tables, from which the database's triggers are generated."""

from __future__ import annotations

from enum import StrEnum

from drydock.core.states import StateTable


class LeaseState(StrEnum):
    """Where a lease stands on its way."""

    PENDING = "pending"
    """Asked for; no resource has room for it yet."""
    ACQUIRED = "acquired"
    """It holds its share of a resource that is being built, or it is being activated there."""
    ACTIVE = "active"
    """Ready: its interfaces work."""
    RELEASED = "released"
    """The right has ended; the share is still held while the resource is cleaned."""
    DESTROYED = "destroyed"
    """Over; the share is returned."""
    BROKEN = "broken"
    """It could not be served, or what it held was lost. The reason stays until it is pruned."""


LEASE = StateTable(
    name="lease",
    transitions={
        LeaseState.PENDING: frozenset({LeaseState.ACQUIRED, LeaseState.RELEASED, LeaseState.BROKEN}),
        LeaseState.ACQUIRED: frozenset({LeaseState.ACTIVE, LeaseState.PENDING, LeaseState.RELEASED, LeaseState.BROKEN}),
        LeaseState.ACTIVE: frozenset({LeaseState.RELEASED, LeaseState.BROKEN}),
        LeaseState.RELEASED: frozenset({LeaseState.DESTROYED}),
        LeaseState.DESTROYED: frozenset(),
        LeaseState.BROKEN: frozenset(),
    },
)


class ResourceState(StrEnum):
    """Where a resource stands on its way."""

    PENDING = "pending"
    """Being built; claims may already take its room."""
    ACTIVE = "active"
    """There and usable."""
    RELEASED = "released"
    """Being destroyed."""
    DESTROYED = "destroyed"
    """Its absence is confirmed."""
    BROKEN = "broken"
    """It failed; what is left of it is destroyed (`gone_at`). The reason stays until it is pruned."""


RESOURCE = StateTable(
    name="resource",
    transitions={
        ResourceState.PENDING: frozenset({ResourceState.ACTIVE, ResourceState.RELEASED, ResourceState.BROKEN}),
        ResourceState.ACTIVE: frozenset({ResourceState.RELEASED, ResourceState.BROKEN}),
        ResourceState.RELEASED: frozenset({ResourceState.DESTROYED}),
        ResourceState.DESTROYED: frozenset(),
        ResourceState.BROKEN: frozenset(),
    },
)

HOLDING = (LeaseState.ACQUIRED, LeaseState.ACTIVE, LeaseState.RELEASED)
"""States in which a lease has a share."""

UNFINISHED = (LeaseState.PENDING, LeaseState.ACQUIRED, LeaseState.ACTIVE, LeaseState.RELEASED)

SUSPECTED, VANISHED, STOPPED = "suspected", "vanished", "stopped"
"""Observed states of an active machine, respectively:

it may be gone; it is gone together with everything else in its account; it was switched off by somebody else.
"""
