"""Which lease has which uid of this machine: one link per uid, whose target is the lease's home.

The engine's slot lock keeps the leases of one installation apart. Two installations on one machine, and what a
crash left behind, are kept apart by these. A link is made in one step by whoever is first. Root's alone.
"""

from __future__ import annotations

import contextlib
import fcntl
import itertools
import os
import pwd
from collections.abc import Iterable, Iterator
from pathlib import Path

FOLDER = Path("/var/lib/drydock-uids")


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
    """At most so many uids of the window that are nobody's."""
    with _alone():
        for uid in taken():
            if _forsaken(uid):
                (FOLDER / str(uid)).unlink()
        known = taken() | {entry.pw_uid for entry in pwd.getpwall()}
    return list(itertools.islice((uid for uid in window if uid not in known), most))


def give_back(home: Path) -> None:
    """The home's uid is free again."""
    with _alone():
        if (uid := uid_of(home)) is not None:
            (FOLDER / str(uid)).unlink()
        with contextlib.suppress(OSError):
            FOLDER.rmdir()


def taken() -> set[int]:
    """The uids that are somebody's."""
    try:
        return {int(name) for name in os.listdir(FOLDER) if name.isdecimal()}
    except FileNotFoundError:
        return set()


def _forsaken(uid: int) -> bool:
    """The host whose lease had it is gone, its folder removed by another hand. Whoever gets the uid next first ends
    what is left of it."""
    home = holder(uid)
    return home is not None and not home.parent.exists()


@contextlib.contextmanager
def _alone() -> Iterator[None]:
    """Nobody else on the machine takes or gives back meanwhile."""
    folder = _locked()
    try:
        yield
    finally:
        os.close(folder)


def _locked() -> int:
    while True:
        # Whoever gives the last uid back removes the folder, at any moment between these two.
        try:
            FOLDER.mkdir(mode=0o700, parents=True, exist_ok=True)
            folder = os.open(FOLDER, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        except (FileNotFoundError, FileExistsError):
            if os.path.lexists(FOLDER) and not FOLDER.is_dir():
                raise
            continue
        fcntl.flock(folder, fcntl.LOCK_EX)
        if _is_at_its_place(folder):
            return folder
        os.close(folder)


def _is_at_its_place(folder: int) -> bool:
    try:
        return os.path.samestat(os.fstat(folder), FOLDER.stat())
    except FileNotFoundError:
        return False
