"""The search: find a resource with room by index, and lock it.

Pass 1 skips what others have locked. Pass 2, a statement of its own, waits for them; only pass 2 may say that
there is no room.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from django.conf import settings

from blueprints import registry
from blueprints.amounts import CLASSES, Amounts
from blueprints.contract import Activates
from leases.engine.matching import Sql
from leases.engine.question import Question, has_room, is_free
from leases.engine.transaction import Busy, bound_lock_waits, rows

_WAITS = 5
_NEAR = 4
"""Times as many as are weighed: so many that are not full are looked at before all are."""
_ONE_SLOT = Amounts(slots=1)


@dataclass(frozen=True, kw_only=True)
class Room:
    """A locked resource that has room for a question."""

    resource_id: int
    state: str
    kind: str
    name: str
    queue: bool = False
    """True when somebody waits for the same type since before."""
    free: tuple[int, ...] = ()
    """What is free of each class of `CLASSES`, before the claim."""

    @property
    def activates(self) -> bool:
        """True when a lease has work of its own to do there before it is active."""
        return isinstance(registry.kind(self.kind), Activates)


FREE = ", ".join(f"r.total_{name} - r.used_{name}" for name in CLASSES)


def find(question: Question) -> Room | None:
    """Lock one resource with room, or None when there is none. Call inside a short transaction.

    Raises Busy when others hold the locks too long; a lock timeout of the database means the same.
    """
    for turn in range(1 + _WAITS):
        if turn == 1:
            bound_lock_waits()
        first = _first(question)
        if first is None:
            return None
        if (room := _lock(question, first, None, "" if turn else "SKIP LOCKED")) is not None:
            return room
        if _plain(question) and not rows(f"SELECT cardinality({first.text}) > 0", first.params, hot=True)[0][0]:
            return None
    raise Busy


def look(question: Question, rank: float | None = None) -> Room | None:
    """Pass 1. `rank` also asks whether anybody waits for the same type with a lower one."""
    first = _first(question)
    return None if first is None else _lock(question, first, rank, "SKIP LOCKED")


def _lock(question: Question, first: Sql, rank: float | None, locking: str) -> Room | None:
    """Lock the best of the resources whose ids are given, if it still has room."""
    free, queue, preferred = is_free(question), _queue(question, rank), list(question.preferred_traits)
    wished = "cardinality(ARRAY(SELECT unnest(r.traits) INTERSECT SELECT unnest(%s::varchar[]))) DESC, "
    score = wished if preferred else ""
    sql = f"""
        SELECT r.id, r.state, b.kind, r.name, {queue.text}, {FREE}
        FROM leases_resource r JOIN blueprints_blueprint b ON b.id = r.blueprint_id
        WHERE r.id = ANY({first.text}) AND {free.text}
        ORDER BY r.id = ANY(%s), r.state, {score}b."order", r.total_slots - r.used_slots, r.id
        LIMIT 1 FOR NO KEY UPDATE OF r {locking}"""
    params = (*queue.params, *first.params, *free.params, list(question.avoided), *([preferred] if preferred else []))
    locked = rows(sql, params, hot=True)
    if not locked:
        return None
    resource_id, state, kind, name, waiting, *amounts = locked[0]
    return Room(resource_id=resource_id, state=state, kind=kind, name=name, queue=bool(waiting), free=tuple(amounts))


def _plain(question: Question) -> bool:
    """One slot anywhere: what the database finds by one plan, whatever there is."""
    asks = any((question.requirements, question.traits, question.forbidden_traits, question.also))
    return question.amounts == _ONE_SLOT and question.allowed_blueprints is None and not asks


def _depends(question: Question) -> bool:
    """It asks for so much, for so many or for named blueprints: which index knows most depends on which."""
    return any(map(_compares, (question, *question.also)))


def _compares(one: Question) -> bool:
    return (
        one.amounts != _ONE_SLOT or one.allowed_blueprints is not None or any(map(_number, one.requirements.values()))
    )


def _number(value: object) -> bool:
    return isinstance(value, int | float)


def _first(question: Question) -> Sql | None:
    """The ids of the first resources with room, of which the best is taken; None when there is none.

    For a plain question they are found by the statement that locks one. Else a statement of its own is planned for
    what is asked, and the one that locks is the same for all.
    """
    ids = _ids(question)
    if _plain(question):
        return ids
    ((found,),) = rows(f"SELECT {ids.text}", ids.params, hot=not _depends(question))
    return Sql("%s::bigint[]", (found,)) if found else None


def _ids(question: Question) -> Sql:
    """Most often they are among the first that are not full. Else they are looked for by whichever index knows most;
    the order by an expression keeps the planner from walking through all in the order of the ids, which it would when
    it expects more matches than there are."""
    room, limit = has_room(question), settings.DRYDOCK.candidate_limit
    near = f"(SELECT * FROM leases_resource r WHERE r.type = %s AND r.claimable ORDER BY r.id LIMIT {_NEAR * limit})"
    return Sql(
        f"""coalesce(
            nullif(ARRAY(SELECT r.id FROM {near} r WHERE {room.text} ORDER BY r.id LIMIT {limit}), '{{}}'),
            ARRAY(SELECT r.id FROM leases_resource r WHERE {room.text} ORDER BY r.id + 0 LIMIT {limit}))""",
        (question.type, *room.params, *room.params),
    )


def _queue(question: Question, rank: float | None) -> Sql:
    if rank is None:
        return Sql("FALSE")
    return Sql(
        "(SELECT w.id FROM leases_lease w WHERE w.state = 'pending' AND NOT w.parked AND w.group_id IS NULL"
        " AND w.type = %s AND w.rank < %s ORDER BY w.rank LIMIT 1) IS NOT NULL",
        (question.type, rank),
    )


def fits(resource_id: int, questions: Sequence[Question], free: Sequence[int]) -> list[int]:
    """Which of the questions the resource could serve now, by their place in the list.

    `free`: what is free there of each class; questions for more are not put to the database.
    """
    small = [n for n, question in enumerate(questions) if _within(question.amounts, free)]
    if not small:
        return []
    pieces = [has_room(questions[n]) for n in small]
    cases = ", ".join(f"CASE WHEN {p.text} THEN {n} END" for n, p in zip(small, pieces, strict=True))
    sql = f"""SELECT array_remove(ARRAY[{cases}]::int[], NULL) FROM leases_resource r WHERE r.id = %s"""
    found = rows(sql, (*(x for p in pieces for x in p.params), resource_id))
    return list(found[0][0]) if found else []


def _within(amounts: Amounts, free: Sequence[int]) -> bool:
    return all(getattr(amounts, name) <= there for name, there in zip(CLASSES, free, strict=True))
