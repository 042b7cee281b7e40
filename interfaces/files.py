"""The file operations of a transport, confined to one folder. The `filesystem` interface is built on them."""

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
"""Bytes read or written in one call."""
MOST_LISTED = 10_000
"""Default limit on the entries of a folder that are listed."""
_LONGEST_PATH = 4000
MOST_REMOVED = 200_000
"""Limit on the entries of one folder that are removed one by one, if a transport has no faster way."""


@dataclass(frozen=True, kw_only=True)
class Entry:
    """An entry at a path: `size` in bytes, `modified` in seconds since 1970, `permissions` such as 0o644."""

    name: str
    kind: Kind
    size: int
    permissions: int
    modified: float


class OpenFile(ABC):
    """An open regular file. The caller must close it."""

    @abstractmethod
    def read(self, size: int = PART) -> bytes:
        """Return the next bytes, at most `size`; empty at the end of the file."""

    @abstractmethod
    def write(self, part: bytes) -> None:
        """Write all of `part` to the file."""

    @abstractmethod
    def sync(self) -> None:
        """Write the file's data to disk, if the transport supports that."""

    @abstractmethod
    def close(self) -> None:
        """Close the file. Raises an InterfaceError if written data could not be stored."""


class Files(ABC):
    """Operations below `root`. Paths are relative and normal (see `normal`); "" is the root itself.

    Raises PathEscape if a link leads out of the root, PathMissing, PathExists, WrongKind, PermissionRefused,
    QuotaExceeded and ConnectionLost.
    """

    root: str

    @abstractmethod
    def stat(self, path: str, *, follow: bool = True) -> Entry:
        """Return the entry at a path. If `follow` is false, a final link is not followed."""

    @abstractmethod
    def list(self, path: str, *, most: int = MOST_LISTED) -> list[Entry]:
        """Return the entries of a folder by name without following links. Raises TooLarge for more than `most`."""

    @abstractmethod
    def open(self, path: str, mode: Mode, *, permissions: int = 0o644) -> OpenFile:
        """Open a regular file. "create" fails if anything exists at the path; "write" empties the file first."""

    @abstractmethod
    def mkdir(self, path: str, *, permissions: int = 0o755) -> None:
        """Create one folder."""

    @abstractmethod
    def rename(self, source: str, target: str) -> None:
        """Rename a file or folder atomically, replacing a file at `target`."""

    @abstractmethod
    def unlink(self, path: str) -> None:
        """Remove a file, or a link but not its target."""

    @abstractmethod
    def rmdir(self, path: str) -> None:
        """Remove an empty folder."""

    def remove_tree(self, path: str, seconds: float) -> bool:
        """Remove a folder and its contents, stopping after about `seconds`.

        Return whether the folder is gone; the root itself is only emptied. Each call continues where the last one
        stopped, so a tree of any size is removed in bounded steps.
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
        """Create a link. The caller has checked that `target` stays inside the root."""

    @abstractmethod
    def readlink(self, path: str) -> str:
        """Return the target of a link as stored in it."""

    @abstractmethod
    def chmod(self, path: str, permissions: int) -> None:
        """Change the permissions of a file or folder. Refuses links."""

    @abstractmethod
    def sync(self, path: str) -> None:
        """Write the folder's entries to disk, if the transport supports that."""

    @abstractmethod
    def close(self) -> None:
        """Release open resources."""


def normal(path: str) -> str:
    """Return the normal form of a path below a root: no leading slash, no ".", no ".."; "" is the root.

    Raises PathEscape if the path is absolute or leaves the root by "..", and InvalidRequest for invalid characters.
    """
    if said := unpassable(path):
        raise InvalidRequest(f"A path cannot contain {said}.", field="path")
    if path.startswith("/"):
        raise errors.PathEscape(f"An absolute path leads outside the folder of this lease: {path!r}.")
    parts: list[str] = []
    for part in path.split("/"):
        if part == ".." and not parts:
            raise errors.PathEscape(f"The path leads outside the folder of this lease: {path!r}.")
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
    """Return the interface error for an error number of the operating system (errno)."""
    kind = _BY_NUMBER.get(number or 0, errors.FileError)
    return kind(f"{text or 'The operation failed'}: {path!r}.")


def too_many(most: int, path: str) -> errors.InterfaceError:
    """Return the error for a folder with more than `most` entries."""
    return file_error(errno.E2BIG, f"A folder with more than {most} entries cannot be listed", path)
