"""Request leases and instances over HTTP, with an idempotency key so that a lost answer can be requested again."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from drydock_client.errors import Conflict, NotFound
from drydock_client.fleet import Fleet
from drydock_client.http.operations import HttpOperations, pages
from drydock_client.leases import Leases, Request
from drydock_client.machines import Machines
from drydock_client.values import (
    ConsoleInfo,
    Explanation,
    InstanceInfo,
    LeaseInfo,
    MachineInfo,
    from_json,
    to_json,
)


class HttpLeases(HttpOperations, Leases):
    """`drydock_client.leases.Leases` over HTTP."""

    name: str

    def request(self, request: Request) -> LeaseInfo:
        return from_json(LeaseInfo, self._keyed("leases", request))

    def _keyed(self, path: str, request: Mapping[str, Any]) -> Any:
        given = written(request)
        key = given.pop("idempotency_key", None) or uuid.uuid4().hex
        return self.http.send("POST", path, given, query=self.for_owner(), key=key)

    def request_group(
        self, requests: Sequence[Request], *, same: str = "", different: str = "", key: str | None = None
    ) -> list[LeaseInfo]:
        given = {"leases": [written(one) for one in requests], "same": same, "different": different}
        found = self.http.send("POST", "groups", given, query=self.for_owner(), key=key or uuid.uuid4().hex)
        return [from_json(LeaseInfo, one) for one in found["results"]]

    def explain(self, request: Request) -> Explanation:
        return from_json(Explanation, self.http.send("POST", "explain", written(request), query=self.for_owner()))

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
        search: str = "",
    ) -> list[LeaseInfo]:  # fmt: skip
        query = {
            "state": sorted(states or ()), "all": states is not None and not states, "type": type, "label": label,
            "name": name, "resource": resource, "group": group, "held": held, "limit": min(limit, 1000),
            "search": search,
            **self.for_owner(),
        }  # fmt: skip
        return [from_json(LeaseInfo, one) for one in pages(self.http, "leases", query, limit)]


class HttpMachines(HttpOperations, Machines):
    """`drydock_client.machines.Machines` over HTTP."""

    def machine(self, id: int, *, resource: bool = False) -> MachineInfo:
        return from_json(MachineInfo, self.http.get(f"{_of(resource)}/{id}/machine"))

    def change_machine(self, id: int, act: str, *, resource: bool = False, **given: Any) -> MachineInfo:
        return from_json(MachineInfo, self.http.send("POST", f"{_of(resource)}/{id}/{act}", given))

    def console(self, id: int, *, resource: bool = False) -> ConsoleInfo:
        return from_json(ConsoleInfo, self.http.send("POST", f"{_of(resource)}/{id}/console"))


class HttpInstances(HttpOperations, Fleet):
    """`drydock_client.fleet.Fleet` over HTTP."""

    def create_instance(self, wanted: Mapping[str, Any]) -> InstanceInfo:
        given = written(wanted)
        key = given.pop("idempotency_key", None) or uuid.uuid4().hex
        return from_json(InstanceInfo, self.http.send("POST", "instances", given, query=self.for_owner(), key=key))

    def instances(
        self, *, states: Collection[str] = (), location: str = "", instance_type: str = "", tag: str = "",
        name: str = "", all: bool = False, limit: int = 200,
    ) -> list[InstanceInfo]:  # fmt: skip
        query = {
            "state": sorted(states), "location": location, "instance_type": instance_type, "tag": tag, "name": name,
            "all": all, "limit": min(limit, 1000), **self.for_owner(),
        }  # fmt: skip
        return [from_json(InstanceInfo, one) for one in pages(self.http, "instances", query, limit)]

    def instance(self, id: int) -> InstanceInfo:
        return from_json(InstanceInfo, self.http.get(f"instances/{id}"))


def _of(resource: bool) -> str:
    return "resources" if resource else "leases"


def written(request: Request) -> dict[str, Any]:
    """Return a request as a JSON object."""
    found = to_json(request)
    assert isinstance(found, dict)
    return found
