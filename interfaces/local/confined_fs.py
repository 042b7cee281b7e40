"""File operations that cannot leave a folder, even if links are swapped while they run.

Each step of a path is opened relative to the folder before it, without following links. A link is read and its steps
are resolved in the same way, so a link that stays inside works and one that leads outside is refused. Uses only the
standard library, because the file agent (`agent.py`) runs this with the uid of a lease.
"""

from __future__ import annotations

import errno
import itertools
import os
import stat
import time
from collections import deque
from collections.abc import Callable
from typing import Any

_STEP = getattr(os, "O_PATH", os.O_RDONLY) | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC

# Without O_NONBLOCK a pipe planted at the path would block the opener.
_FILE = os.O_NOFOLLOW | os.O_CLOEXEC | os.O_NONBLOCK
_MODES = {
    "read": os.O_RDONLY,
    "write": os.O_WRONLY | os.O_CREAT | os.O_TRUNC,
    "create": os.O_WRONLY | os.O_CREAT | os.O_EXCL,
    "append": os.O_WRONLY | os.O_CREAT | os.O_APPEND,
}
_MOST_LINKS = 40
_AT_ONCE = 1000
"""Entries of a folder that are read at a time before they are removed."""
_MOST_DEEP = 256
"""Maximum number of nested folders on the way to a place. Each is an open descriptor."""


class _Place:
    """The open folder that contains the last step of a path, and the name of that step."""

    def __init__(self, root: str, path: str, *, follow: bool) -> None:
        self._open = [os.open(root, _STEP)]
        try:
            self.name = self._walk(deque(path.split("/")), follow)
        except BaseException:
            self.close()
            raise
        self.folder = self._open[-1]

    def _walk(self, steps: deque[str], follow: bool) -> str:
        links = 0
        while steps:
            step = steps.popleft()
            if step in ("", "."):
                continue
            if step == "..":
                self._up()
                continue
            last = not any(more not in ("", ".") for more in steps)
            if last and not follow:
                return step
            target = self._link(step)
            if target is not None:
                links += 1
                if links > _MOST_LINKS or target.startswith("/"):
                    raise OSError(errno.EXDEV, "The link leads outside the folder")
                steps.extendleft(reversed(target.split("/")))
            elif last:
                return step
            elif len(self._open) > _MOST_DEEP:
                raise OSError(errno.ENAMETOOLONG, f"The path has more than {_MOST_DEEP} nested folders")
            else:
                self._open.append(os.open(step, _STEP, dir_fd=self._open[-1]))
        return "."

    def _up(self) -> None:
        if len(self._open) == 1:
            raise OSError(errno.EXDEV, "The path leads outside the folder")
        os.close(self._open.pop())

    def _link(self, step: str) -> str | None:
        try:
            return os.readlink(step, dir_fd=self._open[-1])
        except OSError as error:
            if error.errno in (errno.EINVAL, errno.ENOENT):
                return None
            raise

    def close(self) -> None:
        while self._open:
            os.close(self._open.pop())

    def __enter__(self) -> _Place:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


class ConfinedFolder:
    """File operations confined to a folder.

    Most methods take the root as their first argument. Arguments and results are JSON types and bytes.
    """

    def __init__(self) -> None:
        self._open: dict[int, int] = {}
        # A number of an agent that has ended must mean nothing to the next one.
        self._next = int.from_bytes(os.urandom(6), "big")

    def stat(self, root: str, path: str, follow: bool) -> dict[str, Any]:
        with _Place(root, path, follow=follow) as place:
            found = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False)
        return _entry(os.path.basename(path), found)

    def list(self, root: str, path: str, most: int) -> list[dict[str, Any]]:
        with _Place(root, path, follow=True) as place:
            folder = os.open(place.name, _FOLDER, dir_fd=place.folder)
        try:
            with os.scandir(folder) as found:
                entries: list[dict[str, Any]] = []
                for each in found:
                    if len(entries) == most:
                        raise OSError(errno.E2BIG, f"A folder with more than {most} entries cannot be listed")
                    entries.append(_entry(each.name, each.stat(follow_symlinks=False)))
        finally:
            os.close(folder)
        return sorted(entries, key=lambda entry: str(entry["name"]))

    def open(self, root: str, path: str, mode: str, permissions: int) -> int:
        with _Place(root, path, follow=mode != "create") as place:
            _only_regular(place)  # to open a device or a pipe may do something already
            opened = os.open(place.name, _FILE | _MODES[mode], permissions, dir_fd=place.folder)
        if not stat.S_ISREG(os.fstat(opened).st_mode):
            os.close(opened)
            raise OSError(errno.EINVAL, "Not a regular file")
        if mode == "create":
            os.fchmod(opened, permissions)  # as asked, whatever the umask of this process is
        handle, self._next = self._next, self._next + 1
        self._open[handle] = opened
        return handle

    def read(self, handle: int, size: int) -> bytes:
        return os.read(self._of(handle), size)

    def write(self, handle: int, body: bytes) -> None:
        rest = memoryview(body)
        while rest:
            rest = rest[os.write(self._of(handle), rest) :]

    def sync_file(self, handle: int) -> None:
        os.fsync(self._of(handle))

    def close(self, handle: int) -> None:
        if handle in self._open:
            os.close(self._open.pop(handle))

    def _of(self, handle: int) -> int:
        try:
            return self._open[handle]
        except KeyError:
            raise OSError(errno.EBADF, "The file is no longer open") from None

    def mkdir(self, root: str, path: str, permissions: int) -> None:
        with _Place(root, path, follow=False) as place:
            os.mkdir(place.name, permissions, dir_fd=place.folder)

    def rename(self, root: str, source: str, target: str) -> None:
        with _Place(root, source, follow=False) as old, _Place(root, target, follow=False) as new:
            os.rename(old.name, new.name, src_dir_fd=old.folder, dst_dir_fd=new.folder)

    def unlink(self, root: str, path: str) -> None:
        with _Place(root, path, follow=False) as place:
            os.unlink(place.name, dir_fd=place.folder)

    def rmdir(self, root: str, path: str) -> None:
        with _Place(root, path, follow=False) as place:
            os.rmdir(place.name, dir_fd=place.folder)

    def remove_tree(self, root: str, path: str, seconds: float) -> bool:
        with _Place(root, path, follow=False) as place:
            folder = os.open(place.name, _FOLDER, dir_fd=place.folder)
            try:
                done = _emptied(folder, time.monotonic() + seconds)
            finally:
                os.close(folder)
            if done and place.name != ".":
                os.rmdir(place.name, dir_fd=place.folder)
        return done

    def symlink(self, root: str, target: str, path: str) -> None:
        with _Place(root, path, follow=False) as place:
            os.symlink(target, place.name, dir_fd=place.folder)

    def readlink(self, root: str, path: str) -> str:
        with _Place(root, path, follow=False) as place:
            return os.readlink(place.name, dir_fd=place.folder)

    def chmod(self, root: str, path: str, permissions: int) -> None:
        with _Place(root, path, follow=False) as place:
            opened = os.open(place.name, os.O_RDONLY | _FILE, dir_fd=place.folder)
        try:
            os.fchmod(opened, permissions)
        finally:
            os.close(opened)

    def sync_folder(self, root: str, path: str) -> None:
        with _Place(root, path, follow=True) as place:
            folder = os.open(place.name, _FOLDER, dir_fd=place.folder)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def close_all(self) -> None:
        while self._open:
            os.close(self._open.popitem()[1])


def _only_regular(place: _Place) -> None:
    try:
        mode = os.stat(place.name, dir_fd=place.folder, follow_symlinks=False).st_mode
    except FileNotFoundError:
        return
    if not (stat.S_ISREG(mode) or stat.S_ISDIR(mode) or stat.S_ISLNK(mode)):
        raise OSError(errno.EINVAL, "The path is a pipe, socket or device, not a regular file")


def _emptied(top: int, until: float) -> bool:
    """Remove the contents of an open folder, stopping at a deadline. Return whether the folder is empty.

    The contents of nested folders are moved up into the top one, so folders nested to any depth are removed without
    recursion, with short paths and two descriptors.
    """
    while entries := _some(top):
        for entry in entries:
            if time.monotonic() >= until:
                return False
            if not entry.is_dir(follow_symlinks=False):
                _gone(os.unlink, entry.name, top)
            elif not _is_removed(entry.name, top) and not _flattened(entry.name, top, until):
                return False
    return True


def _flattened(name: str, top: int, until: float) -> bool:
    """Remove the files of a folder in `top`, and move its non-empty folders up to `top`. Return whether all is done."""
    folder = os.open(name, _FOLDER, dir_fd=top)
    try:
        while entries := _some(folder):
            for entry in entries:
                if time.monotonic() >= until:
                    return False
                if not entry.is_dir(follow_symlinks=False):
                    _gone(os.unlink, entry.name, folder)
                elif not _is_removed(entry.name, folder):
                    os.rename(entry.name, f".drydock-{os.urandom(8).hex()}", src_dir_fd=folder, dst_dir_fd=top)
    finally:
        os.close(folder)
    _is_removed(name, top)
    return True


def _some(folder: int) -> list[os.DirEntry[str]]:
    with os.scandir(folder) as found:
        return list(itertools.islice(found, _AT_ONCE))


def _is_removed(name: str, folder: int) -> bool:
    """Remove a folder if it is empty. Return whether it is gone."""
    try:
        _gone(os.rmdir, name, folder)
    except OSError as error:
        if error.errno in (errno.ENOTEMPTY, errno.EEXIST):
            return False
        raise
    return True


def _gone(remove: Callable[..., None], name: str, folder: int) -> None:
    try:
        remove(name, dir_fd=folder)
    except FileNotFoundError:
        return


def _entry(name: str, found: os.stat_result) -> dict[str, Any]:
    kinds = {stat.S_IFREG: "file", stat.S_IFDIR: "directory", stat.S_IFLNK: "link"}
    return {
        "name": name,
        "kind": kinds.get(stat.S_IFMT(found.st_mode), "other"),
        "size": found.st_size,
        "permissions": stat.S_IMODE(found.st_mode),
        "modified": found.st_mtime,
    }
