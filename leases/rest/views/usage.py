"""What leases have cost, and what they may cost."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, fields
from typing import Any

from django.http import StreamingHttpResponse

from leases import tables
from leases.client.values import BudgetInfo, UsageInfo, UsageReport, UsageSum
from leases.operations import usage
from leases.rest import operating, queries
from leases.rest.endpoint import Asked, Endpoint, Page, operation
from leases.rest.models import Scope
from leases.spent import UsageFilter

CSV = "text/csv"


def _wanted(asked: Asked) -> UsageFilter:
    chosen = asked.query.model_dump(include=set(UsageFilter.model_fields))
    return UsageFilter.model_construct(**chosen)


def _as_csv(asked: Asked) -> bool:
    """Asked for by `as`, else by what the program takes first."""
    return bool(asked.query.as_ == "csv" or (not asked.query.as_ and asked.header("Accept").strip().startswith(CSV)))


def _table(name: str, of: Any, found: Iterable[Any]) -> StreamingHttpResponse:
    content = tables.lines([field.name for field in fields(of)], (astuple(one) for one in found))
    headers = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
    return StreamingHttpResponse(content, content_type=f"{CSV}; charset=utf-8", headers=headers)


class Usage(Endpoint):
    """What was spent."""

    @operation("Sum up what was spent", gives=UsageReport, or_gives=CSV, query=queries.UsageReport)
    def get(self, asked: Asked) -> Any:
        """In a span of time, by owner, lease, blueprint and so on, the dearest 1000; owners see their own. As CSV with
        `as=csv`, or `Accept: text/csv`."""
        found = usage.report(asked.client.who, _wanted(asked), by=asked.query.by)
        return _table(f"usage-by-{found.by}", UsageSum, found.groups) if _as_csv(asked) else found


class UsageRecords(Endpoint):
    """What it is made of."""

    @operation("List usage", gives=list[UsageInfo], or_gives=CSV, query=queries.UsageRecords)
    def get(self, asked: Asked) -> Any:
        """Each time that a lease held a share of something with a price. As CSV all of them, else by pages."""
        q, who = asked.query, asked.client.who
        if _as_csv(asked):
            return _table("usage", UsageInfo, usage.all_records(who, _wanted(asked)))
        found = usage.records(who, _wanted(asked), after=int(q.cursor or 0), limit=q.limit)
        return Page(results=found, next=str(found[-1].id) if len(found) == q.limit else None)


class Budgets(Endpoint):
    """What users, groups and blueprints may cost an hour."""

    @operation("List budgets", gives=list[BudgetInfo])
    def get(self, asked: Asked) -> Page:
        """All for an operator, for others those that bound them: what they allow, and what of it is spent."""
        return Page(results=asked.client.budgets())

    @operation("Set a budget", gives=BudgetInfo, scope=Scope.OPERATE, body=operating.Budget)
    def put(self, asked: Asked) -> BudgetInfo:
        """Of a user, a group or a blueprint. Leases that it held back are tried again."""
        return asked.client.set_budget(**asked.body.model_dump())

    @operation("Remove a budget", scope=Scope.OPERATE, query=queries.Spender)
    def delete(self, asked: Asked) -> None:
        """Then any amount may be spent."""
        q = asked.query
        asked.client.remove_budget(user=q.user, group=q.group, blueprint=q.blueprint)
