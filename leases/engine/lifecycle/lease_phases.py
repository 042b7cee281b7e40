"""Act on the outcomes of a lease's phases (activation, deactivation, cleaning), and transfer leases to other owners.

A transfer changes the owner in one transaction, and from then on interfaces serve only the new owner. The transaction
starts a run that closes the account on the host, ends the account's processes and gives the new owner access with new
keys. If the run fails, the lease ends, because the former owner might still have access.

Outcomes are applied in the transaction that applies the step's answer, with lease and resource locked. If the lease no
longer exists, its resource is deactivated and cleaned by a run of the resource (`cleanup`).
"""

from __future__ import annotations

from typing import Any, NamedTuple

from django.db.models.functions import Now

from blueprints import registry
from blueprints.answers import Failed
from blueprints.contract import Activates, Cleans, HandsOver, Kind
from drydock.core.errors import Busy, Conflict, NotAllowed, NotSupported
from leases.engine.core import specs
from leases.engine.core.database import leases_by_id, rows, run, short
from leases.engine.core.runs import hints_for_holder, start, undo_activation, want_release
from leases.engine.core.transitions import announce, explain, record_event, take_out_of_service
from leases.engine.lifecycle import release
from leases.engine.placement import budgets, claims, quotas
from leases.engine.placement.constraints import serves
from leases.engine.resources import cleanup, eviction, unreachable
from leases.engine.scheduling.request import refuse_taken_name
from leases.messaging import hints
from leases.models import Job, Lease, Resource, Run
from leases.reasons import Reason
from leases.states import LeaseState
from leases.validation.requests import digest


def begin_activation(lease_id: int, resource_id: int, kind_name: str) -> None:
    """Start the activation of an acquired lease on its active resource.

    If the kind needs no activation, make the lease active at once.
    """
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


_AGAIN = "again"
"""The argument of an activation that sets up an active lease again."""


def set_up_again(current: Run, what: str) -> None:
    """Activate the active leases on a resource again, after the run of a forced update that has disturbed them.

    The leases that have a share of the resource must be locked.
    """
    if "forced" not in current.wanted or not current.wanted.get("disruptive"):
        return
    activates = isinstance(registry.kind(current.resource.blueprint.kind), Activates)
    message = f"{current.resource.name} {what}."
    found = Lease.objects.filter(resource=current.resource_id, state=LeaseState.ACTIVE).order_by("pk")
    for lease_id in found.values_list("pk", flat=True):
        if activates:
            start(resource_id=current.resource_id, lease_id=lease_id, phase="activate", wanted={_AGAIN: True})
            explain(lease_id, Reason.UPDATING, f"{message} The lease is being set up again.")
        else:
            explain(lease_id, Reason.READY, message)


def activated(current: Run) -> None:
    """Make the lease active after its activation. If the lease was released meanwhile, undo the activation."""
    assert current.lease_id is not None
    state = _state(current.lease_id)
    if _AGAIN in current.wanted and state == LeaseState.ACTIVE and not current.cancel_wanted:
        explain(current.lease_id, Reason.READY, f"The lease was set up again on {current.resource.name}.")
    elif state == LeaseState.ACQUIRED and not current.cancel_wanted:
        _activate(current.lease_id)
        if current.lease is not None and current.lease.watched:
            hints.after_commit("watch", current.lease_id)
    else:
        undo_activation(current.lease_id, current.resource_id)


def activation_failed(current: Run, answer: Failed) -> None:
    """Undo a failed activation and clean up. Then place the lease on another resource.

    A lease that was active before an update of its resource is lost, and is served again if it asked for that.
    """
    assert current.lease_id is not None
    message = f"Could not be set up on {current.resource.name}: {answer.message}"
    Lease.objects.filter(pk=current.lease_id).update(message=message)
    record_event("lease.activation_failed", message, lease_id=current.lease_id, resource_id=current.resource_id)
    if _AGAIN in current.wanted and _state(current.lease_id) == LeaseState.ACTIVE:
        eviction.evict(
            current.lease_id, LeaseState.ACTIVE, current.resource_id, reason=Reason.ACTIVATION_FAILED, message=message,
            stays=True,
        )  # fmt: skip
        return
    if unreachable.told_by(current, answer) and _state(current.lease_id) == LeaseState.ACQUIRED:
        _leave_silent(current, answer, message)
        return
    undo_activation(current.lease_id, current.resource_id)


def _leave_silent(current: Run, answer: Failed, message: str) -> None:
    """Move a lease to another resource because its own does not answer.

    The move does not count as one of the lease's attempts. Anything that the lease may have left on the resource is
    cleaned when the resource answers again.
    """
    assert current.lease_id is not None
    cleanup.incur(current.lease_id, LeaseState.RELEASED, current.resource_id)
    unreachable.mark(current.resource_id, answer.message)
    eviction.evict(
        current.lease_id, LeaseState.ACQUIRED, current.resource_id, reason=Reason.ACTIVATION_FAILED, message=message,
        counts=False,
    )  # fmt: skip


def deactivated(current: Run) -> None:
    """Start to clean up after a lease whose account and processes on the host a deactivation has removed.

    Leases that were never active are cleaned too, because their activation may have left something behind. If the kind
    cleans apart from the lease, the lease leaves the resource now.
    """
    kind = registry.kind(current.resource.blueprint.kind)
    if current.debt_id is not None:
        cleanup.deactivated(current)
    elif cleanup.is_apart(kind, current.resource.blueprint):
        assert current.lease_id is not None
        release.clean_apart(current.lease_id, current.resource, kind)
        _leave_resource(current)
    elif isinstance(kind, Cleans) and not cleanup.lacks_cleaning(kind, current.resource.blueprint):
        start(resource_id=current.resource_id, lease_id=current.lease_id, phase="clean")
    else:
        cleaned(current)


def cleaned(current: Run) -> None:
    """Give back the share of a cleaned lease. Then end the lease, or place it on another resource."""
    if current.debt_id is not None:
        cleanup.paid(current)
        return
    assert current.lease is not None
    release.take_out_unless_reusable(current.lease.pk, registry.kind(current.resource.blueprint.kind))
    _leave_resource(current)


def _leave_resource(current: Run) -> None:
    """End a released lease, or place a lease whose activation failed on another resource."""
    assert current.lease is not None
    state = _state(current.lease.pk)
    if state == LeaseState.ACQUIRED:
        message = current.lease.message or "The lease could not be set up."
        _bounce(current, state, message)
    else:
        release.finished(current.lease.pk)


def cleaning_failed(current: Run, answer: Failed) -> None:
    """Keep other leases off a resource that could not be cleaned.

    A resource that Drydock built is destroyed. On any other resource, the cleanup is deferred.
    """
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


_LOCK_LEASE = "SELECT 1 FROM leases_lease WHERE id = %s FOR NO KEY UPDATE"
_READ_STANDING = """
    SELECT l.state, l.release_wanted <> '' OR coalesce(l.until <= clock_timestamp(), FALSE), l.name, l.owner_id,
        l.resource_id, b.kind, b.name, l.group_id IS NOT NULL, l.watched,
        l.for_lease_id IS NOT NULL OR l.for_resource_id IS NOT NULL,
        EXISTS (SELECT FROM leases_lease c WHERE c.for_lease_id = l.id
            AND c.state IN ('pending', 'acquired', 'active', 'released')),
        EXISTS (SELECT FROM leases_run n WHERE n.lease_id = l.id OR (n.resource_id = l.resource_id
            AND n.lease_id IS NULL AND n.phase = 'update' AND n.wanted ? 'forced')),
        EXISTS (SELECT FROM leases_job j WHERE j.lease_id = l.id AND j.ends_lease AND j.state IN ('pending', 'running'))
    FROM leases_lease l LEFT JOIN leases_resource r ON r.id = l.resource_id
    LEFT JOIN blueprints_blueprint b ON b.id = r.blueprint_id WHERE l.id = %s"""


class _Standing(NamedTuple):
    """The columns of a locked lease that decide whether it can be transferred."""

    state: str
    ends: bool
    name: str
    owner_id: int | None
    resource_id: int
    kind: str
    blueprint: str
    in_group: bool
    works: bool
    is_held: bool
    holds: bool
    has_run: bool
    ends_with_job: bool


@short
def transfer(lease_id: int, *, of: int | None, to: int, to_name: str, actor: str, message: str) -> None:
    """Transfer a lease to another owner. Raises Conflict, Busy, NotAllowed or NotSupported."""
    rows(_LOCK_LEASE, (lease_id,))
    found = _Standing(*rows(_READ_STANDING, (lease_id,))[0])
    if found.owner_id != of:
        raise Conflict(f"Lease {lease_id} was transferred to another user meanwhile.")
    kind = _refuse_transfer(lease_id, found, to)
    refuse_taken_name(found.name, to)
    lease = Lease.objects.select_related("owner", "resource__blueprint").get(pk=lease_id)
    view = specs.lease_view(lease)
    if not kind.reusable_after(view) or (isinstance(kind, HandsOver) and not kind.transferable(view)):
        raise NotSupported(
            (
                f"Lease {lease_id} cannot be transferred: it has rights on its host with which its present owner could keep access."
            ),
            hint="Release the lease, and let the other user request a new one.",
        )
    former = "Drydock itself" if lease.owner is None else lease.owner.get_username()
    _change_owner(lease, to)
    _refuse_excess(lease_id, found, to, to_name)
    if isinstance(kind, HandsOver):
        start(resource_id=found.resource_id, lease_id=lease_id, phase="hand_over")
    words = f"From {former} to {to_name}. {message}".strip()
    record_event("lease.transferred", words, actor=actor, lease_id=lease_id, resource_id=found.resource_id)
    hints.once_committed(_unpark, found.owner_id)


def _refuse_transfer(lease_id: int, found: _Standing, to: int) -> Kind:
    """Raise Conflict, Busy or NotSupported if the lease cannot be transferred. Return the kind of its resource."""
    refused = {
        f"Lease {lease_id} already belongs to this user.": found.owner_id == to,
        f"Lease {lease_id} is {found.state}; only active leases can be transferred.": found.state != LeaseState.ACTIVE,
        f"Lease {lease_id} is being released.": found.ends,
        f"Lease {lease_id} is held by another lease or a resource and can only move with it.": found.is_held,
        f"Lease {lease_id} belongs to a group, and a group can only have one owner.": found.in_group,
        f"Lease {lease_id} holds leases of its own, which cannot be transferred.": found.holds,
        f"Lease {lease_id} has a workload or collects metrics for its owner.": found.works,
        f"Lease {lease_id} ends when a job that runs on it ends.": found.ends_with_job,
    }
    for sentence, holds in refused.items():
        if holds:
            raise Conflict(sentence, hint="Release the lease, and let the other user request a new one.")
    if found.has_run:
        raise Busy(f"Lease {lease_id} is busy. Try again in a moment.")
    kind = registry.kind(found.kind)
    if isinstance(kind, Activates | Cleans) and not isinstance(kind, HandsOver):
        raise NotSupported(f"Leases on {found.blueprint} (kind {found.kind}) cannot be transferred.")
    return kind


_USAGE_ENDS = """
    UPDATE leases_usage SET ended_at = greatest(started_at, clock_timestamp())
    WHERE lease_id = %s AND ended_at IS NULL"""


def _change_owner(lease: Lease, to: int) -> None:
    """Change the owner of a lease, and therefore its request class.

    Settings that belonged to the former owner end: keys, the idempotency key, the charged group, heartbeats, a hold
    and open jobs.
    """
    secrets: dict[str, Any] = dict(lease.secrets or {})
    secrets.pop("private_key", None)
    Lease.objects.filter(pk=lease.pk).update(
        owner=to, charged_group=None, idempotency_key=None, fingerprint="", heartbeat_limit=None, public_keys=[],
        secrets=secrets, held=False, hold_until=None, shape=digest([lease.shape, {"owner": to}])[:32],
    )  # fmt: skip
    # A job that has not begun would begin for the new owner.
    Job.objects.filter(lease=lease, state__in=(Job.State.PENDING, Job.State.RUNNING)).update(
        state=Job.State.CANCELLED, message="The lease was transferred to another user.", ended_at=Now(), stdin=None,
        env=None, environment={},
    )  # fmt: skip
    run(_USAGE_ENDS, (lease.pk,))
    rows("SELECT drydock_usage_begins(%s, %s)", (lease.resource_id, lease.pk))


def _refuse_excess(lease_id: int, found: _Standing, to: int, to_name: str) -> None:
    """Raise Conflict or NotAllowed if the new owner may not have the lease.

    Checks the quota, the budget and the blueprint in this order, in which their rows must be locked.
    """
    if excess := quotas.exceeded(lease_id):
        raise Conflict(f"{to_name} cannot take over the lease: {excess.sentence}", field="to")
    if over := budgets.overspent(lease_id):
        raise Conflict(f"{to_name} cannot take over the lease: {over}", field="to")
    may = serves(to)
    on = "SELECT 1 FROM blueprints_blueprint b JOIN leases_resource r ON r.blueprint_id = b.id WHERE r.id = %s"
    if not rows(f"{on} AND {may.text}", (found.resource_id, *may.params)):
        raise NotAllowed(
            f"{to_name} may not use {found.blueprint}.", field="to", hint="An operator can authorize this user."
        )


_PARKED = "parked AND state = 'pending' AND owner_id = %s"


def _unpark(owner_id: int | None) -> None:
    """Unpark leases of the former owner, whose quota and budgets have room again."""
    found = rows(f"UPDATE leases_lease SET parked = FALSE WHERE {leases_by_id(_PARKED)} RETURNING type", (owner_id,))
    for resource_type in sorted({one for (one,) in found}):
        hints.send("serve", resource_type)


def handed_over(current: Run) -> None:
    """Record that the keys were replaced and only the new owner has access to the lease.

    If the lease is no longer active or the run was cancelled, start the deactivation instead.
    """
    assert current.lease_id is not None
    if _state(current.lease_id) == LeaseState.ACTIVE and not current.cancel_wanted:
        message = "The former owner no longer has access."
        record_event("lease.keys_replaced", message, lease_id=current.lease_id, resource_id=current.resource_id)
    else:
        undo_activation(current.lease_id, current.resource_id)


def hand_over_failed(current: Run, answer: Failed) -> None:
    """Request the release of the lease after a failed transfer, because its former owner might still have access.

    If the lease is no longer active, start the deactivation instead.
    """
    assert current.lease_id is not None
    message = f"The keys could not be replaced, so the lease ends: {answer.message}"
    record_event("lease.transfer_failed", message, lease_id=current.lease_id, resource_id=current.resource_id)
    if _state(current.lease_id) == LeaseState.ACTIVE:
        want_release(current.lease_id, reason=Reason.ACTIVATION_FAILED, actor="drydock")
        hints.after_commit("end", current.lease_id)
    else:
        undo_activation(current.lease_id, current.resource_id)
