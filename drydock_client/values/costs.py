"""What leases have cost, and what they may cost. Amounts are US dollars."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from drydock_client.values.leases import LeaseInfo
from drydock_client.values.watches import MetricsInfo


@dataclass(frozen=True, kw_only=True)
class UsageInfo:
    """One time that a lease held a share of something with a price. `seconds` and `cost` are what falls into the span
    that was asked for, open ones counted up to now."""

    id: int
    lease_id: int
    lease_name: str
    owner: str
    """Empty: the installation itself."""
    group: str
    blueprint: str
    kind: str
    resource_id: int
    resource: str
    type: str
    offer: str
    instance_type: str
    place: str
    market: str
    price: float
    """Of the whole resource, an hour."""
    part: float
    """Of the resource that the lease held, from 0 to 1."""
    started_at: dt.datetime
    ended_at: dt.datetime | None
    ends_at: dt.datetime | None
    """When it ends because its budget was not enough for another hour."""
    seconds: float
    cost: float


@dataclass(frozen=True, kw_only=True)
class LeaseEnd:
    """How a lease ended, and what it has used and cost."""

    lease: LeaseInfo
    """Its last state, `destroyed` or `broken`, with reason and message; its `workload` says how that ended."""
    exit_code: int | None
    """Of its workload; None where it had none, or that ended otherwise (`lease.workload.outcome`)."""
    metrics: MetricsInfo | None
    """What it used of its host, where that was measured."""
    usage: tuple[UsageInfo, ...]
    """What it held that has a price. An open record: a machine that is still being destroyed."""
    cost: float
    """US dollars, as far as it is known."""


@dataclass(frozen=True, kw_only=True)
class UsageSum:
    """What something has cost: `name` and, where it has one, its number."""

    id: int | None
    name: str
    leases: int
    seconds: float
    cost: float
    hourly: float
    """What of it goes on, an hour."""


@dataclass(frozen=True, kw_only=True)
class UsageReport:
    """What was spent from `since` to `until`, by one thing or another, the dearest first; `total` is of all, also
    where `groups` had no room for more."""

    since: dt.datetime
    until: dt.datetime
    by: str
    groups: tuple[UsageSum, ...]
    total: UsageSum


@dataclass(frozen=True, kw_only=True)
class BudgetInfo:
    """What may be spent an hour by a user, a group's members together, or for all that a blueprint has built."""

    user: str
    group: str
    blueprint: str
    max_hourly: float
    used: float
    left: float
    waiting: int
    """Number of leases that wait because of it, as far as that is known."""
