"""Slot locks that an interface takes for its lease: exclusive claims to named things, such as one VF of a card."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Protocol


class SlotLocks(Protocol):
    """The slot locks of one lease. No two holders have the same one; all of them end with the lease."""

    def take(self, group: str, keys: Sequence[str], *, over: Collection[str] = ()) -> Mapping[str, str]:
        """Take all of these locks for a group, or none of them.

        Locks that this lease has in one of the groups `over` change their group. Returns the locks that are not to be
        had, each with its group if this lease has it, and an empty text if another holder has it. If there are any,
        nothing has changed. Raises LeaseEnded.
        """

    def held(self, group: str) -> frozenset[str]:
        """Return the locks of a group."""

    def drop(self, group: str) -> None:
        """Give back the locks of a group."""


class SlotLocksInMemory:
    """Slot locks in memory, for tests. Those of several leases share `table`: lock -> (lease, group)."""

    def __init__(self, lease: str = "", table: dict[str, tuple[str, str]] | None = None) -> None:
        self._lease, self.table = lease, {} if table is None else table
        self._lock = threading.Lock()

    def take(self, group: str, keys: Sequence[str], *, over: Collection[str] = ()) -> Mapping[str, str]:
        """Take all of these locks for a group, or none of them."""
        free = {(self._lease, one) for one in (group, *over)}
        with self._lock:
            taken = {key: self.table[key] for key in keys if key in self.table and self.table[key] not in free}
            if not taken:
                self.table.update(dict.fromkeys(keys, (self._lease, group)))
        return {key: name if lease == self._lease else "" for key, (lease, name) in taken.items()}

    def held(self, group: str) -> frozenset[str]:
        """Return the locks of a group."""
        return frozenset(key for key, holder in self.table.items() if holder == (self._lease, group))

    def drop(self, group: str) -> None:
        """Give back the locks of a group."""
        with self._lock:
            for key in self.held(group):
                del self.table[key]
