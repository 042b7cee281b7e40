"""Events and workers."""

from __future__ import annotations

from drydock_client.values import EventInfo
from leases.operations import installation
from leases.rest import queries
from leases.rest.endpoint import Asked, Endpoint, Page, operation
from leases.rest.values import Workers


class Events(Endpoint):
    """The collection of events."""

    @operation("List events", gives=list[EventInfo], query=queries.EventFilter)
    def get(self, asked: Asked) -> Page:
        """Return events in order of id, starting after `after`. Owners see only the events of their own leases."""
        return Page(results=asked.client.events(**asked.query.model_dump()))


class Working(Endpoint):
    """The workers of the installation."""

    @operation("Whether anybody works", gives=Workers)
    def get(self, asked: Asked) -> Workers:
        """Return whether any worker was seen recently. Operators also get the workers' names."""
        names = installation.workers_seen()
        return Workers(alive=bool(names), names=tuple(names) if asked.client.operator else ())
