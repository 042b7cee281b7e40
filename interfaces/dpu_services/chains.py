"""The chains of a leased DPU: the interfaces that they may connect, each of which is a slot lock, and what they use."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from drydock.core.errors import InvalidRequest
from interfaces.deadline import Deadline
from interfaces.dpu_services.chain import Chain
from interfaces.dpu_services.connections import Connecting, ConnectingBackend, check_places, interface_key
from interfaces.dpu_services.objects import ObjectStatus
from interfaces.slot_locks import SlotLocks


class ChainBackend(ConnectingBackend[Chain]):
    """Carries out the writes of chains."""


class Chains(Connecting[Chain, ChainBackend]):
    """The chains of one lease. Each interface is in one chain, and each network is used by one."""

    noun: ClassVar[str] = "chain"
    most: ClassVar[int] = 16

    def __init__(
        self, backend: ChainBackend | None, locks: SlotLocks, *, networks: Callable[[Deadline], Collection[str]],
        **given: Any,
    ) -> None:  # fmt: skip
        super().__init__(backend, locks, **given)
        self._networks = networks

    def connect(self, chain: Chain, *, timeout: float | None = None) -> ObjectStatus[Chain]:
        """Create a chain, as `create` does."""
        return self.create(chain, timeout=timeout)

    def check(self, definition: Chain, backend: ChainBackend) -> None:
        """Raise InvalidRequest, with the field, for an interface that the DPU does not have."""
        check_places(definition.places, backend.limits)

    def keys(self, definition: Chain, backend: ChainBackend) -> Sequence[str]:
        """Return the interfaces and networks of a chain."""
        networks = sorted({one.network for one in definition.interfaces if one.network})
        return [
            *(interface_key(one, backend) for one in definition.interfaces),
            *(_network(one, backend) for one in networks),
        ]

    def check_needs(self, definition: Chain, deadline: Deadline) -> None:
        """Raise InvalidRequest unless the services of a chain exist and have its interfaces, and its networks exist."""
        self.check_services(definition.places, deadline)
        used = [one for one in definition.places if one[0].network]
        networks = self._networks(deadline) if used else ()
        for one, field in used:
            if one.network not in networks:
                raise InvalidRequest(f"The DPU has no network {one.network}.", field=field)

    def without(self, network: str, deadline: Deadline) -> AbstractContextManager[None]:
        """Keep chains from using a network while it is removed. Raises Conflict if one uses it, and names it."""
        keys = [_network(network, self.known())] if self.available else []
        return self.kept_from(f"removal of network {network}", keys, deadline)


def _network(name: str, backend: ChainBackend) -> str:
    return f"network of {backend.lease}/{name}"
