"""The captures beside the repository: real machines' trees, with facts that were established by other means."""

from __future__ import annotations

import json
import os
import subprocess
import tarfile
from collections.abc import Iterable
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

from drydock_agent import Device
from drydock_agent.names import FILES
from tests import peers

CAPTURES = Path(os.environ.get("DRYDOCK_CAPTURES", Path(__file__).resolve().parents[3] / "shared" / "captures"))

needed = pytest.mark.skipif(
    not (CAPTURES / "expected.json").is_file(), reason="the captures are not beside the repository"
)


@lru_cache
def expected() -> dict[str, Any]:
    there = CAPTURES / "expected.json"
    return json.loads(there.read_text()) if there.is_file() else {"sysfs": {}, "nvidia_smi": {}}


def names(section: str = "sysfs") -> list[str]:
    return sorted(expected()[section]) or ["none"]


def nvidia_smi() -> list[Path]:
    """Return the captured outputs of `nvidia-smi -q -x`."""
    return sorted((CAPTURES / "nvidia-smi").glob("*.xml"))


def unpacked(name: str, folder: Path) -> Path:
    """Unpack a capture once for each session and return its root."""
    facts = expected()["sysfs"][name]
    there = folder / name.replace("+", "-")
    if not there.exists():
        part = folder / f"{there.name}.{os.getpid()}"
        with tarfile.open(CAPTURES / facts["archive"]) as archive:
            extract(archive, part)
        part.rename(there)
    return there / facts["root_in_archive"]


def extract(archive: tarfile.TarFile, folder: Path) -> None:
    """Unpack files, folders and links."""
    # Not as the argument `filter`, which Python 3.11.2 of Debian 12 does not have.
    archive.extraction_filter = lambda member, _: inside(member)
    archive.extractall(folder, members=[inside(member) for member in archive])


def inside(member: tarfile.TarInfo) -> tarfile.TarInfo:
    # The captures are known by their checksums; their links point all over the tree and often dangle.
    if not (member.isfile() or member.isdir() or member.issym()) or member.name.startswith("/") or ".." in member.name:
        raise ValueError(member.name)
    member.mode = 0o755 if member.isdir() else 0o644
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member


def assert_lspci_agrees(devices: Iterable[Device], *options: str) -> None:
    """Compare class, ids, revision and subsystem of all functions, and their names where pci.ids is installed."""
    functions = [one for one in devices if "/" not in one.id]
    numbers = _listed("-n", *options)
    assert {address: (of["Class"], of["Vendor"], of["Device"]) for address, of in numbers.items()} == {
        one.id: (one.pci_class[:4], one.vendor_id, one.device_id) for one in functions
    }
    for one in functions:
        of = numbers[one.id]
        # Old kernels have no file with the revision; lspci reads it from the configuration space.
        assert one.revision in ("", of.get("Rev", "00")), one.id
        if "SVendor" in of:
            assert (of["SVendor"], of["SDevice"]) == (one.subsystem_vendor_id, one.subsystem_device_id), one.id
    if any(os.path.exists(path) for path in FILES):
        named = _listed(*options)
        # lspci makes a name of the id if it knows none.
        shown = {"Vendor": "vendor_name", "Device": "device_name"}
        for one in functions:
            for field, name in shown.items():
                known = getattr(one, name)
                assert known == named[one.id][field] or (not known and named[one.id][field].startswith(field)), one.id


def _listed(*options: str) -> dict[str, dict[str, str]]:
    run = subprocess.run(
        [peers.require("lspci"), *options, "-D", "-vmm"], capture_output=True, text=True, timeout=60, check=True
    )
    found = {}
    for block in run.stdout.strip().split("\n\n"):
        fields = dict(line.split(":\t", 1) for line in block.splitlines() if ":\t" in line)
        found[fields["Slot"]] = fields
    return found
