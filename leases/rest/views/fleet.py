"""The fleet."""

from __future__ import annotations

from leases.client.values import BackendInfo
from leases.rest import queries
from leases.rest.endpoint import Asked, Endpoint, Page, operation
from leases.rest.models import Scope


class Fleet(Endpoint):
    """Every backend."""

    @operation("Look at the fleet", gives=list[BackendInfo], scope=Scope.OPERATE, query=queries.Reading)
    def get(self, asked: Asked) -> Page:
        """In the order in which they are tried: what each can serve, what stands there, what is wrong, what it
        costs."""
        return Page(results=asked.client.fleet(capabilities=asked.query.capabilities))
