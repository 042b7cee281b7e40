"""Usage of leases, and budgets."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drydock_client.operations import Operations, operation
from drydock_client.values import BudgetInfo, UsageInfo, UsageReport


class Costs(Operations):
    """Usage and budgets. Owners see only their own usage and budgets; operators see everybody's."""

    @operation("GET", "usage", "Get costs", query="UsageReport", spread="wanted")
    def usage(self, wanted: Mapping[str, Any], *, by: str = "owner") -> UsageReport:
        """Return the costs of a period, summed by one dimension.

        Dimensions are owner, group, lease, blueprint, kind, resource, place, type and market. `wanted` has the fields
        of `leases.validation.usage_query.UsageFilter`.
        """

    @operation("GET", "usage/records", "List usage records", query="UsageRecords", spread="wanted", cursor="after")
    def usage_records(self, wanted: Mapping[str, Any], *, after: int = 0, limit: int = 200) -> list[UsageInfo]:
        """List the usage records of the report in the order of their ids, starting after `after`.

        `limit` is at most 1000.
        """

    @operation("GET", "budgets", "List budgets")
    def budgets(self) -> list[BudgetInfo]:
        """List budgets with current spending. Operators see all budgets, others only the budgets that limit them."""

    @operation("PUT", "budgets", "Set a budget", scope="operate", body="Budget")
    def set_budget(self, *, max_hourly: float, user: str = "", group: str = "", blueprint: str = "") -> BudgetInfo:
        """Set the hourly budget of a user, a group or a blueprint.

        Leases that waited for the budget are tried again.
        """

    @operation("DELETE", "budgets", "Remove a budget", scope="operate", query="Spender")
    def remove_budget(self, *, user: str = "", group: str = "", blueprint: str = "") -> None:
        """Remove the budget of a user, a group or a blueprint, so that it limits no spending any more."""
