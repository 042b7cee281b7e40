"""Resources, and what operators do with them."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel

from leases.client.values import ResourceInfo
from leases.operations import resources
from leases.rest import bodies, operating, queries
from leases.rest.endpoint import Asked, Endpoint, Page, operation
from leases.rest.models import Scope


class Resources(Endpoint):
    """What is there."""

    @operation("List resources", gives=list[ResourceInfo], query=queries.ResourceFilter)
    def get(self, asked: Asked) -> Page:
        """By id; an owner sees those on which they have a lease."""
        q = asked.query
        found = resources.list_(
            asked.client.who, type_=q.type, blueprint=q.blueprint, state=q.state, name=q.name, gone=q.gone,
            limit=q.limit, after=int(q.cursor or 0),
        )  # fmt: skip
        return Page(results=found, next=str(found[-1].id) if len(found) == q.limit else None)


class Resource(Endpoint):
    """One resource."""

    @operation("Look at a resource", gives=ResourceInfo)
    def get(self, asked: Asked, id: int) -> ResourceInfo:
        """Its capacity, parts, health and leases."""
        return asked.client.resource(id)

    @operation("Correct a registration", gives=ResourceInfo, scope=Scope.OPERATE, body=operating.Registration)
    def patch(self, asked: Asked, id: int) -> ResourceInfo:
        """Fields as in `registration` of the blueprint's kind; null takes one away. It is checked again before anybody
        gets it. Not while leases hold it."""
        return asked.client.change_registration(id, asked.body.model_dump())


def _acting(act: str, summary: str, body: type[BaseModel]) -> Any:
    """The address of one act on a resource."""

    class Act(Endpoint):
        """An act of operators."""

        @operation(summary, gives=ResourceInfo, scope=Scope.OPERATE, body=body)
        def post(self, asked: Asked, id: int) -> ResourceInfo:
            """The resource as it is then."""
            return asked.client.change_resource(id, act, **asked.body.model_dump(exclude_unset=True))

    return Act


ACTS = {
    act: _acting(act, summary, body)
    for act, summary, body in (
        ("drain", "Give it to nobody any more", bodies.Reason),
        ("undrain", "Let it serve again", bodies.Empty),
        ("quarantine", "Take it out of service as it is", bodies.NeededMessage),
        ("unquarantine", "Put it back into service", bodies.Empty),
        ("retire", "Give it up, where nobody holds it", bodies.Empty),
        ("power", "Switch it on or off, or cycle it", operating.Power),
        ("check", "Look now whether it is well", bodies.Empty),
        ("force_destroy", "Vouch that it is gone", bodies.NeededReason),
    )
}


class Resolve(Endpoint):
    """A step that waits for a person."""

    @operation("Say that a person has done it", scope=Scope.OPERATE, body=bodies.Message)
    def post(self, asked: Asked, id: int) -> None:
        """What a held step of this resource waits for is done; the step goes on."""
        asked.client.resolve(resource=id, message=asked.body.message)
