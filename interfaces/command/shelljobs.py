"""Jobs over any `command` interface whose host has /bin/sh."""

from __future__ import annotations

import hashlib
import re
from typing import ClassVar, Protocol

from drydock.core import clock
from interfaces.command import jobscripts as scripts
from interfaces.command.contract import Words
from interfaces.command.ending import end
from interfaces.command.jobs import Job, JobEnd, JobOutput, Jobs, JobSpec, JobState, Stream, checked_id
from interfaces.command.result import CommandResult
from interfaces.deadline import Deadline
from interfaces.errors import ConnectionLost, InterfaceError, JobConflict, JobMissing
from interfaces.launch import exports, quoted
from interfaces.transport import Transport

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
    """What jobs need of the command interface that starts them. `grace`: seconds between TERM and KILL."""

    transport: Transport
    grace: ClassVar[float]

    def check(
        self, words: Words, *, stdin: bytes = ..., timeout: float | None = ..., max_output: int = ...
    ) -> CommandResult:
        """Run a command to its end. Raises CommandFailed, and as `Command.run`."""


class ShellJobs(Jobs):
    """Jobs under one folder of the account (relative to the lease's home, or absolute)."""

    def __init__(self, command: Shell, folder: str) -> None:
        self._command = command
        self._folder = folder if folder.startswith("/") else f"./{folder}"

    def start(self, spec: JobSpec) -> Job:
        command = _command_of(spec).encode("utf-8", "surrogateescape")
        blocks = (spec.max_output + 511) // 512
        digest, how = _digest(spec, blocks, command), ("apart" if spec.apart else "", "input" if spec.stdin else "")
        said = self._ask(
            scripts.START, spec.id, digest, str(blocks), scripts.RUNNER, str(len(command)), *how,
            stdin=command + spec.stdin,
        )  # fmt: skip
        if said.strip() == b"conflict":
            raise JobConflict(f"Another job has the id {spec.id!r}.")
        return self.status(spec.id)

    def status(self, id: str) -> Job:
        return _job(self._ask(scripts.STATUS, checked_id(id)), id)

    def output(self, id: str, offset: int = 0, limit: int = 1 << 20, stream: Stream = "stdout") -> JobOutput:
        if offset < 0 or limit < 1:
            raise JobConflict("An offset is at least 0 and a limit at least 1.")
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
            raise JobMissing(f"No job {id!r} on the host.")
        claim, _, folder = said.partition("\n")
        leader = "" if claim == "0.0.cancelled" else claim
        token = f"{scripts.JOB_NAME}={folder.removesuffix(chr(10))}/."
        left = end(self._command.transport, leader=leader, token=token, grace=self._command.grace)
        if left is None:
            raise ConnectionLost("The host could not be asked to end the job.")
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
            raise JobConflict(f"The job {id!r} still runs.", hint="Cancel it first.")
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
            raise InterfaceError("The host said more about its jobs than fits.")
        return result.stdout


def _remains(job: Job, counted: str, times: str, content: bytes, head: int) -> JobEnd:
    """The folder is the lease's own: what stands there in place of a number or a word is taken for none."""
    found = _COUNTED.fullmatch(counted)
    size, rest, cause = (int(found["size"]), int(found["rest"]), found["cause"]) if found else (len(content), 0, "")
    first = content[: min(size, head)]
    return JobEnd(
        job=job, head=first, tail=content[len(first) :], size=size + rest, cause=cause.strip("-"),
        cpu_seconds=processor_time(times),
    )  # fmt: skip


def processor_time(times: str) -> float | None:
    """Seconds in what the shell's `times` prints: its own and its children's, user's and system's."""
    found = _TIME.findall(times)
    return sum(int(minutes) * 60 + float(seconds.replace(",", ".")) for minutes, seconds in found) if found else None


def _digest(spec: JobSpec, blocks: int, command: bytes) -> str:
    """What was asked. Plain jobs keep the digest they had before there were others, so that both are re-adopted."""
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
    """What the host said of a job. Its folder is the lease's own: an exit code there that is none was not written by
    the runner, and how the job ended is lost. Half an answer does not say that there is no job."""
    said = line.decode("utf-8", "replace").strip()
    if said == "missing":
        raise JobMissing(f"No job {id!r} on the host.")
    found = _LINE.fullmatch(said)
    if found is None:
        raise ConnectionLost(f"Of job {id!r} the host only said {said[:200]!r}.")
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
