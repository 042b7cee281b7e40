"""What leases have cost, and what they may cost."""

from __future__ import annotations

from leases.client import values
from leases.client.protocol import Wanted
from leases.engine.core.database import patient
from leases.operations import budgets, usage
from leases.operations.callers import Caller


class LocalCosts:
    """Usage and budgets."""

    who: Caller

    def usage(self, wanted: Wanted, *, by: str = "owner") -> values.UsageReport:
        return usage.report(self.who, wanted, by=by)

    def usage_records(self, wanted: Wanted, *, after: int = 0, limit: int = 200) -> list[values.UsageInfo]:
        return patient(usage.records, self.who, wanted, after=after, limit=limit)

    def budgets(self) -> list[values.BudgetInfo]:
        return budgets.list_(self.who)

    def set_budget(
        self, *, max_hourly: float, user: str = "", group: str = "", blueprint: str = ""
    ) -> values.BudgetInfo:
        return budgets.set_(self.who, max_hourly=max_hourly, user=user, group=group, blueprint=blueprint)

    def remove_budget(self, *, user: str = "", group: str = "", blueprint: str = "") -> None:
        budgets.remove(self.who, user=user, group=group, blueprint=blueprint)
