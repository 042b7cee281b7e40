"""The slot locks that the interfaces of a lease take (`interfaces.slot_locks`), as rows of the database."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence

from interfaces.errors import LeaseEnded
from leases.engine.core.database import patient, rows, run, short

_HOLDS = "SELECT 1 FROM leases_lease WHERE id = %s AND state IN ('active', 'released') FOR NO KEY UPDATE"
_TAKE = """
    INSERT INTO leases_slotlock AS k (key, name, value, lease_id)
    SELECT g.key, %s, g.value, %s FROM unnest(%s::text[], %s::text[]) AS g(key, value) ORDER BY g.key
    ON CONFLICT (key) DO UPDATE SET name = excluded.name WHERE k.lease_id = excluded.lease_id AND k.name = ANY(%s)
    RETURNING key"""
_HOLDERS = "SELECT key, CASE WHEN lease_id = %s THEN name ELSE '' END FROM leases_slotlock WHERE key = ANY(%s)"
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
        wanted = sorted(set(keys))
        values = [key.rpartition("/")[2] for key in wanted]
        taken = {key for (key,) in rows(_TAKE, (group, self._lease_id, wanted, values, [group, *over]))}
        if missing := [key for key in wanted if key not in taken]:
            holders = dict(rows(_HOLDERS, (self._lease_id, missing)))
            refused.update({key: holders.get(key, "") for key in missing})
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
