"""The state of a service, derived from its pods and from the conditions of its object.

A service is ready if its pods are. What the DPU or the object says about itself decides nothing: a DPU was reported
ready while the container of a service was crash-looping (issue 6009 of infra-controller).
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum

from interfaces.dpu_services.service import Service

MOST_MESSAGES = 20
_LONGEST = 500
_BROKEN = frozenset(
    {
        "CrashLoopBackOff", "CreateContainerConfigError", "CreateContainerError", "ErrImageNeverPull", "ErrImagePull",
        "ImagePullBackOff", "InvalidImageName", "RunContainerError",
    }
)  # fmt: skip
"""Reasons of Kubernetes for which a container waits and that do not pass by themselves."""


class ServiceState(Enum):
    """The state of a service."""

    PENDING = "pending"
    """Its pods, or those of its last change, do not run yet."""
    READY = "ready"
    """All of its pods run and are ready."""
    FAILED = "failed"
    """A pod of it failed, or its container cannot be started."""
    REMOVING = "removing"
    """It is being removed."""


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A condition that a controller reports about the object of a service. `status` is True, False or Unknown."""

    type: str
    status: str
    reason: str = ""
    message: str = ""


@dataclass(frozen=True, kw_only=True)
class Pod:
    """A pod of a service. `reason` and `message` say why it is not ready, such as `CrashLoopBackOff`."""

    name: str
    phase: str = "Running"
    ready: bool = True
    reason: str = ""
    message: str = ""
    restarts: int = 0


@dataclass(frozen=True, kw_only=True)
class Deployed:
    """A service as the backend found it."""

    service: Service
    version: str
    """Identifies this object in this version: it differs after every change, and after the object was made anew."""
    current: bool = True
    """Whether conditions and pods are those of the last change."""
    removing: bool = False
    conditions: tuple[Condition, ...] = ()
    pods: tuple[Pod, ...] = ()
    unread: str = ""
    """Why its pods could not be read; empty if they were."""
    of_blueprint: bool = False
    """Whether every DPU of the blueprint has it. Its owner can neither change nor remove it."""


@dataclass(frozen=True, kw_only=True)
class ServiceStatus:
    """A service and its state. `messages` say what it waits for or why it failed; empty if it is ready."""

    service: Service
    state: ServiceState
    messages: tuple[str, ...] = ()
    pods: int = 0
    pods_ready: int = 0
    of_blueprint: bool = False
    """Whether it belongs to the blueprint, and not to the owner of the lease."""


def status_of(found: Deployed) -> ServiceStatus:
    """Return the state of a service, with the pods that are not ready and the conditions that are not true."""
    state = _state(found)
    messages = () if state is ServiceState.READY else _messages(found)
    ready = sum(pod.ready for pod in found.pods)
    return ServiceStatus(
        service=found.service, state=state, messages=messages, pods=len(found.pods), pods_ready=ready,
        of_blueprint=found.of_blueprint,
    )  # fmt: skip


def _state(found: Deployed) -> ServiceState:
    if found.removing:
        return ServiceState.REMOVING
    if found.current and any(_broken(pod) for pod in found.pods):  # else it may be what the last change cures
        return ServiceState.FAILED
    ready = bool(found.pods) and all(pod.ready and pod.phase == "Running" for pod in found.pods)
    return ServiceState.READY if ready and found.current else ServiceState.PENDING


def _broken(pod: Pod) -> bool:
    return not pod.ready and (pod.phase == "Failed" or pod.reason in _BROKEN)


def _messages(found: Deployed) -> tuple[str, ...]:
    messages = [] if found.current else ["The last change has not been carried out yet."]
    messages += [_of_pod(pod) for pod in found.pods if not (pod.ready and pod.phase == "Running")]
    messages += [told(one) for one in found.conditions if one.status != "True"]
    if found.unread:
        messages.insert(0, f"Its pods could not be read: {found.unread}")
    elif not found.pods and not found.removing:
        messages.append("No pod of the service exists yet.")
    return tuple(one[:_LONGEST] for one in messages[:MOST_MESSAGES])


def _of_pod(pod: Pod) -> str:
    restarts = f", {pod.restarts} restarts" if pod.restarts else ""
    said = " ".join(one for one in (pod.reason, pod.message) if one)
    return f"Pod {pod.name} is not ready ({pod.phase}{restarts})" + (f": {said}" if said else ".")


def told(condition: Condition) -> str:
    """Return a condition as a message."""
    said = " ".join(one for one in (condition.reason, condition.message) if one)
    return (f"{condition.type} is {condition.status}" + (f": {said}" if said else "."))[:_LONGEST]
