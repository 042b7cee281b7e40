"""Granting: a waiter gets the room that was found for it, and what that sets in motion."""

from __future__ import annotations

from leases import hints
from leases.engine import claim, search, waiting
from leases.engine.runs import start
from leases.engine.transitions import announce
from leases.reasons import Reason
from leases.states import LeaseState


def belongs_to_older(room: search.Room, waiter: waiting.Waiter) -> bool:
    """True when an older waiter of some shape could use the room."""
    older = waiting.older(waiter.question.type, waiter.rank, room.free)
    return bool(older) and bool(search.fits(room.resource_id, [head.question for head in older], room.free))


def finish_claim(waiter: waiting.Waiter, room: search.Room) -> bool:
    """Take the share in `room`, start the activation it needs; True when the lease is active at once."""
    active = claim.take(waiter.question, room)
    announce(waiter.id, LeaseState.ACQUIRED, Reason.GRANTED)
    if active:
        announce(waiter.id, LeaseState.ACTIVE, Reason.READY)
        if waiter.need:
            hints_for_holder(waiter.id)
    elif room.state == "active":
        start(resource_id=room.resource_id, lease_id=waiter.id, phase="activate")
    return active


def hints_for_holder(lease_id: int) -> None:
    """Somebody's run may wait for this lease: look, after commit."""
    hints.once_committed(_wake_holder, lease_id)


def _wake_holder(lease_id: int) -> None:
    from leases.engine.needs import wake_for

    wake_for(lease_id)
