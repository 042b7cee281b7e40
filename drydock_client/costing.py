"""What leases have cost, and what they may cost."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from drydock_client.values import BudgetInfo, UsageInfo, UsageReport


class Costs(Protocol):
    """Usage and budgets: owners see their own, operators all."""

    def usage(self, wanted: Mapping[str, Any], *, by: str = "owner") -> UsageReport:
        """What was spent in a span of time, summed by owner, group, lease, blueprint, kind, resource, place, type or
        market. `wanted`: the fields of `leases.spent.UsageFilter`."""

    def usage_records(self, wanted: Mapping[str, Any], *, after: int = 0, limit: int = 200) -> list[UsageInfo]:
        """The records that the report is made of, by number from the one after `after`: at most 1000."""

    def budgets(self) -> list[BudgetInfo]:
        """What may be spent an hour, and what is."""

    def set_budget(self, *, max_hourly: float, user: str = "", group: str = "", blueprint: str = "") -> BudgetInfo:
        """Set what a user, a group or a blueprint may cost in US dollars an hour."""

    def remove_budget(self, *, user: str = "", group: str = "", blueprint: str = "") -> None:
        """Let a user, a group or a blueprint cost any amount."""
