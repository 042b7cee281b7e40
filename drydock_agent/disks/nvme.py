"""What NVMe disks support, and how they erase themselves: sanitize, and format with secure erase.

The fields are those of the NVM Express Base Specification 2.0: OACS, FNA and SANICAP of Identify Controller, the lists
of active and of allocated namespaces (CNS 02h and 10h), FLBAS, DPS and DLFEAT of Identify Namespace, SPROG
and SSTAT of the log of sanitize operations (81h). The JSON output of nvme-cli has them under the same names in lower
case.
"""

from __future__ import annotations

import dataclasses
import json
import re
import time
from pathlib import Path
from typing import Any

from drydock_agent.disks.blocks import Report
from drydock_agent.disks.errors import DiskError
from drydock_agent.disks.machine import Machine
from drydock_agent.identity import identity, known

BLOCK_ERASE, CRYPTO_ERASE, EXIT_FAILURE = 2, 4, 1
"""Actions of the command Sanitize."""
USER_DATA, CRYPTOGRAPHIC = 1, 2
"""Secure erase settings of the command Format NVM."""
_LONGEST = 48 * 3600.0
_DONE, _IN_PROGRESS, _FAILED, _DONE_ALLOCATED = 1, 2, 3, 4


@dataclasses.dataclass(frozen=True, kw_only=True)
class Features:
    """What a disk and its controller support."""

    controller: str
    """Name of the controller, such as `nvme0`."""
    others: tuple[str, ...] = ()
    """The other namespaces of the same controller, which sanitize erases as well."""
    sanitizes_crypto: bool = False
    sanitizes_blocks: bool = False
    formats: bool = False
    formats_crypto: bool = False
    formats_all: bool = False
    """Whether a format, or a secure erase, concerns all namespaces."""
    reads_zero: bool = False
    """Whether deallocated blocks read zero."""
    layout: tuple[str, ...] = ()
    """The options of a format that keep the size of sectors and the protection of the disk."""


def features(machine: Machine, name: str, folder: Path) -> Features | None:
    """Return what a disk supports, or None if its controller cannot be found."""
    place = machine.inside(folder / "device")
    controller = _controller(machine, place)
    if place is None or not controller:
        return None
    names = [one for one in machine.names("sys/block") if re.fullmatch(r"nvme\d+n\d+", one) and one != name]
    others = tuple(one for one in names if machine.inside(f"sys/block/{one}/device") == place)
    about, space = _json(machine, "id-ctrl", controller), _json(machine, "id-ns", name)
    sanitize, fna, flbas = (_number(about, "sanicap"), _number(about, "fna"), _number(space, "flbas"))
    formats = bool(_number(about, "oacs") & 2) and bool(space)
    return Features(
        controller=controller, others=others,
        sanitizes_crypto=bool(sanitize & 1), sanitizes_blocks=bool(sanitize & 2),
        formats=formats, formats_crypto=formats and bool(fna & 4), formats_all=bool(fna & 3),
        reads_zero=_number(space, "dlfeat") & 7 == 1, layout=_layout(flbas, _number(space, "dps")),
    )  # fmt: skip


@dataclasses.dataclass(frozen=True, kw_only=True)
class Controller:
    """An NVMe controller, and the namespaces that it knows."""

    name: str
    serial: str = ""
    model: str = ""
    namespaces: tuple[int, ...] | None = None
    """The ids of all namespaces, also of detached ones. None if they are not known."""
    hidden: tuple[int, ...] = ()
    """The ids of those that are not shown as disks, because they are detached or their format is not supported."""

    def to_json(self) -> dict[str, Any]:
        """Return the controller as it is listed."""
        ids = None if self.namespaces is None else list(self.namespaces)
        return dataclasses.asdict(self) | {"namespaces": ids, "hidden": list(self.hidden)}


def controllers(machine: Machine) -> list[Controller]:
    """Return all controllers in the order of their names, also those that show no disk."""
    names = [one for one in machine.names("sys/class/nvme") if re.fullmatch(r"nvme\d+", one)]
    found = [_about(machine, one) for one in sorted(names, key=lambda name: int(name[4:]))]
    shown: dict[str, set[int]] = {}
    for one in found:
        shown.setdefault(one.serial or one.name, set()).update(_shown(machine, one.name))
    return [
        dataclasses.replace(one, hidden=tuple(sorted(set(one.namespaces or ()) - shown[one.serial or one.name])))
        for one in found
    ]


def _about(machine: Machine, name: str) -> Controller:
    """Return a controller with its namespaces. Those that are detached are listed only by namespace management."""
    place = f"sys/class/nvme/{name}"
    about = _json(machine, "id-ctrl", name)
    options = ("--all",) if _number(about, "oacs") & 8 else ()
    ids = _json(machine, "list-ns", name, *options).get("nsid_list") if about else None
    return Controller(
        name=name, serial=identity(machine.text(f"{place}/serial")), model=known(machine.text(f"{place}/model")),
        namespaces=tuple(sorted({_number(one, "nsid") for one in ids if isinstance(one, dict)} - {0}))
        if isinstance(ids, list) else None,
    )  # fmt: skip


def _shown(machine: Machine, controller: str) -> set[int]:
    """Return the ids of the namespaces of a controller that are disks."""
    found = set()
    for one in machine.names("sys/block"):
        match = re.fullmatch(r"nvme\d+n(\d+)", one)
        place = machine.inside(f"sys/block/{one}/device") if match else None
        if match and place is not None and (place.name == controller or controller in machine.names(place)):
            found.add(machine.number(f"sys/block/{one}/nsid") or int(match[1]))
    return found


def sanitize(machine: Machine, disk: Features, action: int, report: Report) -> None:
    """Erase everything that the controller stores, and wait for it. Raises DiskError."""
    node = _node(machine, disk.controller)
    # Without --ause a disk whose sanitize operation failed would refuse every other method as well.
    done = machine.run("nvme", "sanitize", f"--sanact={action}", "--ause", node)
    if not done.ok:
        raise DiskError("method", f"nvme sanitize was refused: {done.reason}.")
    wait(machine, disk, report)


def wait(machine: Machine, disk: Features, report: Report) -> None:
    """Wait until a sanitize operation, also one that was started before a reboot, has ended. Raises DiskError."""
    until, pause = time.monotonic() + _LONGEST, 0.1
    while True:
        status, percent = _progress(machine, disk)
        if status == _FAILED:
            machine.run("nvme", "sanitize", f"--sanact={EXIT_FAILURE}", _node(machine, disk.controller))
            raise DiskError("method", f"{disk.controller} reports that the sanitize operation failed.")
        if status != _IN_PROGRESS:
            if status in (_DONE, _DONE_ALLOCATED):
                return
            raise DiskError("method", f"{disk.controller} reports that no sanitize operation took place.")
        if time.monotonic() > until:
            raise DiskError("method", f"The sanitize operation of {disk.controller} did not end in 48 hours.")
        report(percent)
        time.sleep(pause)
        pause = min(10.0, pause * 1.5)


def is_sanitizing(machine: Machine, disk: Features) -> bool:
    """Return whether a sanitize operation is running. It survives a reboot, and blocks all access meanwhile."""
    if not (disk.sanitizes_crypto or disk.sanitizes_blocks):
        return False
    return _progress(machine, disk)[0] == _IN_PROGRESS


def format(machine: Machine, disk: Features, name: str, settings: int) -> None:
    """Format a namespace with secure erase, in the layout that it has. Raises DiskError."""
    milliseconds = int(_LONGEST * 1000)
    done = machine.run(
        "nvme", "format", f"--ses={settings}", *disk.layout, "--force", f"--timeout={milliseconds}",
        _node(machine, name), seconds=_LONGEST + 60,
    )  # fmt: skip
    if not done.ok:
        raise DiskError("method", f"nvme format failed: {done.reason}.")


def _progress(machine: Machine, disk: Features) -> tuple[int, float]:
    """Return the status of the newest sanitize operation, and its percent."""
    document = _json(machine, "sanitize-log", disk.controller)
    log: Any = next((one for one in document.values() if isinstance(one, dict) and "sstat" in one), {})
    status = log.get("sstat")
    text = str(status.get("status", "") if isinstance(status, dict) else status)
    match = re.search(r"0x([0-9a-fA-F]+)|(\d+)", text)
    if not match:
        raise DiskError("method", f"nvme sanitize-log of {disk.controller} gave no status.")
    code = int(match[1], 16) if match[1] else int(match[2])
    return code & 7, min(100.0, 100 * _number(log, "sprog") / 65535)


def _controller(machine: Machine, place: Path | None) -> str:
    """Return the controller of a namespace. With multipath, a namespace belongs to a subsystem of controllers."""
    if place is None:
        return ""
    if re.fullmatch(r"nvme\d+", place.name):
        return place.name
    return next((one for one in machine.names(place) if re.fullmatch(r"nvme\d+", one)), "")


def _layout(flbas: int, protection: int) -> tuple[str, ...]:
    """Return the options for a format. Without --lbaf, nvme-cli uses format 0 if it formats all namespaces."""
    options = [f"--lbaf={flbas & 0x0F | (flbas & 0x60) >> 1}"]
    if flbas & 0x10:
        options.append("--ms=1")
    if protection & 7:
        options += [f"--pi={protection & 7}", f"--pil={protection >> 3 & 1}"]
    return tuple(options)


def _json(machine: Machine, command: str, name: str, *options: str) -> dict[str, Any]:
    """Return what nvme-cli prints, or nothing if it is not installed, or fails."""
    if not machine.find("nvme"):
        return {}
    try:
        done = machine.run("nvme", command, *options, "-o", "json", _node(machine, name), seconds=20)
        document = json.loads(done.text) if done.ok else {}
    except (DiskError, ValueError, RecursionError):
        return {}
    return document if isinstance(document, dict) else {}


def _node(machine: Machine, name: str) -> str:
    return str(machine.root / "dev" / name)


def _number(document: dict[str, Any], field: str) -> int:
    """Return a number, which some versions print as text."""
    value = document.get(field, 0)
    if isinstance(value, str) and re.fullmatch(r"(0x[0-9a-fA-F]{1,16}|\d{1,18})", value):
        return int(value, 0)
    return value if isinstance(value, int) and not isinstance(value, bool) and value >= 0 else 0
