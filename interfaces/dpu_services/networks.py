"""The networks of a leased DPU: ranges within the config, each block of which is a slot lock."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import ClassVar

from interfaces.contract import StillMine
from interfaces.deadline import Deadline
from interfaces.dpu_services.network import Network
from interfaces.dpu_services.objects import ObjectBackend, Objects
from interfaces.slot_locks import SlotLocks


class NetworkBackend(ObjectBackend[Network]):
    """What carries out the writes of networks."""

    ranges: Sequence[str]
    """The ranges of the config."""


class Networks(Objects[Network, NetworkBackend]):
    """The networks of one lease. No two leases of the installation have addresses of the same block."""

    noun: ClassVar[str] = "network"
    most: ClassVar[int] = 8

    def __init__(
        self, backend: NetworkBackend | None, locks: SlotLocks, *, watch: Callable[[str, float | None], Deadline],
        still_mine: StillMine, kept_unused: Callable[[str, Deadline], AbstractContextManager[None]],
    ) -> None:  # fmt: skip
        super().__init__(backend, locks, watch=watch, still_mine=still_mine)
        self._kept_unused = kept_unused

    def check(self, definition: Network, backend: NetworkBackend) -> None:
        """Raise InvalidRequest, with the field, for a range beyond the config."""
        definition.check_within(backend.ranges)

    def keys(self, definition: Network, backend: NetworkBackend) -> Sequence[str]:
        """Return the blocks of its range."""
        return [f"range of addresses/{one}" for one in definition.blocks()]

    @contextmanager
    def unused(self, name: str, deadline: Deadline) -> Iterator[None]:
        """Keep chains from using the network while it is removed. Raises Conflict if one does."""
        with self._kept_unused(name, deadline):
            yield
