"""The contract of the `command` interface, for any transport."""

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
"""Bytes of each stream that a result keeps by default: half from the beginning, half from the end."""

Words = Sequence[str] | str
"""A command: a sequence is exact arguments, which no shell reads; a string is one line for /bin/sh."""


@dataclass(frozen=True, kw_only=True)
class Output:
    """A chunk of a command's output."""

    stream: Literal["stdout", "stderr"]
    content: bytes


class Command(Interface):
    """Runs commands with the rights of the lease's account.

    All methods raise LeaseEnded, Unreachable (HostKeyMismatch, AuthenticationRefused), ConnectionLost, NotStarted,
    InvalidRequest. Only `check` raises an exception for an exit code other than 0.
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
        """Run a command in a clean environment, in the lease's home or `cwd`, and wait until it ends.

        `cwd` is relative to the home. After `timeout` seconds, on `cancel`, and when the lease ends, all processes of
        the command are terminated (TERM, then KILL) before CommandTimedOut, Cancelled or LeaseEnded is raised.
        Background processes that outlive the command are left running.
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
        """Run a command and yield its output as it arrives, without storing it.

        Raises CommandFailed at the end if the exit code is not 0. Closing the iterator early terminates the processes.
        """

    @property
    @abstractmethod
    def jobs(self) -> Jobs:
        """The jobs of this lease: commands that continue when this call, the connection or this process has ended."""

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
        """Run a command and return its result. Raises CommandFailed if the exit code is not 0; see `run`."""
        result = self.run(
            words, env=env, cwd=cwd, stdin=stdin, timeout=timeout,
            on_output=on_output, max_output=max_output, cancel=cancel,
        )  # fmt: skip
        if not result.ok:
            raise CommandFailed(result)
        return result


def argv_of(words: Words) -> list[str]:
    """Return a command as a list of exact arguments. Raises InvalidRequest if it is empty or has invalid characters."""
    for word in [words] if isinstance(words, str) else words:
        if said := unpassable(str(word)):
            raise InvalidRequest(f"A command cannot contain {said}.", field="command")
    if isinstance(words, str):
        if not words.strip():
            raise InvalidRequest("The command line must not be empty.", field="command")
        return ["/bin/sh", "-c", words]
    argv = [str(word) for word in words]
    if not argv or not argv[0]:
        raise InvalidRequest("A command must name a program.", field="command")
    return argv
