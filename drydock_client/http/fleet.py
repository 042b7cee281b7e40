"""Instances, the fleet and orphans, over HTTP."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping
from typing import Any

from drydock_client.http.connection import Connection
from drydock_client.http.leases import pages
from drydock_client.values import BackendInfo, InstanceInfo, OrphanInfo, from_json, to_json

_MOST = 1 << 30


class HttpFleet:
    """`drydock_client.fleet.Fleet` on a server."""

    http: Connection
    owner: str | None

    def create_instance(self, wanted: Mapping[str, Any]) -> InstanceInfo:
        given = dict(to_json(dict(wanted)))
        key = given.pop("idempotency_key", None) or uuid.uuid4().hex
        return from_json(InstanceInfo, self.http.send("POST", "instances", given, query=self._owned(), key=key))

    def instances(
        self, *, states: Collection[str] = (), location: str = "", instance_type: str = "", tag: str = "",
        name: str = "", all: bool = False, limit: int = 200,
    ) -> list[InstanceInfo]:  # fmt: skip
        query = {
            "state": sorted(states), "location": location, "instance_type": instance_type, "tag": tag, "name": name,
            "all": all, "limit": min(limit, 1000), **self._owned(),
        }  # fmt: skip
        return [from_json(InstanceInfo, one) for one in pages(self.http, "instances", query, limit)]

    def instance(self, id: int) -> InstanceInfo:
        return from_json(InstanceInfo, self.http.get(f"instances/{id}"))

    def end_instance(self, id: int) -> InstanceInfo:
        return from_json(InstanceInfo, self.http.send("DELETE", f"instances/{id}"))

    def change_instance(self, id: int, act: str) -> InstanceInfo:
        return from_json(InstanceInfo, self.http.send("POST", f"instances/{id}/{act}"))

    def fleet(self, *, capabilities: bool = False) -> list[BackendInfo]:
        found = self.http.get("fleet", {"capabilities": capabilities})["results"]
        return [from_json(BackendInfo, one) for one in found]

    def orphans(self) -> list[OrphanInfo]:
        return [from_json(OrphanInfo, one) for one in pages(self.http, "orphans", {}, _MOST)]

    def settle_orphan(self, id: int, act: str, *, dry_run: bool = False) -> OrphanInfo:
        return from_json(OrphanInfo, self.http.send("POST", f"orphans/{id}/{act}", {"dry_run": dry_run}))

    def _owned(self) -> dict[str, str]:
        return {} if self.owner is None else {"owner": self.owner}
