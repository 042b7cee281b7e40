"""What the double is told to get wrong, and for how many calls."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from threading import Lock

FOREVER = 10**9


@dataclass
class Fault:
    """One plan. `method` is the API's name of a call such as compute.instances.insert; empty: any."""

    sort: str
    method: str = ""
    times: int = 1
    status: int = 0
    code: str = ""
    message: str = ""
    seconds: float = 0.0
    zone: str = ""
    machine: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)


class Faults:
    """The plans of one double. Safe for threads."""

    def __init__(self) -> None:
        self._plans: list[Fault] = []
        self._lock = Lock()
        self.dark: set[str] = set()
        """Zones that cannot be looked into."""

    def refuse(
        self, method: str, status: int, reason: str, message: str = "", *, times: int = 1, after: int | None = None
    ) -> None:
        """Answer so, and do nothing. `after`: seconds of a Retry-After."""
        headers = {"Retry-After": str(after)} if after is not None else {}
        self._add(Fault("refuse", method, times, status, reason, message or reason, headers=headers))

    def lose(self, method: str, *, times: int = 1) -> None:
        """Do it, and close the connection without an answer."""
        self._add(Fault("lose", method, times))

    def answer_instead(self, method: str, status: int = 503, *, times: int = 1) -> None:
        """Do it, and answer that it failed."""
        self._add(Fault("instead", method, times, status, "backendError", "Backend error."))

    def delay(self, method: str, seconds: float, *, times: int = 1) -> None:
        """Do it, and answer later."""
        self._add(Fault("delay", method, times, seconds=seconds))

    def fail_operation(self, method: str, code: str, message: str, *, times: int = 1) -> None:
        """Answer 200 with an operation that ends in this error; what it was to do is undone."""
        self._add(Fault("operation", method, times, code=code, message=message))

    def exhaust(
        self, zone: str = "", machine: str = "", *, times: int = FOREVER, code: str = "ZONE_RESOURCE_POOL_EXHAUSTED"
    ) -> None:
        """No capacity for a machine type (or any) in a zone (or any), told by the operation."""
        message = f"The zone 'projects/p/zones/{zone}' does not have enough resources available to fulfill the request."
        if code.endswith("_WITH_DETAILS"):
            message = f"A {machine} VM instance is currently unavailable in the {zone} zone."
        self._add(Fault("exhaust", times=times, code=code, message=message, zone=zone, machine=machine))

    def clear(self) -> None:
        """From now on everything works."""
        with self._lock:
            self._plans.clear()
        self.dark.clear()

    def _add(self, fault: Fault) -> None:
        with self._lock:
            self._plans.append(fault)

    def take(self, sort: str, method: str = "", zone: str = "", machine: str = "") -> Fault | None:
        """The first plan of a sort that fits, used once."""
        with self._lock:
            for fault in self._plans:
                fits = fault.sort == sort and fault.method in ("", method)
                if fits and fault.zone in ("", zone) and fault.machine in ("", machine) and fault.times > 0:
                    fault.times -= 1
                    return fault
        return None
