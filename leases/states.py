"""The states of leases and resources as tables, from which the triggers in the database are generated."""

from __future__ import annotations

from enum import StrEnum

from drydock.core.states import StateTable


class LeaseState(StrEnum):
    """The state of a lease."""

    PENDING = "pending"
    """Requested; no resource has room for it yet."""
    ACQUIRED = "acquired"
    """The lease has a share of a resource. The resource is being built, or the lease is being activated."""
    ACTIVE = "active"
    """The lease can be used through its interfaces."""
    RELEASED = "released"
    """The lease has ended. It keeps its share until it is deactivated and, unless its kind cleans apart, cleaned."""
    DESTROYED = "destroyed"
    """The share was returned. The resource was cleaned, or is cleaned now, apart from the lease."""
    BROKEN = "broken"
    """The lease could not be served, or its resource was lost. The reason is kept until the lease is pruned."""


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
    """The state of a resource."""

    PENDING = "pending"
    """Being built. Leases can already claim its capacity."""
    ACTIVE = "active"
    """Ready for use."""
    RELEASED = "released"
    """Being destroyed."""
    DESTROYED = "destroyed"
    """Confirmed to no longer exist."""
    BROKEN = "broken"
    """The resource failed. Anything that was built is destroyed (`gone_at`). The reason is kept until the row is
    pruned.
    """


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
"""Observed states of an active machine.

The machine may be gone (suspected), is gone together with everything else in its account (vanished), or was switched
off outside Drydock (stopped).
"""
