"""What is on its way out already, and how many wait for such room: nothing more is given up than is waited for."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from blueprints.amounts import CLASSES, Amounts
from blueprints.specs import Draft
from leases.engine import waiting
from leases.engine.question import Question, held
from leases.engine.transaction import rows

_COUNTED = 100
"""Waiters of one shape are counted up to this."""


class Wanted(NamedTuple):
    """Waiting leases that what is leaving has to serve."""

    alike: int
    """This one, and those that ask for the same; counted up to a hundred."""
    others: int
    """Those before which nothing but a resource that leaves is in the way: heads of other shapes, the own group."""

    def places(self, question: Question, drafts: Sequence[Draft]) -> int:
        """How many resources they need, made from the first of the drafts."""
        most = _fitting(question, drafts[0].capacity) if drafts else 1
        return -(-self.alike // most) + self.others


ALONE = Wanted(1, 0)


def _fitting(question: Question, capacity: Amounts) -> int:
    """How many such leases one resource takes."""
    if question.exclusive:
        return 1
    asked = [(getattr(question.amounts, name), getattr(capacity, name)) for name in CLASSES]
    return max(1, min((total // one for one, total in asked if one), default=1))


_ALIKE = f"""
    SELECT (SELECT count(*) FROM (SELECT FROM leases_lease w WHERE w.state = 'pending' AND NOT w.parked
            AND w.group_id IS NULL AND w.type = l.type AND w.shape >= l.shape AND w.shape <= l.shape
            AND l.group_id IS NULL AND w.id <> l.id ORDER BY w.shape LIMIT {_COUNTED}) x),
        (SELECT count(*) FROM leases_lease g WHERE g.group_id = l.group_id AND g.state = 'pending'
            AND g.reason = 'waiting_reclaim' AND g.id <> l.id)
    FROM leases_lease l WHERE l.id = %s"""


def wanted(question: Question) -> Wanted:
    """How many leases wait for room like this one."""
    for alike, siblings in rows(_ALIKE, (question.lease_id,)):
        return Wanted(1 + alike, siblings + waiting.reclaiming(question.type, question.lease_id))
    return ALONE


_LEAVES = """
    {0}.state IN ('released', 'broken') AND {0}.gone_at IS NULL AND EXISTS (
        SELECT FROM leases_run n WHERE n.resource_id = {0}.id AND n.lease_id IS NULL AND n.phase = 'destroy'
            AND n.waits_for = '' AND n.tries < 3)"""
"""It is being destroyed, and nothing says that this takes for ever."""
_CLEANED = """
    i.gone_at IS NOT NULL AND NOT EXISTS (
        SELECT FROM leases_run m WHERE m.lease_id = h.id AND (m.waits_for <> '' OR m.tries >= 3))"""
"""The resource `i` is gone, and its lease `h` is cleaned away."""


def places(blueprint_id: int, maximum: int) -> int:
    """How many places under the blueprint's limit are free once what is being destroyed is gone."""
    leaves = _LEAVES.format("r")
    sql = f"""
        SELECT count(*) FROM (SELECT FROM leases_resource r WHERE r.blueprint_id = %s AND r.gone_at IS NULL
            AND NOT ({leaves}) LIMIT %s) x"""
    return maximum - int(rows(sql, (blueprint_id, maximum))[0][0])


def holders(question: Question) -> int:
    """Resources being destroyed, or just gone, whose leases on what could serve the question are still to end."""
    fit, leaves = held(question), _LEAVES.format("i")
    sql = f"""
        SELECT count(DISTINCT i.id) FROM leases_resource i
        JOIN leases_lease h ON h.for_resource_id = i.id AND h.state IN ('acquired', 'active', 'released')
        {fit.text}
        WHERE {leaves} OR {_CLEANED}"""
    return int(rows(sql, fit.params)[0][0])
