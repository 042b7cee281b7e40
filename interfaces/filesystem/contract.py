"""The contract of the `filesystem` interface, for any transport."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

from interfaces.contract import Interface
from interfaces.deadline import Cancel
from interfaces.files import Entry

LARGEST_READ = 64 << 20
"""Default limit of `read_bytes` in bytes; `read_parts` has no limit."""

UsageCheck = Callable[[int], None]
"""Called with the number of bytes about to be written; raises QuotaExceeded if they do not fit."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """Progress of copying a tree: the current or last file, and the totals so far."""

    path: str
    files: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """The result of copying a tree.

    `skipped` lists the first 1,000 entries that were not copied: links out of the tree, pipes, sockets and devices.
    """

    files: int
    bytes: int
    skipped: tuple[str, ...] = ()


class Filesystem(Interface):
    """Files below the root of the lease. Paths are relative to the root; ".." and links must not lead out of the root.

    All methods raise LeaseEnded, PathEscape, PathMissing, WrongKind, PermissionRefused, InvalidRequest,
    DeadlineExceeded, Unreachable, ConnectionLost; methods that write also QuotaExceeded, PathExists. `timeout` is in
    seconds and is checked between the parts of an operation.
    """

    name: ClassVar[str] = "filesystem"
    default_timeout: ClassVar[float] = 120.0

    @property
    @abstractmethod
    def root(self) -> str:
        """The root as a path on the host, for commands that work below the root."""

    @abstractmethod
    def read_bytes(self, path: str, *, limit: int = LARGEST_READ, timeout: float | None = None) -> bytes:
        """Return the content of a file. Raises TooLarge if it has more than `limit` bytes."""

    @abstractmethod
    def read_parts(self, path: str, *, timeout: float | None = None) -> Iterator[bytes]:
        """Yield the content of a file of any size in parts."""

    @abstractmethod
    def write_parts(
        self, path: str, parts: Iterable[bytes], *, permissions: int = 0o644, timeout: float | None = None
    ) -> None:
        """Write a file atomically: readers see either the old or the new content.

        Writes to a temporary file, syncs that file to disk and renames it. If this fails, the old content stays.
        """

    @abstractmethod
    def append(self, path: str, content: bytes, *, timeout: float | None = None) -> None:
        """Append to a file, creating it if it is missing."""

    @abstractmethod
    def list(self, path: str = "", *, timeout: float | None = None) -> list[Entry]:
        """Return the entries of a folder, sorted by name. Links are not followed.

        Raises TooLarge for more than `interfaces.files.MOST_LISTED` entries.
        """

    @abstractmethod
    def stat(self, path: str, *, follow: bool = True, timeout: float | None = None) -> Entry:
        """Return the entry at a path. If `follow` is false and the path is a link, return the link itself."""

    @abstractmethod
    def exists(self, path: str, *, timeout: float | None = None) -> bool:
        """Return whether something exists at a path. False for a link whose target does not exist."""

    @abstractmethod
    def mkdir(self, path: str, *, parents: bool = True, timeout: float | None = None) -> None:
        """Create a folder. If `parents` is true, also create missing parents, and do not fail if the folder exists."""

    @abstractmethod
    def move(self, source: str, target: str, *, timeout: float | None = None) -> None:
        """Move a file or folder within the root, replacing a file at `target`."""

    @abstractmethod
    def remove(self, path: str, *, recursive: bool = False, timeout: float | None = None) -> None:
        """Remove a file, a link (never its target) or an empty folder. `recursive` allows a folder that is not empty.

        A missing path is not an error. The root itself is emptied, not removed. If the timeout expires, everything
        removed until then stays removed.
        """

    @abstractmethod
    def chmod(self, path: str, permissions: int, *, timeout: float | None = None) -> None:
        """Change the permissions of a file or folder. Refuses links."""

    @abstractmethod
    def upload(
        self,
        local: Path,
        path: str = "",
        *,
        progress: Callable[[Progress], None] | None = None,
        timeout: float | None = None,
        cancel: Cancel | None = None,
    ) -> Transfer:
        """Copy a local file or tree to `path` in the lease, with its permissions."""

    @abstractmethod
    def download(
        self,
        path: str,
        local: Path,
        *,
        progress: Callable[[Progress], None] | None = None,
        limit: int | None = None,
        timeout: float | None = None,
        cancel: Cancel | None = None,
    ) -> Transfer:
        """Copy a file or a tree from the lease to `local`.

        Never writes outside `local`, whatever names and links the lease contains. Raises TooLarge if there are more
        than `limit` bytes. If the file sizes show this in advance, nothing is copied.
        """

    def read_text(self, path: str, *, limit: int = LARGEST_READ, timeout: float | None = None) -> str:
        """Return the content of a UTF-8 file. Raises TooLarge, UnicodeDecodeError."""
        return self.read_bytes(path, limit=limit, timeout=timeout).decode("utf-8")

    def write_bytes(self, path: str, content: bytes, *, permissions: int = 0o644, timeout: float | None = None) -> None:
        """Write a file atomically. See `write_parts`."""
        self.write_parts(path, [content], permissions=permissions, timeout=timeout)

    def write_text(self, path: str, content: str, *, permissions: int = 0o644, timeout: float | None = None) -> None:
        """Write a UTF-8 file atomically. See `write_parts`."""
        self.write_bytes(path, content.encode("utf-8"), permissions=permissions, timeout=timeout)
