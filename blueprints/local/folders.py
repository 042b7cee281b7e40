"""Where a local host keeps its leases' homes, and whether that place can be trusted with them."""

from __future__ import annotations

import json
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from blueprints.local.config import Config
from blueprints.specs import LeaseView, ResourceView

MARKER = ".drydock-host"


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
    """Say in the folder whose it is."""
    beside = folder / f"{MARKER}.new"
    beside.write_text(json.dumps(dict(tags)))
    beside.replace(folder / MARKER)


def marked(folder: Path) -> bool:
    """Whether the folder is there and is a local host's."""
    return (folder / MARKER).is_file()


def homes(folder: Path) -> list[Path]:
    """The homes of leases in a local host's folder."""
    if not folder.is_dir():
        return []
    return sorted(child for child in folder.iterdir() if not child.name.startswith(MARKER))


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
        return f"{step} is no folder."
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
