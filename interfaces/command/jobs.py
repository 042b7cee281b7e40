"""Jobs: commands on a host that outlive the request, the connection and the process that started them."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import Enum

from drydock.core.errors import InvalidRequest
from drydock_client.working import Stream as Stream

_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}")


class JobState(Enum):
    """Where a job stands."""

    STARTING = "starting"
    """Asked for, not yet seen running; `start` may safely be called again."""
    RUNNING = "running"
    """Its process is alive."""
    EXITED = "exited"
    """It ended by itself; the exit code is known."""
    CANCELLED = "cancelled"
    """It was ended by `cancel`."""
    LOST = "lost"
    """Its process is gone without an exit code: killed from outside, the host was restarted, or what stands in the
    job's folder in place of the code is none from 0 to 255."""

    @property
    def over(self) -> bool:
        """Whether nothing more will happen."""
        return self in (JobState.EXITED, JobState.CANCELLED, JobState.LOST)


@dataclass(frozen=True, kw_only=True)
class JobSpec:
    """A job to start. `id` names it on the host; `words` and `stdin` as for `Command.run`.

    Its streams are kept together, or with `apart` each by itself. `max_output` in bytes, of both together or of each
    (rounded up to 512): what comes after is read and dropped, the job goes on.
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
            raise InvalidRequest("A bound on output is negative.", field="max_output")


@dataclass(frozen=True, kw_only=True)
class Job:
    """What is known of a job. `exit_code` is None while it runs and when it was lost; `output_size` leaves out a
    standard error that is kept apart."""

    id: str
    state: JobState
    exit_code: int | None = None
    output_size: int = 0
    truncated: bool = False


@dataclass(frozen=True, kw_only=True)
class JobOutput:
    """A part of a job's output; read on at `next_offset`. `over`: the job has ended and this is the rest."""

    content: bytes
    next_offset: int
    over: bool
    truncated: bool


@dataclass(frozen=True, kw_only=True)
class JobEnd:
    """What is left of a job, in one look: how it stands, and the beginning and the end of what it said.

    `size`: bytes that it said, as far as the host counted them; between `head` and `tail` the others are left out.
    `cause`: a word that the job's own start left (`interfaces.command.container`). `cpu_seconds`: processor time of
    all processes that it waited for, None while it runs and where the host does not tell.
    """

    job: Job
    head: bytes = b""
    tail: bytes = b""
    size: int = 0
    cause: str = ""
    cpu_seconds: float | None = None


class Jobs(ABC):
    """Every method may be repeated after a lost answer. Raises what `Command.run` raises, and JobMissing."""

    @abstractmethod
    def start(self, spec: JobSpec) -> Job:
        """Start it once: with the same id and spec again it is only looked at. Raises JobConflict when
        another spec has the id."""

    @abstractmethod
    def status(self, id: str) -> Job:
        """How it stands now."""

    @abstractmethod
    def output(self, id: str, offset: int = 0, limit: int = 1 << 20, stream: Stream = "stdout") -> JobOutput:
        """At most `limit` bytes of its output from `offset`; `stderr` has some only where it is kept apart."""

    @abstractmethod
    def remains(self, id: str, head: int, tail: int) -> JobEnd:
        """How it stands, with at most the first `head` and the last `tail` bytes of its output, in one call."""

    @abstractmethod
    def cancel(self, id: str) -> Job:
        """End its processes, those it left behind too. One that has ended keeps its exit code. Raises
        JobConflict when some could not be ended."""

    @abstractmethod
    def list(self) -> list[Job]:
        """All jobs of this account and folder, by id."""

    @abstractmethod
    def remove(self, id: str) -> None:
        """Forget it with its output; one that is not there is no error. Raises JobConflict if it runs."""

    @abstractmethod
    def wait(self, id: str, *, timeout: float, every: float = 0.5) -> Job:
        """Wait until it is over. Raises DeadlineExceeded, and then it still runs."""

    def end_all(self) -> None:
        """Cancel and remove every job: for the end of a lease."""
        for job in self.list():
            self.cancel(job.id)
            self.remove(job.id)


def checked_id(id: str) -> str:
    """The id, or InvalidRequest when it could not be a file's name on every host."""
    if not _ID.fullmatch(id):
        raise InvalidRequest("A job's id is letters, digits, '.', '_' and '-', at most 100.", field="id")
    return id
