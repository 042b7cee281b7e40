"""Trees of files: walking them, and copying them from one file system to another."""

from __future__ import annotations

import os
import posixpath
from collections.abc import Callable, Generator, Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass, field

from drydock_client.trees import LONGEST_PATH, MOST_DEEP, MOST_ENTRIES, MOST_SKIPPED, link_stays
from interfaces.contract import Watch
from interfaces.errors import PathExists, PathMissing, TooLarge, WrongKind
from interfaces.files import PART, Entry, Files, normal
from interfaces.filesystem.contract import Progress, Transfer

Write = Callable[[str, Iterable[bytes], int, Watch], None]


class Tree:
    """Operations on trees of files. `write` creates or replaces a file as a whole."""

    def __init__(self, files: Files, watch: Watch | None, write: Write | None = None) -> None:
        self.files, self.watch, self._write = files, watch, write

    def make_folders(self, path: str) -> None:
        """Create a folder and its parents. Raises WrongKind if another entry is in the way."""
        at = ""
        for step in path.split("/") if path else []:
            at = posixpath.join(at, step)
            try:
                if self.files.stat(at).kind != "directory":
                    raise WrongKind(f"{at!r} is not a folder.")
            except PathMissing:
                self._make(at)

    def add_folder(self, path: str) -> None:
        """Create a folder in an existing one. Raises WrongKind if another entry, such as a link, is in the way."""
        try:
            if self.files.stat(path, follow=False).kind != "directory":
                raise WrongKind(f"{path!r} is not a folder.")
        except PathMissing:
            self._make(path)

    def _make(self, path: str) -> None:
        try:
            self.files.mkdir(path)
        except PathExists:
            # Somebody made it in between, or a link that leads nowhere has the name.
            if self.files.stat(path).kind != "directory":
                raise

    def walk(self, path: str) -> Iterator[tuple[str, Entry]]:
        """Yield every entry below a folder, each folder before its contents. Links are not followed."""
        open_folders = [self._listed(path)]
        while open_folders:
            found = next(open_folders[-1], None)
            if found is None:
                open_folders.pop()
                continue
            self._check()
            yield found
            if found[1].kind == "directory":
                open_folders.append(self._listed(found[0]))

    def _listed(self, path: str) -> Iterator[tuple[str, Entry]]:
        return ((posixpath.join(path, entry.name), entry) for entry in self.files.list(path, most=MOST_ENTRIES))

    def measure(self, path: str, limit: int) -> None:
        """Raise TooLarge if the reported sizes of the files below a folder add up to more than `limit` bytes."""
        size = 0
        for number, (below, entry) in enumerate(self.walk(path)):
            _bound(number, _moved(below, path, ""))
            size += entry.size if entry.kind == "file" else 0
            require_within(size, limit)

    def parts(self, path: str) -> Generator[bytes, None, None]:
        """Yield the content of a file in parts."""
        with closing(self.files.open(path, "read")) as opened:
            while part := opened.read(PART):
                yield part

    def write(self, path: str, parts: Generator[bytes, None, None], permissions: int) -> None:
        """Write a complete file."""
        assert self._write is not None
        assert self.watch is not None
        with closing(parts):
            self._write(path, parts, permissions & 0o777, self.watch)

    def _check(self) -> None:
        if self.watch is not None:
            self.watch.check()


@dataclass
class _Count:
    progress: Callable[[Progress], None] | None
    limit: int | None = None
    files: int = 0
    size: int = 0
    skipped: list[str] = field(default_factory=list)

    def counted(self, path: str, parts: Generator[bytes, None, None]) -> Generator[bytes, None, None]:
        with closing(parts):
            for part in parts:
                self.size += len(part)
                require_within(self.size, self.limit)
                self.tell(path)
                yield part

    def tell(self, path: str) -> None:
        if self.progress is not None:
            self.progress(Progress(path=path, files=self.files, bytes=self.size))

    def done(self, path: str) -> None:
        self.files += 1
        self.tell(path)

    def skip(self, path: str) -> None:
        if len(self.skipped) < MOST_SKIPPED:
            self.skipped.append(path)


def require_within(size: int, limit: int | None) -> None:
    """Raise TooLarge if there is a limit and `size` exceeds it."""
    if limit is not None and size > limit:
        raise TooLarge(f"The tree has more than {limit} bytes.")


def copy_tree(
    source: Tree, start: str, target: Tree, end: str, progress: Callable[[Progress], None] | None,
    limit: int | None = None,
) -> Transfer:  # fmt: skip
    """Copy the file or folder at `start` to `end`. A link is recreated if it stays inside the tree.

    Raises TooLarge, before anything is copied, if the reported file sizes exceed `limit`, and
    WrongKind if `start` is a pipe, a socket or a device.
    """
    count = _Count(progress, limit)
    first = source.files.stat(start)
    if first.kind not in ("directory", "file"):
        raise WrongKind(f"{start!r} is neither a file nor a folder.")
    if first.kind == "file":
        require_within(first.size, limit)
    elif limit is not None:
        source.measure(start, limit)
    if first.kind == "directory":
        target.make_folders(end)
        for number, (path, entry) in enumerate(source.walk(start)):
            _bound(number, _moved(path, start, ""))
            _copy(source, path, entry, target, _moved(path, start, end), start, count)
    else:
        if not end:
            end = posixpath.basename(start)
        target.make_folders(posixpath.dirname(end))
        _copy(source, start, first, target, end, start, count)
    return Transfer(files=count.files, bytes=count.size, skipped=tuple(count.skipped))


def _bound(number: int, below: str) -> None:
    if number >= MOST_ENTRIES:
        raise TooLarge(
            f"A tree with more than {MOST_ENTRIES} files and folders cannot be copied.",
            hint="Pack it into an archive first.",
        )
    if below.count("/") >= MOST_DEEP:
        raise TooLarge(f"A tree nested more than {MOST_DEEP} folders deep cannot be copied: {below[:80]!r}.")
    if len(os.fsencode(below)) > LONGEST_PATH:
        raise TooLarge(f"A tree with a path of more than {LONGEST_PATH} bytes cannot be copied: {below[:80]!r}.")


def _copy(source: Tree, path: str, entry: Entry, target: Tree, to: str, start: str, count: _Count) -> None:
    if entry.kind == "directory":
        target.add_folder(to)
    elif entry.kind == "file":
        target.write(to, count.counted(path, source.parts(path)), entry.permissions)
        count.done(path)
    elif entry.kind == "link":
        # Read once: whoever swaps the link must not have another one judged than the one that is made.
        leads_to = source.files.readlink(path)
        if link_stays(leads_to, _moved(path, start, "").count("/")):
            _link(target, leads_to, to)
        else:
            count.skip(path)
    else:
        count.skip(path)


def _link(target: Tree, leads_to: str, path: str) -> None:
    try:
        if target.files.stat(path, follow=False).kind == "directory":
            raise WrongKind(f"{path!r} is a folder.")
        target.files.unlink(path)
    except PathMissing:
        pass
    target.files.symlink(leads_to, path)


def _moved(path: str, start: str, end: str) -> str:
    return normal(posixpath.join(end, posixpath.relpath(path, start or ".")))
