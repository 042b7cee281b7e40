"""Leases: ask, look, wait, extend, beat, hold, try again, release."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse

from drydock.core.errors import InvalidRequest, NotFound
from leases.client.values import EventInfo, Explanation, LeaseInfo
from leases.operations import holding
from leases.requests import LeaseRequest
from leases.rest import bodies, parsing, polling, queries
from leases.rest.endpoint import Asked, Endpoint, Page, json_response, operation
from leases.rest.models import Scope
from leases.rest.values import PrivateKey
from leases.states import UNFINISHED

KEY = {"Idempotency-Key": "The same key and request again: the same lease; another request: 409."}
EVERY = ("pending", "acquired", "active", "released", "destroyed", "broken")
TAG = {"ETag": "Changes with state, reason and message."}


class Leases(Endpoint):
    """All leases that the caller may see."""

    @operation("List leases", gives=list[LeaseInfo], query=queries.LeaseFilter)
    def get(self, asked: Asked) -> Page:
        """Leases, newest first; without `state` or `all` those that are not over."""
        q, client = asked.query, asked.client
        found = holding.list_(
            client.who, owner=client.owner, states=q.state or (EVERY if q.all else UNFINISHED), type_=q.type,
            label=q.label, name=q.name, resource=q.resource, group=q.group, held=q.held, limit=q.limit,
            before=None if q.cursor is None else int(q.cursor),
        )  # fmt: skip
        return Page(results=found, next=str(found[-1].id) if len(found) == q.limit else None)

    @operation(
        "Ask for a lease", gives=LeaseInfo, status=201, scope=Scope.LEASE, body=LeaseRequest, query=queries.For,
        request_headers=KEY, headers={"Location": "Its address.", **TAG},
    )  # fmt: skip
    def post(self, asked: Asked) -> HttpResponse:
        """Ask for one lease. It is granted at once where there is room; `GET` with `wait` waits for it."""
        info = asked.client.request(_keyed(asked))
        return _shown(info, status=201, location=f"/api/v1/leases/{info.id}")


def _keyed(asked: Asked) -> Any:
    """The request with the idempotency key of its header. Raises InvalidRequest where the body has another."""
    key, request = parsing.key(asked.header("Idempotency-Key")), asked.body
    if key is None:
        return request
    if request.idempotency_key not in (None, key):
        raise InvalidRequest("The Idempotency-Key header says another one.", field="idempotency_key")
    return request.model_copy(update={"idempotency_key": key})


def _shown(info: LeaseInfo, *, status: int = 200, location: str = "") -> HttpResponse:
    headers = {"ETag": polling.tag(info), **({"Location": location} if location else {})}
    return json_response(info, status=status, headers=headers)


class Lease(Endpoint):
    """One lease."""

    @operation(
        "Look at a lease, or wait for it", gives=LeaseInfo, query=queries.Wait, headers=TAG,
        request_headers={"If-None-Match": "The ETag known: 304 when nothing has changed."},
        also={304: "It is as you know it."},
    )  # fmt: skip
    def get(self, asked: Asked, id: int) -> HttpResponse:
        """A lease with its place in the queue, the step at hand and every candidate's verdict."""
        known = asked.header("If-None-Match")
        info = polling.lease(asked.client, id, seconds=asked.query.wait, known=known)
        if known == polling.tag(info):
            return HttpResponse(status=304, headers={"ETag": known})
        return _shown(info)


class Release(Endpoint):
    """Ending a lease."""

    @operation("Release a lease", gives=LeaseInfo, scope=Scope.LEASE, body=bodies.Message)
    def post(self, asked: Asked, id: int) -> LeaseInfo:
        """End a lease, or cancel one that waits; one that has ended is fine."""
        return asked.client.release(id, message=asked.body.message)


class Extend(Endpoint):
    """More time."""

    @operation("Let a lease last longer", gives=LeaseInfo, scope=Scope.LEASE, body=bodies.Extension)
    def post(self, asked: Asked, id: int) -> LeaseInfo:
        """Let it last until `until`, or `ttl` from now. It is never shortened."""
        return asked.client.extend(id, ttl=asked.body.ttl, until=asked.body.until)


class Heartbeat(Endpoint):
    """A sign of life."""

    @operation("Say that the owner lives", scope=Scope.LEASE)
    def post(self, asked: Asked, id: int) -> None:
        """For a lease with a heartbeat limit."""
        asked.client.heartbeat(id)


class Hold(Endpoint):
    """Keeping what a lease has used."""

    @operation("Keep its resource for debugging", gives=LeaseInfo, scope=Scope.LEASE, body=bodies.Hold)
    def post(self, asked: Asked, id: int) -> LeaseInfo:
        """Keep the resource as it is after the lease's end: up to seven days, operators without end."""
        return asked.client.hold(id, ttl=asked.body.ttl, reason=asked.body.reason)


class Unhold(Endpoint):
    """The end of a hold."""

    @operation("End a hold", gives=LeaseInfo, scope=Scope.LEASE)
    def post(self, asked: Asked, id: int) -> LeaseInfo:
        """A lease that has ended meanwhile is cleaned now."""
        return asked.client.unhold(id)


class Retry(Endpoint):
    """Another try."""

    @operation("Try again now", gives=LeaseInfo, scope=Scope.LEASE)
    def post(self, asked: Asked, id: int) -> LeaseInfo:
        """Look for room, or try the step that waits for its next try, now."""
        return asked.client.retry(id)


class Key(Endpoint):
    """The generated key pair of a lease."""

    @operation("Show the generated private key", gives=PrivateKey, scope=Scope.LEASE)
    def post(self, asked: Asked, id: int) -> PrivateKey:
        """To its owner alone, never to an operator, and every showing is an event."""
        return PrivateKey(private_key=asked.client.private_key(id))


class Resolve(Endpoint):
    """A step that waits for a person."""

    @operation("Say that a person has done it", scope=Scope.OPERATE, body=bodies.Message)
    def post(self, asked: Asked, id: int) -> None:
        """What a held step of this lease waits for is done; the step goes on."""
        asked.client.resolve(lease=id, message=asked.body.message)


class Events(Endpoint):
    """What happened to a lease."""

    @operation("What happened to a lease", gives=list[EventInfo], query=queries.LeaseEvents)
    def get(self, asked: Asked, id: int) -> Page:
        """Its events by id, from the one after `after`."""
        q = asked.query
        asked.client.lease(id)
        found = asked.client.events(lease=id, kind=q.kind, after=q.after, limit=q.limit, newest=q.newest)
        return Page(results=found)


class Explain(Endpoint):
    """Finding out beforehand."""

    @operation("What would come of a request", gives=Explanation, body=LeaseRequest, query=queries.For)
    def post(self, asked: Asked) -> Explanation:
        """What would come of it now, with every candidate's verdict. Nothing is written."""
        return asked.client.explain(asked.body)


class Groups(Endpoint):
    """Leases that belong together."""

    @operation(
        "Ask for a group of leases", gives=list[LeaseInfo], status=201, scope=Scope.LEASE, body=bodies.Group,
        query=queries.For, request_headers=KEY,
    )  # fmt: skip
    def post(self, asked: Asked) -> Page:
        """Ask for several leases that are granted all together or not at all; they come in the order asked."""
        body, key = asked.body, parsing.key(asked.header("Idempotency-Key"))
        found = asked.client.request_group(body.leases, same=body.same, different=body.different, key=key)
        return Page(results=found)


class Group(Endpoint):
    """One group."""

    @operation("The leases of a group", gives=list[LeaseInfo])
    def get(self, asked: Asked, id: int) -> Page:
        """All of them, those that are over too."""
        found = asked.client.leases(group=id, states=EVERY, limit=1000)
        if not found:
            raise NotFound(f"No group {id}, or it is not yours.", field="group")
        return Page(results=found[::-1])
