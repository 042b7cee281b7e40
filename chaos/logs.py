"""The programs' logs: which exceptions they tell of that no fault explains."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

EXPECTED = (
    "OperationalError", "InterfaceError", "AdminShutdown", "CrashShutdown", "CannotConnectNow", "ConnectionError",
    "ConnectionRefusedError", "ConnectionResetError", "BrokenPipeError", "TimeoutError", "EngineError", "Busy",
    "WorkerLostError", "SystemExit", "KeyboardInterrupt", "BusyLoadingError", "IncompleteRead", "ConnectionTimeout",
    "IdleInTransactionSessionTimeout", "FileNotFoundError", "DeadlockDetected", "LockNotAvailable", "ResponseError",
)  # fmt: skip
"""What a killed process, a stopped engine or a cut connection makes programs say."""

_RAISED = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|[A-Za-z]+))(?:: (.*))?$")
_HEAD = "Traceback (most recent call last):"


def exceptions(folder: Path) -> Counter[str]:
    """Every exception that ends a traceback, by name and the first words of what it says."""
    found: Counter[str] = Counter()
    for log in sorted(folder.glob("*.log")):
        found.update(_raised(log.read_text(errors="replace").splitlines()))
    return found


def _raised(lines: list[str]) -> Iterator[str]:
    inside = False
    for line in lines:
        if line.strip().endswith(_HEAD):
            inside = True
        elif inside and line and not line[0].isspace() and (match := _RAISED.match(line.strip())):
            inside = False
            yield f"{match[1].rpartition('.')[2]}: {(match[2] or '')[:160]}"


def unexpected(found: Counter[str]) -> list[str]:
    """Those that no fault explains."""
    return [f"{said} ({times}x)" for said, times in found.items() if said.partition(":")[0] not in EXPECTED]
