"""Removing what is in a lease: at once where it is little, else by a job on the host."""

from __future__ import annotations

from drydock.core.errors import NotSupported
from interfaces.errors import DeadlineExceeded, NameTooLong, TooLarge
from interfaces.files import normal
from interfaces.launch import one_line
from leases.client.values import JobInfo
from leases.engine.core.transitions import record_event
from leases.given import checked, printable
from leases.operations import jobs, using
from leases.operations.callers import Caller

# $1 the lease's root, $2 the path in it ("" is all of the root): both as `printf %b` reads them, for a name may hold
# any byte and the row of a job holds text. The folder of the lease's jobs, of which this is one, stays.
_SCRIPT = r"""
root=$(printf %b. "$1"); root=${root%.}
cd -- "${root:-.}" || exit 1
if [ -z "$2" ]; then exec find . -mindepth 1 -maxdepth 1 ! -name .drydock -exec rm -rf -- {} +; fi
path=$(printf %b. "$2"); exec rm -rf -- "./${path%.}"
"""


@checked
def remove(who: Caller, lease_id: int, path: str, *, recursive: bool = False) -> None:
    """Remove a file or a folder. Recorded. Raises what `Filesystem.remove` raises."""
    using.filesystem(who, lease_id).remove(path, recursive=recursive, timeout=using.LONGEST)
    _note(who, lease_id, path)


@checked
def begin(who: Caller, lease_id: int, path: str, *, recursive: bool, seconds: float) -> JobInfo | None:
    """Remove a file or a folder for some seconds; None when that was enough, else the job that goes on. Recorded.

    Raises what `Filesystem.remove` raises, and DeadlineExceeded where the lease runs no commands: asked again, it goes
    on.
    """
    files, job = using.filesystem(who, lease_id), None
    try:
        files.remove(path, recursive=recursive, timeout=seconds)
    except (DeadlineExceeded, TooLarge, NameTooLong) as error:
        try:
            job = jobs.start(who, lease_id, _command(files.root, normal(path)))
        except NotSupported:
            error.hint = error.hint or "A part of it is gone. Ask again to go on."
            raise error from None
    _note(who, lease_id, path)
    return job


def _command(root: str, path: str) -> list[str]:
    return ["/bin/sh", "-c", _SCRIPT, "sh", *(one_line(text).decode().rstrip("\n") for text in (root, path))]


def _note(who: Caller, lease_id: int, path: str) -> None:
    record_event("lease.file", f"Removed {printable(path) or '.'}.", actor=who.actor, lease_id=lease_id)
