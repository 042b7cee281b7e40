"""Working on what is leased: interfaces, and the two calls that shells and REST need most."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from pathlib import Path
from typing import cast

from drydock.core.errors import Conflict, NotSupported
from drydock.core.units import duration
from interfaces.command.contract import Command, Output, Words, argv_of
from interfaces.contract import Interface
from interfaces.deadline import Cancel
from interfaces.errors import LeaseEnded
from interfaces.filesystem.contract import Filesystem, Progress, Transfer
from interfaces.launch import exports
from leases.client.values import Ended, FileInfo
from leases.engine.core import specs
from leases.engine.core.database import patient, refuse_inside_transaction, rows
from leases.engine.core.installation import current
from leases.engine.core.transitions import record_event
from leases.given import checked, printable
from leases.operations.callers import Caller, lease_of

LONGEST = 86_400.0
"""Seconds for a file or tree, where nothing shorter is said."""


@checked
def interface(who: Caller, lease_id: int, name: str) -> Interface:
    """The interface `name` on an active lease. Every operation of it asks first whether the lease still holds.

    Raises NotFound, LeaseEnded, NotSupported where the kind has none of that name, InsideTransaction.
    """
    check = _check(who, lease_id)
    check()
    lease = patient(lease_of, who, lease_id, related=True)
    return specs.opened(specs.lease_view(lease, still_mine=check), name, check)


def _check(who: Caller, lease_id: int) -> Callable[[], None]:
    lease = patient(lease_of, who, lease_id)
    return partial(patient, still_mine, lease_id, lease.owner_id)


_STANDS = """
    SELECT state, release_wanted <> '', coalesce(until <= clock_timestamp(), FALSE), owner_id IS NOT DISTINCT FROM %s,
        held AND active_at IS NOT NULL AND coalesce(hold_until > clock_timestamp(), TRUE)
            AND NOT EXISTS (SELECT FROM leases_run n WHERE n.lease_id = l.id)
    FROM leases_lease l WHERE id = %s"""


_CONFIRM = "An operator looks at `drydock installation`, and confirms it if this database is the one that counts."


def still_mine(lease_id: int, owner_id: int | None) -> None:
    """Returns while the lease is active, this owner's and not past its end; also afterwards, while it is held for
    debugging. Raises LeaseEnded, InsideTransaction, and
    Conflict while the installation is suspended: the host may be leased from the database of which this is a copy."""
    refuse_inside_transaction("An interface")
    if problem := current().problem:
        raise Conflict(f"Nothing outside is touched now, and so no leased host. {problem}", hint=_CONFIRM)
    found = rows(_STANDS, (owner_id, lease_id))
    if not found or not found[0][3]:
        raise LeaseEnded(f"Lease {lease_id} is not yours (any more).")
    state, wanted, over, _, held = found[0]
    if held and state in ("active", "released"):
        return
    if state in ("pending", "acquired"):
        raise LeaseEnded(f"Lease {lease_id} is {state} and not active yet.", hint="Wait until it is active.")
    if state != "active" or wanted or over:
        raise LeaseEnded(f"Lease {lease_id} is over.")


def command(who: Caller, lease_id: int) -> Command:
    """The command interface of a lease. Raises as `interface`."""
    found = interface(who, lease_id, "command")
    if not isinstance(found, Command):
        raise NotSupported("The interface 'command' of this kind runs no commands.")
    return found


def filesystem(who: Caller, lease_id: int) -> Filesystem:
    """The filesystem interface of a lease. Raises as `interface`."""
    return cast(Filesystem, interface(who, lease_id, "filesystem"))


@checked
def run_command(
    who: Caller, lease_id: int, words: Words, *, env: Mapping[str, str] | None = None, cwd: str = "",
    stdin: bytes = b"", timeout: float | None = None, on_output: Callable[[Output], None] | None = None,
    cancel: Cancel | None = None,
) -> Ended:  # fmt: skip
    """Run a command to its end on the leased host; `on_output` is given the output as it comes.

    Recorded with the program's name only, for arguments may be secret. Raises what `Command.run` raises.
    """
    exports(list((env or {}).items()))
    if timeout is not None:
        duration(timeout, field="timeout")
    argv = argv_of(words)
    program = "a shell line" if isinstance(words, str) else argv[0]
    shell = command(who, lease_id)
    patient(record_event, "lease.command", f"Ran {printable(program, 100)}.", actor=who.actor, lease_id=lease_id)
    kept = 0 if on_output is not None else 1 << 20
    done = shell.run(
        words, env=env, cwd=cwd, stdin=stdin, timeout=timeout, on_output=on_output, max_output=kept, cancel=cancel
    )
    return Ended(
        exit_code=done.exit_code, signal=done.signal, duration=done.duration, stdout=done.text,
        stderr=done.error_text, truncated=done.truncated and on_output is None,
    )  # fmt: skip


@checked
def read_file(who: Caller, lease_id: int, path: str) -> bytes:
    """All of a file, up to 64 MiB. Raises what `Filesystem.read_bytes` raises."""
    return filesystem(who, lease_id).read_bytes(path)


@checked
def write_file(who: Caller, lease_id: int, path: str, content: bytes, *, permissions: int = 0o644) -> None:
    """Write a file in one step. Recorded. Raises what `Filesystem.write_bytes` raises."""
    filesystem(who, lease_id).write_bytes(path, content, permissions=permissions)
    record_event("lease.file", f"Wrote {printable(path)}.", actor=who.actor, lease_id=lease_id)


@checked
def write_parts(who: Caller, lease_id: int, path: str, parts: Iterable[bytes], *, timeout: float = LONGEST) -> None:
    """Write a file of any size in one step, part by part. Recorded. Raises what `Filesystem.write_parts` raises."""
    filesystem(who, lease_id).write_parts(path, parts, timeout=timeout)
    record_event("lease.file", f"Wrote {printable(path)}.", actor=who.actor, lease_id=lease_id)


@checked
def list_files(who: Caller, lease_id: int, path: str = "") -> list[FileInfo]:
    """What is in a folder, by name. Raises what `Filesystem.list` raises."""
    return [
        FileInfo(
            name=entry.name, kind=entry.kind, size=entry.size, permissions=entry.permissions,
            modified_at=dt.datetime.fromtimestamp(entry.modified, dt.UTC),
        )
        for entry in filesystem(who, lease_id).list(path)
    ]  # fmt: skip


@checked
def upload(
    who: Caller, lease_id: int, local: Path, path: str, progress: Callable[[Progress], None] | None = None, *,
    timeout: float = LONGEST,
) -> Transfer:  # fmt: skip
    """Copy a file or tree of this machine into the lease. Recorded. Raises what `Filesystem.upload` raises."""
    files = filesystem(who, lease_id)
    record_event("lease.file", f"Uploaded to {printable(path) or '.'}.", actor=who.actor, lease_id=lease_id)
    return files.upload(local, path, progress=progress, timeout=timeout)


@checked
def download(
    who: Caller, lease_id: int, path: str, local: Path, progress: Callable[[Progress], None] | None = None, *,
    limit: int | None = None, timeout: float = LONGEST,
) -> Transfer:  # fmt: skip
    """Copy a file or tree of the lease to this machine. Raises what `Filesystem.download` raises."""
    return filesystem(who, lease_id).download(path, local, progress=progress, limit=limit, timeout=timeout)
