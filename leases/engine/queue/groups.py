"""Grant groups: claim shares for all members in one transaction or for none, and make room for a waiting group."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from django.conf import settings
from django.db.models.functions import Now

from blueprints.amounts import Amounts
from drydock.core.errors import Busy
from leases.engine.core.database import bound_lock_waits, rows, run, short
from leases.engine.core.transitions import explain
from leases.engine.placement import budgets, claims, quotas
from leases.engine.placement.assignment import (
    Option,
    Rule,
    assign,
    distance_between,
    goes,
    narrowed,
    options_for,
    rule_of,
)
from leases.engine.placement.claims import finish_claim
from leases.engine.placement.constraints import PlacementRequest, suits
from leases.engine.placement.pending import PendingLease, lock, look_again, members_of
from leases.engine.queue import carriers, colocation
from leases.engine.queue.carriers import Outlook
from leases.engine.scheduling import allocate
from leases.engine.scheduling.decision import Build, Decision, Reclaim, Refuse, UseDegraded, Wait
from leases.engine.scheduling.place import RESERVE, Outcome
from leases.models import LeaseGroup
from leases.reasons import Reason

STALLED = (
    Reason.WAITING_OFFER,
    Reason.WAITING_BUDGET,
    Reason.WAITING_CATALOGUE,
    Reason.WAITING_AUTHORIZATION,
    Reason.NEEDS_OPERATOR,
)
"""Reasons for waiting that do not go away when other leases release capacity."""


def gather(group_id: int) -> Outcome:
    """Reserve free resources for the members of a group, and build resources for the members that find none."""
    acted = _each_alone(group_id)
    while (without := _reserve_free(group_id)) is not None:
        if not _make_room_for_one(group_id, [member for member in without if member.id not in acted], acted):
            return _last_resort(group_id, without, acted) or _wait(group_id, acted)
    return Outcome.GONE


def _gather_whole(group_id: int) -> Outcome:
    """Reserve a host for the group, and build there what it lacks. Nothing is built outside a host.

    That may be done for several groups, because each reserves all that it needs at once. What follows is done for the
    oldest only: to reserve a host that is in use and, if no host could ever serve the group, to carry out the decisions
    that refuse or stall single members.
    """
    found = _pending(group_id)
    if not found:
        return Outcome.GONE
    outlook = carriers.look(found)
    if rule_of(group_id).held:
        return _wait(group_id, {}, outlook=outlook)
    message = carriers.begin(group_id, outlook)
    if message:
        return _explain(group_id, message, outlook)
    if not _is_oldest(group_id):
        return stand_back(group_id)
    acted: dict[int, Decision | None] = {}
    if not _some_host(group_id, outlook):
        final = {pk: one for pk, one in outlook.decisions.items() if isinstance(one, Refuse | Reclaim) or _stalls(one)}
        acted |= final
    for member in found:
        if (decision := acted.get(member.id)) is not None:
            allocate.act(member, decision)
    return _last_resort(group_id, found, {}) or _wait(group_id, acted, outlook=outlook)


_pending = short(members_of)


@short
def _explain(group_id: int, message: str, outlook: Outlook) -> Outcome:
    """Record what the members of a group wait for, with the verdicts on what could be built for each."""
    for member in members_of(group_id):
        decided = outlook.decisions.get(member.id)
        verdicts = {"verdicts": [verdict.to_json() for verdict in decided.verdicts]} if decided else {}
        explain(member.id, Reason.WAITING_GROUP, message, due_at=Now() + look_again(), **verdicts)
    return Outcome.NO_ROOM


_DEGRADED = """
    SELECT 1 FROM leases_resource r WHERE r.health <> 'ok' AND r.gone_at IS NULL AND r.claimable AND r.type IN (
        SELECT type FROM leases_lease WHERE group_id = %s AND state = 'pending') LIMIT 1"""


def _last_resort(
    group_id: int, found: Sequence[PendingLease], acted: dict[int, Decision | None]
) -> Outcome | None:  # fmt: skip
    """Grant the group on resources of which some are degraded.

    If that is not possible, carry out what else was decided for its members, and return None.
    """
    if rows(_DEGRADED, (group_id,)):
        outcome = _grant(group_id, may_be_degraded=True)
        if outcome is not Outcome.NO_ROOM:
            return outcome
    for member in found:
        if isinstance(decision := acted.get(member.id), UseDegraded):
            acted[member.id] = _carry_out(group_id, member, decision.otherwise)
    return None


def _make_room_for_one(group_id: int, found: Sequence[PendingLease], acted: dict[int, Decision | None]) -> bool:
    """Carry out the members' decisions one by one, until a resource is built or reserved.

    The remaining members may fit on that resource. Returns False if no resource was built or reserved.
    """
    for member in found:
        acted[member.id] = _make_room(group_id, member)
        if acted[member.id] is None:
            return True
    return False


def _each_alone(group_id: int) -> dict[int, Decision | None]:
    """Carry out decisions that refuse or stall a member, for all but the first of a group in one host or parent.

    Returns these decisions by member.
    """
    acted: dict[int, Decision | None] = {}
    for member in _in_one_tree(group_id)[1:]:
        decision = allocate.opinion(member)
        if isinstance(decision, Refuse) or _stalls(decision):
            allocate.act(member, decision)
            acted[member.id] = decision
    return acted


@short
def _in_one_tree(group_id: int) -> list[PendingLease]:
    """Return the members of a group in one host or parent, unless a host has everything that they request."""
    found, rule = members_of(group_id), rule_of(group_id)
    if rule.same == "host":
        placements = [member.placement for member in found]
        return [] if not found or rule.held or colocation.shortage(placements, rule).hosts else found
    return found if rule.same == "parent" else []


def _stalls(decision: Decision | None) -> bool:
    return isinstance(decision, Wait) and decision.reason in STALLED


def stand_back(group_id: int) -> Outcome:
    """Release the group's reservations, because an older group is collecting its resources."""
    return _wait(group_id, {}, keep=False)


@short
def _wait(
    group_id: int, acted: Mapping[int, Decision | None], *, keep: bool = True, outlook: Outlook | None = None
) -> Outcome:  # fmt: skip
    """Record why the members wait. Release the reservations if `keep` is false or a member is stalled."""
    found = members_of(group_id)
    keep = keep and not any(_stalls(decision) for decision in acted.values())
    message, kept = f"Waiting until there is room for all {len(found)} leases in the group.", set(acted)
    if found and (outlook is not None or rule_of(group_id).same == "host"):
        message = _shortage(group_id, found, outlook).message
        kept = {pk for pk, decision in acted.items() if _stalls(decision) or not isinstance(decision, Wait)}
    for member in found:
        if not keep:
            claims.unreserve(member.id)
        if member.id not in kept or acted[member.id] is None:
            decision = acted.get(member.id) or (outlook.decisions.get(member.id) if outlook else None)
            decided = {"verdicts": [verdict.to_json() for verdict in decision.verdicts]} if decision else {}
            explain(member.id, Reason.WAITING_GROUP, message, due_at=Now() + look_again(), **decided)
    return Outcome.NO_ROOM


@short
def _reserve_free(group_id: int) -> list[PendingLease] | None:
    """Reserve free resources. Return the members that found none, or None if no member is pending."""
    found = members_of(group_id)
    if not found:
        return None
    rule = rule_of(group_id)
    if rule.same == "host":
        hosts = () if rule.held else _shortage(group_id, found, None).hosts
        return [] if rule.held or _reserve_host(found, hosts) else found[:1]
    if rule.same:
        return [] if rule.held else _first_for_all(found, rule)
    return _spread(found, rule)


@short
def _some_host(group_id: int, outlook: Outlook) -> bool:
    """Return whether a host could serve all members if it were empty. Reserve one if the group has waited for long.

    What is reserved in other hosts, where a build has failed, is not kept.
    """
    found = members_of(group_id)
    hosts = _shortage(group_id, found, outlook).hosts if found else ()
    run(_LEAVE, ([member.id for member in found], list(hosts)))
    return bool(hosts) and _reserve_host(found, hosts)


def _shortage(group_id: int, found: list[PendingLease], outlook: Outlook | None) -> colocation.Shortage:
    rule = rule_of(group_id)
    if outlook is None:
        return colocation.shortage([member.placement for member in found], rule)
    search = next(carriers.searches(outlook, rule, [member.id for member in found]))
    return colocation.shortage(outlook.requests(found), search.rule)


def _reserve_host(found: list[PendingLease], hosts: Sequence[int]) -> bool:
    """Reserve one of the hosts if the group has waited for long. Return whether there are any."""
    ids = [member.id for member in found]
    reserved = "SELECT 1 FROM leases_resource WHERE id = ANY(%s) AND reserved_for_id = ANY(%s)"
    if hosts and not rows(reserved, (list(hosts), ids)) and _is_overdue(ids[0]):
        colocation.reserve(ids[0], hosts)
    return bool(hosts)


_LEAVE = """
    UPDATE leases_resource SET reserved_for_id = NULL WHERE id = ANY(ARRAY(
        SELECT r.id FROM leases_resource r WHERE r.reserved_for_id = ANY(%s) AND coalesce(
            (SELECT a.id FROM drydock_above(r.id) a ORDER BY a.n DESC LIMIT 1), r.id) <> ALL(%s)
        ORDER BY r.id FOR NO KEY UPDATE OF r SKIP LOCKED))"""
_RESERVE = """
    UPDATE leases_resource SET reserved_for_id = %s WHERE id = (
        SELECT id FROM leases_resource WHERE id = %s AND reserved_for_id IS NULL FOR NO KEY UPDATE SKIP LOCKED)"""
"""Does not wait for locks, because the resources that are already locked were locked in no particular order.

A resource that is locked by another process is reserved in the next attempt.
"""


def _spread(found: list[PendingLease], rule: Rule) -> list[PendingLease]:
    """Reserve as few resources as the group's rule allows: members that fit on one resource share it.

    Returns the members that found no resource.
    """
    chosen: list[Option] = []
    placed: list[PendingLease] = []
    without = []
    for member in found:
        asked = [one.placement for one in placed]
        there = {option.resource_id for option in chosen}
        options = sorted(options_for(member.placement), key=lambda option: option.resource_id not in there)
        option = next((one for one in options if goes(one, member.placement, chosen, asked, rule)), None)
        if option is None:
            without.append(member)
            continue
        chosen.append(option)
        placed.append(member)
        if not option.reserved:
            run(_RESERVE, (member.id, option.resource_id))
    return without


def _first_for_all(found: list[PendingLease], rule: Rule) -> list[PendingLease]:
    """Return the first member, with a request that covers all members, unless a reserved resource could serve all.

    Returns an empty list if such a resource is reserved.
    """
    first = found[0]
    first.placement = narrowed([member.placement for member in found], rule)[0]
    fit = suits(first.placement)
    sql = f"""SELECT 1 FROM leases_resource r
        WHERE r.reserved_for_id = ANY(%s) AND r.state IN ('pending', 'active') AND {fit.text} LIMIT 1"""
    if rows(sql, ([member.id for member in found], *fit.params)):
        return []
    for member in found:
        claims.unreserve(member.id)
    return [first]


def _make_room(group_id: int, member: PendingLease) -> Decision | None:
    """Build or reserve a resource for a member and return None.

    If that is not possible, return the decision carried out. For a group in one host, the resource is only built. A
    decision to use a degraded resource is returned only, because the group uses these for all members together.
    """
    decision = allocate.opinion(member)
    return decision if isinstance(decision, UseDegraded) else _carry_out(group_id, member, decision)


def _carry_out(group_id: int, member: PendingLease, decision: Decision) -> Decision | None:
    """Carry out the decision for a member, unless it only waits for a host. Return the decision.

    Returns None if a resource was built or reserved.
    """
    if isinstance(decision, Reclaim) and _has_room_now(group_id, member):
        return None
    if isinstance(decision, Build):
        allocate.build_reserved(member, decision.blueprint_id, decision.draft)
        return None
    if not isinstance(decision, Refuse) and not _stalls(decision) and _reserve_busy(member):
        return None
    # What a group in one host waits for is said by `_wait`. Otherwise each look would change the reason twice.
    if not isinstance(decision, Wait) or _stalls(decision) or rule_of(group_id).same != "host":
        allocate.act(member, decision)
    return decision


def _has_room_now(group_id: int, member: PendingLease) -> bool:
    """Return whether a resource that was in use in the first search can now be reserved for the member."""
    return member.id not in {one.id for one in _reserve_free(group_id) or ()}


@short
def _reserve_busy(member: PendingLease) -> bool:
    """Reserve a suitable resource that is in use, if the member has waited for a long time.

    Returns whether a resource was reserved.
    """
    if lock(member.id) is None or not _is_overdue(member.id) or rule_of(member.group_id or 0).same == "host":
        return False
    fit = suits(member.placement)
    return bool(run(RESERVE.format(suits=fit.text), (member.id, *fit.params)))


def _is_overdue(lease_id: int) -> bool:
    """Return whether a lease has waited long enough to have a resource reserved for it."""
    sql = "SELECT 1 FROM leases_lease WHERE id = %s AND since < statement_timestamp() - %s * interval '1 s'"
    return bool(rows(sql, (lease_id, settings.DRYDOCK.head_reservation_seconds)))


def advance(group_id: int) -> Outcome:
    """Grant a group if there is room for all members.

    Otherwise, if the group is the oldest one, reserve or build the resources that its members still need.
    """
    try:
        outcome = _grant(group_id)
        if outcome is not Outcome.NO_ROOM:
            return outcome
        if rule_of(group_id).same == "whole":
            return _gather_whole(group_id)
        return gather(group_id) if _is_oldest(group_id) else stand_back(group_id)
    except Busy:
        return Outcome.BUSY


@short
def _grant(group_id: int, *, may_be_degraded: bool = False) -> Outcome:
    bound_lock_waits()
    found = members_of(group_id)
    if not found:
        return Outcome.GONE
    if not _within_quotas(found, [member.placement.amounts for member in found]):
        return Outcome.PARKED
    charged = budgets.lock([member.id for member in found])
    for member in found:
        bounded = charged.of(member.id, member.placement).bounding(member.placement)
        member.placement = replace(bounded, may_be_degraded=may_be_degraded)
    rule = rule_of(group_id)
    if rule.same == "whole":
        # Until then, the build may need the host for itself, and must not wait for a lease of its own group.
        for member in found:
            member.placement = replace(member.placement, must_be_built=True)
    requests = [member.placement for member in found]
    chosen = choose(requests, rule)
    if chosen is None:
        return Outcome.NO_ROOM
    if any(one.exclusive for one in requests) and not _within_quotas(found, _taken(found, chosen)):
        return Outcome.PARKED
    if dear := charged.against(costs_of(found, chosen)):
        budgets.park([member.id for member in found], dear[:1].upper() + dear[1:])
        return Outcome.PARKED
    return _take(group_id, found, chosen, rule)


def choose(requests: list[PlacementRequest], rule: Rule) -> list[Option] | None:
    """Return a resource for each member, or None if there is no room for all."""
    if not rule.is_in_one_host:
        return assign([options_for(one) for one in narrowed(requests, rule)], requests, rule)
    return colocation.choose(requests, rule)


def _take(group_id: int, found: list[PendingLease], chosen: list[Option], rule: Rule) -> Outcome:
    ids = tuple(option.resource_id for option in chosen)
    colocation.lock(ids)
    for member, option in zip(found, chosen, strict=True):
        within = (*member.placement.within, *ids)
        room = claims.find(replace(member.placement, only_resources=(option.resource_id,), within=within))
        if room is None:
            raise Busy
        claims.unreserve(member.id)
        finish_claim(member, room)
    if rule.near:
        LeaseGroup.objects.filter(pk=group_id).update(distance=str(distance_between(chosen, rule) or ""))
    return Outcome.GRANTED


def costs_of(found: list[PendingLease], chosen: list[Option]) -> dict[int, float]:
    """Return the hourly cost of each member by lease id."""
    where = {member.id: option.resource_id for member, option in zip(found, chosen, strict=True)}
    return budgets.costs(where, {member.id: member.placement for member in found})


def _taken(found: list[PendingLease], chosen: list[Option]) -> list[Amounts]:
    """Return the amounts that each member would take; an exclusive lease takes the whole resource."""
    pairs = zip(found, chosen, strict=True)
    return [option.whole if one.placement.exclusive else one.placement.amounts for one, option in pairs]


def _within_quotas(found: list[PendingLease], amounts: list[Amounts]) -> bool:
    excess = quotas.allowance(dict(zip((member.id for member in found), amounts, strict=True))).excess
    if excess is not None:
        quotas.park([member.id for member in found], excess)
    return excess is None


_OLDER = """
    WITH g AS (SELECT min(rank) AS rank, group_id, bool_or(reason = ANY(%(stalled)s)) AS stalled FROM leases_lease
        WHERE state = 'pending' AND NOT parked AND group_id IN (
            SELECT o.group_id FROM leases_lease o JOIN leases_lease m ON m.type = o.type
            WHERE m.group_id = %(group)s AND m.state = 'pending' AND o.state = 'pending' AND o.group_id IS NOT NULL)
        GROUP BY group_id)
    SELECT 1 FROM g JOIN g own ON own.group_id = %(group)s
    WHERE NOT g.stalled AND (g.rank, g.group_id) < (own.rank, own.group_id) AND NOT EXISTS (
        SELECT FROM leases_leasegroup o JOIN leases_lease m ON m.group_id = o.id
        JOIN leases_resource d ON d.reserved_for_id = m.id AND d.state = 'pending'
        WHERE o.id = g.group_id AND o.same = 'whole') LIMIT 1"""


def _is_oldest(group_id: int) -> bool:
    """Return whether this group is the oldest for each of its resource types. Only the oldest may hold reservations.

    Otherwise two groups could each hold what the other needs. The age of a group is that of its oldest member for
    all its types; otherwise each of two groups could be older than the other. Groups that no room could serve are
    ignored, and so are those for which everything that they lack is being built in a host.
    """
    return not rows(_OLDER, {"group": group_id, "stalled": list(STALLED)})
