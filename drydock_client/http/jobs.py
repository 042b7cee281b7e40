"""Run commands on a lease over HTTP, each as a job, and wait for the job to end."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

from drydock_client.errors import DrydockError, InvalidRequest, TimedOut
from drydock_client.http.operations import HttpOperations
from drydock_client.interfaces import Interfaces, Words
from drydock_client.jobs import LONGEST_STDIN, Jobs, Stream
from drydock_client.values import Ended, JobInfo

_PART = 1 << 20
_QUICKEST, _SLOWEST = 0.1, 1.0


class HttpJobs(HttpOperations, Interfaces, Jobs):
    """The operation `run` over HTTP: a command runs as a job whose output is read until the job ends."""

    def start_job(
        self, id: int, words: Words, *, env: Mapping[str, str] | None = None, cwd: str = "", ends_lease: bool = False,
        stdin: bytes = b"", apart: bool = False,
    ) -> JobInfo:  # fmt: skip
        if len(stdin) > LONGEST_STDIN:
            raise InvalidRequest(
                f"Over HTTP a command can get at most {LONGEST_STDIN} bytes of standard input.", field="stdin",
                hint="Copy the input with `drydock cp`, and let the command read the file.",
            )  # fmt: skip
        return super().start_job(id, words, env=env or {}, cwd=cwd, ends_lease=ends_lease, stdin=stdin, apart=apart)

    def run(
        self, id: int, words: Words, *, env: Mapping[str, str] | None = None, cwd: str = "", stdin: bytes = b"",
        timeout: float | None = None, on_output: Callable[[str, bytes], None] | None = None,
    ) -> Ended:  # fmt: skip
        """Run a command as a job, and read the job's output as it arrives.

        Cancels the job if an exception is raised meanwhile.
        """
        began = time.monotonic()
        kept: dict[str, bytearray] = {"stdout": bytearray(), "stderr": bytearray()}
        job = self.start_job(id, words, env=env, cwd=cwd, stdin=stdin, apart=True)
        if job.state == "lost":  # its host refused to start it
            raise DrydockError(f"Job {job.id} is lost: {job.message}")
        try:
            reading = _Reading(self, job.id, on_output or (lambda stream, part: kept[stream].extend(part)))
            reading.to_the_end(timeout)
        except BaseException:
            self.cancel_job(job.id)
            raise
        job = self.job(job.id)
        if job.exit_code is None:
            raise DrydockError(f"Job {job.id} is {job.state}: {job.message or 'there is no exit code'}")
        return Ended(
            exit_code=job.exit_code, signal=max(0, job.exit_code - 128), duration=time.monotonic() - began,
            stdout=kept["stdout"].decode("utf-8", "replace"), stderr=kept["stderr"].decode("utf-8", "replace"),
            truncated=reading.truncated,
        )  # fmt: skip


class _Reading:
    """Reads both output streams of a job to the end. `truncated` says whether some output was not kept."""

    def __init__(self, client: HttpJobs, job: int, put: Callable[[str, bytes], None]) -> None:
        self._client, self._job, self._put = client, job, put
        self._offsets: dict[Stream, int] = {"stdout": 0, "stderr": 0}
        self.truncated = False

    def to_the_end(self, timeout: float | None) -> None:
        """Read both output streams to their end. Raises TimedOut after `timeout` seconds; None means no limit."""
        began, pause = time.monotonic(), _QUICKEST
        while True:
            came = self._some()
            if not self._offsets:
                return
            if timeout is not None and time.monotonic() - began > timeout:
                raise TimedOut(f"The command exceeded its timeout of {timeout:g} s and was ended.")
            pause = _QUICKEST if came else min(pause * 1.5, _SLOWEST)
            if came < _PART:
                time.sleep(pause)

    def _some(self) -> int:
        """Pass new output of both streams on. Return its size in bytes."""
        found = 0
        for stream, offset in list(self._offsets.items()):
            part = self._client.job_output(self._job, offset=offset, limit=_PART, stream=stream)
            self._offsets[stream] = part.next_offset
            self.truncated |= part.truncated
            if part.content:
                self._put(stream, part.content)
                found += len(part.content)
            if part.over:
                del self._offsets[stream]
        return found
