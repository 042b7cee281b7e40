"""What comes of working on a lease."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Ended:
    """How a command ended."""

    exit_code: int
    signal: int = 0
    duration: float = 0.0
    stdout: str = ""
    stderr: str = ""
    truncated: bool = False


@dataclass(frozen=True, kw_only=True)
class JobInfo:
    """A command that runs by itself on a leased host."""

    id: int
    lease: int
    command: Sequence[str] | str
    state: str
    exit_code: int | None
    message: str
    ends_lease: bool
    cancelling: bool
    created_at: dt.datetime
    started_at: dt.datetime | None
    ended_at: dt.datetime | None
    apart: bool = False
    """Its standard error is kept by itself."""


@dataclass(frozen=True, kw_only=True)
class JobPart:
    """A part of a job's output; read on at `next_offset`. `over`: it has ended and this is the rest."""

    content: bytes
    next_offset: int
    over: bool
    truncated: bool


@dataclass(frozen=True, kw_only=True)
class FileInfo:
    """What stands in a folder of a lease: `kind` as in `interfaces.files.Kind`, `permissions` such as 0o644."""

    name: str
    kind: str
    size: int
    permissions: int
    modified_at: dt.datetime


@dataclass(frozen=True, kw_only=True)
class ServerInfo:
    """How a leased web server stands: `stopped`, `running` or `failed`; `detail` is what it said last."""

    state: str
    pid: int
    detail: str
    uri: str


@dataclass(frozen=True, kw_only=True)
class LogPart:
    """A part of a web server's log; read on at `next_offset`."""

    content: bytes
    next_offset: int
