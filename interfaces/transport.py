"""How an interface gets to its thing: processes and files, near or far.

A transport is made from an endpoint (see `interfaces.endpoints`). It is safe to use from several threads.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from interfaces.deadline import Deadline
    from interfaces.files import Files


@dataclass(frozen=True, kw_only=True)
class Launch:
    """One process to start.

    `argv` is exact: no shell reads it. `env` is added to the clean environment of the endpoint. `cwd` is
    absolute or relative to the home. `token` marks the process and its offspring, so that all can be found.
    """

    argv: Sequence[str]
    env: Mapping[str, str] = field(default_factory=dict)
    cwd: str = ""
    token: str = ""


@dataclass(frozen=True, kw_only=True)
class Exit:
    """How a process ended; `signal` is 0 when it ended by itself. By a signal: the code is 128 + signal."""

    code: int
    signal: int = 0


class Process(ABC):
    """A started process. Output must be read to the end before `exit` is trusted."""

    @property
    @abstractmethod
    def leader(self) -> str:
        """Identity of the session leader ("pid.start.boot"), "" until the host said it."""

    @abstractmethod
    def read(self, wait: float, *, writing: bool = False) -> tuple[bytes, bytes]:
        """Output that came within `wait` seconds: (stdout, stderr), both empty if none did.

        With `writing` it also returns when input can be written. Raises ConnectionLost, NotStarted.
        """

    @abstractmethod
    def write(self, part: bytes) -> int:
        """Give input without blocking; returns how many bytes were taken, which may be 0."""

    @abstractmethod
    def close_input(self) -> None:
        """End the input."""

    @property
    @abstractmethod
    def ended(self) -> bool:
        """Whether both output streams are at their end."""

    @property
    @abstractmethod
    def exit(self) -> Exit | None:
        """How it ended, or None while it runs. Raises ConnectionLost."""

    @abstractmethod
    def kill(self) -> None:
        """Kill what this side itself started, where that needs no answer of the host: a tenant can stop a process, but
        not keep it from being killed. Where it has ended already nothing happens."""

    @abstractmethod
    def close(self) -> None:
        """Give back what the handle holds here; does not end the process."""


class Transport(ABC):
    """The way to one account on one host."""

    @abstractmethod
    def start(self, launch: Launch, deadline: Deadline) -> Process:
        """Start a process in a session of its own. Raises Unreachable, ConnectionLost, DeadlineExceeded."""

    @abstractmethod
    def files(self, root: str) -> Files:
        """File operations confined to the folder `root` (absolute, or relative to the home)."""

    @abstractmethod
    def close(self) -> None:
        """Give back what this transport holds; it may be used again after. Others to the same account
        are not disturbed."""
