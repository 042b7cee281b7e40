"""Agents, the codes with which they join, and their orders."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class AgentOrderInfo:
    """An order that was given to an agent. Its `state` is waiting, sent, running, done, failed or expired."""

    id: int
    action: str
    state: str
    percent: int | None
    message: str
    actor: str
    created_at: dt.datetime
    expires_at: dt.datetime
    ended_at: dt.datetime | None


@dataclass(frozen=True, kw_only=True)
class AgentInfo:
    """An agent that has joined, or an agent that a blueprint requires on a host and that has not joined yet.

    `state` is `expected` (has not joined), `joined` (has never reported), `reporting`, `silent` or `revoked`.
    """

    id: int
    blueprint: str
    place: str
    """The name of the host in the blueprint."""
    host: str
    """The name that the host itself reports."""
    state: str
    message: str
    """The problem, in a sentence, or empty."""
    version: str
    outdated: bool
    """Whether it is older than the server."""
    drivers: tuple[str, ...]
    """The hardware drivers that it has, and those that failed with the reason."""
    interval: float
    """Seconds between two reports."""
    clock_offset: float | None
    """Seconds by which its clock is ahead of the server's."""
    joined_at: dt.datetime | None
    reported_at: dt.datetime | None
    silent_since: dt.datetime | None
    revoked_at: dt.datetime | None
    endpoint: str = ""
    """The address at which the server may call the agent; empty if there is none, or none that is trusted."""
    fingerprint: str = ""
    """The SHA-256 of the certificate that the endpoint must have."""
    offered_endpoint: str = ""
    """An endpoint that the agent announced and that an operator has to confirm."""
    offered_fingerprint: str = ""
    call_problem: str = ""
    """Why the last call of the endpoint failed."""
    orders: tuple[AgentOrderInfo, ...] = ()
    """Its last orders, newest first."""


@dataclass(frozen=True, kw_only=True)
class AgentInstallation:
    """The steps of an installation of the agent on a host, or of its removal."""

    resource: int
    """The id of the host."""
    agent: int | None = None
    version: str = ""
    sha256: str = ""
    """The SHA-256 of the program, as it was verified on the host."""
    started: bool = False
    """Whether it runs as a service. Otherwise the last step says how to start it."""
    steps: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class JoinCodeInfo:
    """A code with which one agent may join once. The code is shown only in this answer."""

    code: str
    blueprint: str
    place: str
    """The host that may use it; empty if any host of the blueprint may."""
    expires_at: dt.datetime
