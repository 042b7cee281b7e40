"""The interface `sandcastle`: what the owner of a lease does with it."""

from __future__ import annotations

import posixpath
from typing import ClassVar

from interfaces.command import Command
from interfaces.contract import Interface, StillMine
from interfaces.filesystem import Filesystem
from interfaces.httpd import Httpd


class Preview(Interface):
    """Applies diffs to files in a storage and publishes what they change."""

    name: ClassVar[str] = "sandcastle"

    def __init__(self, command: Command, files: Filesystem, httpd: Httpd, *, still_mine: StillMine) -> None:
        super().__init__(command.transport, still_mine=still_mine)
        self._command, self._files, self._httpd = command, files, httpd

    def link(self) -> str:
        """Where it can be looked at."""
        self._watch("Asking for the link")
        return self._httpd.uri()

    def apply(self, diff: str) -> list[str]:
        """Apply a diff as git writes it; the names of the files it changed. Raises CommandFailed if it does not fit."""
        self._watch("Applying the diff")
        changed = [
            line.rpartition(b"\t")[2].decode() for line in self._git(diff, "--numstat", "-z").split(b"\0") if line
        ]
        self._git(diff, "--whitespace=nowarn")
        for name in changed:
            if self._files.exists(name):
                self._httpd.publish(name, self._files.read_bytes(name))
            else:
                self._httpd.unpublish(name)
        return changed

    def _git(self, diff: str, *options: str) -> bytes:
        outside = {"GIT_CEILING_DIRECTORIES": posixpath.dirname(self._files.root)}
        return self._command.check(["git", "apply", *options, "-"], stdin=diff.encode(), env=outside, timeout=30).stdout
