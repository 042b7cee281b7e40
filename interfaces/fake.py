"""A transport for tests that needs no host: it keeps files in memory and starts no processes."""

from __future__ import annotations

import errno
import posixpath
from collections.abc import Sequence
from dataclasses import dataclass, field

from drydock.core import clock
from drydock.core.errors import NotSupported
from interfaces.deadline import Deadline
from interfaces.files import MOST_LISTED, PART, Entry, Files, Kind, Mode, OpenFile, file_error, too_many
from interfaces.transport import Launch, Process, Transport


@dataclass
class _Node:
    kind: Kind
    permissions: int
    content: bytearray = field(default_factory=bytearray)
    target: str = ""
    modified: float = field(default_factory=lambda: clock.now().timestamp())


class _MemoryFile(OpenFile):
    def __init__(self, node: _Node, *, writable: bool) -> None:
        self._node, self._writable, self._at = node, writable, 0

    def read(self, size: int = PART) -> bytes:
        part = bytes(self._node.content[self._at : self._at + size])
        self._at += len(part)
        return part

    def write(self, part: bytes) -> None:
        if not self._writable:
            raise file_error(errno.EACCES, "Opened for reading", "")
        self._node.content += part
        self._node.modified = clock.now().timestamp()

    def sync(self) -> None:
        """Do nothing, because memory needs no sync."""

    def close(self) -> None:
        """Do nothing, because nothing is open."""


class MemoryFiles(Files):
    """A tree of folders, files and links in memory, confined like real files."""

    def __init__(self, root: str = "/fake") -> None:
        self.root = root
        self._nodes: dict[str, _Node] = {"": _Node("directory", 0o755)}

    def stat(self, path: str, *, follow: bool = True) -> Entry:
        found = self._resolved(path, follow=follow)
        return _entry(posixpath.basename(path), self._node(found))

    def list(self, path: str, *, most: int = MOST_LISTED) -> list[Entry]:
        folder = self._resolved(path, follow=True)
        if self._node(folder).kind != "directory":
            raise file_error(errno.ENOTDIR, "No folder", path)
        children = self._children(folder)
        if len(children) > most:
            raise too_many(most, path)
        return [_entry(posixpath.basename(each), self._nodes[each]) for each in children]

    def open(self, path: str, mode: Mode, *, permissions: int = 0o644) -> OpenFile:
        at = self._resolved(path, follow=mode != "create")
        if at in self._nodes and mode == "create":
            raise file_error(errno.EEXIST, "The path already exists", path)
        if at not in self._nodes and mode != "read":
            self._nodes[at] = _Node("file", permissions)
        node = self._node(at)
        if node.kind != "file":
            raise file_error(errno.EISDIR, "Not a regular file", path)
        if mode == "write":
            node.content.clear()
        return _MemoryFile(node, writable=mode != "read")

    def mkdir(self, path: str, *, permissions: int = 0o755) -> None:
        self._add(path, _Node("directory", permissions))

    def rename(self, source: str, target: str) -> None:
        old, new = self._resolved(source, follow=False), self._resolved(target, follow=False)
        moved, there = self._node(old), self._nodes.get(new)
        if there is not None and (there.kind == "directory") != (moved.kind == "directory"):
            raise file_error(errno.EISDIR, "The target is of another type", target)
        if there is not None and self._children(new):
            raise file_error(errno.ENOTEMPTY, "The folder is not empty", target)
        if new == old or new.startswith(f"{old}/"):
            raise file_error(errno.EINVAL, "A folder cannot be moved into itself", target)
        for each in [name for name in self._nodes if name == old or name.startswith(f"{old}/")]:
            self._nodes[new + each[len(old) :]] = self._nodes.pop(each)

    def unlink(self, path: str) -> None:
        at = self._resolved(path, follow=False)
        if self._node(at).kind == "directory":
            raise file_error(errno.EISDIR, "The path is a folder", path)
        del self._nodes[at]

    def rmdir(self, path: str) -> None:
        at = self._resolved(path, follow=False)
        if self._node(at).kind != "directory":
            raise file_error(errno.ENOTDIR, "The path is not a folder", path)
        if self._children(at):
            raise file_error(errno.ENOTEMPTY, "The folder is not empty", path)
        del self._nodes[at]

    def symlink(self, target: str, path: str) -> None:
        self._add(path, _Node("link", 0o777, target=target))

    def readlink(self, path: str) -> str:
        node = self._node(self._resolved(path, follow=False))
        if node.kind != "link":
            raise file_error(errno.EINVAL, "The path is not a link", path)
        return node.target

    def chmod(self, path: str, permissions: int) -> None:
        node = self._node(self._resolved(path, follow=False))
        if node.kind == "link":
            raise file_error(errno.ELOOP, "The permissions of a link cannot be changed", path)
        node.permissions = permissions

    def sync(self, path: str) -> None:
        """Do nothing, because memory needs no sync."""

    def close(self) -> None:
        """Do nothing, because nothing is open."""

    def _add(self, path: str, node: _Node) -> None:
        at = self._resolved(path, follow=False)
        if at in self._nodes:
            raise file_error(errno.EEXIST, "The path already exists", path)
        self._nodes[at] = node

    def _node(self, at: str) -> _Node:
        if at not in self._nodes:
            raise file_error(errno.ENOENT, "The file or folder does not exist", at)
        return self._nodes[at]

    def _children(self, folder: str) -> Sequence[str]:
        return sorted(each for each in self._nodes if each and posixpath.dirname(each) == folder)

    def _resolved(self, path: str, *, follow: bool) -> str:
        at, steps, links = "", path.split("/"), 0
        while steps:
            step = steps.pop(0)
            if step == ".." and not at:
                raise file_error(errno.EXDEV, "The path leads outside the folder", path)
            here = posixpath.dirname(at) if step == ".." else posixpath.join(at, step) if step != "." else at
            node = self._nodes.get(here)
            if node is not None and node.kind == "link" and (steps or follow):
                links += 1
                if links > 40 or node.target.startswith("/"):
                    raise file_error(errno.EXDEV, "The link leads outside the folder", path)
                steps = node.target.split("/") + steps
                continue
            if steps and node is None:
                raise file_error(errno.ENOENT, "The file or folder does not exist", path)
            if steps and node is not None and node.kind != "directory":
                raise file_error(errno.ENOTDIR, "No folder", path)
            at = here
        return at


class FakeTransport(Transport):
    """Files in memory, with one tree per root that all callers share. Refuses to start processes."""

    def __init__(self) -> None:
        self._trees: dict[str, MemoryFiles] = {}

    def start(self, launch: Launch, deadline: Deadline) -> Process:
        raise NotSupported("A fake transport does not run processes; use FakeCommand.")

    def files(self, root: str) -> Files:
        return self._trees.setdefault(root, MemoryFiles(posixpath.join("/fake", root)))

    def close(self) -> None:
        """Do nothing, because nothing is open."""


def _entry(name: str, node: _Node) -> Entry:
    size = len(node.target) if node.kind == "link" else len(node.content)
    return Entry(name=name, kind=node.kind, size=size, permissions=node.permissions, modified=node.modified)
