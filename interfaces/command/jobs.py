"""Jobs: commands on a host that outlive the request, the connection and the process that started them."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from drydock.core.errors import InvalidRequest
from drydock_client.jobs import Stream as Stream

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class JobState(Enum):
    """The state of a job."""

    STARTING = "starting"
    """The job was requested, but is not known to be running yet. `start` may safely be called again."""
    RUNNING = "running"
    """The process of the job is running."""
    EXITED = "exited"
    """The job ended by itself, and its exit code is known."""
    CANCELLED = "cancelled"
    """The job was ended by `cancel`."""
    LOST = "lost"
    """The process of the job is gone, and there is no exit code from 0 to 255.

    The process was killed from outside, the host was restarted, or the job's folder was changed.
    """

    @property
    def over(self) -> bool:
        """Whether the job has ended."""
        return self in (JobState.EXITED, JobState.CANCELLED, JobState.LOST)


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """A job to start. `id` is its name on the host; `words` and `stdin` are as for `Command.run`.

    Standard output and standard error are combined or, if `apart` is true, kept separately. `max_output` is the limit
    in bytes of the combined stream or of each stream, rounded up to 512. Output beyond the limit is read and dropped,
    and the job continues.
    """

    id: str
    words: Sequence[str] | str
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    stdin: bytes = b""
    apart: bool = False
    max_output: int = 16 << 20

    def __post_init__(self) -> None:
        checked_id(self.id)
        if self.max_output < 0:
            raise InvalidRequest("The output limit must not be negative.", field="max_output")


@dataclass(frozen=True, kw_only=True)
class Job:
    """The status of a job. `exit_code` is None while the job runs and if it was lost.

    `output_size` does not include standard error if that is kept separately.
    """

    id: str
    state: JobState
    exit_code: int | None = None
    output_size: int = 0
    truncated: bool = False


@dataclass(frozen=True, kw_only=True)
class JobOutput:
    """A part of a job's output; the next part begins at `next_offset`.

    `over` means that the job has ended and this part is the last.
    """

    content: bytes
    next_offset: int
    over: bool
    truncated: bool


@dataclass(frozen=True, kw_only=True)
class JobEnd:
    """The status of a job with the beginning and the end of its output, read in one call.

    `size` is the number of bytes of output that the host counted; those between `head` and `tail` are omitted. `cause`
    is a word that the job's start script wrote (see `interfaces.command.container`). `cpu_seconds` is the processor
    time of all processes that the job waited for. It is None while the job runs, or if the host does not report it.
    """

    job: Job
    head: bytes = b""
    tail: bytes = b""
    size: int = 0
    cause: str = ""
    cpu_seconds: float | None = None


class Jobs(ABC):
    """The jobs of one account and folder on a host.

    A call whose answer was lost may be repeated. All methods raise JobMissing, and the errors of `Command.run`.
    """

    @abstractmethod
    def start(self, spec: JobSpec) -> Job:
        """Start a job once, and return its status.

        A second call with the same id and spec only returns the status. Raises JobConflict if the id is used by a job
        with another spec.
        """

    @abstractmethod
    def status(self, id: str) -> Job:
        """Return the current status of a job."""

    @abstractmethod
    def output(self, id: str, offset: int = 0, limit: int = 1 << 20, stream: Stream = "stdout") -> JobOutput:
        """Return at most `limit` bytes of a job's output from `offset`.

        `stderr` is empty unless the job keeps it separately.
        """

    @abstractmethod
    def remains(self, id: str, head: int, tail: int) -> JobEnd:
        """Return a job's status with the first `head` and the last `tail` bytes of its output, in one call."""

    @abstractmethod
    def cancel(self, id: str) -> Job:
        """End a job's processes, including background processes that it left, and return its status.

        A job that has ended by itself keeps its exit code. Raises JobConflict if some processes could not be ended.
        """

    @abstractmethod
    def list(self) -> list[Job]:
        """Return all jobs of this account and folder, sorted by id."""

    @abstractmethod
    def remove(self, id: str) -> None:
        """Remove a job and its output. A missing job is not an error. Raises JobConflict if the job is running."""

    @abstractmethod
    def wait(self, id: str, *, timeout: float, every: float = 0.5) -> Job:
        """Wait until a job has ended. Raises DeadlineExceeded if it is still running after `timeout` seconds."""

    def end_all(self) -> None:
        """Cancel and remove every job, as at the end of a lease."""
        for job in self.list():
            self.cancel(job.id)
            self.remove(job.id)


def checked_id(id: str) -> str:
    """Return the id. Raises InvalidRequest if it is not a valid file name on every host."""
    if not _ID.fullmatch(id):
        raise InvalidRequest("A job's id must be at most 100 letters, digits, '.', '_' and '-'.", field="id")
    return id
