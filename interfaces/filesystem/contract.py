"""What working with the files of a lease means, whatever the way there."""

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
"""Bytes that `read_bytes` reads at most unless asked otherwise; `read_parts` has no bound."""

UsageCheck = Callable[[int], None]
"""Called with the number of bytes about to be written; raises QuotaExceeded when they do not fit."""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """How far the copying of a tree is: the file just finished or in work, files and bytes so far."""

    path: str
    files: int
    bytes: int


@dataclass(frozen=True, kw_only=True)
class Transfer:
    """What the copying of a tree did. `skipped`: links that lead out of the tree, pipes, sockets, devices; the first
    1,000 of them."""

    files: int
    bytes: int
    skipped: tuple[str, ...] = ()


class Filesystem(Interface):
    """Paths are relative to the root of the lease; ".." and links must not lead out of it.

    All methods raise LeaseEnded, PathEscape, PathMissing, WrongKind, PermissionRefused, InvalidRequest,
    DeadlineExceeded, Unreachable, ConnectionLost; those that write also QuotaExceeded, PathExists.
    `timeout` is in seconds and is looked at between the parts of an operation.
    """

    name: ClassVar[str] = "filesystem"
    default_timeout: ClassVar[float] = 120.0

    @property
    @abstractmethod
    def root(self) -> str:
        """The root as a path on the host, for commands that are to work in it."""

    @abstractmethod
    def read_bytes(self, path: str, *, limit: int = LARGEST_READ, timeout: float | None = None) -> bytes:
        """All of a file. Raises TooLarge when it has more than `limit` bytes."""

    @abstractmethod
    def read_parts(self, path: str, *, timeout: float | None = None) -> Iterator[bytes]:
        """A file of any size, part by part."""

    @abstractmethod
    def write_parts(
        self, path: str, parts: Iterable[bytes], *, permissions: int = 0o644, timeout: float | None = None
    ) -> None:
        """Write a file in one step for readers: they see what was there before, or all of the new.

        It is written beside, brought to disk and moved over; a failure leaves what was there.
        """

    @abstractmethod
    def append(self, path: str, content: bytes, *, timeout: float | None = None) -> None:
        """Add to the end of a file, making it when it is missing."""

    @abstractmethod
    def list(self, path: str = "", *, timeout: float | None = None) -> list[Entry]:
        """What is in a folder, by name; links are described themselves. Raises TooLarge for more than
        `interfaces.files.MOST_LISTED` entries."""

    @abstractmethod
    def stat(self, path: str, *, follow: bool = True, timeout: float | None = None) -> Entry:
        """What stands at the path; with `follow=False` a last link is described itself."""

    @abstractmethod
    def exists(self, path: str, *, timeout: float | None = None) -> bool:
        """Whether something stands at the path; a link that leads nowhere does not."""

    @abstractmethod
    def mkdir(self, path: str, *, parents: bool = True, timeout: float | None = None) -> None:
        """Make a folder, and those above it; one that is there is no error when `parents`."""

    @abstractmethod
    def move(self, source: str, target: str, *, timeout: float | None = None) -> None:
        """Move within the root, replacing a file that is at `target`."""

    @abstractmethod
    def remove(self, path: str, *, recursive: bool = False, timeout: float | None = None) -> None:
        """Remove a file, a link (never what it leads to), or an empty folder; with `recursive` a full one.
        What is not there is no error. The root itself is emptied, not removed. When the time runs out, what was
        removed until then is gone."""

    @abstractmethod
    def chmod(self, path: str, permissions: int, *, timeout: float | None = None) -> None:
        """Change the permissions of a file or folder; a link is refused."""

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
        """Copy a file or a tree from this program's machine, with its rights, to `path` in the lease."""

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
        """Copy a file or a tree from the lease to `local`. Whatever names and links the lease holds,
        nothing is written outside `local`. Raises TooLarge for more than `limit` bytes, before anything is copied
        where the sizes of the files say so."""

    def read_text(self, path: str, *, limit: int = LARGEST_READ, timeout: float | None = None) -> str:
        """All of a UTF-8 file. Raises TooLarge, UnicodeDecodeError."""
        return self.read_bytes(path, limit=limit, timeout=timeout).decode("utf-8")

    def write_bytes(self, path: str, content: bytes, *, permissions: int = 0o644, timeout: float | None = None) -> None:
        """`write_parts` of one part."""
        self.write_parts(path, [content], permissions=permissions, timeout=timeout)

    def write_text(self, path: str, content: str, *, permissions: int = 0o644, timeout: float | None = None) -> None:
        """`write_bytes` of UTF-8."""
        self.write_bytes(path, content.encode("utf-8"), permissions=permissions, timeout=timeout)
