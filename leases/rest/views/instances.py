"""Instances: leases of whole cloud machines, in the terms of a cloud."""

from __future__ import annotations

from typing import Any

from django.http import HttpResponse

from drydock.core.errors import InvalidRequest
from drydock_client.values import InstanceInfo
from leases.operations import instances
from leases.operations.instances import InstanceRequest
from leases.rest import parsing, polling, queries
from leases.rest.endpoint import Asked, Endpoint, Page, json_response, operation
from leases.rest.models import Scope

KEY = {"Idempotency-Key": "The same request under the same key is answered with the same instance."}


class Instances(Endpoint):
    """The collection of instances."""

    @operation("List instances", gives=list[InstanceInfo], query=queries.Instances)
    def get(self, asked: Asked) -> Page:
        """Return instances, newest first. Instances that are over are included only with `all` or by `state`."""
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
        """Request an instance, which starts out as `pending`; poll the address in `Location` to follow its progress.
        With `wait`, the response is sent once the instance is running, with the provider's id and the address, or has
        failed."""
        made = asked.client.create_instance(_keyed(asked))
        if asked.query.wait:
            polling.lease(asked.client, made.id, seconds=asked.query.wait, known="")
            made = asked.client.instance(made.id)
        return json_response(made, status=201, headers={"Location": f"/api/v1/instances/{made.id}"})


def _keyed(asked: Asked) -> Any:
    """Return the request with the idempotency key from the header. Raises InvalidRequest if the body has a different
    key."""
    key, request = parsing.key(asked.header("Idempotency-Key")), asked.body
    if key is None:
        return request
    if request.idempotency_key not in (None, key):
        raise InvalidRequest("The Idempotency-Key header has another value.", field="idempotency_key")
    return request.model_copy(update={"idempotency_key": key})


class Instance(Endpoint):
    """A single instance."""

    @operation("Look at an instance, or wait for it", gives=InstanceInfo, query=queries.Wait)
    def get(self, asked: Asked, id: int) -> InstanceInfo:
        """Return an instance. With `wait`, the response is sent once the instance is running or has ended."""
        found = asked.client.instance(id)
        if asked.query.wait:
            polling.lease(asked.client, id, seconds=asked.query.wait, known="")
            found = asked.client.instance(id)
        return found
