"""Instances: leases on whole cloud machines, in a cloud's own words."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse

from drydock.core.errors import InvalidRequest
from leases.client.values import InstanceInfo
from leases.operations import instances
from leases.operations.instance_request import InstanceRequest
from leases.rest import parsing, polling, queries
from leases.rest.endpoint import Asked, Endpoint, Page, json_response, operation
from leases.rest.models import Scope

KEY = {"Idempotency-Key": "The same request under the same key is answered with the same instance."}


class Instances(Endpoint):
    """Several of them."""

    @operation("List instances", gives=list[InstanceInfo], query=queries.Instances)
    def get(self, asked: Asked) -> Page:
        """Newest first; those that are over only with `all` or by their state."""
        q, client = asked.query, asked.client
        found = instances.list_(
            client.who, owner=client.owner, states=q.state or (), location=q.location, name=q.name, tag=q.tag,
            instance_type=q.instance_type, all_=q.all, limit=q.limit,
            before=None if q.cursor is None else int(q.cursor),
        )  # fmt: skip
        return Page(results=found, next=str(found[-1].id) if len(found) == q.limit else None)

    @operation(
        "Ask for an instance", gives=InstanceInfo, status=201, scope=Scope.LEASE, body=InstanceRequest,
        query=queries.NewInstance, request_headers=KEY, headers={"Location": "Its address."},
    )  # fmt: skip
    def post(self, asked: Asked) -> HttpResponse:
        """It is pending then, and its Location tells how it goes on. With `wait` the answer comes when it runs, with
        the provider's id and the address, or when it has failed."""
        made = asked.client.create_instance(_keyed(asked))
        if asked.query.wait:
            polling.lease(asked.client, made.id, seconds=asked.query.wait, known="")
            made = asked.client.instance(made.id)
        return json_response(made, status=201, headers={"Location": f"/api/v1/instances/{made.id}"})


def _keyed(asked: Asked) -> Any:
    """The request with the idempotency key of its header. Raises InvalidRequest where the body has another."""
    key, request = parsing.key(asked.header("Idempotency-Key")), asked.body
    if key is None:
        return request
    if request.idempotency_key not in (None, key):
        raise InvalidRequest("The Idempotency-Key header says another one.", field="idempotency_key")
    return request.model_copy(update={"idempotency_key": key})


class Instance(Endpoint):
    """One instance."""

    @operation("Look at an instance, or wait for it", gives=InstanceInfo, query=queries.Wait)
    def get(self, asked: Asked, id: int) -> InstanceInfo:
        """With `wait` the answer comes when it runs or has ended."""
        found = asked.client.instance(id)
        if asked.query.wait:
            polling.lease(asked.client, id, seconds=asked.query.wait, known="")
            found = asked.client.instance(id)
        return found

    @operation("End an instance", gives=InstanceInfo, scope=Scope.LEASE)
    def delete(self, asked: Asked, id: int) -> InstanceInfo:
        """Its machine is terminated. One that has ended is fine."""
        return asked.client.end_instance(id)


def _acting(act: str, summary: str) -> Any:
    class Act(Endpoint):
        """What is done to its machine."""

        @operation(summary, gives=InstanceInfo, scope=Scope.LEASE)
        def post(self, asked: Asked, id: int) -> InstanceInfo:
            """Asked for; its state tells how it goes on. 409 where its cloud cannot do it, with the capability."""
            return asked.client.change_instance(id, act)

    return Act


ACTS = {
    act: _acting(act, summary)
    for act, summary in (
        ("stop", "Switch an instance off"), ("start", "Switch an instance on"), ("reboot", "Reboot an instance"),
    )
}  # fmt: skip
