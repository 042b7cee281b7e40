"""Functions that open the interfaces of a storage lease."""

from __future__ import annotations

from collections.abc import Callable

from blueprints.contract import Opener
from blueprints.layered.account import transport_of
from blueprints.layered.host import host_of
from blueprints.layered.usage import Allowance
from blueprints.layered.within import Within
from blueprints.specs import LeaseView
from interfaces.command.shell import ShellCommand
from interfaces.filesystem.rooted import RootedFilesystem


def command(lease: LeaseView, still_mine: Callable[[], None]) -> ShellCommand:
    """Return commands that start in the folder, which is also their HOME."""
    return ShellCommand(_within(lease), still_mine=still_mine)


def filesystem(lease: LeaseView, still_mine: Callable[[], None]) -> RootedFilesystem:
    """Return the files of the folder; usage is measured before each write unless the kernel enforces the size."""
    facts, within, check = lease.resource.facts, _within(lease), None
    if facts["limit"] == "checked":
        check = Allowance(ShellCommand(within.outer, still_mine=still_mine), facts["folder"], facts["disk_mib"])
    return RootedFilesystem(within, still_mine=still_mine, usage_check=check)


def _within(lease: LeaseView) -> Within:
    return Within(transport_of(host_of(lease.resource)), lease.resource.facts["folder"])


OPENERS: dict[str, Opener] = {"command": command, "filesystem": filesystem}
