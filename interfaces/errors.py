"""Errors that occur between Drydock and a leased resource. The docstring of a class is its default message."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from drydock.core.errors import Conflict, DrydockError, InvalidRequest, NotAllowed, NotFound, TimedOut

if TYPE_CHECKING:
    from interfaces.command.result import CommandResult


class InterfaceError(DrydockError):
    """An operation on the leased resource failed."""

    code = "interface"


class LeaseEnded(InterfaceError):
    """The lease has ended, so its interfaces no longer work."""

    code = "lease_ended"


class Unreachable(InterfaceError):
    """The host could not be reached. Nothing was run."""

    code = "unreachable"


class HostKeyMismatch(Unreachable):
    """The host presented a key that is not pinned. Nothing was run."""

    code = "host_key_mismatch"


class AuthenticationRefused(Unreachable):
    """The host refused the key of this lease. Nothing was run."""

    code = "authentication_refused"


class ConnectionLost(InterfaceError):
    """The connection to the host was lost; the exit code is unknown.

    `may_have_run` is False only if it is certain that nothing was started.
    """

    code = "connection_lost"

    def __init__(self, message: str = "", *, may_have_run: bool = True) -> None:
        self.may_have_run = may_have_run
        super().__init__(
            message or "The connection to the host was lost.",
            hint="The command may have run." if may_have_run else "No command was run.",
        )


class DeadlineExceeded(InterfaceError, TimedOut):
    """The operation took longer than its time limit."""

    code = "deadline_exceeded"


class Cancelled(InterfaceError):
    """The operation was cancelled by its caller."""

    code = "cancelled"


class NotStarted(InterfaceError):
    """The host did not start the command."""

    code = "not_started"


class CommandFailed(InterfaceError):
    """The command ended with an exit code other than 0. `result` has its output."""

    code = "command_failed"

    def __init__(self, result: CommandResult) -> None:
        self.result = result
        tail = (result.stderr or result.stdout)[-2000:].decode("utf-8", "replace").strip()
        ended = f"signal {result.signal}" if result.signal else f"exit code {result.exit_code}"
        super().__init__(f"The command ended with {ended}" + (f": {tail}" if tail else "."))


class CommandTimedOut(DeadlineExceeded):
    """The command timed out and was terminated.

    `stdout` and `stderr` contain the output that was kept. `left` is the number of processes that could not be
    terminated, or None if the host could not be reached.
    """

    code = "command_timed_out"

    def __init__(self, message: str, *, stdout: bytes, stderr: bytes, left: int | None) -> None:
        self.stdout = stdout
        self.stderr = stderr
        self.left = left
        super().__init__(message, hint="" if left == 0 else "Some of its processes may still be running.")


class FileError(InterfaceError):
    """The file operation failed."""

    code = "file"


class PathEscape(FileError):
    """The path leads outside the folder of this lease."""

    code = "path_escape"


class PathMissing(FileError, NotFound):
    """The file or folder does not exist."""

    code = "path_missing"


class PathExists(FileError, Conflict):
    """The path already exists."""

    code = "path_exists"


class WrongKind(FileError):
    """The path is of another type than the operation expects: folder, file or link."""

    code = "wrong_kind"


class NameTooLong(FileError, InvalidRequest):
    """A name or the path is longer than the host allows."""

    code = "name_too_long"


class PermissionRefused(FileError, NotAllowed):
    """The lease's account does not have permission for this."""

    code = "permission_refused"


class TooLarge(InterfaceError):
    """The data exceeds the given limit in bytes."""

    code = "too_large"


class QuotaExceeded(FileError):
    """The write exceeds the lease's size limit or the free disk space."""

    code = "quota_exceeded"


class JobMissing(InterfaceError, NotFound):
    """The job does not exist on the host."""

    code = "job_missing"


class JobConflict(InterfaceError, Conflict):
    """The job's state does not allow this, or another job has this id."""

    code = "job_conflict"


class ConfigRefused(InterfaceError):
    """The web server rejected the configuration. The previous configuration stays in use."""

    code = "config_refused"


class PortTaken(InterfaceError, Conflict):
    """Another program is already listening on the address and port."""

    code = "port_taken"


class NotRunning(InterfaceError, Conflict):
    """The web server is not running."""

    code = "not_running"


class ServiceMissing(InterfaceError, NotFound):
    """The DPU has no service of this name."""

    code = "service_missing"


class CredentialMissing(InterfaceError, NotFound):
    """The DPU has no credential of this name."""

    code = "credential_missing"


class ObjectMissing(InterfaceError, NotFound):
    """The DPU has no chain or network of this name."""

    code = "object_missing"


class ServiceChanged(InterfaceError, Conflict):
    """The service was changed or removed by another request meanwhile. Nothing was changed by this one."""

    code = "service_changed"


class ConsoleBusy(InterfaceError, Conflict):
    """Another session uses the console of the machine."""

    code = "console_busy"


class ConsoleClosed(InterfaceError):
    """The console was closed at the other end."""

    code = "console_closed"


def failed_connection(error: Exception, host: str, port: int) -> str:
    """Return why a connection failed, followed by the address: `connection refused (192.0.2.7:22)`."""
    several: Mapping[tuple[Any, ...], Exception] = getattr(error, "errors", None) or {}
    if several:
        # Paramiko collects one error for each address of the host; its own text begins with "[Errno None]".
        return "; ".join(failed_connection(one, str(at[0]), int(at[1])) for at, one in several.items())
    reason = (error.strerror if isinstance(error, OSError) else "") or str(error) or type(error).__name__
    where = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return f"{reason[:1].lower()}{reason[1:].rstrip('.')} ({where})"
