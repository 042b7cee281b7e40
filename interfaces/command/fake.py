"""Commands and jobs in memory, for tests: commands get scripted replies, jobs run until the test ends them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field

from interfaces.command.contract import KEPT, Command, Output, Words, argv_of
from interfaces.command.jobs import Job, JobEnd, JobOutput, Jobs, JobSpec, JobState, Stream, checked_id
from interfaces.command.result import CommandResult
from interfaces.contract import StillMine
from interfaces.deadline import Cancel
from interfaces.errors import CommandFailed, DeadlineExceeded, JobConflict, JobMissing
from interfaces.fake import FakeTransport
from interfaces.transport import Transport


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
    """Jobs in memory. `say` adds output, `finish` and `lose` end a job, and `started` lists the specs in order."""

    def __init__(self, still_mine: StillMine) -> None:
        self._still_mine = still_mine
        self._jobs: dict[str, _Running] = {}
        self.started: list[JobSpec] = []

    def say(self, id: str, content: bytes, stream: Stream = "stdout") -> None:
        """Append to a job's output. Bytes beyond the job's limit are dropped."""
        job = self._job(id)
        kept = job.errors if stream == "stderr" and job.spec.apart else job.output
        room = max(0, job.spec.max_output - len(kept))
        kept += content[:room]
        job.truncated |= len(content) > room

    def finish(self, id: str, exit_code: int = 0, *, cause: str = "", cpu_seconds: float | None = None) -> None:
        """End a job as if it had ended by itself."""
        self._end(id, JobState.EXITED, exit_code)
        self._jobs[id].cause, self._jobs[id].cpu_seconds = cause, cpu_seconds

    def lose(self, id: str) -> None:
        """End a job as if its process had been killed from outside."""
        self._end(id, JobState.LOST, None)

    def start(self, spec: JobSpec) -> Job:
        self._still_mine()
        known = self._jobs.get(spec.id)
        if known is not None and known.spec != spec:
            raise JobConflict(f"Another job already has the id {spec.id!r}.")
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
            raise JobConflict("offset must be at least 0 and limit at least 1.")
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
            raise JobConflict(f"Job {id!r} is still running.", hint="Cancel the job first.")
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
            raise JobMissing(f"Job {id!r} does not exist on the host.") from None

    def _end(self, id: str, state: JobState, exit_code: int | None) -> None:
        job = self._job(id)
        job.state, job.exit_code = state, exit_code


def _always() -> None:
    """Let every operation continue, as for a lease that never ends."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """The result of a command. If `error` is set, such as for an unreachable host, it is raised instead."""

    exit_code: int = 0
    stdout: bytes = b""
    stderr: bytes = b""
    error: Exception | None = None


@dataclass(frozen=True, kw_only=True)
class Call:
    """A command that was run by the code under test."""

    words: Words
    env: Mapping[str, str]
    cwd: str
    stdin: bytes


class FakeCommand(Command):
    """Commands in memory. `reply` sets the results of matching commands; all others exit with 0 and no output."""

    def __init__(self, transport: Transport | None = None, *, still_mine: StillMine = _always) -> None:
        super().__init__(transport or FakeTransport(), still_mine=still_mine)
        self.calls: list[Call] = []
        self._replies: list[tuple[re.Pattern[str], list[Reply]]] = []
        self._jobs = FakeJobs(still_mine)

    def reply(self, pattern: str, *replies: Reply) -> None:
        """Set the results of commands whose words, joined by spaces, match a regular expression.

        The replies are given in turn, and the last one is repeated. Later calls take precedence over earlier ones.
        """
        self._replies.insert(0, (re.compile(pattern), list(replies)))

    @property
    def jobs(self) -> FakeJobs:
        return self._jobs

    def run(
        self,
        words: Words,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str = "",
        stdin: bytes = b"",
        timeout: float | None = None,
        on_output: Callable[[Output], None] | None = None,
        max_output: int = KEPT,
        cancel: Cancel | None = None,
    ) -> CommandResult:
        reply = self._answer(words, env or {}, cwd, stdin, timeout, cancel)
        for output in _outputs(reply):
            if on_output is not None:
                on_output(output)
        return CommandResult(
            exit_code=reply.exit_code,
            stdout=reply.stdout[:max_output],
            stderr=reply.stderr[:max_output],
            truncated=max(len(reply.stdout), len(reply.stderr)) > max_output,
        )

    def stream(
        self,
        words: Words,
        *,
        env: Mapping[str, str] | None = None,
        cwd: str = "",
        stdin: bytes = b"",
        timeout: float | None = None,
        cancel: Cancel | None = None,
    ) -> Iterator[Output]:
        reply = self._answer(words, env or {}, cwd, stdin, timeout, cancel)
        yield from _outputs(reply)
        if reply.exit_code:
            raise CommandFailed(CommandResult(exit_code=reply.exit_code, stderr=reply.stderr))

    def _answer(
        self,
        words: Words,
        env: Mapping[str, str],
        cwd: str,
        stdin: bytes,
        timeout: float | None,
        cancel: Cancel | None,
    ) -> Reply:
        self._watch("The command", timeout, cancel).check()
        argv_of(words)
        self.calls.append(Call(words=words, env=dict(env), cwd=cwd, stdin=stdin))
        line = words if isinstance(words, str) else " ".join(words)
        for pattern, replies in self._replies:
            if pattern.search(line):
                reply = replies.pop(0) if len(replies) > 1 else replies[0]
                if reply.error is not None:
                    raise reply.error
                return reply
        return Reply()


def _outputs(reply: Reply) -> Iterator[Output]:
    if reply.stdout:
        yield Output(stream="stdout", content=reply.stdout)
    if reply.stderr:
        yield Output(stream="stderr", content=reply.stderr)
