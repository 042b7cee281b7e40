"""How a phase ends, well or not: a table from phase to what follows."""

from __future__ import annotations

from collections.abc import Callable

from blueprints.answers import Failed
from leases.engine import failures, lease_ends, machine_ends, parentage, resource_ends
from leases.engine.runs import start
from leases.models import Resource, Run

EVICTING = ("build", "check", "power", "update")
"""Phases of a resource whose failure takes shares away."""
HOLDERS_CHANGE = (*EVICTING, "resize", "retype")
"""Those that change what their holders have, so that all of them are locked."""

ACTS = ("power", "reboot", "resize", "retype", "tag")
"""What is done to a machine on purpose: a success ends the report of an earlier failure."""


def keeps_trying(run: Run) -> bool:
    """The first check of a registered resource is repeated until it is well, corrected or removed.
    A destruction is repeated until the absence is confirmed, unless what it stood on is gone: then its tries are
    bounded, and what is left is gone with the rest or cleaned with the leases that it still holds."""
    if run.phase == "build" and run.resource.origin == Resource.Origin.REGISTERED:
        return True
    return run.phase == "destroy" and not parentage.is_bereaved(run.resource)


def kept(run: Run, answer: Failed) -> int:
    """A phase that keeps trying has failed once more; how often, for the delay before the next try."""
    return resource_ends.first_check_failed(run, answer) if run.phase == "build" else run.tries


def succeeded(run: Run) -> None:
    """The plan is done."""
    if run.phase in ACTS:
        failures.forget(run.resource_id)
    _SUCCEEDED[run.phase](run)


def failed(run: Run, answer: Failed) -> None:
    """The plan cannot succeed."""
    _FAILED[run.phase](run, answer)


def cancelled(run: Run) -> None:
    """The run was asked to end: whoever asked wants the lease or the resource gone."""
    if run.lease_id is not None:
        lease_ends.undo_activation(run.lease_id, run.resource_id)
    elif run.phase == "destroy":
        start(resource_id=run.resource_id, phase="destroy")
    else:
        resource_ends.cancelled(run)


_SUCCEEDED: dict[str, Callable[[Run], None]] = {
    "build": resource_ends.built,
    "activate": lease_ends.activated,
    "deactivate": lease_ends.deactivated,
    "clean": lease_ends.cleaned,
    "check": resource_ends.checked,
    "power": resource_ends.powered,
    "reboot": machine_ends.rebooted,
    "resize": machine_ends.resized,
    "retype": machine_ends.retyped,
    "tag": machine_ends.tagged,
    "update": resource_ends.updated,
    "destroy": resource_ends.destroyed,
}
_FAILED: dict[str, Callable[[Run, Failed], None]] = {
    "build": resource_ends.build_failed,
    "activate": lease_ends.activation_failed,
    "deactivate": lease_ends.cleaning_failed,
    "clean": lease_ends.cleaning_failed,
    "check": resource_ends.check_failed,
    "power": resource_ends.power_failed,
    "reboot": machine_ends.failed,
    "resize": machine_ends.failed,
    "retype": machine_ends.failed,
    "tag": machine_ends.failed,
    "update": resource_ends.update_failed,
    "destroy": resource_ends.destroy_failed,
}
