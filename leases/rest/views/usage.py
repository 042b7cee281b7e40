"""The cost of leases, as sums and as records."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import astuple, fields
from typing import Any

from django.http import StreamingHttpResponse

from drydock_client.values import UsageInfo, UsageReport, UsageSum
from leases import tables
from leases.operations import costs
from leases.rest import queries
from leases.rest.endpoint import Asked, Endpoint, Page, operation
from leases.validation.usage_query import UsageFilter

CSV = "text/csv"


def _wanted(asked: Asked) -> UsageFilter:
    chosen = asked.query.model_dump(include=set(UsageFilter.model_fields))
    return UsageFilter.model_construct(**chosen)


def _as_csv(asked: Asked) -> bool:
    """Return whether CSV is requested, by `as` or, without it, by the first type in the Accept header."""
    return bool(asked.query.as_ == "csv" or (not asked.query.as_ and asked.header("Accept").strip().startswith(CSV)))


def _table(name: str, of: Any, found: Iterable[Any]) -> StreamingHttpResponse:
    content = tables.lines([field.name for field in fields(of)], (astuple(one) for one in found))
    headers = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
    return StreamingHttpResponse(content, content_type=f"{CSV}; charset=utf-8", headers=headers)


class Usage(Endpoint):
    """The cost of leases, summed."""

    @operation("Sum up what was spent", gives=UsageReport, or_gives=CSV, query=queries.UsageReport)
    def get(self, asked: Asked) -> Any:
        """Return the cost in a period, grouped by owner, lease, blueprint and so on; at most the 1,000 most expensive
        groups. Owners see only their own. Use `as=csv` or `Accept: text/csv` for CSV."""
        found = costs.usage_report(asked.client.who, _wanted(asked), by=asked.query.by)
        return _table(f"usage-by-{found.by}", UsageSum, found.groups) if _as_csv(asked) else found


class UsageRecords(Endpoint):
    """The usage records behind the sums."""

    @operation("List usage", gives=list[UsageInfo], or_gives=CSV, query=queries.UsageRecords)
    def get(self, asked: Asked) -> Any:
        """Return a record for each period in which a lease held a share of something with a price. CSV contains all
        records; JSON is paged."""
        q, who = asked.query, asked.client.who
        if _as_csv(asked):
            return _table("usage", UsageInfo, costs.all_usage_records(who, _wanted(asked)))
        found = costs.usage_records(who, _wanted(asked), after=int(q.cursor or 0), limit=q.limit)
        return Page(results=found, next=str(found[-1].id) if len(found) == q.limit else None)
