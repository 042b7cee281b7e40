"""Control groups (cgroup v2) that hold a lease to the processors and memory that it took. Root's alone.

A folder for all leases of this program stands in the tree of the machine; each lease has one below it.
"""

from __future__ import annotations

import contextlib
import errno
from pathlib import Path

from blueprints.amounts import Amounts

_NEEDED = ("cpu", "memory", "pids")
_PERIOD = 100_000


def make(place: str, name: str, amounts: Amounts, processes: int) -> Path | None:
    """The group of a lease, with its bounds; None where the machine has no such tree, or does not let us in."""
    if not place:
        return None
    group = Path(place, name)
    try:
        _open(group.parent)
        group.mkdir(exist_ok=True)
        for file, bound in _bounds(amounts, processes).items():
            _write(group / file, bound)
        with contextlib.suppress(FileNotFoundError):  # a kernel without swap has no such file
            _write(group / "memory.swap.max", "0" if amounts.ram_mib else "max")
    except OSError:
        remove(place, name)
        return None
    return group


def remove(place: str, name: str) -> bool:
    """True when the group is gone; a group that still has processes stays."""
    if not place:
        return True
    try:
        Path(place, name).rmdir()
    except OSError as error:
        return error.errno in (errno.ENOENT, errno.ENOTDIR, errno.EROFS)
    with contextlib.suppress(OSError):
        Path(place).rmdir()
    return True


def _bounds(amounts: Amounts, processes: int) -> dict[str, str]:
    """What a lease has not asked for is not bounded."""
    quota = amounts.cpu_millicores * _PERIOD // 1000
    return {
        "cpu.max": f"{max(quota, 1000) if quota else 'max'} {_PERIOD}",
        "memory.max": str(amounts.ram_mib << 20) if amounts.ram_mib else "max",
        "pids.max": str(processes),
    }


def _open(place: Path) -> None:
    """The folder of all leases, which hands the controllers down. Raises OSError."""
    offered = (place.parent / "cgroup.controllers").read_text().split()
    if missing := [name for name in _NEEDED if name not in offered]:
        raise OSError(errno.ENOENT, f"no controller {missing[0]}")
    wanted = " ".join(f"+{name}" for name in _NEEDED)
    _write(place.parent / "cgroup.subtree_control", wanted)
    place.mkdir(exist_ok=True)
    _write(place / "cgroup.subtree_control", wanted)


def _write(file: Path, text: str) -> None:
    """Into a file of the kernel's: never made here."""
    with file.open("r+") as opened:
        opened.write(text)
