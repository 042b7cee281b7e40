"""Control groups (cgroup v2), one for each lease: everything that runs in it can be ended at once, and where the tree
offers the controllers it holds the lease to the processors and memory that it took. Root's alone.

A folder for all leases of this program stands in the tree of the machine; each lease has one below it.
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
"""Where the v2 tree is on machines whose controllers are still those of v1."""
_NEEDED = ("cpu", "memory", "pids")
_PERIOD = 100_000
_KILLING = 5.0


@dataclass(frozen=True)
class Group:
    """The group of a lease; `bounded` where it holds the lease to its share."""

    folder: Path
    bounded: bool


def make(place: str, name: str, amounts: Amounts, processes: int) -> Group | None:
    """The group of a lease, with its bounds; None where the machine has no such tree, or does not let us in."""
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
    """End everything that runs in the group, whatever its uid has become; True when nothing is left."""
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
    """True when the group is gone; a group that still has processes stays."""
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
    """The folder of all leases: as named or, where `/sys/fs/cgroup` is no v2 tree, in the one beside those of v1."""
    if not place:
        return None
    named = Path(place)
    hybrid = named.parent == HYBRID.parent and not (named.parent / "cgroup.controllers").exists()
    return HYBRID / named.name if hybrid else named


def _make(folder: Path) -> None:
    """Whoever removes the last group removes the folder of all leases, at any moment between these two."""
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
    """Let the folder of all leases, and the groups in it, have the controllers. Raises OSError."""
    offered = (place.parent / "cgroup.controllers").read_text().split()
    if missing := [name for name in _NEEDED if name not in offered]:
        raise OSError(errno.ENOENT, f"no controller {missing[0]}")
    wanted = " ".join(f"+{name}" for name in _NEEDED)
    for folder in (place.parent, place):
        _write(folder / "cgroup.subtree_control", wanted)


def _bounds(amounts: Amounts, processes: int) -> dict[str, str]:
    """What a lease has not asked for is not bounded."""
    quota = amounts.cpu_millicores * _PERIOD // 1000
    return {
        "cpu.max": f"{max(quota, 1000) if quota else 'max'} {_PERIOD}",
        "memory.max": str(amounts.ram_mib << 20) if amounts.ram_mib else "max",
        "pids.max": str(processes),
    }


def _populated(folder: Path) -> bool:
    """Whether a thread is alive in the group or below it."""
    return "populated 1" in (folder / "cgroup.events").read_text()


def _kill(folder: Path) -> None:
    """Kill the group at once where the kernel can (from 5.14 on), and then one by one while none can fork: the kernel
    signals the first thread of each process, which is in vain where that has exited."""
    for file in ("cgroup.kill", "cgroup.freeze"):
        with contextlib.suppress(FileNotFoundError):
            _write(folder / file, "1")
    for number in (folder / "cgroup.procs").read_text().split():
        with contextlib.suppress(ProcessLookupError):
            os.kill(int(number), signal.SIGKILL)
    with contextlib.suppress(FileNotFoundError):
        _write(folder / "cgroup.freeze", "0")


def _write(file: Path, text: str) -> None:
    """Into a file of the kernel's: never made here."""
    with file.open("r+") as opened:
        opened.write(text)
