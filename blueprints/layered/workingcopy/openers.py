"""Functions that open the interfaces of a working copy's lease."""

from __future__ import annotations

import posixpath
from collections.abc import Callable
from dataclasses import replace

from blueprints.contract import Opener
from blueprints.layered.account import transport_of
from blueprints.layered.host import host_of
from blueprints.layered.within import Within
from blueprints.specs import LeaseView
from interfaces.command.jobs import Job, JobSpec
from interfaces.command.shell import ShellCommand, ShellJobs
from interfaces.filesystem.rooted import RootedFilesystem


class _JobsInCopy(ShellJobs):
    """Jobs that start in the copy. Their records are kept outside of it, so that git does not see them."""

    def __init__(self, command: ShellCommand, folder: str, copy: str) -> None:
        super().__init__(command, folder)
        self._copy = copy

    def start(self, spec: JobSpec) -> Job:
        return super().start(replace(spec, cwd=posixpath.join(self._copy, spec.cwd)))


class CopyCommand(ShellCommand):
    """Commands and jobs that start in the copy. HOME is outside of it."""

    def __init__(self, within: Within, home: str, *, still_mine: Callable[[], None]) -> None:
        super().__init__(within, still_mine=still_mine)
        self._jobs = _JobsInCopy(self, f"{home}/.drydock/jobs", within.folder)


def _home(lease: LeaseView) -> str:
    return f"{lease.resource.facts['folder']}.home"


def _within(lease: LeaseView) -> Within:
    folder = lease.resource.facts["folder"]
    return Within(transport_of(host_of(lease.resource)), folder, env={"HOME": _home(lease)})


def command(lease: LeaseView, still_mine: Callable[[], None]) -> CopyCommand:
    """Return commands that start in the copy."""
    return CopyCommand(_within(lease), _home(lease), still_mine=still_mine)


def filesystem(lease: LeaseView, still_mine: Callable[[], None]) -> RootedFilesystem:
    """Return the files in the copy."""
    return RootedFilesystem(_within(lease), still_mine=still_mine)


OPENERS: dict[str, Opener] = {"command": command, "filesystem": filesystem}
