"""Claims of leases to uids on this machine: one symbolic link per uid, pointing to the lease's home.

The engine's slot lock separates the leases of one installation. These claims separate two installations on one machine,
and new leases from the remains of a crash. Creating a link is atomic: the first caller gets the uid. Root only.

Uids are reused in order: the one unused for longest comes next, and one that was just given back rests. A descriptor
kept by another lease, or anything else that the searches missed, could affect the next owner of the uid; this order
puts that off for as long as possible.
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
"""Seconds for which a returned uid stays unused, unless the window has no other uid left."""
_KEY_USERS = Path("/proc/key-users")
_RETURNED = "returned"


def take(uid: int, home: Path) -> bool:
    """Claim the uid for the home; return False if another home has claimed it."""
    with _alone():
        if holder(uid) is None:
            (FOLDER / str(uid)).symlink_to(home)
        return holder(uid) == home


def holder(uid: int) -> Path | None:
    """Return the home that has claimed the uid, or None."""
    try:
        return (FOLDER / str(uid)).readlink()
    except FileNotFoundError:
        return None


def uid_of(home: Path) -> int | None:
    """Return the uid that the home has claimed, or None."""
    return next((uid for uid in taken() if holder(uid) == home), None)


def below(folder: Path) -> set[Path]:
    """Return the homes in the folder that have claimed a uid, including homes that do not exist."""
    found = {holder(uid) for uid in taken()}
    return {home for home in found if home is not None and home.parent == folder}


def free(window: Iterable[int], most: int) -> list[int]:
    """Return at most `most` unclaimed uids in the window, starting with the one unused for longest."""
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
    """Release the home's uid, which becomes available after its rest."""
    with _alone():
        if (uid := uid_of(home)) is not None:
            _end(uid)


def taken() -> set[int]:
    """Return the uids that homes have claimed."""
    try:
        return {int(name) for name in os.listdir(FOLDER) if name.isdecimal()}
    except FileNotFoundError:
        return set()


def _end(uid: int) -> None:
    """Record the time at which a uid was given back, then remove its link.

    The order makes a crash between the two harmless.
    """
    returned = {str(each): time for each, time in _returned().items()} | {str(uid): clock.now().timestamp()}
    beside = FOLDER / f"{_RETURNED}.new"
    beside.write_text(json.dumps(returned))
    beside.replace(FOLDER / _RETURNED)
    (FOLDER / str(uid)).unlink()


def _returned() -> dict[int, float]:
    """Return the time at which each uid was last given back, in seconds since 1970."""
    try:
        return {int(uid): float(time) for uid, time in json.loads((FOLDER / _RETURNED).read_text()).items()}
    except (FileNotFoundError, ValueError):
        return {}


def _with_keys() -> set[int]:
    """Return the uids that still own kernel keys; a key that could not be cleared stays until the machine restarts."""
    try:
        lines = _KEY_USERS.read_text().splitlines()
    except OSError:
        return set()
    return {int(line.partition(":")[0]) for line in lines if line.partition(":")[0].strip().isdecimal()}


def _forsaken(uid: int) -> bool:
    """Return whether the uid is claimed for a home whose host folder no longer exists, because somebody removed it.

    The next lease with the uid first ends the processes that are left.
    """
    home = holder(uid)
    return home is not None and not home.parent.exists()


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Lock the claims against all other processes on the machine."""
    FOLDER.mkdir(mode=0o700, parents=True, exist_ok=True)
    folder = os.open(FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, fcntl.LOCK_EX)
        yield
    finally:
        os.close(folder)
