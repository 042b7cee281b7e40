"""Leases, and what would come of asking for one."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from drydock_client.values.watches import MetricsInfo, WorkloadInfo


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """What one blueprint said: `answer` is `build`, `reclaim`, `wait` or `no`."""

    blueprint: str
    answer: str
    sentence: str
    offer: str = ""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The step at hand of whatever is carried out for a lease or a resource; `percent` where it is known."""

    phase: str
    step: str
    sentence: str
    percent: int | None = None
    waits_for: str = ""
    who: str = ""
    """The person a held step waits for; `task` is what that person must do."""
    uninterruptible: bool = False
    task: str = ""
    attempt: int = 1
    attempts: int = 0
    """The step is tried for the `attempt`-th time of at most `attempts`; 0: until it succeeds."""
    failure: str = ""
    """The last failure of the step, or of an earlier resource for this lease, in the provider's words."""
    since: dt.datetime | None = None
    estimate: dt.timedelta | None = None
    """How long such a build took lately, on average."""


@dataclass(frozen=True, kw_only=True)
class Sibling:
    """A lease of the same group; `resource` is kept for it, or held by it."""

    lease: int
    state: str
    resource: str = ""


@dataclass(frozen=True, kw_only=True)
class WaitingInfo:
    """Why a lease waits, computed when it is shown."""

    reason: str
    message: str
    """One or two sentences."""
    help: str = ""
    """The action that would help, with its command."""
    place: int = 1
    """Place among the requests that compete for the same blueprints; the first is 1."""
    behind: int | None = None
    """The lease at the head of the queue, where the asker may know it."""
    holder: int | None = None
    """The lease that ends next on what is full, where the asker may know it."""
    ends_at: dt.datetime | None = None
    """When that lease ends, or when the next attempt follows."""
    estimate: dt.timedelta | None = None
    """How long builds of the blueprint took lately, on average."""
    siblings: tuple[Sibling, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    """What every blueprint says now."""


@dataclass(frozen=True, kw_only=True)
class LeaseInfo:
    """A lease as its owner sees it. `place` is 1 for the first in the queue, None when it does not wait."""

    id: int
    type: str
    name: str
    owner: str
    state: str
    reason: str
    message: str
    since: dt.datetime
    created_at: dt.datetime
    active_at: dt.datetime | None
    ended_at: dt.datetime | None
    until: dt.datetime | None
    ttl: dt.timedelta | None
    heartbeat_limit: dt.timedelta | None
    held: bool
    hold_until: dt.datetime | None
    priority: int
    slots: int
    cpu_millicores: int
    ram_mib: int
    disk_mib: int
    extra: Mapping[str, int]
    exclusive: bool
    requirements: Mapping[str, Any]
    labels: Mapping[str, str]
    group: int | None
    resource: int | None
    resource_name: str
    blueprint: str
    ending: bool
    """Its end was asked for and has not begun yet."""
    for_lease: int | None = None
    for_resource: int | None = None
    replaced_by: int | None = None
    place: int | None = None
    progress: Progress | None = None
    verdicts: tuple[Verdict, ...] = ()
    interfaces: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    workload: WorkloadInfo | None = None
    """What it does by itself, where it was asked for with that."""
    metrics: MetricsInfo | None = None
    """What it uses of its host, where that is measured."""
    waiting: WaitingInfo | None = None
    """Why it waits, while it is pending."""

    @property
    def over(self) -> bool:
        """Whether nothing more will happen to it."""
        return self.state in ("destroyed", "broken")


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What would come of a request now: `outcome` is `granted`, `build`, `reclaim`, `wait` or `refuse`."""

    outcome: str
    message: str
    reason: str = ""
    resource: int | None = None
    """Where it would be granted at once."""
    offer: str = ""
    retry_at: dt.datetime | None = None
    waiting_before: int = 0
    verdicts: tuple[Verdict, ...] = ()
