"""The `command` interface and its jobs, over any transport to a POSIX host."""

from __future__ import annotations

import contextlib
import hashlib
import re
import secrets
from collections import deque
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import ClassVar, NamedTuple, Protocol

from drydock.core import clock
from interfaces.command import jobscripts as scripts
from interfaces.command.contract import KEPT, Command, Output, Words, argv_of
from interfaces.command.jobs import Job, JobEnd, JobOutput, Jobs, JobSpec, JobState, Stream, checked_id
from interfaces.command.result import CommandResult
from interfaces.command.termination import end
from interfaces.contract import StillMine, Watch
from interfaces.deadline import Cancel, Deadline
from interfaces.errors import (
    CommandFailed,
    CommandTimedOut,
    ConnectionLost,
    DeadlineExceeded,
    InterfaceError,
    JobConflict,
    JobMissing,
)
from interfaces.launch import TOKEN_NAME, exports, quoted
from interfaces.transport import Exit, Launch, Process, Transport


class Capture:
    """The beginning and the end of a stream, in bounded memory.

    Keeps at most about `limit` bytes: half of them from the beginning, the other half from the end.
    """

    def __init__(self, limit: int) -> None:
        self._head_room = (limit + 1) // 2
        self._tail_room = limit // 2
        self._head = bytearray()
        self._tail: deque[bytes] = deque()
        self._tail_size = 0
        self.left_out = 0

    def add(self, part: bytes) -> None:
        """Append the next bytes of the stream."""
        taken = part[: self._head_room - len(self._head)]
        self._head += taken
        rest = part[len(taken) :]
        if rest:
            self._tail.append(rest)
            self._tail_size += len(rest)
        while self._tail and self._tail_size - len(self._tail[0]) >= self._tail_room:
            dropped = len(self._tail.popleft())
            self._tail_size -= dropped
            self.left_out += dropped

    @property
    def truncated(self) -> bool:
        """Return whether bytes were omitted."""
        return self.left_out + max(0, self._tail_size - self._tail_room) > 0

    @property
    def content(self) -> bytes:
        """Return the bytes that were kept, with a mark where bytes were omitted."""
        tail = b"".join(self._tail)
        over = max(0, len(tail) - self._tail_room)
        missing = self.left_out + over
        if not missing:
            return bytes(self._head) + tail
        return bytes(self._head) + f"\n[... {missing} bytes omitted ...]\n".encode() + tail[over:]


_TIMEOUT = 60.0
_LONGEST_LIST = 4 << 20
_LARGEST_CODE = 255
_EXIT_CODE = re.compile(r"[0-9]{1,3}")
_LINE = re.compile(
    rf"(?P<id>[^ ]+) (?P<state>{'|'.join(each.value for each in JobState)}) "
    r"(?P<code>[^ ]+) (?P<size>[0-9]{1,18}) (?P<cut>[01])"
)
_COUNTED = re.compile(r"(?P<size>[0-9]{1,18}) (?P<rest>[0-9]{1,18}) (?P<cause>[a-z-]{1,30})")
_TIME = re.compile(r"([0-9]{1,9})m([0-9]{1,2}[.,][0-9]{1,6})s")
_FILES: dict[Stream, str] = {"stdout": "output", "stderr": "errors"}


class Shell(Protocol):
    """The part of the command interface that jobs need. `grace` is the number of seconds between TERM and KILL."""

    transport: Transport
    grace: ClassVar[float]

    def check(
        self, words: Words, *, stdin: bytes = ..., timeout: float | None = ..., max_output: int = ...
    ) -> CommandResult:
        """Run a command to completion. Raises CommandFailed, and the errors of `Command.run`."""


class ShellJobs(Jobs):
    """Jobs in one folder of the account, either absolute or relative to the lease's home."""

    def __init__(self, command: Shell, folder: str) -> None:
        self._command = command
        self._folder = folder if folder.startswith("/") else f"./{folder}"

    def start(self, spec: JobSpec) -> Job:
        made, how = prepared(spec), ("apart" if spec.apart else "", "input" if spec.stdin else "")
        said = self._ask(
            scripts.START, spec.id, made.digest, made.blocks, scripts.RUNNER, str(len(made.command)), *how,
            stdin=made.command + spec.stdin,
        )  # fmt: skip
        if said.strip() == b"conflict":
            raise JobConflict(f"Another job already has the id {spec.id!r}.")
        return self.status(spec.id)

    def status(self, id: str) -> Job:
        return _job(self._ask(scripts.STATUS, checked_id(id)), id)

    def output(self, id: str, offset: int = 0, limit: int = 1 << 20, stream: Stream = "stdout") -> JobOutput:
        if offset < 0 or limit < 1:
            raise JobConflict("offset must be at least 0 and limit at least 1.")
        asked = (checked_id(id), str(offset), str(limit), _FILES[stream])
        said = self._ask(scripts.OUTPUT, *asked, max_output=2 * limit + _LONGEST_LIST)
        line, _, content = said.partition(b"\n")
        job = _job(line, id)
        return JobOutput(
            content=content,
            next_offset=offset + len(content),
            over=job.state.over and len(content) < limit,
            truncated=job.truncated,
        )

    def remains(self, id: str, head: int, tail: int) -> JobEnd:
        asked = (checked_id(id), str(head), str(tail))
        said = self._ask(scripts.REMAINS, *asked, max_output=2 * (head + tail) + _LONGEST_LIST)
        line, _, rest = said.partition(b"\n")
        job = _job(line, id)
        counted, _, rest = rest.partition(b"\n")
        times, _, content = rest.partition(b"\n")
        return _remains(job, counted.decode("utf-8", "replace"), times.decode("utf-8", "replace"), content, head)

    def cancel(self, id: str) -> Job:
        said = self._ask(scripts.CANCEL, checked_id(id)).decode("utf-8", "surrogateescape")
        if said.strip() == "missing":
            raise JobMissing(f"Job {id!r} does not exist on the host.")
        claim, _, folder = said.partition("\n")
        leader = "" if claim == "0.0.cancelled" else claim
        token = f"{scripts.JOB_NAME}={folder.removesuffix(chr(10))}/."
        left = end(self._command.transport, leader=leader, token=token, grace=self._command.grace)
        if left is None:
            raise ConnectionLost("The host could not be reached to end the job.")
        if left:
            raise JobConflict(f"{left} processes of the job could not be ended.")
        self._ask(scripts.CANCELLED, id)
        return self.status(id)

    def list(self) -> list[Job]:
        lines = self._ask(scripts.LIST, max_output=_LONGEST_LIST).splitlines()
        if lines[-1:] == [b"missing"]:
            return []
        # A folder that the lease made beside those of its jobs is none of them.
        shown = [line for line in lines[:-1] if _LINE.fullmatch(line.decode("utf-8", "replace"))]
        return sorted((_job(line) for line in shown), key=lambda job: job.id)

    def remove(self, id: str) -> None:
        try:
            job = self.status(id)
        except JobMissing:
            return
        if not job.state.over and job.state is not JobState.STARTING:
            raise JobConflict(f"Job {id!r} is still running.", hint="Cancel the job first.")
        self._ask(scripts.REMOVE, id)

    def wait(self, id: str, *, timeout: float, every: float = 0.5) -> Job:
        deadline = Deadline(timeout)
        while not (job := self.status(id)).state.over:
            deadline.check(f"The job {id!r}")
            clock.sleep(min(every, deadline.remaining))
        return job

    def _ask(self, script: str, *arguments: str, stdin: bytes = b"", max_output: int = 1 << 16) -> bytes:
        words = ["/bin/sh", "-c", script, "sh", self._folder, *arguments]
        result = self._command.check(words, stdin=stdin, timeout=_TIMEOUT, max_output=max_output)
        if result.truncated:
            raise InterfaceError("The host's report on its jobs is too long.")
        return result.stdout


def _remains(job: Job, counted: str, times: str, content: bytes, head: int) -> JobEnd:
    """Return the status and the output of a job from the host's answer.

    The job's folder is writable by the lease, so invalid numbers or words in it count as missing.
    """
    found = _COUNTED.fullmatch(counted)
    size, rest, cause = (int(found["size"]), int(found["rest"]), found["cause"]) if found else (len(content), 0, "")
    first = content[: min(size, head)]
    return JobEnd(
        job=job, head=first, tail=content[len(first) :], size=size + rest, cause=cause.strip("-"),
        cpu_seconds=processor_time(times),
    )  # fmt: skip


def processor_time(times: str) -> float | None:
    """Return the sum of all times in the output of the shell's `times`, in seconds, or None if it contains none."""
    found = _TIME.findall(times)
    return sum(int(minutes) * 60 + float(seconds.replace(",", ".")) for minutes, seconds in found) if found else None


class Prepared(NamedTuple):
    """A job as its start script takes it: the lines of its shell, the bound on its output, and their digest."""

    command: bytes
    blocks: str
    digest: str


def prepared(spec: JobSpec) -> Prepared:
    """Return a job as its start script takes it. Raises InvalidRequest."""
    command, blocks = _command_of(spec).encode("utf-8", "surrogateescape"), (spec.max_output + 511) // 512
    return Prepared(command, str(blocks), _digest(spec, blocks, command))


def _digest(spec: JobSpec, blocks: int, command: bytes) -> str:
    """Return the digest of a request.

    A plain job has the same digest as in older versions of Drydock, so a job that an older version started is found.
    """
    more = b"\0apart" * spec.apart + (b"\0input" + spec.stdin if spec.stdin else b"")
    return hashlib.sha256(b"%d\n%b%b" % (blocks, command, more)).hexdigest()


def _command_of(spec: JobSpec) -> str:
    from interfaces.command.contract import argv_of

    words = " ".join(quoted(word) for word in argv_of(spec.words))
    go = (
        f"cd -- {quoted(spec.cwd)}" if spec.cwd.startswith("/") else f'cd -- "$HOME" && cd -- {quoted("./" + spec.cwd)}'
    )
    # What was asked may hold secrets: the file goes as soon as it is being read.
    return f"rm -f -- command\n{exports(list(spec.env.items()))}{go} || exit 126\nexec {words}\n"


def _job(line: bytes, id: str = "") -> Job:
    """Return a job from one line of the host's answer.

    The job's folder is writable by the lease: if the exit code is invalid, the runner did not write it, and the job
    counts as lost. Raises JobMissing only if the answer says so, and ConnectionLost for an incomplete answer.
    """
    said = line.decode("utf-8", "replace").strip()
    if said == "missing":
        raise JobMissing(f"Job {id!r} does not exist on the host.")
    found = _LINE.fullmatch(said)
    if found is None:
        raise ConnectionLost(f"The host returned an invalid answer about job {id!r}: {said[:200]!r}.")
    state, code = JobState(found["state"]), found["code"]
    exit_code = int(code) if _EXIT_CODE.fullmatch(code) and int(code) <= _LARGEST_CODE else None
    if exit_code is None and state in (JobState.EXITED, JobState.CANCELLED):
        state = JobState.LOST
    return Job(
        id=found["id"],
        state=state,
        exit_code=exit_code,
        output_size=int(found["size"]),
        truncated=found["cut"] == "1",
    )


_TICK = 0.1

# A background child may hold the output open for ever after the command itself has ended.
_LINGER = 0.5


class ShellCommand(Command):
    """The `command` interface on a host that has /bin/sh. `grace` is the number of seconds between TERM and KILL."""

    grace: ClassVar[float] = 3.0

    def __init__(self, transport: Transport, *, still_mine: StillMine, jobs_folder: str = ".drydock/jobs") -> None:
        super().__init__(transport, still_mine=still_mine)
        self._jobs = ShellJobs(self, jobs_folder)

    @property
    def jobs(self) -> Jobs:
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
        began = clock.monotonic()
        kept = {"stdout": Capture(max_output), "stderr": Capture(max_output)}
        running = _Running(self, words, env or {}, cwd, stdin, self._watch("The command", timeout, cancel))
        try:
            with contextlib.closing(running.output()) as outputs:
                for output in outputs:
                    kept[output.stream].add(output.content)
                    if on_output is not None:
                        on_output(output)
        except CommandTimedOut as error:
            error.stdout, error.stderr = kept["stdout"].content, kept["stderr"].content
            raise
        return CommandResult(
            exit_code=running.exit.code,
            signal=running.exit.signal,
            stdout=kept["stdout"].content,
            stderr=kept["stderr"].content,
            truncated=any(each.truncated for each in kept.values()),
            duration=clock.monotonic() - began,
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
        # Looked at now; what follows runs when the first output is asked for.
        watch = self._watch("The command", timeout, cancel)
        return _streamed(_Running(self, words, env or {}, cwd, stdin, watch))


def _streamed(running: _Running) -> Iterator[Output]:
    tail = Capture(4096)
    with contextlib.closing(running.output()) as outputs:
        for output in outputs:
            if output.stream == "stderr":
                tail.add(output.content)
            yield output
    ended = running.exit
    if ended.code:
        raise CommandFailed(CommandResult(exit_code=ended.code, signal=ended.signal, stderr=tail.content))


class _Running:
    """A running command."""

    def __init__(
        self,
        command: ShellCommand,
        words: Words,
        env: Mapping[str, str],
        cwd: str,
        stdin: bytes,
        watch: Watch,
    ) -> None:
        self._transport, self._grace, self._watch = command.transport, command.grace, watch
        self._token = secrets.token_hex(16)
        self._rest = memoryview(stdin)
        self._fed = False
        self._launch = Launch(argv=argv_of(words), env=env, cwd=cwd, token=self._token)
        self.exit = Exit(code=0)

    def output(self) -> Generator[Output, None, None]:
        """Yield the output as it comes, then set `exit`. Closing the generator early terminates the processes."""
        process = self._transport.start(self._launch, self._watch.deadline)
        over = False
        try:
            yield from self._pump(process)
            over = True
        except ConnectionLost:
            over = True
            raise
        except DeadlineExceeded as error:
            over = True
            left = self._end(process)
            raise CommandTimedOut(error.message, stdout=b"", stderr=b"", left=left) from error
        finally:
            if not over:
                self._end(process)
            process.kill()
            process.close()

    def _pump(self, process: Process) -> Iterator[Output]:
        quiet_since: float | None = None
        pause = 0.0005
        while True:
            self._watch.check()
            self._feed(process)
            wait = min(_TICK, self._watch.deadline.remaining)
            out, err = process.read(wait, writing=bool(self._rest))
            if out:
                yield Output(stream="stdout", content=out)
            if err:
                yield Output(stream="stderr", content=err)
            exit = process.exit
            if exit is None:
                # Streams closed, process alive: nothing left to wait on but its end.
                if process.ended:
                    clock.sleep(pause)
                    pause = min(2 * pause, 0.01)
                continue
            if out or err or quiet_since is None:
                quiet_since = clock.monotonic()
            if process.ended or clock.monotonic() - quiet_since > _LINGER:
                self.exit = exit
                return

    def _feed(self, process: Process) -> None:
        while self._rest:
            taken = process.write(bytes(self._rest[: 1 << 16]))
            self._rest = self._rest[taken:]
            if not taken:
                return
        if not self._fed:
            process.close_input()
            self._fed = True

    def _end(self, process: Process) -> int | None:
        with contextlib.suppress(Exception):
            process.read(0)  # the leader's identity may have just come
        token = f"{TOKEN_NAME}={self._token}"
        return end(self._transport, leader=process.leader, token=token, grace=self._grace)
