"""Commands that answer from a script, for tests: deterministic, nothing is run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from interfaces.command.contract import KEPT, Command, Output, Words, argv_of
from interfaces.command.fakejobs import FakeJobs
from interfaces.command.result import CommandResult
from interfaces.contract import StillMine
from interfaces.deadline import Cancel
from interfaces.errors import CommandFailed
from interfaces.fake import FakeTransport
from interfaces.transport import Transport


def _always() -> None:
    """A lease that never ends."""


@dataclass(frozen=True, kw_only=True)
class Reply:
    """What a command answers; `error` is raised instead, for a host that is gone and the like."""

    exit_code: int = 0
    stdout: bytes = b""
    stderr: bytes = b""
    error: Exception | None = None


@dataclass(frozen=True, kw_only=True)
class Call:
    """One command that was asked for."""

    words: Words
    env: Mapping[str, str]
    cwd: str
    stdin: bytes


class FakeCommand(Command):
    """`reply` says what commands of a pattern answer; all others end with 0 and no output.

    `calls` is what was asked for, in order. `jobs` start running and end when the test says so.
    """

    def __init__(self, transport: Transport | None = None, *, still_mine: StillMine = _always) -> None:
        super().__init__(transport or FakeTransport(), still_mine=still_mine)
        self.calls: list[Call] = []
        self._replies: list[tuple[re.Pattern[str], list[Reply]]] = []
        self._jobs = FakeJobs(still_mine)

    def reply(self, pattern: str, *replies: Reply) -> None:
        """Commands whose words (joined by blanks) match the regular expression give the replies in turn,
        the last one again and again. What was said last about a command holds."""
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
