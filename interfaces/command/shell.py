"""The `command` interface over any transport to a POSIX host."""

from __future__ import annotations

import contextlib
import secrets
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import ClassVar

from drydock.core import clock
from interfaces.command.capture import Capture
from interfaces.command.contract import KEPT, Command, Output, Words, argv_of
from interfaces.command.ending import end
from interfaces.command.jobs import Jobs
from interfaces.command.result import CommandResult
from interfaces.command.shelljobs import ShellJobs
from interfaces.contract import StillMine, Watch
from interfaces.deadline import Cancel
from interfaces.errors import CommandFailed, CommandTimedOut, ConnectionLost, DeadlineExceeded
from interfaces.launch import TOKEN_NAME
from interfaces.transport import Exit, Launch, Process, Transport

_TICK = 0.1
# A background child may hold the output open for ever after the command itself has ended.
_LINGER = 0.5


class ShellCommand(Command):
    """Needs only /bin/sh on the host. `grace` is the time in seconds between TERM and KILL."""

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
    """One command from its start to its end."""

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
        """The output as it comes; afterwards `exit` is set. Any way out but the end ends the processes."""
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
                    clock.sleep(0.01)
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
