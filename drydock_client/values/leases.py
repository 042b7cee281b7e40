"""Leases, and explanations of requests."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from drydock_client.values.watches import MetricsInfo, WorkloadInfo


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The verdict on one candidate. `answer` is `build`, `reclaim`, `wait` or `no`.

    Of a group that must be in one host, the candidates are hosts, and `blueprint` is the name of one. `answer` is then
    `granted`, `build` (once something is built there), `wait` or `no`.
    """

    blueprint: str
    answer: str
    sentence: str
    offer: str = ""


@dataclass(frozen=True, kw_only=True)
class Progress:
    """The current step of the work on a lease or a resource. `percent` is None if the progress is unknown."""

    phase: str
    step: str
    sentence: str
    percent: int | None = None
    waits_for: str = ""
    who: str = ""
    """The person for whom a held step waits; `task` is what that person must do."""
    uninterruptible: bool = False
    task: str = ""
    attempt: int = 1
    attempts: int = 0
    """Maximum number of attempts at the step, of which `attempt` is the current one. 0 means that the step is retried
    until it succeeds."""
    failure: str = ""
    """The last failure of the step, or of an earlier resource for this lease, in the provider's words."""
    since: dt.datetime | None = None
    estimate: dt.timedelta | None = None
    """Average duration of recent comparable builds."""
    act: str = ""
    """The name of the kind's act, if the phase is `act`."""


@dataclass(frozen=True, kw_only=True)
class Sibling:
    """Another lease of the same group. `resource` is the resource that this lease holds or that is reserved for it."""

    lease: int
    state: str
    resource: str = ""


@dataclass(frozen=True, kw_only=True)
class WaitingInfo:
    """The reason why a lease is waiting, computed when the lease is shown."""

    reason: str
    message: str
    """The reason in one or two sentences."""
    help: str = ""
    """The action that would help, with its command."""
    place: int = 1
    """Position among the requests that compete for the same blueprints; the first is 1."""
    behind: int | None = None
    """The lease at the head of the queue, if the caller is allowed to see it."""
    holder: int | None = None
    """The lease that ends next on a full resource, if the caller is allowed to see it."""
    ends_at: dt.datetime | None = None
    """The time at which the lease `holder` ends or, without a holder, the time of the next attempt."""
    estimate: dt.timedelta | None = None
    """Average duration of the blueprint's recent builds."""
    siblings: tuple[Sibling, ...] = ()
    verdicts: tuple[Verdict, ...] = ()
    """The current verdicts on all blueprints."""


@dataclass(frozen=True, kw_only=True)
class LeaseInfo:
    """A lease as its owner sees it. `place` is its place in the queue, from 1, or None if the lease is not waiting."""

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
    """Whether the release of the lease was requested but has not begun."""
    for_lease: int | None = None
    for_resource: int | None = None
    replaced_by: int | None = None
    place: int | None = None
    progress: Progress | None = None
    verdicts: tuple[Verdict, ...] = ()
    interfaces: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    workload: WorkloadInfo | None = None
    """The workload of the lease, if it was requested with one."""
    metrics: MetricsInfo | None = None
    """The lease's usage of its host, if that is measured."""
    waiting: WaitingInfo | None = None
    """The reason why the lease is waiting, if it is pending."""
    note: str = ""
    """The note that the owner has written on the lease."""
    distance: str = ""
    """The distance between the devices of the lease's group, such as `all at switch 0000:02:00.0`.

    Empty if the group was requested without `near`, or has fewer than two devices.
    """

    @property
    def over(self) -> bool:
        """Whether the lease is in a final state."""
        return self.state in ("destroyed", "broken")


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """What would happen to a request now. `outcome` is `granted`, `build`, `reclaim`, `wait` or `refuse`."""

    outcome: str
    message: str
    reason: str = ""
    resource: int | None = None
    """The id of the resource on which the request would be granted at once; None if there is none."""
    offer: str = ""
    retry_at: dt.datetime | None = None
    waiting_before: int = 0
    verdicts: tuple[Verdict, ...] = ()
