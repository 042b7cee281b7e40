"""Resources, and the steps of theirs that wait for a person."""

from __future__ import annotations

from drydock_client.values import ResourceInfo
from leases.operations import resources
from leases.rest import bodies, queries
from leases.rest.endpoint import Asked, Endpoint, Page, operation
from leases.rest.models import Scope


class Resources(Endpoint):
    """The collection of resources."""

    @operation("List resources", gives=list[ResourceInfo], query=queries.ResourceFilter)
    def get(self, asked: Asked) -> Page:
        """Return resources in order of id. Owners see only resources on which they have a lease."""
        q = asked.query
        found = resources.list_(
            asked.client.who, type_=q.type, blueprint=q.blueprint, state=q.state, name=q.name, gone=q.gone,
            limit=q.limit, after=int(q.cursor or 0),
        )  # fmt: skip
        return Page(results=found, next=str(found[-1].id) if len(found) == q.limit else None)


class Resolve(Endpoint):
    """A step that waits for a person."""

    @operation("Confirm that a person has done it", scope=Scope.OPERATE, body=bodies.Message)
    def post(self, asked: Asked, id: int) -> None:
        """Confirm that what the held step of this resource waits for has been done; the step continues."""
        asked.client.resolve(resource=id, message=asked.body.message)
