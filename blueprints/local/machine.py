"""Facts about this machine for the kind's drafts and steps."""

from __future__ import annotations

import os
import platform
from pathlib import Path
from typing import Any

from blueprints.hosts import architecture

_MIB = 1 << 20


def as_root() -> bool:
    """Return whether leases can have accounts of their own."""
    return os.geteuid() == 0


def identity() -> str:
    """Return a name that distinguishes this machine from others with the same blueprint."""
    try:
        machine = Path("/etc/machine-id").read_text().strip()
    except OSError:
        machine = ""
    return f"{platform.node()}/{machine[:12]}" if machine else platform.node()


def vcpus() -> int:
    """Return the number of processors available to this process."""
    return len(os.sched_getaffinity(0))


def ram_mib() -> int:
    """Return the memory of the machine in MiB."""
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // _MIB


def disk_mib(folder: Path) -> int:
    """Return the total size in MiB of the disk that contains the folder. The folder need not exist yet."""
    while not folder.exists():
        folder = folder.parent
    disk = os.statvfs(folder)
    return (disk.f_blocks - disk.f_bfree + disk.f_bavail) * disk.f_frsize // _MIB


def attributes() -> dict[str, Any]:
    """Return the attributes of this machine, except its location."""
    found = {
        "arch": architecture(platform.machine()),
        "os": platform.system().lower(),
        "os_release": _release(),
        "hostname": platform.node(),
        "vcpus": vcpus(),
        "ram_mib": ram_mib(),
        "isolation": "uid" if as_root() else "none",
    }
    return {name: value for name, value in found.items() if value}


def uids_exist(first: int, last: int) -> bool:
    """Return whether these uids are mapped on this machine; a container may have only a few."""
    try:
        lines = Path("/proc/self/uid_map").read_text().splitlines()
    except OSError:
        return True
    spans = [(int(inside), int(inside) + int(count)) for inside, _, count in (line.split() for line in lines)]
    return any(begin <= first and last < end for begin, end in spans)


def _release() -> str:
    try:
        known = platform.freedesktop_os_release()
    except OSError:
        return ""
    return "-".join(part for part in (known.get("ID", ""), known.get("VERSION_ID", "")) if part)
