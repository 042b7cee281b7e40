"""Read-only trees of files with limits: a folder, or files held in memory.

Paths are relative to the root of the tree and have no leading slash. Symbolic links are resolved inside the tree, as in
a chroot, and may dangle. No content of a tree causes an exception, and no FIFO or device is opened: each problem is
added to `warnings`, and the file counts as missing.
"""

from __future__ import annotations

import dataclasses
import errno
import itertools
import os
import stat
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from drydock_agent.facts import ScanWarning

TOOLS = "drydock-tools"
"""The folder of a tree with the output of tools: `NAME.out`, and `NAME.status` if the tool failed."""

T = TypeVar("T")

_FILE, _FOLDER, _LINK, _OTHER, _MISSING = "file", "folder", "link", "other", ""

_OPEN = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC

_ABSENT = (errno.ENOENT, errno.ENOTDIR)

_WARNINGS, _PAGE = 200, 4096


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """Limits on the amount of data that is read from a tree."""

    file_bytes: int = 4 << 20
    total_bytes: int = 64 << 20
    entries: int = 200_000
    depth: int = 40
    links: int = 40


@dataclasses.dataclass(frozen=True, kw_only=True)
class ToolOutput:
    """A tool's standard output, and its exit code or `timeout`."""

    text: str
    status: str = "0"

    @property
    def ok(self) -> bool:
        """Return whether the tool ended with exit code 0."""
        return self.status == "0"


class Tree(ABC):
    """A tree of files. Subclasses provide `_kind`, `_target`, `_content` and `_list`, which take resolved paths."""

    def __init__(self, *, limits: Limits | None = None, extra: Mapping[str, str] | None = None) -> None:
        self.limits = limits or Limits()
        self.warnings: list[ScanWarning] = []
        self._extra = dict(extra or {})
        self._folders: dict[str, str | None] = {"": ""}
        self._heads: dict[tuple[str, str], str] = {}
        self._texts: dict[str, str | None] = {}
        self._names: dict[str, tuple[str, ...]] = {}
        self._made: dict[str, Any] = {}
        self._bytes = self._entries = 0
        self._full = False

    def read(self, path: str) -> str | None:
        """Return a text file without surrounding white space, or None if it is missing or cannot be read."""
        if path in self._texts:
            return self._texts[path]
        if path in self._extra:
            text: str | None = self._extra[path].strip()
        else:
            real = self._file(path)
            text = None if real is None else self._text(path, real)
        self._texts[path] = text
        return text

    def texts(self, path: str, wanted: frozenset[str]) -> dict[str, str]:
        """Return those of the wanted files that a folder has, by name. Faster than to `read` each of them."""
        found = {name: self.read(f"{path}/{name}") for name in sorted(wanted.intersection(self.names(path)))}
        return {name: text for name, text in found.items() if text is not None}

    def names(self, path: str) -> tuple[str, ...]:
        """Return the names in a folder, sorted; none if the folder is missing."""
        if path not in self._names:
            real = self._folder(path)
            found = [] if real is None else self._listed(path, real)
            # Almost always all names are plain, and checking them together takes a tenth of the time.
            if not "".join(found).isprintable() or max(map(len, found), default=0) > 255 or "." in found:
                found = [name for name in found if self._is_plain(path, name)]
            self._names[path] = tuple(sorted(found))
        return self._names[path]

    def link(self, path: str) -> str | None:
        """Return the target of a symbolic link as a path of this tree, or None. The target need not exist."""
        found = self._link(path)
        return None if found is None else _normalized(*found)

    def link_name(self, path: str) -> str:
        """Return the last component of the target of a symbolic link, or an empty string."""
        folder, target = self._link(path) or ("", "")
        last = target.rpartition("/")[2]
        return last if last not in ("", ".", "..") else _normalized(folder, target).rpartition("/")[2]

    def _link(self, path: str) -> tuple[str, str] | None:
        """Return the resolved folder of a symbolic link, and its target."""
        folder, _, name = path.rpartition("/")
        real = self._folder(folder)
        if real is None or self._kind(_join(real, name)) != _LINK:
            return None
        return real, self._target(_join(real, name))

    def exists(self, path: str) -> bool:
        """Return whether there is a file, a folder or a link of this name."""
        folder, _, name = path.rpartition("/")
        real = self._folder(folder)
        return path in self._extra or (real is not None and self._kind(_join(real, name)) != _MISSING)

    def tool(self, name: str) -> ToolOutput | None:
        """Return the output of a tool, or None if it did not run."""
        text = self.read(f"{TOOLS}/{name}.out")
        return None if text is None else ToolOutput(text=text, status=self.read(f"{TOOLS}/{name}.status") or "0")

    def integer(self, path: str) -> int | None:
        """Return the decimal number in a file, or None if the file is missing or contains anything else.

        A number that does not fit in 64 bits with a sign, which reports cannot have, counts as anything else. Drivers
        of the kernel write 2**64 - 1 for what they do not know.
        """
        return integer(self.read(path))

    def once(self, key: str, make: Callable[[Tree], T]) -> T:
        """Return the result of `make(tree)`, which is called only once for each key and then cached."""
        if key not in self._made:
            self._made[key] = make(self)
        made: T = self._made[key]
        return made

    def warn(self, subject: str, message: str) -> None:
        """Add a warning, unless it is already known or there are too many."""
        warning = ScanWarning(subject=shown(subject), message=message)
        if warning not in self.warnings and len(self.warnings) < _WARNINGS:
            self.warnings.append(warning)

    def _file(self, path: str) -> str | None:
        """Return the resolved path of a regular file."""
        folder, _, name = path.rpartition("/")
        real = self._folder(folder)
        if real is None:
            return None
        there = _join(real, name)
        kind = self._kind(there)
        if kind == _LINK:
            found = self._walk(real, [name], [0])
            if found is None:
                return None
            there, kind = found, self._kind(found)
        if kind == _OTHER:
            self.warn(path, "The file was not read, because it is not a regular file.")
        return there if kind == _FILE else None

    def _folder(self, path: str) -> str | None:
        if path not in self._folders:
            parent, _, name = path.rpartition("/")
            real = self._folder(parent) if path.count("/") <= self.limits.depth else None
            self._folders[path] = None if real is None else self._walk(real, [name], [0])
        return self._folders[path]

    def _walk(self, here: str, parts: list[str], hops: list[int]) -> str | None:
        """Return the resolved path of `parts` below a resolved folder, or None. `hops` counts links."""
        for part in parts:
            if part in ("", "."):
                continue
            if part == "..":
                here = here.rpartition("/")[0]
                continue
            there = _join(here, part)
            kind = self._kind(there)
            if kind == _MISSING:
                return None
            if kind != _LINK:
                here = there
                continue
            hops[0] += 1
            if hops[0] > self.limits.links:
                self.warn(there, f"More than {self.limits.links} symbolic links, or a loop. It was not followed.")
                return None
            found = self._followed(here, self._target(there), hops)
            if found is None:
                return None
            here = found
        if here.count("/") > self.limits.depth:
            self.warn(here, f"The path is deeper than {self.limits.depth} folders. It was not read.")
            return None
        return here

    def _followed(self, here: str, target: str, hops: list[int]) -> str | None:
        """Return the resolved path of a link in a resolved folder. Many links of a class have most of it in common."""
        if target.startswith("/"):
            here = ""
        head, _, last = target.rpartition("/")
        key, before = (here, head), hops[0]
        found = self._heads.get(key)
        if found is None:
            found = self._walk(here, head.split("/"), hops)
            if found is None:
                return None
            if hops[0] == before:
                self._heads[key] = found
        return self._walk(found, [last], hops)

    def _text(self, path: str, real: str) -> str | None:
        content = None if self._full else self._content(path, real)
        if content is None:
            return None
        size = len(content)
        self._bytes += size
        if self._bytes > self.limits.total_bytes:
            self._fill()
        if size > self.limits.file_bytes:
            self.warn(path, f"The file has more than {self.limits.file_bytes} bytes. It was not used.")
            return None
        if b"\0" in content:
            content = content.rstrip(b"\0")
            if b"\0" in content:
                self.warn(path, "The file was ignored, because it is binary.")
                return None
        return content.decode("utf-8", "replace").strip()

    def _listed(self, path: str, real: str) -> list[str]:
        if self._full:
            return []
        found = self._list(path, real, self.limits.entries - self._entries + 1)
        self._entries += len(found)
        if self._entries > self.limits.entries:
            self._fill()
        return found

    def _fill(self) -> None:
        """Read nothing more, because a limit was exceeded."""
        if not self._full:
            self._full = True
            self.warnings.insert(0, ScanWarning(subject="tree", message=(
                f"The tree is larger than the limit of {self.limits.total_bytes >> 20} MiB and {self.limits.entries} "
                "entries. The rest was not read, so devices or facts may be missing."
            )))  # fmt: skip

    def _is_plain(self, path: str, name: str) -> bool:
        if name.isprintable() and len(name) <= 255 and name not in (".", ".."):
            return True
        self.warn(f"{path}/{name}", "The entry was skipped: its name is too long or has unprintable characters.")
        return False

    @abstractmethod
    def _kind(self, real: str) -> str: ...

    @abstractmethod
    def _target(self, real: str) -> str: ...

    @abstractmethod
    def _content(self, path: str, real: str) -> bytes | None: ...

    @abstractmethod
    def _list(self, path: str, real: str, most: int) -> list[str]: ...


class FolderTree(Tree):
    """A folder of this machine: `/`, or the root of a captured tree."""

    def __init__(self, root: str, *, limits: Limits | None = None, extra: Mapping[str, str] | None = None) -> None:
        super().__init__(limits=limits, extra=extra)
        self.root = os.path.abspath(root).rstrip("/")
        self._kinds: dict[str, str] = {}
        self._listings: dict[str, dict[str, str]] = {}
        self._complete: set[str] = set()
        self._targets: dict[str, str] = {}

    def texts(self, path: str, wanted: frozenset[str]) -> dict[str, str]:
        """Return those of the wanted files that a folder has, by name."""
        there, real, known = sorted(wanted.intersection(self.names(path))), self._folder(path) or "", self._texts
        if real.startswith("sys/") and not self._full:
            kinds = self._listings.get(real, {})
            plain = [name for name in there if kinds.get(name) == _FILE and f"{path}/{name}" not in known]
            texts = _attributes(f"{self.root}/{real}/", plain, min(_PAGE - 1, self.limits.file_bytes))
            known.update({f"{path}/{name}": text for name, text in texts.items()})
            self._bytes += sum(map(len, texts.values()))
            if self._bytes > self.limits.total_bytes:
                self._fill()
            if len(texts) == len(there):
                return texts
        return super().texts(path, wanted)

    def _kind(self, real: str) -> str:
        kind = self._kinds.get(real)
        if kind is None:
            folder, _, name = real.rpartition("/")
            kind = self._listings.get(folder, {}).get(name)
            if kind is None:
                # A folder that was listed completely has nothing else.
                kind = _MISSING if folder in self._complete else self._looked_up(real)
            self._kinds[real] = kind
        return kind

    def _looked_up(self, real: str) -> str:
        try:
            mode = os.lstat(f"{self.root}/{real}").st_mode
        except (OSError, ValueError):
            return _MISSING
        if stat.S_ISREG(mode):
            return _FILE
        return _FOLDER if stat.S_ISDIR(mode) else _LINK if stat.S_ISLNK(mode) else _OTHER

    def _target(self, real: str) -> str:
        target = self._targets.get(real)
        if target is None:
            try:
                target = os.readlink(f"{self.root}/{real}")
            except OSError:
                target = ""
            self._targets[real] = target
        return target

    def _content(self, path: str, real: str) -> bytes | None:
        try:
            descriptor = os.open(f"{self.root}/{real}", _OPEN)
            try:
                piece = os.read(descriptor, _PAGE)
                if len(piece) < _PAGE and real.startswith("sys/"):
                    return piece  # an attribute of sysfs is one page at most, and is read at once
                return self._limited(descriptor, piece)
            finally:
                os.close(descriptor)
        except OSError as error:
            # Kernels answer many attributes of a sleeping or virtual device with an error: those are simply not known.
            if error.errno not in (*_ABSENT, errno.EINVAL, errno.EIO, errno.ENODEV, errno.EOPNOTSUPP, errno.ENODATA):
                self.warn(path, f"The file could not be read: {error.strerror}.")
            return None

    def _limited(self, descriptor: int, piece: bytes) -> bytes:
        """Read the rest of a file after its first piece, up to one byte more than a file may have."""
        pieces, left = [piece], self.limits.file_bytes + 1 - len(piece)
        while piece and left > 0:
            piece = os.read(descriptor, min(left, 1 << 16))
            pieces.append(piece)
            left -= len(piece)
        return b"".join(pieces)

    def _list(self, path: str, real: str, most: int) -> list[str]:
        found: dict[str, str] = {}
        try:
            with os.scandir(f"{self.root}/{real}") as entries:
                for entry in itertools.islice(entries, most):
                    is_file = entry.is_file(follow_symlinks=False)  # as most are
                    found[entry.name] = _FILE if is_file else _kind_of(entry)
            if len(found) < most:
                self._complete.add(real)
        except OSError as error:
            if error.errno not in _ABSENT:
                self.warn(path, f"The folder could not be listed: {error.strerror}.")
        self._listings[real] = found
        return list(found)


def _attributes(folder: str, names: list[str], most: int) -> dict[str, str]:
    """Return those of the files in a folder of sysfs that are texts of up to `most` bytes. Each is read at once."""
    found = {}
    for name in names:
        try:
            descriptor = os.open(folder + name, _OPEN)
            try:
                content = os.read(descriptor, _PAGE)
            finally:
                os.close(descriptor)
        except OSError:
            continue
        if len(content) <= most and b"\0" not in content:
            found[name] = content.decode("utf-8", "replace").strip()
    return found


def _kind_of(entry: os.DirEntry[str]) -> str:
    """Return the kind of an entry that is not a regular file."""
    if entry.is_symlink():
        return _LINK
    return _FOLDER if entry.is_dir(follow_symlinks=False) else _OTHER


class MemoryTree(Tree):
    """A tree of files, links and empty folders that are held in memory."""

    def __init__(
        self,
        files: Mapping[str, str],
        *,
        links: Mapping[str, str] | None = None,
        folders: tuple[str, ...] = (),
        limits: Limits | None = None,
    ) -> None:
        super().__init__(limits=limits)
        self._links: dict[str, str] = {}
        self._files: dict[str, bytes] = {}
        self._children: dict[str, set[str]] = {"": set()}
        # Links to folders come before what was read through them: the shortest first.
        for path, target in sorted((links or {}).items(), key=lambda item: (item[0].count("/"), item[0])):
            real = self._place(path)
            if real not in self._files and real not in self._children:
                self._links[real] = target
                self._add(real)
            self._folders = {"": ""}
        for path in folders:
            self._children.setdefault(self._place(path + "/."), set())
        for path, text in files.items():
            real = self._place(path)
            if real not in self._links and real not in self._children:
                self._files[real] = text.encode("utf-8", "surrogateescape")
                self._add(real)
        self._folders = {"": ""}
        self.warnings.clear()

    def _place(self, path: str) -> str:
        """Return where a path lies once the links on the way are followed, and make its folders."""
        here = ""
        parts = [part for part in path.split("/") if part not in ("", "..")]
        for part in parts[:-1]:
            there = _join(here, part)
            if there in self._links:
                there = self._through(there, 0)
            self._make(there)
            here = there
        return here if parts and parts[-1] == "." else _join(here, parts[-1] if parts else "")

    def _through(self, path: str, hops: int) -> str:
        while path in self._links and hops < self.limits.links:
            path, hops = _normalized(path.rpartition("/")[0], self._links[path]), hops + 1
        return path

    def _make(self, path: str) -> None:
        if path not in self._children and path not in self._files:
            self._children[path] = set()
            self._add(path)

    def _add(self, path: str) -> None:
        parent, _, name = path.rpartition("/")
        if parent:
            self._make(parent)
        self._children.setdefault(parent, set()).add(name)

    def _kind(self, real: str) -> str:
        if real in self._files:
            return _FILE
        return _LINK if real in self._links else _FOLDER if real in self._children else _MISSING

    def _target(self, real: str) -> str:
        return self._links[real]

    def _content(self, path: str, real: str) -> bytes | None:
        return self._files[real]

    def _list(self, path: str, real: str, most: int) -> list[str]:
        return sorted(self._children.get(real, ()))[:most]


def integer(text: str | None) -> int | None:
    """Return the decimal number in a text, or None if there is no text or anything else in it.

    A number that does not fit in 64 bits with a sign counts as anything else; see `Tree.integer`.
    """
    try:
        found = int(text) if text and len(text) <= 20 else None
    except ValueError:
        return None
    return found if found is not None and -(1 << 63) <= found < 1 << 63 else None


def shown(text: str) -> str:
    """Return a path or a name as one printable line of at most 200 characters."""
    plain = "".join(one if one.isprintable() else f"\\x{ord(one):02x}" for one in text[:200])
    return plain if len(text) <= 200 else plain[:197] + "..."


def _join(folder: str, name: str) -> str:
    return f"{folder}/{name}" if folder else name


def _normalized(folder: str, target: str) -> str:
    """Return the path that a link in a folder names, without looking at the tree."""
    parts = [] if target.startswith("/") or not folder else folder.split("/")
    for part in target.split("/"):
        if part == "..":
            del parts[-1:]
        elif part not in ("", "."):
            parts.append(part)
    return "/".join(parts)
