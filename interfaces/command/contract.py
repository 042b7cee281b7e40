"""What running commands on a leased host means, whatever the way there."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

from drydock.core.errors import InvalidRequest
from interfaces.command.jobs import Jobs
from interfaces.command.result import CommandResult
from interfaces.contract import Interface
from interfaces.deadline import Cancel
from interfaces.errors import CommandFailed
from interfaces.passing import unpassable

KEPT = 1 << 20
"""Bytes of each stream that a result keeps unless asked otherwise: the first half and the last."""

Words = Sequence[str] | str
"""What to run: a sequence is exact arguments that no shell reads, a string is one line for /bin/sh."""


@dataclass(frozen=True, kw_only=True)
class Output:
    """A part of a command's output as it came."""

    stream: Literal["stdout", "stderr"]
    content: bytes


class Command(Interface):
    """Runs commands with the rights of the lease's account.

    All methods raise LeaseEnded, Unreachable (HostKeyMismatch, AuthenticationRefused), ConnectionLost,
    NotStarted, InvalidRequest. An exit code is never raised except by `check`.
    """

    name: ClassVar[str] = "command"
    default_timeout: ClassVar[float] = 300.0

    @abstractmethod
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
        """Run to the end, in a clean environment, in the lease's home or `cwd` (relative to it).

        After `timeout` seconds, on `cancel`, and when the lease ends, all its processes are ended
        (TERM, then KILL) before CommandTimedOut, Cancelled or LeaseEnded is raised. What it left running
        in the background when it ended by itself is let be.
        """

    @abstractmethod
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
        """Like `run`, giving the output as it comes and keeping none; raises CommandFailed at the end when
        the exit code is not 0. Closing the iterator early ends the processes."""

    @property
    @abstractmethod
    def jobs(self) -> Jobs:
        """Commands that outlive this call, this connection and this process."""

    def check(
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
        """`run`, but any exit code other than 0 raises CommandFailed."""
        result = self.run(
            words, env=env, cwd=cwd, stdin=stdin, timeout=timeout,
            on_output=on_output, max_output=max_output, cancel=cancel,
        )  # fmt: skip
        if not result.ok:
            raise CommandFailed(result)
        return result


def argv_of(words: Words) -> list[str]:
    """Exact arguments for what was asked. Raises InvalidRequest for nothing, and for what no process can be given."""
    for word in [words] if isinstance(words, str) else words:
        if said := unpassable(str(word)):
            raise InvalidRequest(f"A command cannot hold {said}.", field="command")
    if isinstance(words, str):
        if not words.strip():
            raise InvalidRequest("A command line is empty.", field="command")
        return ["/bin/sh", "-c", words]
    argv = [str(word) for word in words]
    if not argv or not argv[0]:
        raise InvalidRequest("A command needs a program.", field="command")
    return argv
