"""What shall go wrong at the double: a list of faults, each met by the next calls that fit it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock
from typing import Any


@dataclass(frozen=True, kw_only=True)
class Request:
    """One call as it came in: `parameters` are flat, as EC2's query protocol has them (`InstanceId.1`)."""

    service: str
    region: str
    action: str
    parameters: Mapping[str, str]
    zone: str = ""
    """Where it would launch."""


@dataclass(frozen=True, kw_only=True)
class Fault:
    """Met by calls of `action` whose type and zone fit (empty: any); `times` None means for ever.

    `code` and `status` are the answer. `happens`: the call is carried out first, and its answer replaced. `lost`: the
    call is carried out, and the connection closed without an answer.
    """

    action: str
    code: str = ""
    message: str = ""
    status: int = 400
    times: int | None = 1
    type: str = ""
    zone: str = ""
    happens: bool = False
    lost: bool = False

    def fits(self, request: Request) -> bool:
        """Whether this call meets it."""
        return (
            self.action in ("", request.action)
            and self.type in ("", request.parameters.get("InstanceType", ""))
            and self.zone in ("", request.zone)
        )


@dataclass
class Plan:
    """The faults that are still to come."""

    faults: list[list[Any]] = field(default_factory=list)
    lock: Lock = field(default_factory=Lock)

    def add(self, fault: Fault) -> None:
        """It comes after those that are there."""
        with self.lock:
            self.faults.append([fault, fault.times])

    def clear(self) -> None:
        """Everything works again."""
        with self.lock:
            self.faults.clear()

    def met(self, request: Request) -> Fault | None:
        """The first fault that fits, used up by one."""
        with self.lock:
            for entry in self.faults:
                fault, left = entry
                if left != 0 and fault.fits(request):
                    entry[1] = None if left is None else left - 1
                    return fault
        return None

    def no_capacity(self, type: str = "", zone: str = "", times: int | None = None) -> None:
        """EC2 answers this one with HTTP 500."""
        self.add(
            Fault(
                action="RunInstances",
                code="InsufficientInstanceCapacity",
                message=f"We currently do not have sufficient {type or 'instance'} capacity in {zone or 'the zone'}.",
                status=500,
                type=type,
                zone=zone,
                times=times,
            )
        )

    def over_quota(self, type: str = "", times: int | None = None) -> None:
        """The account's limit of virtual CPUs."""
        words = "You have requested more vCPU capacity than your current vCPU limit of 0 allows."
        self.add(Fault(action="RunInstances", code="VcpuLimitExceeded", message=words, type=type, times=times))

    def throttle(self, action: str, times: int | None = 1) -> None:
        """EC2 answers this one with HTTP 503."""
        words = "Request limit exceeded."
        self.add(Fault(action=action, code="RequestLimitExceeded", message=words, status=503, times=times))

    def lose(self, action: str, times: int | None = 1) -> None:
        """It happens, and nobody hears of it."""
        self.add(Fault(action=action, lost=True, times=times))

    def fail(self, action: str, *, happens: bool = False, times: int | None = 1) -> None:
        """HTTP 500, before or after it has happened."""
        words = "An internal error has occurred."
        self.add(Fault(action=action, code="InternalError", message=words, status=500, happens=happens, times=times))
