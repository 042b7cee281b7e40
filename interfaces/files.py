"""The file operations a transport gives, confined to one folder: what `filesystem` stands on."""

from __future__ import annotations

import contextlib
import errno
import posixpath
from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Literal

from drydock.core import clock
from drydock.core.errors import InvalidRequest
from interfaces import errors
from interfaces.passing import unpassable

Kind = Literal["file", "directory", "link", "other"]
Mode = Literal["read", "write", "create", "append"]
PART = 1 << 18
"""Bytes moved at once."""
MOST_LISTED = 10_000
"""Entries of a folder that are listed unless more are asked for."""
_LONGEST_PATH = 4000
MOST_REMOVED = 200_000
"""Entries of one folder that are removed one by one where a transport has no quicker way."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """What stands at a path: `size` in bytes, `modified` in seconds since 1970, `permissions` as 0o644."""

    name: str
    kind: Kind
    size: int
    permissions: int
    modified: float


class OpenFile(ABC):
    """An open regular file; close it."""

    @abstractmethod
    def read(self, size: int = PART) -> bytes:
        """The next bytes, at most `size`; empty at the end."""

    @abstractmethod
    def write(self, part: bytes) -> None:
        """Write all of `part`."""

    @abstractmethod
    def sync(self) -> None:
        """Have what was written reach the disk, where the transport can ask for that."""

    @abstractmethod
    def close(self) -> None:
        """Close it; raises when something written could not be kept."""


class Files(ABC):
    """Operations below `root`. Paths are relative and normal (see `normal`); "" is the root itself.

    Raises PathEscape when a link leads out, PathMissing, PathExists, WrongKind, PermissionRefused,
    QuotaExceeded, ConnectionLost.
    """

    root: str

    @abstractmethod
    def stat(self, path: str, *, follow: bool = True) -> Entry:
        """What stands at the path; with `follow=False` a last link is described itself."""

    @abstractmethod
    def list(self, path: str, *, most: int = MOST_LISTED) -> list[Entry]:
        """What is in the folder, by name; links are described themselves. TooLarge for more than `most` entries."""

    @abstractmethod
    def open(self, path: str, mode: Mode, *, permissions: int = 0o644) -> OpenFile:
        """Open a regular file. "create" fails when anything is there; "write" empties it first."""

    @abstractmethod
    def mkdir(self, path: str, *, permissions: int = 0o755) -> None:
        """Make one folder."""

    @abstractmethod
    def rename(self, source: str, target: str) -> None:
        """Move in one step, replacing a file that is at `target`."""

    @abstractmethod
    def unlink(self, path: str) -> None:
        """Remove a file or a link (not what it leads to)."""

    @abstractmethod
    def rmdir(self, path: str) -> None:
        """Remove an empty folder."""

    def remove_tree(self, path: str, seconds: float) -> bool:
        """Remove a folder with all that is in it for about `seconds`; return whether it is done. The root stays.

        Called again it goes on, so that a tree of any size is removed in bounded steps.
        """
        until, waiting = clock.monotonic() + seconds, [path]
        while waiting:
            folder = waiting[-1]
            try:
                entries = self.list(folder, most=MOST_REMOVED)
            except errors.PathMissing:
                entries = []
            for entry in entries:
                if clock.monotonic() >= until:
                    return False
                below = posixpath.join(folder, entry.name)
                if len(below.encode("utf-8", "surrogateescape")) > _LONGEST_PATH:
                    raise file_error(errno.ENAMETOOLONG, "The folder is nested too deeply", folder[:80])
                if entry.kind == "directory":
                    waiting.append(below)
                else:
                    with contextlib.suppress(errors.PathMissing):
                        self.unlink(below)
            if waiting[-1] is folder:
                waiting.pop()
                if folder:
                    with contextlib.suppress(errors.PathMissing):
                        self.rmdir(folder)
        return True

    @abstractmethod
    def symlink(self, target: str, path: str) -> None:
        """Make a link; the caller has checked that `target` stays inside."""

    @abstractmethod
    def readlink(self, path: str) -> str:
        """Where a link leads, as written in it."""

    @abstractmethod
    def chmod(self, path: str, permissions: int) -> None:
        """Change the permissions of a file or folder; a link is refused."""

    @abstractmethod
    def sync(self, path: str) -> None:
        """Have the folder's own entries reach the disk, where the transport can ask for that."""

    @abstractmethod
    def close(self) -> None:
        """Give back what is held."""


def normal(path: str) -> str:
    """The one way to write a path below a root: no leading slash, no ".", no "..", "" for the root.

    Raises PathEscape for an absolute path or one whose ".." leads out, InvalidRequest for what no path holds.
    """
    if said := unpassable(path):
        raise InvalidRequest(f"A path cannot hold {said}.", field="path")
    if path.startswith("/"):
        raise errors.PathEscape(f"An absolute path leads out of the folder of this lease: {path!r}.")
    parts: list[str] = []
    for part in path.split("/"):
        if part == ".." and not parts:
            raise errors.PathEscape(f"The path leads out of the folder of this lease: {path!r}.")
        if part == "..":
            parts.pop()
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)


_BY_NUMBER: dict[int, type[errors.InterfaceError]] = {
    errno.ENOENT: errors.PathMissing,
    errno.EEXIST: errors.PathExists,
    errno.ENOTEMPTY: errors.PathExists,
    errno.ENOTDIR: errors.WrongKind,
    errno.EISDIR: errors.WrongKind,
    errno.EINVAL: errors.WrongKind,
    errno.ENXIO: errors.WrongKind,
    errno.EACCES: errors.PermissionRefused,
    errno.EPERM: errors.PermissionRefused,
    errno.EROFS: errors.PermissionRefused,
    errno.EDQUOT: errors.QuotaExceeded,
    errno.ENOSPC: errors.QuotaExceeded,
    errno.E2BIG: errors.TooLarge,
    errno.ENAMETOOLONG: errors.NameTooLong,
    errno.EFBIG: errors.QuotaExceeded,
    errno.EXDEV: errors.PathEscape,
    errno.ELOOP: errors.PathEscape,
}


def file_error(number: int | None, text: str, path: str) -> errors.InterfaceError:
    """The error for an operating system's number."""
    kind = _BY_NUMBER.get(number or 0, errors.FileError)
    return kind(f"{text or 'The operation failed'}: {path!r}.")


def too_many(most: int, path: str) -> errors.InterfaceError:
    """The error for a folder with more than `most` entries."""
    return file_error(errno.E2BIG, f"A folder of more than {most} entries is not listed", path)
