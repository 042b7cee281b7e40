"""Usage of resources, its cost and energy, and budgets. Amounts are in US dollars."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from drydock_client.values.leases import LeaseInfo
from drydock_client.values.watches import MetricsInfo


@dataclass(frozen=True, kw_only=True)
class UsageInfo:
    """One usage record: a lease's share of a resource with a price, or the whole of one that measures its power.

    `seconds`, `cost` and `energy_wh` cover only the part of the period within the requested span. A record that has not
    ended counts up to now.
    """

    id: int
    lease_id: int
    lease_name: str
    owner: str
    """The owner of the lease; empty for the installation itself."""
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
    """Hourly price of the whole resource; 0 if it has none."""
    part: float
    """The fraction of the resource that the lease held, from 0 to 1."""
    started_at: dt.datetime
    ended_at: dt.datetime | None
    ends_at: dt.datetime | None
    """The time at which the lease ends because its budget is exhausted; None if the budget covers another hour."""
    seconds: float
    cost: float
    energy_wh: float | None = None
    """The energy that the resource used, in watt-hours; None if it is not measured, or if the lease held only a part.

    If only a part of the period is within the span, this is the same part of the energy.
    """


@dataclass(frozen=True, kw_only=True)
class LeaseEnd:
    """How a lease ended, with its usage and cost."""

    lease: LeaseInfo
    """The lease in its last state, `destroyed` or `broken`; its `workload` says how the workload ended."""
    exit_code: int | None
    """The workload's exit code; None without a workload, or if it did not exit by itself (`lease.workload.outcome`)."""
    metrics: MetricsInfo | None
    """The lease's usage of its host; None if that was not measured."""
    usage: tuple[UsageInfo, ...]
    """Usage records of the lease. A record without an end belongs to a machine that is still being destroyed."""
    cost: float
    """The known cost of the lease in US dollars."""
    energy_wh: float | None = None
    """The energy that the lease used, in watt-hours; None if it was not measured."""


@dataclass(frozen=True, kw_only=True)
class UsageSum:
    """One line of a usage report, such as one owner or one place: its cost, its `name` and, if it has one, its `id`."""

    id: int | None
    name: str
    leases: int
    seconds: float
    cost: float
    hourly: float
    """Current hourly cost."""
    energy_wh: float | None = None
    """Energy in watt-hours; None if none was measured."""


@dataclass(frozen=True, kw_only=True)
class UsageReport:
    """A usage report: costs from `since` to `until`, summed by one dimension, the most expensive group first.

    `total` is the cost of all groups, even if `groups` contains only the most expensive ones.
    """

    since: dt.datetime
    until: dt.datetime
    by: str
    groups: tuple[UsageSum, ...]
    total: UsageSum


@dataclass(frozen=True, kw_only=True)
class BudgetInfo:
    """The hourly budget of a user, of all members of a group together, or of all resources of a blueprint."""

    user: str
    group: str
    blueprint: str
    max_hourly: float
    used: float
    left: float
    waiting: int
    """Number of leases known to be waiting for this budget."""
