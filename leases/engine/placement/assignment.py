"""Assign the members of a group to the same resource, to parts of one parent or host, or to different resources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from django.conf import settings

from blueprints import localities
from blueprints.amounts import CLASSES, Amounts
from blueprints.localities import LEVELS, Distance, Locality
from leases.engine.core.database import rows
from leases.engine.placement.constraints import PlacementRequest, Sql, has_room, suits
from leases.engine.placement.pending import read_json


@dataclass(frozen=True, kw_only=True)
class Option:
    """A resource that a member could be assigned to."""

    resource_id: int
    parent_id: int | None
    free: Mapping[str, int]
    reserved: bool = False
    """True if the resource is already reserved for the group."""
    degraded: bool = False
    locality: Locality = ()
    """The position of the resource in its host."""
    is_carrier: bool = False
    """Whether the resource would only carry the one that is built for the member."""

    @property
    def is_device(self) -> bool:
        """Whether the resource is inside a host, and so has a position in that host, known or not."""
        return self.parent_id is not None

    @property
    def within(self) -> list[tuple[int, str]]:
        """The places that the resource is in, as (level, name), the widest first. The narrowest is the resource itself."""
        return [*localities.places(self.locality), (LEVELS + 1, str(self.resource_id))] if self.is_device else []

    @property
    def whole(self) -> Amounts:
        """All free capacity of the resource, which an exclusive member takes."""
        extra = {name: amount for name, amount in self.free.items() if name not in CLASSES}
        return Amounts(**{name: self.free[name] for name in CLASSES}, extra=extra)


@dataclass(frozen=True, kw_only=True)
class Carriers:
    """The resources on which a blueprint could build a resource for members with the same request."""

    free: tuple[Option, ...] = ()
    """Those that could carry it now."""
    ever: tuple[Option, ...] = ()
    """Those that could carry it if nothing were leased."""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The rule of a group: its members must share (`same`) or must not share (`different`) a resource or a parent.

    `same` can also be `host`: every member's resource is the same topmost host or a resource below it. `near` is then
    `prefer` or `require`, if the members' devices should or must be near one another. With `whole`, resources can also
    be built in the host, on `carriers`. `held` contains the resources that are already assigned to members.
    """

    same: str = ""
    different: str = ""
    near: str = ""
    held: tuple[Option, ...] = ()
    carriers: tuple[Carriers, ...] = ()

    @property
    def is_in_one_host(self) -> bool:
        """Whether all members must be in one host."""
        return self.same in ("host", "whole")

    def carriers_of(self, request: PlacementRequest, *, when_empty: bool) -> tuple[Option, ...]:
        """Return the carriers on which a resource could be built for a request."""
        if request.carriers is None:
            return ()
        found = self.carriers[request.carriers]
        return found.ever if when_empty else found.free


def rule_of(group_id: int) -> Rule:
    """Return the rule of a group, with the resources that its members hold now."""
    same, different, near = rows("SELECT same, different, near FROM leases_leasegroup WHERE id = %s", (group_id,))[0]
    held = rows(
        "SELECT r.id, r.part_of_id, r.locality FROM leases_lease l JOIN leases_resource r ON r.id = l.resource_id"
        " WHERE l.group_id = %s AND l.state IN ('acquired', 'active')",
        (group_id,),
    )
    there = tuple(Option(resource_id=i, parent_id=p, free={}, locality=tuple(where)) for i, p, where in held)
    return Rule(same=same, different=different, near=near, held=there)


def narrowed(requests: list[PlacementRequest], rule: Rule) -> list[PlacementRequest]:
    """Return the members' requests, each restricted to resources that are compatible with the group's rule.

    If all members must share one resource, each request asks for the total amount of all members.
    """
    if rule.same == "resource":
        requests = _on_one(requests)
    if rule.held and rule.same == "resource":
        return [replace(placement, only_resources=(rule.held[0].resource_id,)) for placement in requests]
    if rule.held and rule.same == "parent":
        return [replace(placement, only_parents=(rule.held[0].parent_id or 0,)) for placement in requests]
    return requests


def _on_one(requests: list[PlacementRequest]) -> list[PlacementRequest]:
    """Return the requests, each with the total amounts and with the constraints of the other requests."""
    whole = total(requests)
    kinds: list[PlacementRequest] = []
    for placement in requests:
        kind = replace(placement, amounts=whole, lease_id=None, avoided=())
        if kind not in kinds:
            kinds.append(kind)
    also = tuple(kinds) if len(kinds) > 1 else ()
    return [replace(placement, amounts=whole, also=also) for placement in requests]


def total(requests: Iterable[PlacementRequest]) -> Amounts:
    """Return the sum of the requested amounts."""
    amounts: Counter[str] = Counter()
    extra: Counter[str] = Counter()
    for placement in requests:
        amounts.update({name: getattr(placement.amounts, name) for name in CLASSES})
        extra.update(placement.amounts.extra)
    return Amounts(**amounts, extra=dict(extra))


def options_for(placement: PlacementRequest, *, limit: int | None = None, when_empty: bool = False) -> list[Option]:
    """Return the resources that a member could use now, starting with those reserved for its group. Locks nothing.

    Returns at most `limit` resources, by default the candidate limit of the installation. If `when_empty` is true,
    returns the resources that the member could use if nothing were leased.
    """
    room = suits(placement) & _IN_SERVICE if when_empty else has_room(placement)
    free = ", ".join(f"r.total_{name}" if when_empty else f"r.total_{name} - r.used_{name}" for name in CLASSES)
    worse = "r.health <> 'ok', " if placement.may_be_degraded or when_empty else ""
    extra_free = "c.total" if when_empty else "c.total - c.used"
    sql = f"""
        SELECT r.id, r.part_of_id, r.reserved_for_id IS NOT NULL, r.health <> 'ok', r.locality, {free},
            (SELECT json_object_agg(c.name, {extra_free}) FROM leases_capacity c WHERE c.resource_id = r.id)
        FROM leases_resource r WHERE {room.text}
        ORDER BY r.reserved_for_id IS NULL, {worse}r.id LIMIT {limit or settings.DRYDOCK.candidate_limit}"""
    return [
        Option(
            resource_id=i, parent_id=p, reserved=reserved, degraded=degraded, locality=tuple(where),
            free=dict(zip(CLASSES, free, strict=True)) | (read_json(extra) or {}),
        )
        for i, p, reserved, degraded, where, *free, extra in rows(sql, room.params)
    ]  # fmt: skip


_IN_SERVICE = Sql("r.state IN ('pending', 'active') AND NOT r.drained AND NOT r.quarantined")


_STEPS = 20_000


def assign(
    options: list[list[Option]], requests: list[PlacementRequest], rule: Rule, budget: list[int] | None = None
) -> list[Option] | None:
    """Assign a resource to every pending member by the group's rule. Return None if that is impossible.

    A pure function that runs a bounded depth-first search. Successive members with the same list of options have equal
    requests. To skip equivalent assignments, the second of them gets the same option as the first or a later one.
    Several searches can share one `budget` of steps.
    """
    budget = [_STEPS] if budget is None else budget

    def extend(chosen: list[Option], start: int) -> list[Option] | None:
        member = len(chosen)
        if member == len(options):
            return chosen
        if not member or options[member] is not options[member - 1]:
            start = 0
        for n, option in enumerate(options[member][start:], start):
            budget[0] -= 1
            if budget[0] < 0:
                return None
            if goes(option, requests[member], chosen, requests, rule):
                found = extend([*chosen, option], n)
                if found is not None:
                    return found
        return None

    return extend([], 0)


def goes(
    option: Option, placement: PlacementRequest, chosen: Sequence[Option], requests: Sequence[PlacementRequest],
    rule: Rule,
) -> bool:  # fmt: skip
    """Return whether a member with the request `placement` may be assigned to `option`.

    `chosen` contains the resources to which the members with `requests` are already assigned.

    The group's rule must permit the assignment, and the resource must have room for all members that are assigned to
    the resource.
    """
    there = [one for one in chosen if one.resource_id == option.resource_id]
    if any(one.is_carrier for one in (option, *there)):
        return not there and _keeps(option, [*rule.held, *chosen], rule)
    beside = [asked for asked, one in zip(requests, chosen, strict=False) if one.resource_id == option.resource_id]
    return _keeps(option, [*rule.held, *chosen], rule) and _has_room_beside(option, placement, beside)


def _keeps(option: Option, chosen: list[Option], rule: Rule) -> bool:
    def of(what: str, one: Option) -> int | None:
        return one.parent_id if what == "parent" else one.resource_id

    if (
        rule.same in ("resource", "parent")
        and chosen
        and (of(rule.same, option) is None or of(rule.same, option) != of(rule.same, chosen[0]))
    ):
        return False
    return not rule.different or of(rule.different, option) not in {of(rule.different, one) for one in chosen}


def _has_room_beside(option: Option, own: PlacementRequest, beside: list[PlacementRequest]) -> bool:
    if beside and (own.exclusive or any(placement.exclusive for placement in beside)):
        return False
    needed = total([own, *beside])
    asked = {name: getattr(needed, name) for name in CLASSES} | dict(needed.extra)
    return all(amount <= option.free.get(name, 0) for name, amount in asked.items())


def fitting(request: PlacementRequest, options: Sequence[Option]) -> int:
    """Return how many members with this request fit on these resources."""
    return sum(_times(request, one) for one in options)


def _times(request: PlacementRequest, option: Option) -> int:
    if request.exclusive or option.is_carrier:
        return 1
    asked = {name: getattr(request.amounts, name) for name in CLASSES} | dict(request.amounts.extra)
    return min((option.free.get(name, 0) // amount for name, amount in asked.items() if amount), default=0)


@dataclass(frozen=True, kw_only=True, order=True)
class Vicinity:
    """A place in a host that has enough resources for every member. Vicinities are ordered, the narrowest first."""

    farness: int
    """The farness of resources that share this place, and none that is narrower. -1 if it is one resource."""
    room: int
    """How many members would find room. Of two places at one level, the one with less room is used first."""
    name: str


def vicinities(options: list[list[Option]], requests: list[PlacementRequest], rule: Rule) -> list[Vicinity]:
    """Return the places in a host that have enough resources for every member, the narrowest first.

    Counts only, so that it is cheap: members that ask for different things may still compete for one resource. A
    resource that is not a device, such as the host itself, counts as if it were in every place.
    """
    kinds = {id(one): n for n, one in enumerate(options)}
    wanted = Counter(map(id, options))
    anywhere = Counter[int]()
    found: dict[tuple[int, str], Counter[int]] = {}
    for key, n in kinds.items():
        for option in options[n]:
            times = _times(requests[n], option)
            if not option.is_device:
                anywhere[key] += times
            for where in option.within:
                found.setdefault(where, Counter())[key] += times
    held = [one.within for one in rule.held if one.is_device]
    return sorted(
        Vicinity(farness=LEVELS - level, room=room.total(), name=name)
        for (level, name), room in found.items()
        if all(room[key] + anywhere[key] >= n for key, n in wanted.items())
        and all((level, name) in one for one in held)
    )  # fmt: skip


def nearest(
    options: list[list[Option]], requests: list[PlacementRequest], rule: Rule, found: Sequence[Vicinity]
) -> list[Option] | None:
    """Assign resources of one host to all members, with the shortest possible distance between the devices.

    `found` is the result of `vicinities` for `options`. If the rule is `require`, returns None if the devices share no
    place or the position of one device is not known.

    A pure function. The devices of a set share a place exactly if all of them are in it, so one assignment is tried
    for each place, instead of one for each set. If every resource has room for one member, an assignment is found or
    ruled out in polynomial time; otherwise by a bounded search.
    """
    budget = [_STEPS]
    for one in found:
        chosen = _assign_within(options, requests, rule, (LEVELS - one.farness, one.name), budget)
        if chosen is not None:
            return chosen
    chosen = _assign_within(options, requests, rule, None, budget)
    apart = None if chosen is None else distance_between(chosen, rule)
    return None if rule.near == "require" and apart is not None and not apart.place else chosen


def distance_between(chosen: Sequence[Option], rule: Rule) -> Distance | None:
    """Return the distance between the devices of a group, or None if the group has fewer than two devices."""
    devices = {one.resource_id: one.locality for one in (*rule.held, *chosen) if one.is_device}
    return localities.distance(devices.values()) if len(devices) > 1 else None


def _assign_within(
    options: list[list[Option]], requests: list[PlacementRequest], rule: Rule, where: tuple[int, str] | None,
    budget: list[int],
) -> list[Option] | None:  # fmt: skip
    """Assign resources in one place, or anywhere in the host if `where` is None.

    Options are tried in the order of their positions, so that the devices are near one another within the place too.
    Degraded ones come last.
    """
    kinds: dict[int, list[Option]] = {}
    for request, one in zip(requests, options, strict=True):
        if id(one) not in kinds:
            inside = [option for option in one if _is_within(option, where) and _times(request, option)]
            kinds[id(one)] = sorted(inside, key=lambda option: (option.degraded, option.locality))
    within = [kinds[id(one)] for one in options]
    if rule.different or not _one_each(within, requests):
        return assign(within, requests, rule, budget)
    return _match(within)


def _is_within(option: Option, where: tuple[int, str] | None) -> bool:
    return where is None or not option.is_device or where in option.within


def _one_each(options: list[list[Option]], requests: list[PlacementRequest]) -> bool:
    """Return whether no resource has room for two of the members that could use it."""
    slots: dict[int, list[int]] = {}
    free: dict[int, int] = {}
    for request, one in zip(requests, options, strict=True):
        for option in one if not request.exclusive else ():
            slots.setdefault(option.resource_id, []).append(request.amounts.slots)
            free[option.resource_id] = option.free["slots"]
    return all(len(found) < 2 or sum(sorted(found)[:2]) > free[pk] for pk, found in slots.items())


def _match(options: list[list[Option]]) -> list[Option] | None:
    """Assign a resource of its own to each member, by augmenting paths. Return None if that is impossible."""
    chosen: dict[int, tuple[int, Option]] = {}

    def give(member: int, seen: set[int]) -> bool:
        there = [option for option in options[member] if option.resource_id not in seen]
        free = next((option for option in there if option.resource_id not in chosen), None)
        if free is not None:
            chosen[free.resource_id] = member, free
            return True
        for option in there:
            if option.resource_id not in seen:
                seen.add(option.resource_id)
                if give(chosen[option.resource_id][0], seen):
                    chosen[option.resource_id] = member, option
                    return True
        return False

    if not all(give(member, set()) for member in range(len(options))):
        return None
    return [option for _, option in sorted(chosen.values(), key=lambda one: one[0])]
