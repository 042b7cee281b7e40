"""Gathering for a group that has not all it needs: what is there is reserved for it, the rest is built."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.conf import settings
from django.db.models.functions import Now

from leases.engine import allocation, claim
from leases.engine.decision import Build, Decision, Refuse, Wait
from leases.engine.members import members
from leases.engine.placing import Place, Rule, goes, narrowed, places, rule_of
from leases.engine.question import suits
from leases.engine.serving import RESERVE, Outcome
from leases.engine.transaction import rows, run, short
from leases.engine.transitions import explain
from leases.engine.waiting import Waiter, lock, look_again
from leases.reasons import Reason

STALLED = (
    Reason.WAITING_OFFER,
    Reason.WAITING_BUDGET,
    Reason.WAITING_CATALOGUE,
    Reason.WAITING_AUTHORIZATION,
    Reason.NEEDS_OPERATOR,
)
"""What a member waits for that is not room: no room that others leave would help."""


def gather(group_id: int) -> Outcome:
    """Reserve a free resource for the members that have none yet, and build for those that find none."""
    acted = _each_alone(group_id)
    while (without := _reserve_free(group_id)) is not None:
        if not _make_room_for_one([member for member in without if member.id not in acted], acted):
            return _wait(group_id, acted)
    return Outcome.GONE


def _make_room_for_one(found: Sequence[Waiter], acted: dict[int, Decision | None]) -> bool:
    """Act on the decision for each member in turn until a resource is built or reserved: others may fit on it."""
    for member in found:
        acted[member.id] = _make_room(member)
        if acted[member.id] is None:
            return True
    return False


def _each_alone(group_id: int) -> dict[int, Decision | None]:
    """Of members below one parent only the first is made room for: what the others wait for by themselves."""
    acted: dict[int, Decision | None] = {}
    for member in _below_one_parent(group_id)[1:]:
        decision = allocation.opinion(member)
        if isinstance(decision, Refuse) or _stalls(decision):
            allocation.act(member, decision)
            acted[member.id] = decision
    return acted


@short
def _below_one_parent(group_id: int) -> list[Waiter]:
    return members(group_id) if rule_of(group_id).same == "parent" else []


def _stalls(decision: Decision | None) -> bool:
    return isinstance(decision, Wait) and decision.reason in STALLED


def stand_back(group_id: int) -> Outcome:
    """An older group gathers: this one holds nothing meanwhile."""
    return _wait(group_id, {}, keep=False)


@short
def _wait(group_id: int, acted: Mapping[int, Decision | None], *, keep: bool = True) -> Outcome:
    """Say why its members wait. A group that is stalled keeps no resource from others."""
    found = members(group_id)
    keep = keep and not any(_stalls(decision) for decision in acted.values())
    for member in found:
        if not keep:
            claim.unreserve(member.id)
        if acted.get(member.id) is None:
            message = f"Waits until all {len(found)} of its group have room."
            explain(member.id, Reason.WAITING_GROUP, message, due_at=Now() + look_again())
    return Outcome.NO_ROOM


@short
def _reserve_free(group_id: int) -> list[Waiter] | None:
    """The members for which nothing free was found; None when none of them waits."""
    found = members(group_id)
    if not found:
        return None
    rule = rule_of(group_id)
    if rule.same:
        return [] if rule.held else _first_for_all(found, rule)
    return _spread(found, rule)


_RESERVE = """
    UPDATE leases_resource SET reserved_for_id = %s WHERE id = (
        SELECT id FROM leases_resource WHERE id = %s AND reserved_for_id IS NULL FOR NO KEY UPDATE SKIP LOCKED)"""
"""Waits for no lock, as others were taken before in no order; the next look reserves what is locked now."""


def _spread(found: list[Waiter], rule: Rule) -> list[Waiter]:
    """Reserve places, as few as the rule allows: members that fit together share one."""
    chosen: list[Place] = []
    placed: list[Waiter] = []
    without = []
    for member in found:
        asked = [one.question for one in placed]
        there = {place.resource_id for place in chosen}
        options = sorted(places(member.question), key=lambda place: place.resource_id not in there)
        place = next((one for one in options if goes(one, member.question, chosen, asked, rule)), None)
        if place is None:
            without.append(member)
            continue
        chosen.append(place)
        placed.append(member)
        if not place.reserved:
            run(_RESERVE, (member.id, place.resource_id))
    return without


def _first_for_all(found: list[Waiter], rule: Rule) -> list[Waiter]:
    """The first member, asking for all of them, unless what is reserved for one of them could take them all."""
    first = found[0]
    first.question = narrowed([member.question for member in found], rule)[0]
    fit = suits(first.question)
    sql = f"""SELECT 1 FROM leases_resource r
        WHERE r.reserved_for_id = ANY(%s) AND r.state IN ('pending', 'active') AND {fit.text} LIMIT 1"""
    if rows(sql, ([member.id for member in found], *fit.params)):
        return []
    for member in found:
        claim.unreserve(member.id)
    return [first]


def _make_room(member: Waiter) -> Decision | None:
    """Build or reserve for it, else act on what was decided and answer that."""
    decision = allocation.opinion(member)
    if isinstance(decision, Build):
        allocation.build_reserved(member, decision.blueprint_id, decision.draft)
        return None
    if not isinstance(decision, Refuse) and not _stalls(decision) and _reserve_busy(member):
        return None
    allocation.act(member, decision)
    return decision


@short
def _reserve_busy(member: Waiter) -> bool:
    """Where nothing can be built: after a while one resource that could take what is asked fills for the group."""
    overdue = "SELECT 1 FROM leases_lease WHERE id = %s AND since < statement_timestamp() - %s * interval '1 s'"
    if lock(member.id) is None or not rows(overdue, (member.id, settings.DRYDOCK.head_reservation_seconds)):
        return False
    fit = suits(member.question)
    return bool(run(RESERVE.format(suits=fit.text), (member.id, *fit.params)))
