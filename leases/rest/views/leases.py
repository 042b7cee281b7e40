"""Leases, groups of leases, and the reasons why leases wait."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse

from drydock.core.errors import InvalidRequest, NotFound
from drydock_client.values import EventInfo, Explanation, LeaseInfo
from leases.operations import leases
from leases.rest import bodies, parsing, polling, queries
from leases.rest.endpoint import Asked, Endpoint, Page, json_response, operation
from leases.rest.models import Scope
from leases.states import UNFINISHED
from leases.validation.requests import LeaseRequest

KEY = {"Idempotency-Key": "The same key and request again: the same lease; another request: 409."}
EVERY = ("pending", "acquired", "active", "released", "destroyed", "broken")
TAG = {"ETag": "Changes with state, reason and message."}


class Leases(Endpoint):
    """The collection of leases that the caller may see."""

    @operation("List leases", gives=list[LeaseInfo], query=queries.LeaseFilter)
    def get(self, asked: Asked) -> Page:
        """Return leases, newest first. By default, leases that are over are left out; use `state` or `all` to include
        them."""
        q, client = asked.query, asked.client
        found = leases.list_(
            client.who, owner=client.owner, states=q.state or (EVERY if q.all else UNFINISHED), type_=q.type,
            label=q.label, name=q.name, resource=q.resource, group=q.group, held=q.held, limit=q.limit,
            search=q.search,
            before=None if q.cursor is None else int(q.cursor),
        )  # fmt: skip
        return Page(results=found, next=str(found[-1].id) if len(found) == q.limit else None)

    @operation(
        "Ask for a lease", gives=LeaseInfo, status=201, scope=Scope.LEASE, body=LeaseRequest, query=queries.For,
        request_headers=KEY, headers={"Location": "Its address.", **TAG},
    )  # fmt: skip
    def post(self, asked: Asked) -> HttpResponse:
        """Request a lease. It is granted at once if there is room; otherwise, use `GET` with `wait` to wait for it."""
        info = asked.client.request(_keyed(asked))
        return _shown(info, status=201, location=f"/api/v1/leases/{info.id}")


def _keyed(asked: Asked) -> Any:
    """Return the request with the idempotency key from the header. Raises InvalidRequest if the body has a different
    key."""
    key, request = parsing.key(asked.header("Idempotency-Key")), asked.body
    if key is None:
        return request
    if request.idempotency_key not in (None, key):
        raise InvalidRequest("The Idempotency-Key header has another value.", field="idempotency_key")
    return request.model_copy(update={"idempotency_key": key})


def _shown(info: LeaseInfo, *, status: int = 200, location: str = "") -> HttpResponse:
    headers = {"ETag": polling.tag(info), **({"Location": location} if location else {})}
    return json_response(info, status=status, headers=headers)


class Lease(Endpoint):
    """A single lease."""

    @operation(
        "Look at a lease, or wait for it", gives=LeaseInfo, query=queries.Wait, headers=TAG,
        request_headers={"If-None-Match": "The ETag known: 304 when nothing has changed."},
        also={304: "It is as you know it."},
    )  # fmt: skip
    def get(self, asked: Asked, id: int) -> HttpResponse:
        """Return a lease with its place in the queue, its current step, and the verdict on every candidate."""
        known = asked.header("If-None-Match")
        info = polling.lease(asked.client, id, seconds=asked.query.wait, known=known)
        if known == polling.tag(info):
            return HttpResponse(status=304, headers={"ETag": known})
        return _shown(info)


class Resolve(Endpoint):
    """A step that waits for a person."""

    @operation("Confirm that a person has done it", scope=Scope.OPERATE, body=bodies.Message)
    def post(self, asked: Asked, id: int) -> None:
        """Confirm that what the held step of this lease waits for has been done; the step continues."""
        asked.client.resolve(lease=id, message=asked.body.message)


class Events(Endpoint):
    """The events of a lease."""

    @operation("What happened to a lease", gives=list[EventInfo], query=queries.LeaseEvents)
    def get(self, asked: Asked, id: int) -> Page:
        """Return the lease's events in order of id, starting after `after`."""
        q = asked.query
        asked.client.lease(id)
        found = asked.client.events(lease=id, kind=q.kind, after=q.after, limit=q.limit, newest=q.newest)
        return Page(results=found)


class Explain(Endpoint):
    """The explanation of a request."""

    @operation("What would come of a request", gives=Explanation, body=LeaseRequest, query=queries.For)
    def post(self, asked: Asked) -> Explanation:
        """Return what the request would get now, with the verdict on every candidate. Nothing is written."""
        return asked.client.explain(asked.body)


class Groups(Endpoint):
    """The collection of lease groups."""

    @operation(
        "Ask for a group of leases", gives=list[LeaseInfo], status=201, scope=Scope.LEASE, body=bodies.Group,
        query=queries.For, request_headers=KEY,
    )  # fmt: skip
    def post(self, asked: Asked) -> Page:
        """Request several leases that are granted all together or not at all. They are returned in the order of the
        request."""
        body, key = asked.body, parsing.key(asked.header("Idempotency-Key"))
        found = asked.client.request_group(body.leases, same=body.same, different=body.different, key=key)
        return Page(results=found)


class Group(Endpoint):
    """A single group of leases."""

    @operation("The leases of a group", gives=list[LeaseInfo])
    def get(self, asked: Asked, id: int) -> Page:
        """Return all leases of the group, including those that are over."""
        found = asked.client.leases(group=id, states=EVERY, limit=1000)
        if not found:
            raise NotFound(f"Group {id} does not exist or is not yours.", field="group")
        return Page(results=found[::-1])
