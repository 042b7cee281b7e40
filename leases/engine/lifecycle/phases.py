"""Map each phase to the functions that act on its success and on its failure."""

from __future__ import annotations

from collections.abc import Callable

from blueprints.answers import Failed
from leases.engine.actions import acts, machines
from leases.engine.core import runs, specs
from leases.engine.core.runs import start
from leases.engine.lifecycle import lease_phases, resource_phases
from leases.engine.resources import failures
from leases.models import Resource, Run

EVICTING = ("build", "check", "power", "update")
"""Phases of a resource after whose failure its leases are evicted."""
HOLDERS_CHANGE = (*EVICTING, "resize", "retype")
"""Phases that change the shares of a resource's leases, so all of these leases must be locked."""

ACTS = ("power", "reboot", "resize", "retype", "tag", "act")
"""Phases that users request. If one of them succeeds, the record of an earlier failure is deleted."""


def keeps_trying(run: Run) -> bool:
    """Return whether the run's phase is repeated until it succeeds.

    The first check of a registered resource is repeated until it succeeds, or until the registration is corrected or
    removed. A destruction is repeated until the resource is confirmed to no longer exist. However, if the dependency
    that contained the resource is gone, the number of attempts is limited, because the resource has disappeared with
    this dependency, and anything outside it is cleaned with the other leases that the resource still holds.
    """
    if run.phase == "build" and run.resource.origin == Resource.Origin.REGISTERED:
        return True
    return run.phase == "destroy" and not specs.has_lost_a_dependency(run.resource)


def kept(run: Run, answer: Failed) -> int:
    """Record another failure of a phase that is repeated until it succeeds.

    Return the number of earlier failures, which determines the delay before the next attempt.
    """
    return resource_phases.first_check_failed(run, answer) if run.phase == "build" else run.tries


def succeeded(run: Run) -> None:
    """Act on the success of a run's phase."""
    if run.phase in ACTS:
        failures.forget(run.resource_id)
    _SUCCEEDED[run.phase](run)


def failed(run: Run, answer: Failed) -> None:
    """Act on the final failure of a run's phase."""
    _FAILED[run.phase](run, answer)


def cancelled(run: Run) -> None:
    """Act on the cancellation of a run: undo its activation, record the cancelled act, or destroy the resource."""
    if run.lease_id is not None:
        runs.undo_activation(run.lease_id, run.resource_id)
    elif run.phase == "act":
        acts.cancelled(run)
    elif run.phase == "destroy":
        start(resource_id=run.resource_id, phase="destroy")
    else:
        resource_phases.cancelled(run)


_SUCCEEDED: dict[str, Callable[[Run], None]] = {
    "build": resource_phases.built,
    "activate": lease_phases.activated,
    "hand_over": lease_phases.handed_over,
    "deactivate": lease_phases.deactivated,
    "clean": lease_phases.cleaned,
    "check": resource_phases.checked,
    "power": resource_phases.powered,
    "reboot": machines.rebooted,
    "resize": machines.resized,
    "retype": machines.retyped,
    "tag": machines.tagged,
    "act": acts.done,
    "update": resource_phases.updated,
    "destroy": resource_phases.destroyed,
}
_FAILED: dict[str, Callable[[Run, Failed], None]] = {
    "build": resource_phases.build_failed,
    "activate": lease_phases.activation_failed,
    "hand_over": lease_phases.hand_over_failed,
    "deactivate": lease_phases.cleaning_failed,
    "clean": lease_phases.cleaning_failed,
    "check": resource_phases.check_failed,
    "power": resource_phases.power_failed,
    "reboot": machines.failed,
    "resize": machines.failed,
    "retype": machines.failed,
    "tag": machines.failed,
    "act": acts.failed,
    "update": resource_phases.update_failed,
    "destroy": resource_phases.destroy_failed,
}
