"""Act on the outcomes of a resource's phases: build, check, update, power, destroy."""

from __future__ import annotations

from django.conf import settings

from blueprints.answers import Failed, Scope
from leases.engine.actions import grants
from leases.engine.catalogue import offers
from leases.engine.core.database import rows, run
from leases.engine.core.runs import start
from leases.engine.core.transitions import lock_holders, move_resource, record_event, take_out_of_service
from leases.engine.lifecycle.lease_phases import begin_activation, set_up_again
from leases.engine.resources import cleanup, eviction, maintenance, remembered_errors, retirement, unreachable
from leases.engine.resources import failures as act_failures
from leases.messaging import hints
from leases.models import Resource, Run
from leases.reasons import Reason
from leases.states import ResourceState

FAILED_HEALTH = "failed_health"
"""The code of the failure of a check or build that found the resource, as its hardware reports it, failed."""


def cancelled(current: Run) -> None:
    """Destroy a resource whose run was cancelled. If a lease has claimed it since, restart the run instead."""
    wanted = rows(
        "SELECT used_slots > 0 OR reserved_for_id IS NOT NULL FROM leases_resource WHERE id = %s",
        (current.resource_id,),
    )
    if wanted[0][0]:
        restarted = start(
            resource_id=current.resource_id, phase=current.phase, asked=current.asked, wanted=current.wanted
        )
        position = {"position": current.position, "memo": current.memo, "in_call": current.in_call}
        Run.objects.filter(pk=restarted or 0).update(**position)
    else:
        message = "No lease needs this resource any more."
        retirement.begin_destroy(
            current.resource_id, ResourceState.RELEASED, reason=Reason.CANCELLED, message=message, actor="drydock"
        )


def built(current: Run) -> None:
    """Make a newly built resource active, and activate the leases that have claimed room on it."""
    move_resource(
        current.resource_id,
        ResourceState.ACTIVE,
        reason=Reason.READY,
        suspect_since=None,
        check_failures=0,
        observed="ok",
    )
    run(
        "UPDATE leases_resource r SET idle_since = CASE WHEN used_slots = 0 THEN clock_timestamp() END,"
        " check_at = clock_timestamp() + b.check_interval FROM blueprints_blueprint b"
        " WHERE r.id = %s AND b.id = r.blueprint_id",
        (current.resource_id,),
    )
    remembered_errors.forget(current.resource)
    if current.resource.offer:
        offers.booted(current.resource_id)
    for (lease_id,) in rows(
        "SELECT l.id FROM leases_lease l JOIN leases_share s ON s.lease_id = l.id WHERE s.resource_id = %s"
        " AND l.state = 'acquired' ORDER BY l.id",
        (current.resource_id,),
    ):
        begin_activation(lease_id, current.resource_id, current.resource.blueprint.kind)
    hints.after_commit("serve", current.resource.type)


def build_failed(current: Run, answer: Failed) -> None:
    """Destroy the objects that a failed build has created, and put the resource's leases back into the queue."""
    remembered_errors.remember(current.resource, answer)
    message = f"Build failed at {current.step or 'a step'}: {answer.message}"
    _take_out(
        current, Reason.BUILD_FAILED, message, counts=not remembered_errors.leads_elsewhere(current.resource, answer)
    )


def first_check_failed(current: Run, answer: Failed) -> int:
    """Record why the first check of a registered resource failed. Keep the resource, but evict its leases.

    The resource differs from its registration or does not answer, and therefore cannot be leased. Returns the number of
    earlier failures.
    """
    message = f"First check failed: {answer.message}"
    evicted = lock_holders(current.resource_id)
    eviction.evict_all(
        current.resource_id, evicted, reason=Reason.BUILD_FAILED, message=message, counts=False, stays=True
    )
    return unreachable.failing(current.resource_id, message)


def _take_out(current: Run, reason: Reason, message: str, *, counts: bool = True) -> None:
    holders = lock_holders(current.resource_id)
    retirement.take_out(current.resource_id, holders, reason=reason, message=message, counts=counts)


def checked(current: Run) -> None:
    """Record a successful check. The resource serves leases again.

    If it did not answer before, or failed checks, its deferred cleanups become due. Otherwise they keep their delays.
    """
    before = current.resource
    unreachable.clear(current.resource_id)
    run(
        "UPDATE leases_resource r SET check_failures = 0, observed = 'ok', observed_at = clock_timestamp(),"
        " check_at = clock_timestamp() + b.check_interval FROM blueprints_blueprint b"
        " WHERE r.id = %s AND b.id = r.blueprint_id",
        (current.resource_id,),
    )
    if before.suspect_since is not None or before.check_failures:
        cleanup.try_now(current.resource_id)


def check_failed(current: Run, answer: Failed) -> None:
    """Count a failed check, and take the resource out of service after several failures in a row.

    Drydock destroys a resource that it built or adopted, and quarantines any other. If the resource was switched off on
    request and does not answer, the failure is not counted.
    """
    if answer.code != FAILED_HEALTH and maintenance.is_wanted_off(current.resource_id):
        record_event(
            "resource.check_failed",
            f"The resource is off, as requested: {answer.message}",
            resource_id=current.resource_id,
        )
        return
    if unreachable.told_by(current, answer):
        _unanswered(current, answer)
        return
    failures = current.resource.check_failures + 1
    run(
        "UPDATE leases_resource r SET check_failures = %s, observed = 'failing', observed_at = clock_timestamp(),"
        " check_at = clock_timestamp() + least(b.check_interval, interval '10 s') FROM blueprints_blueprint b"
        " WHERE r.id = %s AND b.id = r.blueprint_id",
        (failures, current.resource_id),
    )
    record_event(
        "resource.check_failed", answer.message, resource_id=current.resource_id, details={"failures": failures}
    )
    if failures < settings.DRYDOCK.check_failure_limit:
        return
    message = f"Failed {failures} checks in a row: {answer.message}"
    if current.resource.origin in (Resource.Origin.BUILT, Resource.Origin.ADOPTED):
        _take_out(current, Reason.UNHEALTHY, message)
        return
    holders = lock_holders(current.resource_id)
    eviction.evict_all(current.resource_id, holders, reason=Reason.UNHEALTHY, message=message, stays=True)
    if not current.resource.quarantined:
        take_out_of_service(current.resource, message)


def _unanswered(current: Run, answer: Failed) -> None:
    """Mark a resource that does not answer. If it does not answer for too long, take its leases away.

    A resource that Drydock built or adopted is then replaced. Any other serves leases again as soon as it answers.
    """
    unreachable.mark(current.resource_id, answer.message)
    if not unreachable.too_long(current.resource_id):
        unreachable.tell_leases(current.resource_id, answer.message)
        return
    message = f"Not reachable since {unreachable.since(current.resource_id)}: {answer.message}"
    if current.resource.origin in (Resource.Origin.BUILT, Resource.Origin.ADOPTED):
        _take_out(current, Reason.UNHEALTHY, message)
        return
    holders = lock_holders(current.resource_id)
    eviction.evict_all(current.resource_id, holders, reason=Reason.UNHEALTHY, message=message, stays=True)


def powered(current: Run) -> None:
    """Record that the machine has the requested power state."""
    now = "off" if current.wanted.get("power") == "off" else "on"
    run(
        "UPDATE leases_resource r SET power = %s, power_at = NULL, check_failures = 0,"
        " check_at = clock_timestamp() + b.check_interval FROM blueprints_blueprint b"
        " WHERE r.id = %s AND b.id = r.blueprint_id",
        (now, current.resource_id),
    )
    record_event("resource.power", f"Power is {now}.", resource_id=current.resource_id)
    hints.after_commit("sweep")


def keep_power(resource_id: int, power: str) -> None:
    """Record the power to which a step has switched the resource, and end an earlier request for another power."""
    run(
        "UPDATE leases_resource SET power = %s, power_wanted = CASE WHEN power_wanted = %s THEN power_wanted ELSE '' END"
        " WHERE id = %s",
        (power, power, resource_id),
    )


_FOR_NOW = ("retries", "deadline")
"""Codes of failures that a later attempt may not repeat."""


def power_failed(current: Run, answer: Failed) -> None:
    """Schedule another attempt to switch the machine, and fail the runs that wait for its power cycle.

    If the provider cannot stop the machine, do not try again to switch it off.
    """
    lease_id = act_failures.record(current, answer)
    record_event("resource.power_failed", answer.message, resource_id=current.resource_id, lease_id=lease_id)
    if current.wanted.get("power") == "off" and answer.scope is not Scope.STEP and answer.code not in _FOR_NOW:
        run("UPDATE leases_resource SET power_wanted = '' WHERE id = %s", (current.resource_id,))
    grants.fail_waiting(current, f"could not be power-cycled: {answer.message}")
    run(
        "UPDATE leases_resource SET power_at = clock_timestamp() + %s * interval '1 s' WHERE id = %s",
        (settings.DRYDOCK.step_backoff_limit_seconds, current.resource_id),
    )
    hints.after_commit("sweep")


def updated(current: Run) -> None:
    """Record that the resource matches its blueprint again. Set up the leases again that the update has disturbed."""
    run(
        "UPDATE leases_resource r SET generation = %s, check_failures = 0, observed = 'ok' WHERE r.id = %s",
        (current.wanted.get("generation", current.resource.blueprint.generation), current.resource_id),
    )
    unreachable.clear(current.resource_id)
    maintenance.lift_unless_needed(current.resource_id)
    act_failures.forget(current.resource_id, act=Run.Phase.UPDATE)
    record_event("resource.updated", "Updated to the current blueprint.", resource_id=current.resource_id)
    set_up_again(current, "was updated")
    hints.after_commit("serve", current.resource.type)


def update_failed(current: Run, answer: Failed) -> None:
    """Drain a resource that cannot be updated in place, so that it is replaced.

    If Drydock did not build the resource, keep it out of service and schedule another attempt. A resource whose update
    disturbs no lease stays in service, and its update is tried again later.
    """
    if not current.wanted.get("disruptive", True):
        act_failures.record(current, answer)
        record_event("resource.update_failed", answer.message, resource_id=current.resource_id)
        maintenance.lift_unless_needed(current.resource_id)
        return
    set_up_again(current, "could not be updated")
    if current.resource.origin != Resource.Origin.BUILT:
        failures = unreachable.failing(current.resource_id, f"Update failed: {answer.message}")
        wait = settings.DRYDOCK.step_backoff_seconds * 2 ** min(failures, 20)
        unreachable.check_in(current.resource_id, min(wait, settings.DRYDOCK.step_backoff_limit_seconds))
        maintenance.lift_unless_needed(current.resource_id)
        return
    record_event("resource.update_failed", answer.message, resource_id=current.resource_id)
    message = f"Update failed: {answer.message}"[:2000]
    run("UPDATE leases_resource SET drained = TRUE, note = %s WHERE id = %s", (message, current.resource_id))
    maintenance.lift_unless_needed(current.resource_id)


def destroyed(current: Run) -> None:
    """Record that the resource is confirmed to no longer exist."""
    if current.resource.reason == Reason.RECONFIGURED:  # something new may have its place and its name
        retirement.search_again(current.resource_id)
    retirement.gone(current.resource_id)


def destroy_failed(current: Run, answer: Failed) -> None:
    """After a failed destruction, record the resource as gone, because the dependency that contained it is gone.

    Whatever remains of the resource cannot be reached. The leases that it holds are released.
    """
    message = f"Considered gone together with the resource that contained it: {answer.message}"
    record_event("resource.gone_with_parents", message, resource_id=current.resource_id)
    retirement.gone(current.resource_id)
