"""Asking for leases and holding them, over HTTP."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from drydock_client.errors import Conflict, NotFound
from drydock_client.http.connection import Connection
from drydock_client.leasing import Request
from drydock_client.values import Explanation, LeaseInfo, from_json, to_json


class HttpLeases:
    """`drydock_client.leasing.Leases` on a server."""

    http: Connection
    owner: str | None
    name: str

    def request(self, request: Request) -> LeaseInfo:
        given = written(request)
        key = given.pop("idempotency_key", None) or uuid.uuid4().hex
        return from_json(LeaseInfo, self.http.send("POST", "leases", given, query=self._for(), key=key))

    def request_group(
        self, requests: Sequence[Request], *, same: str = "", different: str = "", key: str | None = None
    ) -> list[LeaseInfo]:
        given = {"leases": [written(one) for one in requests], "same": same, "different": different}
        found = self.http.send("POST", "groups", given, query=self._for(), key=key or uuid.uuid4().hex)
        return [from_json(LeaseInfo, one) for one in found["results"]]

    def explain(self, request: Request) -> Explanation:
        return from_json(Explanation, self.http.send("POST", "explain", written(request), query=self._for()))

    def lease(self, id: int) -> LeaseInfo:
        return from_json(LeaseInfo, self.http.get(f"leases/{id}"))

    def named(self, name: str) -> int:
        found = self.leases(states=("pending", "acquired", "active", "released"), name=name, limit=10)
        own = [one for one in found if one.owner == self.name]
        if not own and len(found) > 1:
            raise Conflict(
                f"Several owners have a lease named {name!r}.", field="lease",
                hint=f"Give its number: drydock leases --name {name}",
            )  # fmt: skip
        live = sorted(own or found, key=lambda one: (one.state == "released", -one.id))
        for one in live or [one for one in self.leases(states=(), name=name, limit=10) if one.owner == self.name]:
            return one.id
        raise NotFound(f"{name!r} is not a lease number or name.", field="lease", hint="`drydock leases` lists them.")

    def leases(
        self, *, states: Collection[str] | None = None, type: str = "", label: str = "", name: str = "",
        resource: int | None = None, group: int | None = None, held: bool = False, limit: int = 200,
    ) -> list[LeaseInfo]:  # fmt: skip
        query = {
            "state": sorted(states or ()), "all": states is not None and not states, "type": type, "label": label,
            "name": name, "resource": resource, "group": group, "held": held, "limit": min(limit, 1000), **self._for(),
        }  # fmt: skip
        return [from_json(LeaseInfo, one) for one in pages(self.http, "leases", query, limit)]

    def release(self, id: int, *, message: str = "") -> LeaseInfo:
        return self._act(id, "release", {"message": message})

    def extend(self, id: int, *, ttl: str | None = None, until: dt.datetime | None = None) -> LeaseInfo:
        return self._act(id, "extend", {"ttl": ttl, "until": to_json(until)})

    def heartbeat(self, id: int) -> None:
        self.http.send("POST", f"leases/{id}/heartbeat")

    def hold(self, id: int, *, ttl: str | None = None, reason: str = "") -> LeaseInfo:
        return self._act(id, "hold", {"ttl": ttl, "reason": reason})

    def unhold(self, id: int) -> LeaseInfo:
        return self._act(id, "unhold")

    def retry(self, id: int) -> LeaseInfo:
        return self._act(id, "retry")

    def private_key(self, id: int) -> str:
        return str(self.http.send("POST", f"leases/{id}/private_key")["private_key"])

    def _act(self, id: int, act: str, body: Any = None) -> LeaseInfo:
        return from_json(LeaseInfo, self.http.send("POST", f"leases/{id}/{act}", body))

    def _for(self) -> dict[str, str]:
        return {} if self.owner is None else {"owner": self.owner}


def written(request: Request) -> dict[str, Any]:
    """A request as JSON."""
    found = to_json(request)
    assert isinstance(found, dict)
    return found


def pages(server: Connection, path: str, query: Mapping[str, Any], limit: int) -> list[Any]:
    """At most `limit` of a list that comes in pages."""
    found: list[Any] = []
    cursor: str | None = None
    while len(found) < limit:
        page = server.get(path, {**query, "cursor": cursor})
        found += page["results"]
        cursor = page["next"]
        if cursor is None:
            break
    return found[:limit]
