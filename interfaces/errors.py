"""Errors between Drydock and a leased thing. The docstring of a class is its default message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from drydock.core.errors import Conflict, DrydockError, InvalidRequest, NotAllowed, NotFound, TimedOut

if TYPE_CHECKING:
    from interfaces.command.result import CommandResult


class InterfaceError(DrydockError):
    """Something went wrong while working on the leased thing."""

    code = "interface"


class LeaseEnded(InterfaceError):
    """The lease is over; its interfaces no longer work."""

    code = "lease_ended"


class Unreachable(InterfaceError):
    """The host could not be reached; nothing was run."""

    code = "unreachable"


class HostKeyMismatch(Unreachable):
    """The host shows a key that is not the pinned one; nothing was run."""

    code = "host_key_mismatch"


class AuthenticationRefused(Unreachable):
    """The host refused the key of this lease; nothing was run."""

    code = "authentication_refused"


class ConnectionLost(InterfaceError):
    """The connection to the host was lost; this is no exit code.

    `may_have_run` is False only where it is certain that nothing was started.
    """

    code = "connection_lost"

    def __init__(self, message: str = "", *, may_have_run: bool = True) -> None:
        self.may_have_run = may_have_run
        super().__init__(
            message or "The connection to the host was lost.",
            hint="The command may have run." if may_have_run else "No command was run.",
        )


class DeadlineExceeded(InterfaceError, TimedOut):
    """The time given to this operation ran out."""

    code = "deadline_exceeded"


class Cancelled(InterfaceError):
    """The operation was cancelled by its caller."""

    code = "cancelled"


class NotStarted(InterfaceError):
    """The host did not start the command."""

    code = "not_started"


class CommandFailed(InterfaceError):
    """The command ended with another exit code than 0. `result` is what it left."""

    code = "command_failed"

    def __init__(self, result: CommandResult) -> None:
        self.result = result
        tail = (result.stderr or result.stdout)[-2000:].decode("utf-8", "replace").strip()
        ended = f"signal {result.signal}" if result.signal else f"exit code {result.exit_code}"
        super().__init__(f"The command ended with {ended}" + (f": {tail}" if tail else "."))


class CommandTimedOut(DeadlineExceeded):
    """The command ran out of time and was ended.

    `stdout` and `stderr` hold what was kept of its output; `left` counts processes that could not be
    ended, or is None where the host could not be asked.
    """

    code = "command_timed_out"

    def __init__(self, message: str, *, stdout: bytes, stderr: bytes, left: int | None) -> None:
        self.stdout = stdout
        self.stderr = stderr
        self.left = left
        super().__init__(message, hint="" if left == 0 else "Some of its processes may still run.")


class FileError(InterfaceError):
    """The file operation failed."""

    code = "file"


class PathEscape(FileError):
    """The path leads out of the folder of this lease."""

    code = "path_escape"


class PathMissing(FileError, NotFound):
    """No such file or folder."""

    code = "path_missing"


class PathExists(FileError, Conflict):
    """Something is there already."""

    code = "path_exists"


class WrongKind(FileError):
    """The path is of another kind: a folder, a file or a link was expected."""

    code = "wrong_kind"


class NameTooLong(FileError, InvalidRequest):
    """A name, or the path, is longer than the host takes."""

    code = "name_too_long"


class PermissionRefused(FileError, NotAllowed):
    """The account of this lease may not do this."""

    code = "permission_refused"


class TooLarge(InterfaceError):
    """More bytes than the given bound."""

    code = "too_large"


class QuotaExceeded(FileError):
    """The size limit of this lease, or the disk, does not allow this write."""

    code = "quota_exceeded"


class JobMissing(InterfaceError, NotFound):
    """No job of this id on the host."""

    code = "job_missing"


class JobConflict(InterfaceError, Conflict):
    """The job is not in a state that allows this, or another job has this id."""

    code = "job_conflict"


class ConfigRefused(InterfaceError):
    """The web server refused its configuration; what ran before still runs."""

    code = "config_refused"


class PortTaken(InterfaceError, Conflict):
    """Something else listens on the address and port."""

    code = "port_taken"


class NotRunning(InterfaceError, Conflict):
    """The web server does not run."""

    code = "not_running"


def failed_connection(error: Exception, host: str, port: int) -> str:
    """Return why a connection failed and to which address: `connection refused (192.0.2.7:22)`."""
    several: Mapping[tuple[Any, ...], Exception] = getattr(error, "errors", None) or {}
    if several:
        # Paramiko collects one error for each address of the host; its own text begins with "[Errno None]".
        return "; ".join(failed_connection(one, str(at[0]), int(at[1])) for at, one in several.items())
    reason = (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return f"{reason[:1].lower()}{reason[1:].rstrip('.')} ({where})"
