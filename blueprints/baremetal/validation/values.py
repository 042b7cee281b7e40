"""Frozen values of a validation: checks, their stages and verdicts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from blueprints.answers import Failed, Scope
from blueprints.bmc.errors import BmcDriverNotInstalled, BmcLacks
from blueprints.contract import Act
from drydock.core.errors import NotSupported


class Verdict(StrEnum):
    """The outcome of a check."""

    OK = "ok"
    FAILED = "FAILED"
    NOT_POSSIBLE = "not possible"
    """The host does not have what the check needs, or the check depends on another one that is not ok."""


@dataclass(frozen=True, kw_only=True)
class Stage:
    """A step of a check. It answers Ready, Wait or Failed as any step does; the log of the last one is the result."""

    name: str
    act: Act
    deadline: float = 600.0
    """Seconds after which the check fails."""


@dataclass(frozen=True, kw_only=True)
class Check:
    """A check."""

    name: str
    proves: str
    stages: tuple[Stage, ...]
    after: tuple[str, ...] = ()
    """The names of the checks that must be ok before this one."""
    ramdisk: bool = False
    """Whether it needs a ramdisk in the config of the blueprint."""
    erases: bool = False
    """Whether it changes the disks of the host, so that people must ask for it."""


_UNMET = "check"
_IMPOSSIBLE = BmcLacks.code
IMPOSSIBLE = frozenset({_IMPOSSIBLE, BmcDriverNotInstalled.code, NotSupported.code})
"""Codes of failures that say that the host does not have what a check needs."""


def unmet(message: str) -> Failed:
    """Return the answer of a check that has found a fault."""
    return Failed(scope=Scope.STEP, code=_UNMET, message=message)


def impossible(message: str) -> Failed:
    """Return the answer of a check that cannot be made on this host."""
    return Failed(scope=Scope.STEP, code=_IMPOSSIBLE, message=message)
