"""Groups: all members are granted in one transaction or none; the oldest group of a type may hold reservations."""

from __future__ import annotations

from dataclasses import replace

from blueprints.amounts import Amounts
from leases.engine import budgets, claim, quotas, search
from leases.engine.gathering import STALLED, gather, stand_back
from leases.engine.grant import finish_claim
from leases.engine.members import members
from leases.engine.placing import Place, assign, narrowed, places, rule_of
from leases.engine.serving import Outcome
from leases.engine.transaction import Busy, bound_lock_waits, rows, short
from leases.engine.waiting import Waiter


def waiting(resource_type: str, limit: int = 5) -> list[tuple[float, int]]:
    """(rank, id) of the groups that wait for a resource of this type: the first, and those due among the others."""
    found = rows(
        "WITH g AS (SELECT min(rank) AS rank, group_id, min(due_at) AS due FROM leases_lease"
        " WHERE state = 'pending' AND group_id IS NOT NULL AND NOT parked AND group_id IN (SELECT group_id"
        " FROM leases_lease WHERE state = 'pending' AND group_id IS NOT NULL AND type = %s) GROUP BY group_id)"
        " (SELECT rank, group_id FROM g ORDER BY 1, 2 LIMIT %s) UNION (SELECT rank, group_id FROM g"
        " WHERE due IS NULL OR due <= statement_timestamp() ORDER BY due NULLS FIRST, rank LIMIT %s) ORDER BY 1, 2",
        (resource_type, limit, limit),
    )
    return [(rank, group_id) for rank, group_id in found]


def advance(group_id: int) -> Outcome:
    """Grant a group if all of it has room; else, when it is the oldest, reserve what there is and build the rest."""
    try:
        outcome = _grant(group_id)
        if outcome is not Outcome.NO_ROOM:
            return outcome
        return gather(group_id) if _is_oldest(group_id) else stand_back(group_id)
    except Busy:
        return Outcome.BUSY


@short
def _grant(group_id: int) -> Outcome:
    bound_lock_waits()
    found = members(group_id)
    if not found:
        return Outcome.GONE
    if not _within_quotas(found, [member.question.amounts for member in found]):
        return Outcome.PARKED
    purses = budgets.lock([member.id for member in found])
    for member in found:
        member.question = purses.of(member.id, member.question).bounding(member.question)
    questions = [member.question for member in found]
    rule = rule_of(group_id)
    chosen = assign([places(q) for q in narrowed(questions, rule)], questions, rule)
    if chosen is None:
        return Outcome.NO_ROOM
    if any(q.exclusive for q in questions) and not _within_quotas(found, _taken(found, chosen)):
        return Outcome.PARKED
    if dear := purses.against(_costs(found, chosen)):
        budgets.park([member.id for member in found], dear[:1].upper() + dear[1:])
        return Outcome.PARKED
    return _take(found, chosen)


def _take(found: list[Waiter], chosen: list[Place]) -> Outcome:
    _lock([place.resource_id for place in chosen])
    for member, place in zip(found, chosen, strict=True):
        room = search.find(replace(member.question, only_resources=(place.resource_id,)))
        if room is None:
            raise Busy
        claim.unreserve(member.id)
        finish_claim(member, room)
    return Outcome.GRANTED


def _costs(found: list[Waiter], chosen: list[Place]) -> dict[int, float]:
    """What each would cost an hour."""
    where = {member.id: place.resource_id for member, place in zip(found, chosen, strict=True)}
    return budgets.costs(where, {member.id: member.question for member in found})


def _taken(found: list[Waiter], chosen: list[Place]) -> list[Amounts]:
    """What each would take: all of it who wants it alone."""
    pairs = zip(found, chosen, strict=True)
    return [place.whole if one.question.exclusive else one.question.amounts for one, place in pairs]


def _within_quotas(found: list[Waiter], amounts: list[Amounts]) -> bool:
    excess = quotas.allowance(dict(zip((member.id for member in found), amounts, strict=True))).excess
    if excess is not None:
        quotas.park([member.id for member in found], excess)
    return excess is None


def _lock(resource_ids: list[int]) -> None:
    rows("SELECT 1 FROM leases_resource WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE", (sorted(set(resource_ids)),))


_OLDER = """
    WITH g AS (SELECT min(rank) AS rank, group_id, bool_or(reason = ANY(%(stalled)s)) AS stalled FROM leases_lease
        WHERE state = 'pending' AND NOT parked AND group_id IN (
            SELECT o.group_id FROM leases_lease o JOIN leases_lease m ON m.type = o.type
            WHERE m.group_id = %(group)s AND m.state = 'pending' AND o.state = 'pending' AND o.group_id IS NOT NULL)
        GROUP BY group_id)
    SELECT 1 FROM g JOIN g own ON own.group_id = %(group)s
    WHERE NOT g.stalled AND (g.rank, g.group_id) < (own.rank, own.group_id) LIMIT 1"""


def _is_oldest(group_id: int) -> bool:
    """Only the oldest group of each of its types may hold reservations, so that two never hold what both need. A group
    is as old as its oldest member, for all its types: else two could be older than each other. One that could not
    have all it needs whatever room there is stands in nobody's way."""
    return not rows(_OLDER, {"group": group_id, "stalled": list(STALLED)})
