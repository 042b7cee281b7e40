"""Build what a group in one host lacks there (`same: whole`), each resource on a carrier in the chosen host.

A resource that is built on another one leases that one, its carrier, for life, and is part of it: a DPU on its card. For
a group, one transaction reserves the host, inserts the resources and leases their carriers. So the tree of the host alone
says what is built there for the group, and nothing has to be remembered. The leases of the group are granted together
when all its resources are built; until then the group holds nothing that maintenance of the host would wait for.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from django.conf import settings

from blueprints.answers import NeededLease
from blueprints.models import Blueprint
from drydock.core.errors import Busy
from leases.engine.core.database import bound_lock_waits, rows, run, short
from leases.engine.placement import claims, pending
from leases.engine.placement.assignment import Carriers, Option, Rule, options_for, rule_of
from leases.engine.placement.constraints import PlacementRequest
from leases.engine.placement.pending import PendingLease
from leases.engine.queue import colocation
from leases.engine.resources import retirement
from leases.engine.resources.provision import carrier_lease, lock_blueprint
from leases.engine.scheduling import allocate, candidates
from leases.engine.scheduling.decision import Build, Decision
from leases.engine.scheduling.request import Cause, insert, request_of, usable
from leases.models import Lease, Resource
from leases.reasons import Reason

_LOOKED_AT = 16
"""Carriers are searched up to this many times the candidate limit."""


@dataclass(frozen=True, kw_only=True)
class Construction:
    """A resource that a blueprint could build for members with the same request, and the lease of its carrier."""

    decision: Build
    lease: NeededLease
    carrier: PlacementRequest


@dataclass(frozen=True, kw_only=True)
class Outlook:
    """What can be decided for each member of a group alone, and what could be built for it in a host."""

    decisions: dict[int, Decision] = field(default_factory=dict)
    constructions: tuple[Construction, ...] = ()
    index: dict[int, int] = field(default_factory=dict)
    """The index of the construction for each lease that one is possible for."""

    def requests(self, found: Sequence[PendingLease]) -> list[PlacementRequest]:
        """Return the requests of the members, with the carriers on which their resources could be built."""
        return [replace(one.placement, carriers=self.index.get(one.id)) for one in found]

    def of(self, lease_id: int) -> Construction:
        """Return the construction for a lease."""
        return self.constructions[self.index[lease_id]]


def look(found: Sequence[PendingLease]) -> Outlook:
    """Return the outlook for the members of a group. Members with the same request are looked at once."""
    known: dict[str, tuple[Decision, int | None]] = {}
    made: list[Construction] = []
    for member in found:
        if (key := repr(_kind(member))) not in known:
            decision = allocate.opinion(member)
            construction = _construction(member, decision)
            known[key] = decision, None if construction is None else len(made)
            made += [] if construction is None else [construction]
    return Outlook(
        decisions={one.id: known[repr(_kind(one))][0] for one in found},
        constructions=tuple(made),
        index={one.id: at for one in found if (at := known[repr(_kind(one))][1]) is not None},
    )


def _kind(member: PendingLease) -> PlacementRequest:
    return replace(member.placement, lease_id=None, avoided=())


def _construction(member: PendingLease, decision: Decision) -> Construction | None:
    if not isinstance(decision, Build):
        return None
    blueprint = Blueprint.objects.get(pk=decision.blueprint_id)
    lease = carrier_lease(blueprint, candidates.asked_of(blueprint.kind, member.placement))
    if lease is None:
        return None
    carrier = PlacementRequest(
        type=lease.type, requirements=lease.requirements, amounts=lease.amounts, exclusive=True,
        group=member.placement.group, within=member.placement.within,
    )  # fmt: skip
    return Construction(decision=decision, lease=lease, carrier=carrier)


_FAILED = """
    SELECT DISTINCT d.part_of_id FROM leases_resource d WHERE d.part_of_id = ANY(%s) AND d.reason = 'build_failed'
        AND d.since > (SELECT min(created_at) FROM leases_lease WHERE id = ANY(%s))"""
_IDLE = """
    SELECT i.part_of_id, i.id FROM leases_resource i WHERE i.part_of_id = ANY(%s) AND i.state = 'active'
        AND i.used_slots = 0 AND i.origin = 'built' AND i.reserved_for_id IS NULL AND NOT i.quarantined
        AND NOT i.in_maintenance AND NOT EXISTS (SELECT FROM leases_resource a WHERE a.id = ANY(i.closed_by)
            AND NOT coalesce(a.reserved_for_id = ANY(%s), FALSE))
        AND EXISTS (SELECT FROM leases_lease c WHERE c.for_resource_id = i.id AND c.resource_id = i.part_of_id
            AND c.state = 'active')"""
"""Idle resources whose removal would free one of these carriers, unless others have closed what is around them."""


@dataclass(frozen=True, kw_only=True)
class _Search:
    """A rule with carriers, and the idle resources that must be removed from some of them first, by carrier."""

    rule: Rule
    idle: dict[int, int] = field(default_factory=dict)


def searches(outlook: Outlook, rule: Rule, group: Sequence[int]) -> Iterator[_Search]:
    """Yield the rule with the carriers that may be used: first free ones, then those of idle resources.

    Carriers on which a build for the group has failed come last.
    """
    limit = settings.DRYDOCK.candidate_limit * _LOOKED_AT
    free = [_options(one, limit) for one in outlook.constructions]
    ever = [_options(one, limit, when_empty=True) for one in outlook.constructions]
    everywhere = [option.resource_id for found in ever for option in found]
    failed = {pk for (pk,) in rows(_FAILED, (everywhere, list(group)))} if everywhere else set()
    idle: dict[int, int] = dict(rows(_IDLE, (everywhere, list(group)))) if everywhere else {}

    def among(found: Sequence[Sequence[Option]], without: set[int]) -> Rule:
        kept = [tuple(one for one in options if one.resource_id not in without) for options in found]
        carriers = (Carriers(free=one, ever=tuple(all_)) for one, all_ in zip(kept, ever, strict=True))
        return replace(rule, carriers=tuple(carriers))

    yield _Search(rule=among(free, failed))
    if idle:
        spare = [[*found, *(o for o in all_ if o.resource_id in idle)] for found, all_ in zip(free, ever, strict=True)]
        yield _Search(rule=among(spare, failed), idle=idle)
    if failed:
        yield _Search(rule=among(free, set()))


def _options(one: Construction, limit: int, *, when_empty: bool = False) -> list[Option]:
    found = options_for(one.carrier, limit=limit, when_empty=when_empty)
    return [replace(option, is_carrier=True) for option in found]


_GOING_ON = """
    SELECT d.name, c.name, h.name FROM leases_resource d JOIN leases_resource c ON c.id = d.part_of_id
    JOIN leases_resource h ON h.reserved_for_id = ANY(%(group)s)
        AND h.id = (SELECT id FROM drydock_above(d.id) ORDER BY n DESC LIMIT 1)
    WHERE d.reserved_for_id = ANY(%(group)s) AND d.state = 'pending' ORDER BY d.id"""
_LEAVING = """
    SELECT d.name, c.name, h.name FROM leases_resource h CROSS JOIN LATERAL drydock_below(h.id) b
    JOIN leases_resource d ON d.id = b.id JOIN leases_resource c ON c.id = d.part_of_id
    WHERE h.reserved_for_id = ANY(%(group)s) AND d.state = 'released' AND d.reason = 'reclaimed' AND d.gone_at IS NULL
    ORDER BY d.id"""


_CLOSED = """
    SELECT h.name, h.in_maintenance FROM leases_resource h
    WHERE h.reserved_for_id = ANY(%(group)s) AND (h.in_maintenance OR h.suspect_since IS NOT NULL) AND EXISTS (
        SELECT FROM drydock_below(h.id) b JOIN leases_resource d ON d.id = b.id
        WHERE d.reserved_for_id = ANY(%(group)s) AND d.state = 'active')"""
"""Reserved hosts that are closed for now, and in which something is reserved for the group that may have been built."""


def going_on(group: Sequence[int]) -> str:
    """Return a sentence that says what must end in the host that is reserved for a group, or an empty string.

    That is a build, the removal of an idle resource, or a time in which the host is closed.
    """
    for sql, what in ((_GOING_ON, "built"), (_LEAVING, "removed")):
        found = rows(sql, {"group": list(group)})
        if found:
            names = ", ".join(f"{name} on {carrier}" for name, carrier, _ in found)
            said = f"{names} {'is' if len(found) == 1 else 'are'} being {what}"
            return f"The leases of the group are granted together in {found[0][2]}, where {said}."
    for name, in_maintenance in rows(_CLOSED, {"group": list(group)}):
        why = "is in maintenance" if in_maintenance else "does not answer"
        return f"The leases of the group are granted together in {name}, which {why}."
    return ""


class _Unable(Exception):
    """Limits of the blueprint with this name do not allow to build all that a group lacks. Nothing is kept."""


def begin(group_id: int, outlook: Outlook) -> str:
    """Reserve a host for a group, and begin to build what the group lacks there.

    Returns why the group waits, or an empty string if no host can serve the group now.
    """
    try:
        message, idle = _begin(group_id, outlook)
    except _Unable as error:
        return f"The leases of the group wait until limits of blueprint {error} allow all that they lack to be built."
    for resource_id in idle:
        retirement.retire_idle(resource_id, reason=Reason.RECLAIMED, message="Removed to make room for a group.")
    return message


@short
def _begin(group_id: int, outlook: Outlook) -> tuple[str, list[int]]:
    """Return the message of `begin`, and the idle resources that must be removed before anything can be built."""
    bound_lock_waits()
    found, rule = pending.members_of(group_id), rule_of(group_id)
    group = [one.id for one in found]
    if not found or rule.held:
        return "", []
    if message := going_on(group):
        return message, []
    requests = outlook.requests(found)
    for search in searches(outlook, rule, group):
        chosen = colocation.choose(requests, search.rule)
        if chosen is not None:
            idle = [search.idle[one.resource_id] for one in chosen if one.is_carrier and one.resource_id in search.idle]
            _prepare(found, chosen, outlook, build=not idle)
            return _said(group, idle), idle
    return "", []


def _said(group: list[int], idle: list[int]) -> str:
    if not idle:
        return going_on(group) or "The leases of the group wait until the host that is reserved for them is free."
    names = ", ".join(str(one) for one in Resource.objects.filter(pk__in=idle).order_by("pk"))
    return f"The leases of the group wait until {names} has been removed from the host that is reserved for them."


_RESERVE = "UPDATE leases_resource SET reserved_for_id = %s WHERE id = %s"
_RESERVE_HOST = """
    UPDATE leases_resource SET reserved_for_id = coalesce(reserved_for_id, %s)
    WHERE id = %s AND (reserved_for_id IS NULL OR reserved_for_id = ANY(%s)) AND NOT in_maintenance"""
_UNRESERVE = """
    UPDATE leases_resource SET reserved_for_id = NULL WHERE id = ANY(ARRAY(
        SELECT id FROM leases_resource WHERE reserved_for_id = ANY(%s) AND id <> ALL(%s)
        ORDER BY id FOR NO KEY UPDATE SKIP LOCKED))"""


def _prepare(found: list[PendingLease], chosen: list[Option], outlook: Outlook, *, build: bool) -> None:
    """Reserve the chosen resources and their host, and begin the builds. Raises Busy if one was taken meanwhile.

    Locks blueprints by id, and then all resources, the parts before the host: an insert below one card locks the host, and
    a claim of another card waits for the host while it holds that card.
    """
    group, kept = [one.id for one in found], list[int]()
    pairs = list(zip(found, chosen, strict=True))
    to_build = [(member, option) for member, option in pairs if option.is_carrier] if build else []
    for pk in sorted({outlook.of(member.id).decision.blueprint_id for member, _ in to_build}):
        lock_blueprint(pk)
    colocation.lock([option.resource_id for option in chosen])
    for member, option in to_build:
        kept.append(_build(member, option, outlook.of(member.id), group))
    for member, option in pairs:
        if option.is_carrier:
            continue
        within = (*member.placement.within, *(one.resource_id for one in chosen))
        if claims.find(replace(member.placement, only_resources=(option.resource_id,), within=within)) is None:
            raise Busy
        run(_RESERVE, (member.id, option.resource_id))
        kept.append(option.resource_id)
    host = colocation.host_of(chosen[0].resource_id)
    if not run(_RESERVE_HOST, (group[0], host, group)):
        raise Busy
    run(_UNRESERVE, (group, [*kept, host]))


def _build(member: PendingLease, option: Option, one: Construction, group: list[int]) -> int:
    """Insert a resource on its carrier, and lease the carrier for it. Returns the id of the resource."""
    decision = one.decision
    room = allocate.insert_reserved(member, decision.blueprint_id, decision.draft, carrier=option.resource_id)
    if room is None:
        raise _Unable(Blueprint.objects.values_list("name", flat=True).get(pk=decision.blueprint_id))
    lease = Lease.objects.only("root_id", "rank", "priority").get(pk=member.id)
    cause = Cause(
        for_resource=room.resource_id, need=one.lease.name, root=lease.root_id or lease.pk, rank=lease.rank,
        priority=lease.priority, only_resources=(option.resource_id,),
    )  # fmt: skip
    asked = request_of(one.lease, room.name)
    done, _ = insert(asked, None, usable(asked), "drydock", cause, None)
    waiter = pending.lock(done.id)
    assert waiter is not None
    waiter.placement = replace(waiter.placement, group=(done.id, *group))
    there = claims.find(waiter.placement)
    if there is None:
        raise Busy
    claims.finish_claim(waiter, there)
    return room.resource_id
