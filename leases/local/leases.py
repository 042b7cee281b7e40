"""Asking for leases, and what one does with them."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Sequence

from leases.client import values
from leases.client.protocol import Request
from leases.engine.core.database import patient
from leases.operations import asking, holding
from leases.operations.callers import Caller
from leases.states import UNFINISHED


class LocalLeases:
    """The part of the client that is about leases."""

    who: Caller
    owner: str | None

    def request(self, request: Request) -> values.LeaseInfo:
        return self.lease(asking.request_patiently(self.who, request, owner=self.owner))

    def request_group(
        self, requests: Sequence[Request], *, same: str = "", different: str = "", key: str | None = None
    ) -> list[values.LeaseInfo]:
        ids = asking.request_group_patiently(
            self.who, requests, owner=self.owner, same=same, different=different, idempotency_key=key
        )
        return [self.lease(pk) for pk in ids]

    def explain(self, request: Request) -> values.Explanation:
        return asking.explain(self.who, request, owner=self.owner)

    def lease(self, id: int) -> values.LeaseInfo:
        return patient(holding.get, self.who, id)

    def named(self, name: str) -> int:
        return holding.named(self.who, name)

    def leases(
        self, *, states: Collection[str] | None = None, type: str = "", label: str = "", name: str = "",
        resource: int | None = None, group: int | None = None, held: bool = False, limit: int = 200,
    ) -> list[values.LeaseInfo]:  # fmt: skip
        return holding.list_(
            self.who, owner=self.owner, states=UNFINISHED if states is None else states, type_=type, label=label,
            name=name, resource=resource, group=group, held=held, limit=limit,
        )  # fmt: skip

    def release(self, id: int, *, message: str = "") -> values.LeaseInfo:
        patient(holding.release, self.who, id, message=message)
        return self.lease(id)

    def extend(self, id: int, *, ttl: str | None = None, until: dt.datetime | None = None) -> values.LeaseInfo:
        patient(holding.extend, self.who, id, ttl=ttl, until=until)
        return self.lease(id)

    def heartbeat(self, id: int) -> None:
        patient(holding.heartbeat, self.who, id)

    def hold(self, id: int, *, ttl: str | None = None, reason: str = "") -> values.LeaseInfo:
        holding.hold(self.who, id, ttl=ttl, reason=reason)
        return self.lease(id)

    def unhold(self, id: int) -> values.LeaseInfo:
        holding.unhold(self.who, id)
        return self.lease(id)

    def retry(self, id: int) -> values.LeaseInfo:
        holding.retry(self.who, id)
        return self.lease(id)

    def private_key(self, id: int) -> str:
        return holding.private_key(self.who, id)
