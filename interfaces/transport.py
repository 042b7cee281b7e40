"""Transports: start processes and reach files on a leased resource, local or remote.

A transport is created from an endpoint (see `interfaces.endpoints`) and is thread-safe.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from drydock.core.errors import NotSupported

if TYPE_CHECKING:
    from interfaces.deadline import Deadline
    from interfaces.files import Files


@dataclass(frozen=True, kw_only=True)
class Launch:
    """A process to start.

    `argv` contains the exact arguments: no shell reads them. `env` is added to the clean environment of the endpoint.
    `cwd` is absolute or relative to the home. `token` marks the process and its descendants, so that all of them can be
    found.
    """

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    token: str = ""


@dataclass(frozen=True, kw_only=True)
class Exit:
    """The exit status of a process.

    `signal` is 0 if no signal ended the process; otherwise the exit code is 128 + `signal`.
    """

    code: int
    signal: int = 0


class Process(ABC):
    """A started process. Read its output to the end before relying on `exit`."""

    @property
    @abstractmethod
    def leader(self) -> str:
        """The identity of the session leader ("pid.start.boot"), or empty until the host has reported it."""

    @abstractmethod
    def read(self, wait: float, *, writing: bool = False) -> tuple[bytes, bytes]:
        """Return the output that arrives within `wait` seconds as (stdout, stderr). Both may be empty.

        If `writing` is true, returns early when input can be written. Raises ConnectionLost, NotStarted.
        """

    @abstractmethod
    def write(self, part: bytes) -> int:
        """Write to the process's input without blocking. Return the number of bytes written, which may be 0."""

    @abstractmethod
    def close_input(self) -> None:
        """Close the process's input."""

    @property
    @abstractmethod
    def ended(self) -> bool:
        """Whether both output streams have ended."""

    @property
    @abstractmethod
    def exit(self) -> Exit | None:
        """The exit status of the process, or None while it is running. Raises ConnectionLost."""

    @abstractmethod
    def kill(self) -> None:
        """Kill the process if it runs on this machine. Never contacts another host.

        This works even if the lease's user has suspended the process. Does nothing if the process has ended.
        """

    @abstractmethod
    def close(self) -> None:
        """Release this object's connection and files. The process is not ended."""


class Transport(ABC):
    """The connection to one account on one host."""

    @abstractmethod
    def start(self, launch: Launch, deadline: Deadline) -> Process:
        """Start a process in its own session. Raises Unreachable, ConnectionLost, DeadlineExceeded."""

    @abstractmethod
    def files(self, root: str) -> Files:
        """Return file operations confined to the folder `root` (absolute, or relative to the home)."""

    @abstractmethod
    def close(self) -> None:
        """Close the connections of this transport. It may be used again afterwards.

        Other transports to the same account are not affected.
        """


class NoAccount(Transport):
    """Stands for the transport of an interface that leads to no account. `what` names the interface in errors."""

    def __init__(self, what: str) -> None:
        self._what = what

    def start(self, launch: Launch, deadline: Deadline) -> Process:
        """Raise NotSupported."""
        raise NotSupported(f"{self._what} runs no commands.", capability="command")

    def files(self, root: str) -> Files:
        """Raise NotSupported."""
        raise NotSupported(f"{self._what} has no files.", capability="filesystem")

    def close(self) -> None:
        """Do nothing, because nothing is open."""
