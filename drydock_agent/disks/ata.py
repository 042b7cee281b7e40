"""ATA disks: what they support, and their secure erase by the security feature set, with hdparm.

The texts are those of `hdparm -I`, as in the function `identify` of hdparm 9.65.
"""

from __future__ import annotations

import contextlib
import dataclasses
import re
import threading
import time
from collections.abc import Iterator

from drydock_agent.disks.blocks import Report
from drydock_agent.disks.errors import DiskError
from drydock_agent.disks.machine import Machine

PASSWORD = "drydock"  # noqa: S105
"""The password during an erasure, which removes it. It is not secret: after a power failure it unlocks the disk."""
_PAUSE = 1.0
"""Seconds between two attempts to read what a disk says about itself."""
_DEFAULT_MINUTES, _LONGEST_MINUTES = 120, 48 * 60


@dataclasses.dataclass(frozen=True, kw_only=True)
class Features:
    """The output of `hdparm -I` about a disk."""

    serial: str = ""
    model: str = ""
    wwn: str = ""
    reads_zero: bool = False
    """Whether blocks read zero after TRIM."""
    supported: bool = False
    """Whether the disk has the security feature set; `enhanced` and so on only count if it has."""
    enhanced: bool = False
    enabled: bool = False
    locked: bool = False
    frozen: bool = False
    minutes: int = 0
    """The disk's own estimate for a secure erase; 0 if it gives none."""
    enhanced_minutes: int = 0


def features(machine: Machine, name: str, *, attempts: int = 1) -> Features | None:
    """Return what a disk says about itself, or None if it does not answer ATA commands.

    A disk that is busy may fail to answer. Without an answer it has no serial number and no methods of its own, so a
    disk that is known to be an ATA disk is asked several times.
    """
    if not machine.find("hdparm"):
        return None
    for attempt in range(attempts):
        with contextlib.suppress(DiskError):
            done = machine.run("hdparm", "-I", str(machine.node(name)), seconds=30)
            if done.ok and "\tModel Number:" in done.text:
                return parsed(done.text)
        time.sleep(_PAUSE if attempt + 1 < attempts else 0)
    return None


def parsed(text: str) -> Features:
    """Parse the output of `hdparm -I`."""
    _, _, security = text.partition("\nSecurity:")
    flags = set()
    for line in security.splitlines()[1:]:
        if not line.startswith(("\t", " ")):
            break
        flags.add(" ".join(line.split()))
    return Features(
        serial=_field(text, "Serial Number"), model=_field(text, "Model Number"),
        wwn=_prefixed(_field(text, "Logical Unit WWN Device Identifier")),
        reads_zero=bool(re.search(r"^\s*\*\s*Deterministic read ZEROs after TRIM", text, re.MULTILINE)),
        supported="supported" in flags, enhanced="supported: enhanced erase" in flags,
        enabled="enabled" in flags, locked="locked" in flags, frozen="frozen" in flags,
        minutes=_minutes(security, "SECURITY"), enhanced_minutes=_minutes(security, "ENHANCED SECURITY"),
    )  # fmt: skip


def erase(machine: Machine, name: str, *, enhanced: bool, report: Report) -> None:
    """Let a disk erase itself. Raises DiskError; the disk then has no password of ours, if that can be removed."""
    state = _state(machine, name)
    if state.frozen:
        raise DiskError("method", f"{name} is frozen: the firmware locked its security settings until a power cycle.")
    if state.locked:
        _security(machine, name, "unlock")
        state = _state(machine, name)
    if state.locked:
        raise DiskError("method", f"{name} is locked with a password that is not Drydock's.")
    if not state.enabled:
        done = _security(machine, name, "set-pass")
        if not _state(machine, name).enabled:
            raise DiskError("method", f"{name} did not take a password for the erasure: {done}.")
    minutes = (state.enhanced_minutes if enhanced else state.minutes) or _DEFAULT_MINUTES
    try:
        with _estimated(minutes, report):
            done = _security(
                machine, name, "erase-enhanced" if enhanced else "erase",
                seconds=60.0 * min(_LONGEST_MINUTES, 3 * minutes + 30),
            )  # fmt: skip
        if _state(machine, name).enabled:
            raise DiskError("method", f"{name} did not carry out the secure erase: {done}.")
    except DiskError:
        unlock(machine, name)
        raise


def hidden(machine: Machine, name: str) -> str:
    """Return a problem if a part of the disk is hidden from the operating system, and so from most methods."""
    done = machine.run("hdparm", "-N", str(machine.node(name)), seconds=30)
    match = re.search(r"max sectors\s*=\s*(\d{1,18})/(\d{1,18}),.*\benabled", done.text)
    if not match or int(match[1]) >= int(match[2]):
        return ""
    return (
        f"The disk shows {match[1]} of its {match[2]} sectors, because a host protected area is set. "
        f"Remove it: hdparm -N p{match[2]} --yes-i-know-what-i-am-doing /dev/{name}"
    )


def unlock(machine: Machine, name: str) -> None:
    """Remove a password of ours that an interrupted erasure has left. Does nothing if there is none."""
    with contextlib.suppress(DiskError):
        state = _state(machine, name)
        if state.locked:
            _security(machine, name, "unlock")
        if state.enabled:
            _security(machine, name, "disable")


def _state(machine: Machine, name: str) -> Features:
    found = features(machine, name)
    if found is None:
        raise DiskError("method", f"{name} does not answer hdparm -I.")
    return found


def _security(machine: Machine, name: str, act: str, *, seconds: float = 60.0) -> str:
    """Send a command of the security feature set. Return what hdparm said; the state of the disk tells the outcome."""
    node = str(machine.node(name))
    return machine.run("hdparm", "--user-master", "u", f"--security-{act}", PASSWORD, node, seconds=seconds).reason


@contextlib.contextmanager
def _estimated(minutes: int, report: Report) -> Iterator[None]:
    """Report the percent of the estimate that has passed, because the disk itself reports nothing meanwhile."""
    over, began = threading.Event(), time.monotonic()

    def tell() -> None:
        while not over.wait(5.0):
            report(min(99.0, 100 * (time.monotonic() - began) / (60 * minutes)))

    thread = threading.Thread(target=tell, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _field(text: str, name: str) -> str:
    match = re.search(rf"^\s*{name}:\s*(\S.*?)\s*$", text, re.MULTILINE)
    return match[1][:200] if match else ""


def _prefixed(wwn: str) -> str:
    return f"0x{wwn}" if re.fullmatch(r"[0-9a-f]{16}", wwn) else ""


def _minutes(security: str, kind: str) -> int:
    match = re.search(rf"(\d+)min for {kind} ERASE UNIT", security)
    return int(match[1]) if match and len(match[1]) < 6 else 0
