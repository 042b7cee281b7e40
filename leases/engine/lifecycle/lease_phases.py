"""Outcomes of the phases of a lease: activation, deactivation, cleaning.

They run inside the transaction that applies the answer, with lease and resource locked. A run of the resource itself
does the last two for a lease that is gone (`cleanup`).
"""

from __future__ import annotations

from blueprints import registry
from blueprints.answers import Failed
from blueprints.contract import Activates, Cleans
from leases import hints
from leases.engine.core.database import rows, run
from leases.engine.core.runs import hints_for_holder, start, undo_activation
from leases.engine.core.transitions import announce, record_event, take_out_of_service
from leases.engine.lifecycle import release
from leases.engine.placement import claims
from leases.engine.resources import cleanup, eviction, unreachable
from leases.models import Lease, Resource, Run
from leases.reasons import Reason
from leases.states import LeaseState


def begin_activation(lease_id: int, resource_id: int, kind_name: str) -> None:
    """An acquired lease whose resource is there: set it up, or make it active where nothing is to be set up."""
    if isinstance(registry.kind(kind_name), Activates):
        run(
            "UPDATE leases_lease SET reason = %s, message = 'It is being set up.' WHERE id = %s AND state = 'acquired'",
            (Reason.ACTIVATING, lease_id),
        )
        start(resource_id=resource_id, lease_id=lease_id, phase="activate")
    else:
        _activate(lease_id)


def _activate(lease_id: int) -> None:
    if claims.activate(lease_id):
        announce(lease_id, LeaseState.ACTIVE, Reason.READY)
        hints_for_holder(lease_id)


def activated(current: Run) -> None:
    """Every step of the activation is done."""
    assert current.lease_id is not None
    if _state(current.lease_id) == LeaseState.ACQUIRED and not current.cancel_wanted:
        _activate(current.lease_id)
        if current.lease is not None and current.lease.watched:
            hints.after_commit("watch", current.lease_id)
    else:
        undo_activation(current.lease_id, current.resource_id)


def activation_failed(current: Run, answer: Failed) -> None:
    """It is undone and cleaned here, then tried elsewhere."""
    assert current.lease_id is not None
    message = f"Could not be set up on {current.resource.name}: {answer.message}"
    Lease.objects.filter(pk=current.lease_id).update(message=message)
    record_event("lease.activation_failed", message, lease_id=current.lease_id, resource_id=current.resource_id)
    if unreachable.told_by(current, answer) and _state(current.lease_id) == LeaseState.ACQUIRED:
        _leave(current, answer, message)
        return
    undo_activation(current.lease_id, current.resource_id)


def _leave(current: Run, answer: Failed, message: str) -> None:
    """The resource does not answer: the lease is tried elsewhere at once, as often as it takes, and what it may have
    left there is cleaned when the resource answers again."""
    assert current.lease_id is not None
    cleanup.incur(current.lease_id, LeaseState.RELEASED, current.resource_id)
    unreachable.mark(current.resource_id, answer.message)
    eviction.evict(
        current.lease_id, LeaseState.ACQUIRED, current.resource_id, reason=Reason.ACTIVATION_FAILED, message=message,
        counts=False,
    )  # fmt: skip


def deactivated(current: Run) -> None:
    """Access and processes are gone; now what the lease left, also one that was never active: its steps were there."""
    if current.debt_id is not None:
        cleanup.deactivated(current)
    elif isinstance(registry.kind(current.resource.blueprint.kind), Cleans):
        start(resource_id=current.resource_id, lease_id=current.lease_id, phase="clean")
    else:
        cleaned(current)


def cleaned(current: Run) -> None:
    """Nothing is left of the lease: its share is returned, and the lease ends or is served elsewhere."""
    if current.debt_id is not None:
        cleanup.paid(current)
        return
    assert current.lease is not None
    release.take_out_unless_reusable(current.lease.pk, registry.kind(current.resource.blueprint.kind))
    state = _state(current.lease.pk)
    if state == LeaseState.ACQUIRED:
        message = current.lease.message or "It could not be set up."
        _bounce(current, state, message)
    else:
        release.finished(current.lease.pk)


def cleaning_failed(current: Run, answer: Failed) -> None:
    """What cannot be cleaned goes to nobody else: what we built is destroyed, anything else owes the cleaning."""
    silent = unreachable.told_by(current, answer)
    if silent:
        unreachable.mark(current.resource_id, answer.message)
    if current.debt_id is not None:
        cleanup.unpaid(current, answer)
        return
    assert current.lease_id is not None
    message = f"Could not be cleaned: {answer.message}"
    record_event("resource.cleaning_failed", message, lease_id=current.lease_id, resource_id=current.resource_id)
    state = _state(current.lease_id)
    if current.resource.origin != Resource.Origin.BUILT:
        cleanup.incur(current.lease_id, LeaseState.RELEASED, current.resource_id)
    if not silent or current.resource.origin == Resource.Origin.BUILT:
        take_out_of_service(current.resource, message)
    if state == LeaseState.ACQUIRED:
        _bounce(current, state, message)
    else:
        release.finished(current.lease_id)


def _bounce(current: Run, state: str, message: str) -> None:
    assert current.lease_id is not None
    eviction.evict(
        current.lease_id, state, current.resource_id, reason=Reason.ACTIVATION_FAILED, message=message
    )  # fmt: skip


def _state(lease_id: int) -> str:
    return str(rows("SELECT state FROM leases_lease WHERE id = %s", (lease_id,))[0][0])
