"""The `filesystem` interface over the files of any transport."""

from __future__ import annotations

import contextlib
import os
import secrets
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path, PurePosixPath

from drydock.core.errors import InvalidRequest
from interfaces.contract import StillMine, Watch
from interfaces.deadline import Cancel
from interfaces.endpoints import LocalEndpoint
from interfaces.errors import InterfaceError, PathMissing, TooLarge, WrongKind
from interfaces.files import PART, Entry, Files, OpenFile, normal
from interfaces.filesystem.contract import LARGEST_READ, Filesystem, Progress, Transfer, UsageCheck
from interfaces.filesystem.trees import Tree, copy_tree
from interfaces.local.files import LocalFiles
from interfaces.transport import Transport

_REMOVE_FOR = 0.5
"""Seconds for which a transport removes files before the deadline and the lease are checked again."""


class RootedFilesystem(Filesystem):
    """Files below `root`, which is absolute on the host or relative to the home.

    `usage_check` is called before each part is written, and may raise QuotaExceeded. Other code that writes to the same
    folder must also call it.
    """

    def __init__(
        self,
        transport: Transport,
        *,
        still_mine: StillMine,
        root: str = "",
        usage_check: UsageCheck | None = None,
    ) -> None:
        super().__init__(transport, still_mine=still_mine)
        self._files: Files = transport.files(root)
        self.usage_check = usage_check

    @property
    def root(self) -> str:
        return self._files.root

    def read_bytes(self, path: str, *, limit: int = LARGEST_READ, timeout: float | None = None) -> bytes:
        content = bytearray()
        for part in self.read_parts(path, timeout=timeout):
            content += part
            if len(content) > limit:
                raise TooLarge(f"{path!r} has more than {limit} bytes.")
        return bytes(content)

    def read_parts(self, path: str, *, timeout: float | None = None) -> Iterator[bytes]:
        watch = self._watch(f"Reading {path!r}", timeout)
        with contextlib.closing(self._files.open(_file(path), "read")) as opened:
            while part := opened.read(PART):
                yield part
                watch.check()

    def write_parts(
        self, path: str, parts: Iterable[bytes], *, permissions: int = 0o644, timeout: float | None = None
    ) -> None:
        watch = self._watch(f"Writing {path!r}", timeout)
        self._write(_file(path), parts, permissions, watch)

    def append(self, path: str, content: bytes, *, timeout: float | None = None) -> None:
        watch = self._watch(f"Writing {path!r}", timeout)
        self._room(len(content))
        with contextlib.closing(self._files.open(_file(path), "append")) as opened:
            for at in range(0, len(content), PART):
                watch.check()
                opened.write(content[at : at + PART])
            opened.sync()

    def list(self, path: str = "", *, timeout: float | None = None) -> list[Entry]:
        self._watch(f"Listing {path!r}", timeout)
        return self._files.list(normal(path))

    def stat(self, path: str, *, follow: bool = True, timeout: float | None = None) -> Entry:
        self._watch(f"Reading the entry {path!r}", timeout)
        return self._files.stat(normal(path), follow=follow)

    def exists(self, path: str, *, timeout: float | None = None) -> bool:
        try:
            self.stat(path, timeout=timeout)
        except (PathMissing, WrongKind):
            return False
        return True

    def mkdir(self, path: str, *, parents: bool = True, timeout: float | None = None) -> None:
        self._watch(f"Creating {path!r}", timeout)
        self._mkdir(normal(path), parents)

    def move(self, source: str, target: str, *, timeout: float | None = None) -> None:
        self._watch(f"Moving {source!r}", timeout)
        self._files.rename(_file(source), _file(target))

    def remove(self, path: str, *, recursive: bool = False, timeout: float | None = None) -> None:
        watch = self._watch(f"Removing {path!r}", timeout)
        with contextlib.suppress(PathMissing):
            entry = self._files.stat(normal(path), follow=False)
            if entry.kind != "directory":
                self._files.unlink(normal(path))
            elif recursive:
                while not self._files.remove_tree(normal(path), _REMOVE_FOR):
                    watch.check()
            elif normal(path):
                self._files.rmdir(normal(path))

    def chmod(self, path: str, permissions: int, *, timeout: float | None = None) -> None:
        self._watch(f"Changing {path!r}", timeout)
        self._files.chmod(normal(path), permissions)

    def upload(
        self,
        local: Path,
        path: str = "",
        *,
        progress: Callable[[Progress], None] | None = None,
        timeout: float | None = None,
        cancel: Cancel | None = None,
    ) -> Transfer:
        watch = self._watch("The upload", timeout, cancel)
        with contextlib.closing(_own_files(local.absolute().parent)) as source:
            return copy_tree(
                Tree(source, watch), local.absolute().name, Tree(self._files, watch, self._write),
                normal(path), progress,
            )  # fmt: skip

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
        watch = self._watch("The download", timeout, cancel)
        with contextlib.closing(_own_files(local.absolute().parent)) as target:
            own = Tree(target, watch, _Writer(target, None))
            return copy_tree(Tree(self._files, watch), normal(path), own, local.absolute().name, progress, limit)

    def _write(self, path: str, parts: Iterable[bytes], permissions: int, watch: Watch) -> None:
        _Writer(self._files, self.usage_check)(path, parts, permissions, watch)

    def _room(self, size: int) -> None:
        if self.usage_check is not None:
            self.usage_check(size)

    def _mkdir(self, path: str, parents: bool) -> None:
        if not parents:
            return self._files.mkdir(path)
        Tree(self._files, None).make_folders(path)


class _Writer:
    """Writes a file under a temporary name beside its target, and renames it."""

    def __init__(self, files: Files, usage_check: UsageCheck | None) -> None:
        self._files, self._usage_check = files, usage_check

    def __call__(self, path: str, parts: Iterable[bytes], permissions: int, watch: Watch) -> None:
        with contextlib.suppress(PathMissing):
            if self._files.stat(path).kind == "directory":
                raise WrongKind(f"{path!r} is a folder.")
        beside = str(PurePosixPath(path).parent / f".drydock-{secrets.token_hex(8)}").removeprefix("./")
        opened = self._files.open(beside, "create", permissions=permissions)
        try:
            self._fill(opened, parts, watch)
            self._files.rename(beside, path)
        except BaseException:
            with contextlib.suppress(InterfaceError):
                self._files.unlink(beside)
            raise
        self._files.sync(os.path.dirname(path))

    def _fill(self, opened: OpenFile, parts: Iterable[bytes], watch: Watch) -> None:
        with contextlib.closing(opened):
            for part in parts:
                for at in range(0, len(part), PART):
                    watch.check()
                    piece = part[at : at + PART]
                    if self._usage_check is not None:
                        self._usage_check(len(piece))
                    opened.write(piece)
            opened.sync()


def _own_files(folder: Path) -> LocalFiles:
    return LocalFiles(str(folder), LocalEndpoint(uid=os.geteuid(), gid=os.getegid(), home="/"))


def _file(path: str) -> str:
    found = normal(path)
    if not found:
        raise InvalidRequest("The target needs a file name.", field="path")
    return found
