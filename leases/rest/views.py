"""The views written by hand, besides those in `files`, which stream.

They return the token of the request, tokens, usage (also as CSV), and the OpenAPI document, which is public.
"""

from __future__ import annotations

import threading
from collections.abc import Iterable
from dataclasses import astuple, fields
from typing import Any

from django.http import HttpResponse, StreamingHttpResponse
from drf_spectacular.views import SpectacularAPIView
from rest_framework.request import Request
from rest_framework.response import Response

from drydock_client.values import TokenInfo, UsageInfo, UsageReport, UsageSum
from leases import tables
from leases.operations import costs
from leases.rest import bodies, queries, tokens, values
from leases.rest.endpoint import Asked, Endpoint, Page, json_response, operation
from leases.rest.models import Scope
from leases.validation.usage_query import UsageFilter


class Myself(Endpoint):
    """The token that is used for the request."""

    @operation("Get the token of the request", gives=values.Me)
    def get(self, asked: Asked) -> values.Me:
        """Return the user that the token speaks for, its scope, and when it expires."""
        token, who = asked.token, asked.client.who
        return values.Me(name=who.name, operator=who.operator, scope=token.scope, expires_at=token.expires_at)


class Tokens(Endpoint):
    """The collection of tokens."""

    @operation("List tokens", gives=list[TokenInfo], query=queries.TokenFilter)
    def get(self, asked: Asked) -> Page:
        """Return your tokens, or everyone's if you are an operator, newest first and without their secrets."""
        q = asked.query
        found = tokens.list_(asked.client.who, owner=q.user, limit=q.limit, before=q.cursor)
        return Page(results=found, next=str(found[-1].id) if len(found) == q.limit else None)

    @operation(
        "Create a token", gives=values.NewToken, status=201, scope=Scope.LEASE, body=bodies.NewToken,
        headers={"Location": "The URL of the new token."},
    )  # fmt: skip
    def post(self, asked: Asked) -> HttpResponse:
        """Create a token.

        Its secret is shown only in this response. The new token cannot exceed the scope or lifetime of the token used
        for this request, and is revoked with it.
        """
        body = asked.body
        made, secret = tokens.create(
            asked.client.who, name=body.name, scope=body.scope, ttl=body.ttl, owner=body.user, by=asked.token
        )
        shown = values.NewToken(token=secret, about=made)
        return json_response(shown, status=201, headers={"Location": f"/api/v1/tokens/{made.id}"})


class Token(Endpoint):
    """A single token."""

    @operation("Get a token", gives=TokenInfo)
    def get(self, asked: Asked, id: int) -> TokenInfo:
        """Return a token without its secret."""
        return tokens.get(asked.client.who, id)

    @operation("Revoke a token", gives=TokenInfo, scope=Scope.LEASE)
    def delete(self, asked: Asked, id: int) -> TokenInfo:
        """Revoke a token and all tokens created with it; they are refused from now on. A token may revoke itself."""
        return tokens.revoke(asked.client.who, id)


CSV = "text/csv"


def _wanted(asked: Asked) -> UsageFilter:
    chosen = asked.query.model_dump(include=set(UsageFilter.model_fields))
    return UsageFilter.model_construct(**chosen)


def _as_csv(asked: Asked) -> bool:
    """Return whether the response must be CSV, as requested by `as` or else by the first type in the Accept header."""
    return bool(asked.query.as_ == "csv" or (not asked.query.as_ and asked.header("Accept").strip().startswith(CSV)))


def _table(name: str, of: Any, found: Iterable[Any]) -> StreamingHttpResponse:
    content = tables.lines([field.name for field in fields(of)], (astuple(one) for one in found))
    headers = {"Content-Disposition": f'attachment; filename="{name}.csv"'}
    return StreamingHttpResponse(content, content_type=f"{CSV}; charset=utf-8", headers=headers)


class Usage(Endpoint):
    """The total cost of leases."""

    @operation("Get costs", gives=UsageReport, or_gives=CSV, query=queries.UsageReport)
    def get(self, asked: Asked) -> Any:
        """Return the cost in a period, grouped by owner, lease, blueprint and so on.

        Returns at most the 1,000 most expensive groups. Owners see only their own. Use `as=csv` or `Accept: text/csv`
        for CSV.
        """
        found = costs.usage_report(asked.client.who, _wanted(asked), by=asked.query.by)
        return _table(f"usage-by-{found.by}", UsageSum, found.groups) if _as_csv(asked) else found


class UsageRecords(Endpoint):
    """The usage records behind the sums."""

    @operation("List usage records", gives=list[UsageInfo], or_gives=CSV, query=queries.UsageRecords)
    def get(self, asked: Asked) -> Any:
        """Return a record for each period in which a lease held a share of a resource with a price.

        CSV contains all records; JSON is paged.
        """
        q, who = asked.query, asked.client.who
        if _as_csv(asked):
            return _table("usage", UsageInfo, costs.all_usage_records(who, _wanted(asked)))
        found = costs.usage_records(who, _wanted(asked), after=q.cursor or 0, limit=q.limit)
        return Page(results=found, next=str(found[-1].id) if len(found) == q.limit else None)


MADE: dict[str, bytes] = {}
"""The generated OpenAPI document for each media type. It is kept until the process ends."""
_making = threading.Lock()


class Document(SpectacularAPIView):
    """Serve the OpenAPI document as YAML or JSON. It depends on nothing in the request except the media type.

    Generating it takes most of a second, so each process generates it only once.
    """

    def get(self, request: Request, *args: Any, **kwargs: Any) -> HttpResponse:
        """Return the OpenAPI document."""
        renderer: Any = request.accepted_renderer
        with _making:
            if renderer.media_type not in MADE:
                made: Response = super().get(request, *args, **kwargs)  # type: ignore[no-untyped-call]
                MADE[renderer.media_type] = renderer.render(made.data, renderer.media_type, {})
        return HttpResponse(
            MADE[renderer.media_type], content_type=renderer.media_type,
            headers={"Content-Disposition": f'inline; filename="Drydock.{renderer.format}"'},
        )  # fmt: skip
