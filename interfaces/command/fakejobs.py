"""Jobs in memory, for tests: they run until the test ends them."""

from __future__ import annotations

from dataclasses import dataclass, field

from interfaces.command.jobs import Job, JobEnd, JobOutput, Jobs, JobSpec, JobState, Stream, checked_id
from interfaces.contract import StillMine
from interfaces.errors import DeadlineExceeded, JobConflict, JobMissing


@dataclass
class _Running:
    spec: JobSpec
    state: JobState = JobState.RUNNING
    exit_code: int | None = None
    output: bytearray = field(default_factory=bytearray)
    errors: bytearray = field(default_factory=bytearray)
    truncated: bool = False
    cause: str = ""
    cpu_seconds: float | None = None


class FakeJobs(Jobs):
    """`say` adds output, `finish` ends a job, `lose` loses it; `started` lists the specs in order."""

    def __init__(self, still_mine: StillMine) -> None:
        self._still_mine = still_mine
        self._jobs: dict[str, _Running] = {}
        self.started: list[JobSpec] = []

    def say(self, id: str, content: bytes, stream: Stream = "stdout") -> None:
        """The job writes; what goes over its bound is dropped."""
        job = self._job(id)
        kept = job.errors if stream == "stderr" and job.spec.apart else job.output
        room = max(0, job.spec.max_output - len(kept))
        kept += content[:room]
        job.truncated |= len(content) > room

    def finish(self, id: str, exit_code: int = 0, *, cause: str = "", cpu_seconds: float | None = None) -> None:
        """The job ends by itself."""
        self._end(id, JobState.EXITED, exit_code)
        self._jobs[id].cause, self._jobs[id].cpu_seconds = cause, cpu_seconds

    def lose(self, id: str) -> None:
        """The job is killed from outside."""
        self._end(id, JobState.LOST, None)

    def start(self, spec: JobSpec) -> Job:
        self._still_mine()
        known = self._jobs.get(spec.id)
        if known is not None and known.spec != spec:
            raise JobConflict(f"Another job has the id {spec.id!r}.")
        if known is None:
            self._jobs[spec.id] = _Running(spec)
            self.started.append(spec)
        return self.status(spec.id)

    def status(self, id: str) -> Job:
        job = self._job(id)
        return Job(
            id=id,
            state=job.state,
            exit_code=job.exit_code,
            output_size=len(job.output),
            truncated=job.truncated,
        )

    def output(self, id: str, offset: int = 0, limit: int = 1 << 20, stream: Stream = "stdout") -> JobOutput:
        if offset < 0 or limit < 1:
            raise JobConflict("An offset is at least 0 and a limit at least 1.")
        job = self._job(id)
        kept = job.errors if stream == "stderr" else job.output
        content = bytes(kept[offset : offset + limit])
        over = job.state.over and len(content) < limit
        next_offset = offset + len(content)
        return JobOutput(content=content, next_offset=next_offset, over=over, truncated=job.truncated)

    def remains(self, id: str, head: int, tail: int) -> JobEnd:
        job = self._job(id)
        first, rest = bytes(job.output[:head]), bytes(job.output[head:])
        return JobEnd(
            job=self.status(id), head=first, tail=rest[-tail:] if tail else b"", size=len(job.output),
            cause=job.cause, cpu_seconds=job.cpu_seconds,
        )  # fmt: skip

    def cancel(self, id: str) -> Job:
        if not self._job(id).state.over:
            self._end(id, JobState.CANCELLED, 143)
        return self.status(id)

    def list(self) -> list[Job]:
        self._still_mine()
        return [self.status(id) for id in sorted(self._jobs)]

    def remove(self, id: str) -> None:
        self._still_mine()
        job = self._jobs.get(checked_id(id))
        if job is not None and not job.state.over:
            raise JobConflict(f"The job {id!r} still runs.", hint="Cancel it first.")
        self._jobs.pop(id, None)

    def wait(self, id: str, *, timeout: float, every: float = 0.5) -> Job:
        if not (job := self.status(id)).state.over:
            raise DeadlineExceeded(f"The job {id!r} took longer than {timeout:g} s.")
        return job

    def _job(self, id: str) -> _Running:
        self._still_mine()
        try:
            return self._jobs[checked_id(id)]
        except KeyError:
            raise JobMissing(f"No job {id!r} on the host.") from None

    def _end(self, id: str, state: JobState, exit_code: int | None) -> None:
        job = self._job(id)
        job.state, job.exit_code = state, exit_code
