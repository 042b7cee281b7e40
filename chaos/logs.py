"""The programs' logs: which exceptions they tell of that no fault explains."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path

EXPECTED = (
    "OperationalError", "InterfaceError", "AdminShutdown", "CrashShutdown", "CannotConnectNow", "ConnectionError",
    "ConnectionRefusedError", "ConnectionResetError", "BrokenPipeError", "TimeoutError", "EngineError", "Busy",
    "WorkerLostError", "SystemExit", "KeyboardInterrupt", "BusyLoadingError", "IncompleteRead", "ConnectionTimeout",
    "IdleInTransactionSessionTimeout", "FileNotFoundError", "LockNotAvailable", "ResponseError",
)  # fmt: skip
"""What a killed process, a stopped engine or a cut connection makes programs say."""

_RAISED = re.compile(r"^([A-Za-z_][\w.]*(?:Error|Exception|Exit|Interrupt|[A-Za-z]+))(?:: (.*))?$")
_HEAD = "Traceback (most recent call last):"
_WAS_A_STEP = (
    "During handling of the above exception, another exception occurred:",
    "The above exception was the direct cause of the following exception:",
)
"""Said between the exceptions of a chain: what stands before was dealt with, and led to what stands after."""


def exceptions(folder: Path) -> Counter[str]:
    """Every exception that a program ended with or told of, by name and the first words of what it says."""
    found: Counter[str] = Counter()
    for log in sorted(folder.glob("*.log")):
        found.update(raised(log.read_text(errors="replace").splitlines()))
    return found


def raised(lines: list[str]) -> Iterator[str]:
    """The exceptions told of in these lines; of a chain the last."""
    inside, last = False, ""
    for line in lines:
        if line.strip() in _WAS_A_STEP:
            last = ""
        elif line.strip().endswith(_HEAD):
            yield from [last] if last else []
            inside, last = True, ""
        elif inside and line and not line[0].isspace() and (match := _RAISED.match(line.strip())):
            inside, last = False, f"{match[1].rpartition('.')[2]}: {(match[2] or '')[:160]}"
    yield from [last] if last else []


def deadlocks(folder: Path) -> list[str]:
    """What PostgreSQL's own log tells of deadlocks: each with the statements that waited for each other."""
    found = []
    for log in sorted(folder.glob("postgresql.log*")):
        lines = log.read_text(errors="replace").splitlines()
        found += [" ".join(lines[at : at + 8])[:1500] for at, line in enumerate(lines) if _DEADLOCK in line]
    return found


_DEADLOCK = "ERROR:  deadlock detected"


def unexpected(found: Mapping[str, int]) -> list[str]:
    """Those that no fault explains."""
    return [f"{said} ({times}x)" for said, times in found.items() if said.partition(":")[0] not in EXPECTED]
