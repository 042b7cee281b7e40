"""Leases and their machines in the in-process client: the operations that call more than one function."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from drydock_client import values
from drydock_client.fleet import Fleet
from drydock_client.leases import Leases, Request
from drydock_client.machines import Machines
from drydock_client.operations import Operation, Operations
from interfaces.endpoints import LocalEndpoint
from leases.engine.core.database import patient
from leases.local.functions import carry_out
from leases.operations import instances, interfaces, leases, machines
from leases.operations.callers import Caller
from leases.states import UNFINISHED


class LocalOperations(Operations):
    """Carries out declared operations by calling their functions."""

    who: Caller
    owner: str | None

    def carry_out(self, operation: Operation, arguments: Mapping[str, Any]) -> Any:
        """Call the function of an operation as this client's caller."""
        return carry_out(self.who, operation, arguments)


class LocalLeases(LocalOperations, Leases):
    """The lease operations of the in-process client."""

    def request(self, request: Request) -> values.LeaseInfo:
        return self.lease(leases.request_patiently(self.who, request, owner=self.owner))

    def request_group(
        self, requests: Sequence[Request], *, same: str = "", different: str = "", key: str | None = None
    ) -> list[values.LeaseInfo]:
        ids = leases.request_group_patiently(
            self.who, requests, owner=self.owner, same=same, different=different, idempotency_key=key
        )
        return [self.lease(pk) for pk in ids]

    def explain(self, request: Request) -> values.Explanation:
        return leases.explain(self.who, request, owner=self.owner)

    def lease(self, id: int) -> values.LeaseInfo:
        return patient(leases.get, self.who, id)

    def named(self, name: str) -> int:
        return leases.named(self.who, name)

    def leases(
        self, *, states: Collection[str] | None = None, type: str = "", label: str = "", name: str = "",
        resource: int | None = None, group: int | None = None, held: bool = False, limit: int = 200,
        search: str = "",
    ) -> list[values.LeaseInfo]:  # fmt: skip
        return leases.list_(
            self.who, owner=self.owner, states=UNFINISHED if states is None else states, type_=type, label=label,
            name=name, resource=resource, group=group, held=held, limit=limit, search=search,
        )  # fmt: skip

    def local_account(self, id: int) -> LocalEndpoint | None:
        """Return the account of a lease if it is on this machine, or else None."""
        return interfaces.local_account(self.who, id)


class LocalMachines(LocalOperations, Machines):
    """The machine operations of the in-process client."""

    def machine(self, id: int, *, resource: bool = False) -> values.MachineInfo:
        return machines.get_resource(self.who, id) if resource else machines.get(self.who, id)

    def change_machine(self, id: int, act: str, *, resource: bool = False, **given: Any) -> values.MachineInfo:
        do = machines.act_on_resource if resource else machines.act_on_lease
        return do(self.who, id, act, **given)

    def console(self, id: int, *, resource: bool = False) -> values.ConsoleInfo:
        return machines.console_of_resource(self.who, id) if resource else machines.console(self.who, id)


class LocalInstances(LocalOperations, Fleet):
    """The operations of the in-process client on cloud machines as instances."""

    def create_instance(self, wanted: Mapping[str, Any]) -> values.InstanceInfo:
        return instances.create(self.who, wanted, owner=self.owner)

    def instances(
        self, *, states: Collection[str] = (), location: str = "", instance_type: str = "", tag: str = "",
        name: str = "", all: bool = False, limit: int = 200,
    ) -> list[values.InstanceInfo]:  # fmt: skip
        return instances.list_(
            self.who, owner=self.owner, states=states, location=location, instance_type=instance_type, tag=tag,
            name=name, all_=all, limit=limit,
        )  # fmt: skip

    def instance(self, id: int) -> values.InstanceInfo:
        return instances.get(self.who, id)
