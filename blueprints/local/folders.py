"""Where a local host keeps its leases' homes, and whether that place can be trusted with them."""

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
"""In a host's folder: the homes of former leases that could not be removed yet."""


def root_of(config: Config) -> Path:
    """The folder of all local hosts of this blueprint."""
    if config.folder:
        return Path(config.folder)
    return _state() / "hosts"


def folder_of(resource: ResourceView) -> Path:
    """The folder of one local host."""
    return root_of(resource.blueprint.config) / resource.key


def home_of(lease: LeaseView) -> Path:
    """The home of a lease."""
    return folder_of(lease.resource) / lease.key


def make(folder: Path, mode: int) -> None:
    """Make a folder of exactly this mode, and those above it."""
    folder.parent.mkdir(parents=True, exist_ok=True, mode=0o755)
    folder.mkdir(exist_ok=True, mode=mode)
    folder.chmod(mode)


def mark(folder: Path, tags: Mapping[str, str]) -> None:
    """Write into the folder whose it is. The proof among the tags is not for the accounts of leases to read."""
    beside = folder / f"{MARKER}.new"
    beside.unlink(missing_ok=True)
    with open(os.open(beside, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as written:
        written.write(json.dumps(dict(tags)))
    beside.replace(folder / MARKER)


def close(folder: Path) -> None:
    """Let nobody else read what earlier versions wrote for all to read."""
    (folder / MARKER).chmod(0o600)


def marked(folder: Path) -> bool:
    """Whether the folder is there and is a local host's."""
    return (folder / MARKER).is_file()


def homes(folder: Path) -> list[Path]:
    """The homes of leases in a local host's folder."""
    if not folder.is_dir():
        return []
    return sorted(child for child in folder.iterdir() if not child.name.startswith(MARKER))


def aside_of(home: Path) -> Path:
    """The folder of root's into which a home is put that cannot be removed."""
    return home.parent / ASIDE / home.name


def put_aside(home: Path) -> None:
    """Move a home to where root alone comes by its path: whoever still works in it keeps what it has open there, and
    nothing else. The folder around it also stands for what is left elsewhere."""
    place = aside_of(home)
    place.parent.mkdir(mode=0o700, exist_ok=True)
    place.mkdir(mode=0o700, exist_ok=True)
    with contextlib.suppress(FileNotFoundError):
        home.rename(place / "home")


def aside(folder: Path) -> list[Path]:
    """The homes that were put aside in a host's folder, by what they were called; the one longest not tried first."""
    place = folder / ASIDE
    found = list(place.iterdir()) if place.is_dir() else []
    return [folder / each.name for each in sorted(found, key=lambda each: each.lstat().st_ctime)]


def objection(folder: Path, *, root: bool) -> str:
    """Why a lease's home must not be made below the folder; empty when it may.

    As root: whoever can swap a folder on the way there could have root work where he likes, and a lease's
    account must be able to pass through all of them.
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
        return f"{step} can be changed by others than root."
    if root and not found.st_mode & stat.S_IXOTH:
        return f"{step} is closed to the accounts of leases (mode {stat.S_IMODE(found.st_mode):o})."
    return ""


def _state() -> Path:
    if chosen := os.environ.get("DRYDOCK_STATE"):
        return Path(os.path.abspath(os.path.expanduser(chosen)))
    if os.geteuid() == 0:
        return Path("/var/lib/drydock")
    return Path(os.environ.get("XDG_STATE_HOME") or Path.home() / ".local" / "state") / "drydock"
