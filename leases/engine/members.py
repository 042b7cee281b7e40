"""The members of a group that wait."""

from __future__ import annotations

from dataclasses import replace

from leases.engine.transaction import rows
from leases.engine.waiting import COLUMNS, Waiter


def members(group_id: int) -> list[Waiter]:
    """Lock the members that wait, by id. Return none of them when a member has ended or is to end: all of them will."""
    found = rows(
        f"SELECT {COLUMNS} FROM leases_lease l WHERE l.group_id = %s AND l.state = 'pending' AND l.release_wanted = ''"
        " ORDER BY l.id FOR NO KEY UPDATE",
        (group_id,),
    )
    ending = (
        "SELECT 1 FROM leases_lease WHERE group_id = %s AND (state IN ('released', 'destroyed', 'broken')"
        " OR (state = 'pending' AND release_wanted <> '')) LIMIT 1"
    )
    if rows(ending, (group_id,)):
        return []
    waiters = [Waiter(row) for row in found]
    ids = tuple(waiter.id for waiter in waiters)
    for waiter in waiters:
        waiter.question = replace(waiter.question, group=ids)
    return waiters
