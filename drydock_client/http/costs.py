"""Usage and budgets, over HTTP."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drydock_client.http.connection import Connection
from drydock_client.values import BudgetInfo, UsageInfo, UsageReport, from_json, to_json


class HttpCosts:
    """`drydock_client.costing.Costs` on a server."""

    http: Connection

    def usage(self, wanted: Mapping[str, Any], *, by: str = "owner") -> UsageReport:
        return from_json(UsageReport, self.http.get("usage", {**to_json(wanted), "by": by}))

    def usage_records(self, wanted: Mapping[str, Any], *, after: int = 0, limit: int = 200) -> list[UsageInfo]:
        asked = {**to_json(wanted), "limit": str(limit), "cursor": str(after)}
        return [from_json(UsageInfo, one) for one in self.http.get("usage/records", asked)["results"]]

    def budgets(self) -> list[BudgetInfo]:
        return [from_json(BudgetInfo, one) for one in self.http.get("budgets")["results"]]

    def set_budget(self, *, max_hourly: float, user: str = "", group: str = "", blueprint: str = "") -> BudgetInfo:
        whose = {"user": user, "group": group, "blueprint": blueprint}
        return from_json(BudgetInfo, self.http.send("PUT", "budgets", {**whose, "max_hourly": max_hourly}))

    def remove_budget(self, *, user: str = "", group: str = "", blueprint: str = "") -> None:
        self.http.send("DELETE", "budgets", query={"user": user, "group": group, "blueprint": blueprint})
