"""Trees of files as archive streams. Nothing is written outside the target, whatever an archive contains."""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from drydock_client.errors import Conflict, DrydockError, InvalidRequest
from drydock_client.trees import tar

MOST_ENTRIES = 200_000
MOST_DEEP = 64
"""Maximum depth of folders, in levels below the top entry."""
LONGEST_NAME, LONGEST_PATH = 255, 3072
"""Maximum length of a name and of a path, in bytes. The limit of paths leaves room for the path of the target
folder."""
MOST_SKIPPED = 1000
"""Maximum number of skipped entries that are reported by name."""


class TooMuch(DrydockError):
    """The tree has more bytes or entries than allowed."""

    code = "too_large"


@dataclass(frozen=True, kw_only=True)
class Unpacked:
    """The result of unpacking an archive: the target, and the number of files and bytes."""

    place: Path
    files: int
    bytes: int
    skipped: tuple[str, ...] = ()
    """The first 1,000 skipped entries: links out of the tree, pipes and devices."""


def pack(local: Path, name: str = "", on_file: Callable[[str], None] | None = None) -> Iterator[bytes]:
    """Yield a file or tree as an archive whose top entry is called `name`.

    Links are packed as links, and pipes and devices as names without content. Raises OSError, TooMuch, and Conflict if
    a file is truncated while it is read.
    """
    top, number = name or local.name or "tree", 1
    if not local.is_dir():
        yield from _packed(local, top, on_file, follow=True)
    else:
        yield from _packed(local, top, on_file, follow=True)
        for folder, folders, files in os.walk(local):
            folders.sort()
            for one in sorted([*folders, *files]):
                path = Path(folder, one)
                below, number = path.relative_to(local), number + 1
                _bound(number, len(below.parts))
                yield from _packed(path, f"{top}/{below}", on_file)
    yield tar.END


def _bound(number: int, deep: int) -> None:
    if number > MOST_ENTRIES:
        raise TooMuch(f"The tree has more than {MOST_ENTRIES} files and folders.")
    if deep > MOST_DEEP:
        raise TooMuch(f"The tree has more than {MOST_DEEP} levels of folders.")


def _packed(path: Path, name: str, on_file: Callable[[str], None] | None, *, follow: bool = False) -> Iterator[bytes]:
    found = path.stat() if follow else path.lstat()
    permissions = found.st_mode & 0o777
    if stat.S_ISLNK(found.st_mode):
        yield tar.header(tar.Entry(path=name, kind="link", target=os.readlink(path)))
    elif stat.S_ISDIR(found.st_mode):
        yield tar.header(tar.Entry(path=name, kind="directory", permissions=permissions))
    elif stat.S_ISREG(found.st_mode):
        with path.open("rb") as opened:
            yield tar.header(tar.Entry(path=name, kind="file", size=found.st_size, permissions=permissions))
            left = found.st_size
            while left:
                if not (part := opened.read(min(tar.PART, left))):
                    raise Conflict(f"{path} was truncated while it was read.")
                left -= len(part)
                yield part
        yield tar.padding(found.st_size)
        if on_file is not None:
            on_file(name)
    else:
        yield tar.header(tar.Entry(path=name, kind="other"))


def unpack(
    read: tar.Read, place: Callable[[str], Path], *, limit: int | None = None,
    on_file: Callable[[str], None] | None = None,
) -> Unpacked:  # fmt: skip
    """Unpack an archive with one top entry. `place` returns the target path for the name of that entry.

    Skips pipes, devices, and links to paths outside the tree. Raises InvalidRequest if the archive has several top
    entries or is damaged, TooMuch if it has more than `limit` bytes, and Conflict if an existing file or folder is in
    the way.
    """
    reader = tar.Reader(read)
    top, root, files, size = "", Path(), 0, 0
    skipped: list[str] = []
    for number, entry in enumerate(reader.entries()):
        pieces = _pieces(entry.path)
        _bound(number + 1, len(pieces) - 1)
        if number == 0:
            top, root = pieces[0], place(pieces[0])
        if pieces[0] != top:
            raise InvalidRequest("The archive must have exactly one top-level entry.")
        size += entry.size
        if limit is not None and size > limit:
            raise TooMuch(f"The tree has more than {limit} bytes.")
        if not _put(root, pieces[1:], entry, reader):
            skipped += ["/".join(pieces)] if len(skipped) < MOST_SKIPPED else []
        elif entry.kind == "file":
            files += 1
            if on_file is not None:
                on_file("/".join(pieces))
    if not top:
        raise InvalidRequest("The archive is empty.")
    return Unpacked(place=root, files=files, bytes=size, skipped=tuple(skipped))


def _pieces(path: str) -> list[str]:
    pieces = [piece for piece in path.split("/") if piece not in ("", ".")]
    if not pieces or ".." in pieces or path.startswith("/") or "\0" in path:
        raise InvalidRequest(f"{path[:200]!r} is not a valid path in an archive.")
    if len(os.fsencode(path)) > LONGEST_PATH:
        raise InvalidRequest(f"A path of the archive has more than {LONGEST_PATH} bytes: {path[:80]!r}...")
    for piece in pieces:
        if len(os.fsencode(piece)) > LONGEST_NAME:
            raise InvalidRequest(f"A name in the archive has more than {LONGEST_NAME} bytes: {piece[:80]!r}...")
    return pieces


def _put(root: Path, pieces: list[str], entry: tar.Entry, reader: tar.Reader) -> bool:
    """Write an entry. Return False if it is skipped: a pipe, a device, or a link out of the tree."""
    target = root.joinpath(*pieces)
    if pieces:
        _folders(root, pieces[:-1])
    if entry.kind == "directory":
        _folders(root, pieces)
    elif entry.kind == "file":
        _file(target, entry, reader)
    elif entry.kind == "link" and pieces and link_stays(entry.target, len(pieces) - 1):
        _clear(target)
        target.symlink_to(entry.target)
    else:
        return False
    return True


def _folders(root: Path, pieces: list[str]) -> None:
    """Create nested folders without following a link in the way."""
    at = root
    with suppress(FileExistsError):
        at.mkdir(parents=True)
    if not at.is_dir():
        raise Conflict(f"{at} is not a folder.")
    for piece in pieces:
        at = at / piece
        with suppress(FileExistsError):
            at.mkdir()
        if not stat.S_ISDIR(at.lstat().st_mode):
            raise Conflict(f"{at} is not a folder.")


def _clear(target: Path) -> None:
    try:
        if stat.S_ISDIR(target.lstat().st_mode):
            raise Conflict(f"{target} is a folder.")
        target.unlink()
    except FileNotFoundError:
        pass


def _file(target: Path, entry: tar.Entry, reader: tar.Reader) -> None:
    """Write a file of the archive under a temporary name, then rename it."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if target.is_dir() and not target.is_symlink():
        raise Conflict(f"{target} is a folder.")
    descriptor, beside = tempfile.mkstemp(prefix=".drydock-", dir=target.parent)
    try:
        with os.fdopen(descriptor, "wb") as opened:
            for part in reader.content():
                opened.write(part)
        os.chmod(beside, entry.permissions)
        os.replace(beside, target)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(beside)
        raise


def link_stays(leads_to: str, depth: int) -> bool:
    """Return whether a link leads to a path inside the tree. `depth` is how many folders the link is below the top.

    ".." is allowed only at the beginning of the link's target: a name in the target may itself be a link, so that a
    ".." after a name could lead outside.
    """
    if not leads_to or leads_to.startswith("/") or "\0" in leads_to:
        return False
    steps = [step for step in leads_to.split("/") if step not in ("", ".")]
    climbs = steps.count("..")
    return climbs <= depth and ".." not in steps[climbs:]
