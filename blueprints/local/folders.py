"""Paths of a local host's homes, and checks that those paths are safe."""

from __future__ import annotations

import contextlib
import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from blueprints.local.config import Config
from blueprints.specs import LeaseView, ResourceView

MARKER = ".drydock-host"
ASIDE = f"{MARKER}.aside"
"""Subfolder of a host's folder, for homes of former leases that could not be removed yet."""


def root_of(config: Config) -> Path:
    """Return the folder for all local hosts of this blueprint."""
    if config.folder:
        return Path(config.folder)
    return _state() / "hosts"


def folder_of(resource: ResourceView) -> Path:
    """Return the folder of one local host."""
    return root_of(resource.blueprint.config) / resource.key


def home_of(lease: LeaseView) -> Path:
    """Return the home of a lease."""
    return folder_of(lease.resource) / lease.key


def make(folder: Path, mode: int) -> None:
    """Make a folder with exactly this mode, and any missing parents."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    folder.mkdir(exist_ok=True, mode=mode)
    folder.chmod(mode)


def mark(folder: Path, tags: Mapping[str, str]) -> None:
    """Record the owner in the folder. The tags contain a proof, so leases' accounts must not be able to read them."""
    beside = folder / f"{MARKER}.new"
    beside.unlink(missing_ok=True)
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as written:
        written.write(json.dumps(dict(tags)))
    beside.replace(folder / MARKER)


def close(folder: Path) -> None:
    """Restrict the marker to its owner; earlier versions made it world-readable."""
    (folder / MARKER).chmod(0o600)


def marked(folder: Path) -> bool:
    """Return whether the folder exists and belongs to a local host."""
    return (folder / MARKER).is_file()


def homes(folder: Path) -> list[Path]:
    """Return the homes of leases in a local host's folder."""
    if not folder.is_dir():
        return []
    return sorted(child for child in folder.iterdir() if not child.name.startswith(MARKER))


def aside_of(home: Path) -> Path:
    """Return the root-owned folder for a home that cannot be removed."""
    return home.parent / ASIDE / home.name


def put_aside(home: Path) -> None:
    """Move a home to a path that only root can reach.

    A process still working in it keeps its open files and nothing else. The surrounding folder also records that
    something is left elsewhere.
    """
    place = aside_of(home)
    place.parent.mkdir(mode=0o700, exist_ok=True)
    place.mkdir(mode=0o700, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        home.rename(place / "home")


def aside(folder: Path) -> list[Path]:
    """Return the original paths of the homes moved aside in a host's folder.

    The home whose removal was tried longest ago comes first.
    """
    place = folder / ASIDE
    found = list(place.iterdir()) if place.is_dir() else []
    return [folder / each.name for each in sorted(found, key=lambda each: each.lstat().st_ctime)]


def objection(folder: Path, *, root: bool) -> str:
    """Return why a lease's home must not be created below the folder, or an empty string if it may be.

    If Drydock runs as root, no other user may be able to replace a folder on the path, and leases' accounts must be
    able to enter every folder on it.
    """
    for step in (folder, *folder.parents):
        if not step.exists() and not step.is_symlink():
            continue
        if said := _objection_to(step, root):
            return said
    return ""


def _objection_to(step: Path, root: bool) -> str:
    found = step.stat()
    if not stat.S_ISDIR(found.st_mode):
        return f"{step} is not a folder."
    if root and found.st_uid != 0:
        return f"{step} belongs to uid {found.st_uid}, not to root."
    if root and found.st_mode & 0o022 and not found.st_mode & stat.S_ISVTX:
        return f"Users other than root can change {step}."
    if root and not found.st_mode & stat.S_IXOTH:
        return f"The accounts of leases cannot enter {step} (mode {stat.S_IMODE(found.st_mode):o})."
    return ""


def _state() -> Path:
    if chosen := os.environ.get("DRYDOCK_STATE"):
        return Path(os.path.abspath(os.path.expanduser(chosen)))
    if os.geteuid() == 0:
        return Path("/var/lib/drydock")
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "drydock"
