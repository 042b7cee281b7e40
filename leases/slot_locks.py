"""The slot locks that the interfaces of a lease take (`interfaces.slot_locks`), as rows of the database."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from interfaces.errors import LeaseEnded
from leases.engine.core.database import patient, rows, run, short

_HOLDS = "SELECT 1 FROM leases_lease WHERE id = %s AND state IN ('active', 'released') FOR NO KEY UPDATE"
_TAKE = """
    INSERT INTO leases_slotlock AS k (key, name, value, lease_id) VALUES (%s, %s, %s, %s)
    ON CONFLICT (key) DO UPDATE SET name = excluded.name WHERE k.lease_id = excluded.lease_id AND k.name = ANY(%s)"""
_HOLDER = "SELECT CASE WHEN lease_id = %s THEN name ELSE '' END FROM leases_slotlock WHERE key = %s"
_HELD = "SELECT key FROM leases_slotlock WHERE lease_id = %s AND name = %s"
_LONGEST_KEY, _LONGEST_GROUP = 255, 63


class _Taken(Exception):
    """A lock is not to be had, so the transaction is rolled back."""


class DatabaseSlotLocks:
    """The slot locks of a lease. They are deleted with its share, once it was cleaned, and by nobody else before."""

    def __init__(self, lease_id: int) -> None:
        self._lease_id = lease_id

    def take(self, group: str, keys: Sequence[str], *, over: Collection[str] = ()) -> Mapping[str, str]:
        """Take all of these locks for a group, or none of them."""
        if any(len(key) > _LONGEST_KEY for key in keys) or len(group) > _LONGEST_GROUP:
            raise ValueError("the name of a slot lock has up to 255 characters, and that of its group up to 63")
        refused: dict[str, str] = {}
        try:
            patient(self._take, group, keys, over, refused)
        except _Taken:
            return refused
        return {}

    @short
    def _take(self, group: str, keys: Sequence[str], over: Collection[str], refused: dict[str, str]) -> None:
        refused.clear()
        # A lease that has given back its share gets no lock, as nobody would delete it.
        if not rows(_HOLDS, (self._lease_id,)):
            raise LeaseEnded
        for key in sorted(set(keys)):
            if not run(_TAKE, (key, group, key.rpartition("/")[2], self._lease_id, [group, *over])):
                found = rows(_HOLDER, (self._lease_id, key))
                refused[key] = found[0][0] if found else ""
        if refused:
            raise _Taken

    def held(self, group: str) -> frozenset[str]:
        """Return the locks of a group."""
        return frozenset(key for (key,) in patient(rows, _HELD, (self._lease_id, group)))

    def drop(self, group: str) -> None:
        """Give back the locks of a group."""
        patient(self._drop, group)

    @short
    def _drop(self, group: str) -> None:
        run("DELETE FROM leases_slotlock WHERE lease_id = %s AND name = %s", (self._lease_id, group))
