"""The captures beside the repository: real machines' trees, with facts that were established by other means."""

from __future__ import annotations

import json
import os
import tarfile
from functools import lru_cache
from pathlib import Path
from typing import Any

import pytest

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
            archive.extractall(part, filter=inside)
        part.rename(there)
    return there / facts["root_in_archive"]


def inside(member: tarfile.TarInfo, path: str) -> tarfile.TarInfo | None:
    # The captures are known by their checksums; their links point all over the tree and often dangle.
    if not (member.isfile() or member.isdir() or member.issym()) or member.name.startswith("/") or ".." in member.name:
        raise ValueError(member.name)
    member.mode = 0o755 if member.isdir() else 0o644
    member.uid = member.gid = 0
    member.uname = member.gname = ""
    return member
