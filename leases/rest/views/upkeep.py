"""What happened, what needs attention, and what operators do when something is stuck."""

from __future__ import annotations

from leases.client.values import Attention, EventInfo
from leases.operations import workers
from leases.rest import operating, queries
from leases.rest.endpoint import Asked, Endpoint, Page, operation
from leases.rest.models import Scope
from leases.rest.values import Counted, Reclaimed, Workers


class Events(Endpoint):
    """What happened."""

    @operation("List events", gives=list[EventInfo], query=queries.EventFilter)
    def get(self, asked: Asked) -> Page:
        """By id, from the one after `after`. An owner is told of their own leases."""
        return Page(results=asked.client.events(**asked.query.model_dump()))


class NeedsAttention(Endpoint):
    """What a person should look at."""

    @operation("What needs attention", gives=list[Attention])
    def get(self, asked: Asked) -> Page:
        """The most pressing first, and what to do about it."""
        return Page(results=asked.client.attention())


class Working(Endpoint):
    """Who works."""

    @operation("Whether anybody works", gives=Workers)
    def get(self, asked: Asked) -> Workers:
        """Workers that were seen lately."""
        names = workers.seen_lately()
        return Workers(alive=bool(names), names=tuple(names) if asked.client.operator else ())


class Reclaim(Endpoint):
    """Idle resources."""

    @operation("Give up idle resources", gives=Reclaimed, scope=Scope.OPERATE, body=operating.Chosen)
    def post(self, asked: Asked) -> Reclaimed:
        """Those first that hold leases on others."""
        found = asked.client.reclaim(type=asked.body.type, blueprint=asked.body.blueprint)
        return Reclaimed(reclaimed=tuple(found))


class Sweep(Endpoint):
    """What may be due."""

    @operation("Look at everything that may be due", gives=Counted, scope=Scope.OPERATE)
    def post(self, asked: Asked) -> Counted:
        """Once, now; workers carry it out."""
        return Counted(count=asked.client.sweep())


class ClearErrors(Endpoint):
    """Remembered failures."""

    @operation("Forget remembered failures", gives=Counted, scope=Scope.OPERATE, body=operating.OfBlueprint)
    def post(self, asked: Asked) -> Counted:
        """Their offers are tried again at once."""
        return Counted(count=asked.client.clear_errors(blueprint=asked.body.blueprint))
