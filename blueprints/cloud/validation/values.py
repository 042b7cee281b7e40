"""Frozen values of a validation: the wanted machine, time limits, and findings."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

from blueprints.cloud.values import Image


@dataclass(frozen=True, kw_only=True)
class Wish:
    """The machine that the checks use, chosen before any money is spent."""

    location: str
    type: str
    image: Image
    zone: str = ""
    other_type: str = ""
    """The type to which the check `change-type` changes the machine. If empty, the check is skipped."""
    arch: str = "x86_64"
    disk_gib: int = 0
    price: float | None = None
    """Price of the more expensive of both types in US dollars per hour; None if unknown."""
    user: str = "drydock"
    ssh_port: int = 22
    ssh_from: tuple[str, ...] = ("0.0.0.0/0",)
    network: str = ""
    public_address: bool = True
    image_pattern: str = ""
    """Pattern for `Client.images`. If empty, its check is skipped."""
    kept_types: tuple[str, ...] = ()
    """Ids of types that must still exist (`LOCATION/NAME`)."""


@dataclass(frozen=True, kw_only=True)
class Limits:
    """Time limits in seconds. The longer limits are those of Brev's suite."""

    call: float = 120.0
    """Seconds until the provider must accept a call that it first throttles or rejects as busy."""
    create: float = 180.0
    running: float = 1200.0
    ssh: float = 600.0
    first_boot: float = 600.0
    firewall: float = 120.0
    change: float = 600.0
    """Seconds within which changes to tags, disk or type, and new console output, must become visible."""
    stopped: float = 600.0
    ended: float = 1200.0
    expires_after: float = 60.0
    """Lifetime in seconds of the machine in the check `expiry`."""
    all: float = 7200.0
    """Seconds for the whole suite without the clean-up."""
    pace: float = 3.0
    """Seconds between two polls."""


class Verdict(StrEnum):
    """The result of a check."""

    PASSED = "passed"
    FAILED = "failed"
    NOT_SUPPORTED = "not supported"
    """The client does not have the capability, which is not a failure."""
    SKIPPED = "skipped"
    """The check was not selected, or lacks something that it needs."""
    NOT_RUN = "not run"
    """A check that this one depends on failed, or no time was left."""


@dataclass(frozen=True, kw_only=True)
class Finding:
    """The verdict of a check, an explanation, and the duration of the check in seconds."""

    check: str
    verdict: Verdict
    message: str = ""
    seconds: float = 0.0


@dataclass(frozen=True, kw_only=True)
class Report:
    """All findings in order. `left` lists objects that could not be deleted; they are in the journal."""

    provider: str
    run: str
    began_at: dt.datetime
    seconds: float
    location: str
    type: str
    image: str
    findings: tuple[Finding, ...]
    left: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = field(default=())

    @property
    def ok(self) -> bool:
        """Return True if no check has the verdict FAILED or NOT_RUN, and no object is left at the provider."""
        bad = (Verdict.FAILED, Verdict.NOT_RUN)
        return not self.left and all(one.verdict not in bad for one in self.findings)

    def to_json(self) -> Mapping[str, Any]:
        """Return the report as a JSON object."""
        return {
            "provider": self.provider, "run": self.run, "ok": self.ok, "began_at": self.began_at.isoformat(),
            "seconds": round(self.seconds, 1), "location": self.location, "type": self.type, "image": self.image,
            "capabilities": list(self.capabilities), "left": list(self.left),
            "checks": [
                {"check": one.check, "verdict": one.verdict.value, "message": one.message,
                 "seconds": round(one.seconds, 1)}
                for one in self.findings
            ],
        }  # fmt: skip
