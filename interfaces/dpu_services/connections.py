"""Interfaces of a leased DPU that something connects: a chain, or a virtual network of a VPC. Each is a slot lock."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass
from typing import Any, TypeVar

from drydock.core.errors import InvalidRequest
from interfaces.contract import StillMine
from interfaces.deadline import Deadline
from interfaces.dpu_services.chain import ChainInterface
from interfaces.dpu_services.objects import D, ObjectBackend, Objects
from interfaces.dpu_services.status import Deployed
from interfaces.slot_locks import SlotLocks

Places = Sequence[tuple[ChainInterface, str]]
"""Interfaces, each with the field in which it is."""


@dataclass(frozen=True, kw_only=True)
class ChainLimits:
    """The interfaces that owners may connect: network ports, each with one PF, and VFs of each PF."""

    ports: int = 2
    vfs: int = 0


class ConnectingBackend(ObjectBackend[D]):
    """Writes the objects that connect interfaces."""

    limits: ChainLimits


C = TypeVar("C", bound=ConnectingBackend[Any])


class Connecting(Objects[D, C]):
    """The objects that connect interfaces of a DPU, for one lease. Each interface is in one of them at most."""

    def __init__(
        self, backend: C | None, locks: SlotLocks, *, watch: Callable[[str, float | None], Deadline],
        still_mine: StillMine, services: Callable[[Deadline], Sequence[Deployed]],
    ) -> None:  # fmt: skip
        super().__init__(backend, locks, watch=watch, still_mine=still_mine)
        self._services = services

    def released(self, service: str, interfaces: Collection[str], deadline: Deadline) -> AbstractContextManager[None]:
        """Keep these interfaces of a service from being connected while it is changed or removed.

        Raises Conflict if one of them is connected, and names what does.
        """
        keys = [
            interface_key(ChainInterface(service=service, name=one), self.known())
            for one in sorted(interfaces)
            if self.available
        ]
        return self.kept_from(f"removal of service {service}", keys, deadline)

    def check_services(self, places: Places, deadline: Deadline) -> None:
        """Raise InvalidRequest, with the field, unless the services of these interfaces exist and have them."""
        used = [one for one in places if one[0].service]
        there = {one.service.name: one for one in self._services(deadline) if not one.of_blueprint} if used else {}
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


def check_places(places: Places, limits: ChainLimits) -> None:
    """Raise InvalidRequest, with the field, for an interface that the DPU does not have, or that owners may not use."""
    for one, field in places:
        port = one.port if one.port is not None else one.pf
        if port is not None and port >= limits.ports:
            raise InvalidRequest(f"The DPU has no {one}: it has {limits.ports} network ports.", field=field)
        if one.vf is not None and one.vf >= limits.vfs:
            raise InvalidRequest(
                f"Owners may not use {one}: the config of the blueprint has {limits.vfs} VFs of each PF.", field=field
            )


def interface_key(one: ChainInterface, backend: ObjectBackend[Any]) -> str:
    """Return the slot lock of an interface, which is one of the card for the DPU and one of a service for the lease."""
    return f"interface of {backend.lease if one.service else backend.dpu}/{one.key}"
