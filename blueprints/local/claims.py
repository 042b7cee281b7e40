"""Which lease has which uid of this machine: one link per uid, whose target is the lease's home.

The engine's slot lock keeps the leases of one installation apart. Two installations on one machine, and what a
crash left behind, are kept apart by these. A link is made in one step by whoever is first. Root's alone.

Uids go round: the one that was nobody's for longest is next, and one that was just given back rests. Whatever of it
no search has found, such as a descriptor that another lease keeps, then meets no new owner for as long as possible.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pwd
from collections.abc import Iterable, Iterator
from pathlib import Path

from drydock.core import clock

FOLDER = Path("/var/lib/drydock-uids")
REST = 600.0
"""Seconds for which a uid that was given back is nobody's, unless no other of the window is left."""
_KEY_USERS = Path("/proc/key-users")
_RETURNED = "returned"


def take(uid: int, home: Path) -> bool:
    """Give the uid to the home; False when another has it."""
    with _alone():
        if holder(uid) is None:
            (FOLDER / str(uid)).symlink_to(home)
        return holder(uid) == home


def holder(uid: int) -> Path | None:
    """The home whose uid it is."""
    try:
        return (FOLDER / str(uid)).readlink()
    except FileNotFoundError:
        return None


def uid_of(home: Path) -> int | None:
    """The uid that was given to the home."""
    return next((uid for uid in taken() if holder(uid) == home), None)


def below(folder: Path) -> set[Path]:
    """The homes in the folder that have a uid, whether they are there or not."""
    found = {holder(uid) for uid in taken()}
    return {home for home in found if home is not None and home.parent == folder}


def free(window: Iterable[int], most: int) -> list[int]:
    """At most `most` uids of the window that nobody has, the one longest out of use first."""
    with _alone():
        for uid in taken():
            if _forsaken(uid):
                _end(uid)
        known = taken() | {entry.pw_uid for entry in pwd.getpwall()} | _with_keys()
        returned = _returned()
    order = sorted((uid for uid in window if uid not in known), key=lambda uid: returned.get(uid, 0.0))
    rested = clock.now().timestamp() - REST
    return [uid for uid in order if returned.get(uid, 0.0) <= rested][:most] or order[:most]


def give_back(home: Path) -> None:
    """The home's uid is free again, after its rest."""
    with _alone():
        if (uid := uid_of(home)) is not None:
            _end(uid)


def taken() -> set[int]:
    """The uids that are somebody's."""
    try:
        return {int(name) for name in os.listdir(FOLDER) if name.isdecimal()}
    except FileNotFoundError:
        return set()


def _end(uid: int) -> None:
    """Write down when, then take the link away: a crash between the two costs nothing but a rest."""
    returned = {str(each): time for each, time in _returned().items()} | {str(uid): clock.now().timestamp()}
    beside = FOLDER / f"{_RETURNED}.new"
    beside.write_text(json.dumps(returned))
    beside.replace(FOLDER / _RETURNED)
    (FOLDER / str(uid)).unlink()


def _returned() -> dict[int, float]:
    """When each uid was last given back, in seconds since 1970."""
    try:
        return {int(uid): float(time) for uid, time in json.loads((FOLDER / _RETURNED).read_text()).items()}
    except (FileNotFoundError, ValueError):
        return {}


def _with_keys() -> set[int]:
    """The uids that still own keys of the kernel: what of them could not be cleared goes when the machine restarts."""
    try:
        lines = _KEY_USERS.read_text().splitlines()
    except OSError:
        return set()
    return {int(line.partition(":")[0]) for line in lines if line.partition(":")[0].strip().isdecimal()}


def _forsaken(uid: int) -> bool:
    """The host whose lease had it is gone, its folder removed by another hand. Whoever gets the uid next first ends
    what is left of it."""
    home = holder(uid)
    return home is not None and not home.parent.exists()


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Nobody else on the machine takes or gives back meanwhile."""
    FOLDER.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = os.open(FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
