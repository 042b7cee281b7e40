"""Control groups (cgroup v2), one for each lease: all processes in a group can be ended at once.

If the tree offers the controllers, the group also limits the lease to its share of processors and memory. Root only.
One folder in the machine's tree contains all leases of this program; each lease has a group below it.
"""

from __future__ import annotations

import contextlib
import errno
import os
import signal
from dataclasses import dataclass
from pathlib import Path

from blueprints.amounts import Amounts
from drydock.core import clock

HYBRID = Path("/sys/fs/cgroup/unified")
"""Path of the v2 tree on machines that still use the v1 controllers."""
_NEEDED = ("cpu", "memory", "pids")
_PERIOD = 100_000
_KILLING = 5.0


@dataclass(frozen=True)
class Group:
    """A lease's group. `bounded` is true if the group limits the lease to its share."""

    folder: Path
    bounded: bool


def make(place: str, name: str, amounts: Amounts, processes: int) -> Group | None:
    """Make the group for a lease and set its limits.

    Return None if the machine has no such tree or access is denied.
    """
    if not (above := _place(place)):
        return None
    folder = above / name
    try:
        _make(folder)
    except OSError:
        remove(place, name)
        return None
    try:
        _hand_down(above)
        for file, bound in _bounds(amounts, processes).items():
            _write(folder / file, bound)
        with contextlib.suppress(FileNotFoundError):  # a kernel without swap has no such file
            _write(folder / "memory.swap.max", "0" if amounts.ram_mib else "max")
    except OSError:
        return Group(folder, bounded=False)
    return Group(folder, bounded=True)


def end(place: str, name: str) -> bool:
    """End all processes in the group, also those that have changed their uid. Return True if none is left."""
    above = _place(place)
    if not above or not (folder := above / name).is_dir():
        return True
    until = clock.monotonic() + _KILLING
    try:
        while _populated(folder):
            if clock.monotonic() > until:
                return False
            _kill(folder)
            clock.sleep(0.02)
    except OSError as error:
        return error.errno in (errno.ENOENT, errno.ENODEV)
    return True


def remove(place: str, name: str) -> bool:
    """Remove the group. Return False if it still has processes."""
    if not (above := _place(place)):
        return True
    try:
        (above / name).rmdir()
    except OSError as error:
        return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EROFS)
    with contextlib.suppress(OSError):
        above.rmdir()
    return True


def _place(place: str) -> Path | None:
    """Return the folder of all leases.

    This is the named one, or the one in the hybrid v2 tree if `/sys/fs/cgroup` is a v1 tree.
    """
    if not place:
        return None
    named = Path(place)
    hybrid = named.parent == HYBRID.parent and not (named.parent / "cgroup.controllers").exists()
    return HYBRID / named.name if hybrid else named


def _make(folder: Path) -> None:
    """Make the folder of all leases and a group in it.

    Retry, because another lease that removes the last group also removes the folder, possibly between the two calls.
    """
    (folder.parent.parent / "cgroup.controllers").read_text()
    for last in (False, False, True):
        try:
            folder.parent.mkdir(exist_ok=True)
            folder.mkdir(exist_ok=True)
        except FileNotFoundError:
            if last:
                raise
            continue
        return


def _hand_down(place: Path) -> None:
    """Enable the controllers for the folder of all leases and for the groups in it. Raises OSError."""
    offered = (place.parent / "cgroup.controllers").read_text().split()
    if missing := [name for name in _NEEDED if name not in offered]:
        raise OSError(errno.ENOENT, f"no controller {missing[0]}")
    wanted = " ".join(f"+{name}" for name in _NEEDED)
    for folder in (place.parent, place):
        _write(folder / "cgroup.subtree_control", wanted)


def _bounds(amounts: Amounts, processes: int) -> dict[str, str]:
    """Return the limits for the amounts requested; an amount of 0 is unlimited."""
    quota = amounts.cpu_millicores * _PERIOD // 1000
    return {
        "cpu.max": f"{max(quota, 1000) if quota else 'max'} {_PERIOD}",
        "memory.max": str(amounts.ram_mib << 20) if amounts.ram_mib else "max",
        "pids.max": str(processes),
    }


def _populated(folder: Path) -> bool:
    """Return whether any thread is alive in the group or in a group below it."""
    return "populated 1" in (folder / "cgroup.events").read_text()


def _kill(folder: Path) -> None:
    """Kill the whole group if the kernel supports it (5.14 and later).

    Then freeze it, so that it cannot fork, and kill each process: the kernel signals the first thread of a process,
    which has no effect if that thread has exited.
    """
    for file in ("cgroup.kill", "cgroup.freeze"):
        with contextlib.suppress(FileNotFoundError):
            _write(folder / file, "1")
    for number in (folder / "cgroup.procs").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(number), signal.SIGKILL)
    with contextlib.suppress(FileNotFoundError):
        _write(folder / "cgroup.freeze", "0")


def _write(file: Path, text: str) -> None:
    """Write to an existing kernel file; never create it."""
    with file.open("r+") as opened:
        opened.write(text)
