"""The end of a lease: released by whomever, wound down, its share returned, the next waiter served."""

from __future__ import annotations

from django.db import connection

from blueprints import registry
from blueprints.contract import Activates, Cleans, Kind
from leases import hints
from leases.engine import claim, views, watches
from leases.engine.aftermath import follow_up
from leases.engine.apart import set_apart
from leases.engine.children import end_children, want_release
from leases.engine.endpoint import Ending, lock, read
from leases.engine.runs import start, stop
from leases.engine.transaction import Busy, run, short
from leases.engine.transitions import explain, note, release_lease, return_lease
from leases.models import Lease
from leases.reasons import Reason
from leases.states import LeaseState


def release(lease_id: int, *, reason: Reason = Reason.OWNER, actor: str, message: str = "") -> None:
    """End a lease, now or, inside a caller's transaction, after its commit. Ending one that has ended is fine."""
    if connection.in_atomic_block:
        want_release(lease_id, reason=reason, actor=actor)
        hints.after_commit("end", lease_id)
        return
    end(lease_id, reason=reason, actor=actor, message=message)


def end(lease_id: int, *, reason: str = "", actor: str = "", message: str = "") -> None:
    """Bring a lease as far towards its end as can be done now; idempotent, and called again until it is there."""
    try:
        ending = _end(lease_id, reason, actor, message)
    except Busy:
        hints.send("end", lease_id)
        return
    if ending is not None and ending.returned:
        follow_up(ending)


@short
def _end(lease_id: int, reason: str, actor: str, message: str) -> Ending | None:
    if before := release_lease(lease_id, reason=reason, message=message, actor=actor):
        ending = read(lease_id)
        wind_down(ending, before)
        return ending
    again = lock(lease_id)
    if again is not None and again.state == LeaseState.RELEASED and not again.has_run:
        wind_down(again, LeaseState.ACTIVE)
    return again


def wind_down(ending: Ending, before: str) -> None:
    """From the end of the right to the return of the share, as far as can be done without a call outside."""
    if before == LeaseState.PENDING:
        claim.unreserve(ending.id)
        return give_back(ending)
    if ending.watched and before == LeaseState.ACTIVE and watches.holds_back(ending.id):
        return None
    if ending.held:
        explain(ending.id, Reason.HELD, "Held for debugging; it is cleaned when the hold ends.")
        return None
    kind = registry.kind(ending.kind)
    used = before == LeaseState.ACTIVE or ending.has_run
    if ending.has_run and not stop(lease_id=ending.id):
        return None
    if used and isinstance(kind, Activates) and ending.resource_id is not None:
        start(resource_id=ending.resource_id, lease_id=ending.id, phase="deactivate")
        return None
    if used and isinstance(kind, Cleans) and ending.resource_id is not None:
        start(resource_id=ending.resource_id, lease_id=ending.id, phase="clean")
        return None
    if used:
        set_apart_unless_reusable(ending.id, kind)
    return give_back(ending)


def set_apart_unless_reusable(lease_id: int, kind: Kind) -> None:
    """What cannot go to another owner after this lease is taken out in the transaction that returns the share, so
    that no claim comes between."""
    asks_the_lease = type(kind).reusable_after is not Kind.reusable_after
    if kind.reusable and not asks_the_lease:
        return
    lease = Lease.objects.select_related("owner", "resource__blueprint").get(pk=lease_id)
    assert lease.resource is not None
    if not asks_the_lease or not kind.reusable_after(views.lease_view(lease)):
        set_apart(
            lease.resource,
            "Used with rights that cannot be cleaned away: it is re-imaged or destroyed before it serves.",
        )


def give_back(ending: Ending, *, reason: str = Reason.RETURNED) -> None:
    """Return the share and end the lease. Its follow-up comes after the commit."""
    if ending.has_locks:
        run("DELETE FROM leases_slotlock WHERE lease_id = %s", (ending.id,))
    return_lease(ending.id, reason=reason)
    if ending.has_children:
        end_children(for_lease=ending.id)
    ending.returned = True


def finished(lease_id: int) -> None:
    """The lease's cleaning is done: give the share back. Inside a transaction; follow-up after commit."""
    ending = lock(lease_id)
    if ending is None:
        return
    if ending.state == LeaseState.RELEASED:
        give_back(ending)
        hints.once_committed(follow_up, ending)
    else:
        note("lease.cleaned", "It was cleaned in an unexpected state.", lease_id=lease_id)
