"""The chains of a leased DPU: the interfaces that they may connect, each of which is a slot lock, and what they use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import ClassVar

from drydock.core.errors import InvalidRequest
from interfaces.contract import StillMine
from interfaces.deadline import Deadline
from interfaces.dpu_services.chain import Chain, ChainInterface
from interfaces.dpu_services.objects import ObjectBackend, Objects, ObjectStatus
from interfaces.dpu_services.status import Deployed
from interfaces.slot_locks import SlotLocks


@dataclass(frozen=True, kw_only=True)
class ChainLimits:
    """The interfaces that owners may connect: network ports, each with one PF, and VFs of each PF."""

    ports: int = 2
    vfs: int = 0


class ChainBackend(ObjectBackend[Chain]):
    """Carries out the writes of chains."""

    limits: ChainLimits


class Chains(Objects[Chain, ChainBackend]):
    """The chains of one lease. Each interface is in one chain, and each network is used by one."""

    noun: ClassVar[str] = "chain"
    most: ClassVar[int] = 16

    def __init__(
        self, backend: ChainBackend | None, locks: SlotLocks, *, watch: Callable[[str, float | None], Deadline],
        still_mine: StillMine, services: Callable[[Deadline], Sequence[Deployed]],
        networks: Callable[[Deadline], Collection[str]],
    ) -> None:  # fmt: skip
        super().__init__(backend, locks, watch=watch, still_mine=still_mine)
        self._services, self._networks = services, networks

    def connect(self, chain: Chain, *, timeout: float | None = None) -> ObjectStatus[Chain]:
        """Create a chain, as `create` does."""
        return self.create(chain, timeout=timeout)

    def check(self, definition: Chain, backend: ChainBackend) -> None:
        """Raise InvalidRequest, with the field, for an interface that the DPU does not have."""
        limits = backend.limits
        for one, field in definition.places:
            port = one.port if one.port is not None else one.pf
            if port is not None and port >= limits.ports:
                raise InvalidRequest(f"The DPU has no {one}: it has {limits.ports} network ports.", field=field)
            if one.vf is not None and one.vf >= limits.vfs:
                raise InvalidRequest(
                    f"Owners may not use {one}: the config of the blueprint has {limits.vfs} VFs of each PF.",
                    field=field,
                )

    def keys(self, definition: Chain, backend: ChainBackend) -> Sequence[str]:
        """Return the interfaces and networks of a chain."""
        networks = sorted({one.network for one in definition.interfaces if one.network})
        return [
            *(_interface(one, backend) for one in definition.interfaces),
            *(_network(one, backend) for one in networks),
        ]

    def check_needs(self, definition: Chain, deadline: Deadline) -> None:
        """Raise InvalidRequest unless the services of a chain exist and have its interfaces, and its networks exist."""
        used = [one for one in definition.places if one[0].service]
        there = {one.service.name: one for one in self._services(deadline)} if used else {}
        networks = self._networks(deadline) if any(one.network for one, _ in used) else ()
        for one, field in used:
            found = there.get(one.service)
            if found is None or found.removing:
                raise InvalidRequest(f"The DPU has no service {one.service}.", field=field)
            if one.name not in found.service.interfaces:
                names = ", ".join(found.service.interfaces) or "none"
                raise InvalidRequest(
                    f"The service {one.service} has no interface {one.name}.", field=field,
                    hint=f"It has: {names}. Apply it with this interface first.",
                )  # fmt: skip
            if one.network and one.network not in networks:
                raise InvalidRequest(f"The DPU has no network {one.network}.", field=field)

    def released(self, service: str, interfaces: Collection[str], deadline: Deadline) -> AbstractContextManager[None]:
        """Keep chains from using these interfaces of a service while it is changed or removed.

        Raises Conflict if a chain uses one of them, and names the chain.
        """
        keys = [
            _interface(ChainInterface(service=service, name=one), self.known())
            for one in sorted(interfaces)
            if self.available
        ]
        return self.kept_from(f"removal of service {service}", keys, deadline)

    def without(self, network: str, deadline: Deadline) -> AbstractContextManager[None]:
        """Keep chains from using a network while it is removed. Raises Conflict if one uses it, and names it."""
        keys = [_network(network, self.known())] if self.available else []
        return self.kept_from(f"removal of network {network}", keys, deadline)


def _interface(one: ChainInterface, backend: ChainBackend) -> str:
    return f"interface of {backend.lease if one.service else backend.dpu}/{one.key}"


def _network(name: str, backend: ChainBackend) -> str:
    return f"network of {backend.lease}/{name}"
