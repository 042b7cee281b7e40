"""Assign the members of a group to the same resource, to parts of one parent or host, or to different resources."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from django.conf import settings

from blueprints.amounts import CLASSES, Amounts
from leases.engine.core.database import rows
from leases.engine.placement.constraints import PlacementRequest, Sql, has_room, suits
from leases.engine.placement.pending import read_json


@dataclass(frozen=True, kw_only=True)
class Place:
    """A resource that a member could be assigned to."""

    resource_id: int
    parent_id: int | None
    free: Mapping[str, int]
    reserved: bool = False
    """True if the resource is already reserved for the group."""

    @property
    def whole(self) -> Amounts:
        """All free capacity of the resource, which an exclusive member takes."""
        extra = {name: amount for name, amount in self.free.items() if name not in CLASSES}
        return Amounts(**{name: self.free[name] for name in CLASSES}, extra=extra)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """The rule of a group: its members must share (`same`) or must not share (`different`) a resource or a parent.

    `same` can also be `host`: every member's resource is the same topmost host or a resource below it. `held` contains
    the resources that are already assigned to members.
    """

    same: str = ""
    different: str = ""
    held: tuple[Place, ...] = ()


def rule_of(group_id: int) -> Rule:
    """Return the rule of a group, with the resources that its members hold now."""
    same, different = rows("SELECT same, different FROM leases_leasegroup WHERE id = %s", (group_id,))[0]
    held = rows(
        "SELECT r.id, r.part_of_id FROM leases_lease l JOIN leases_resource r ON r.id = l.resource_id"
        " WHERE l.group_id = %s AND l.state IN ('acquired', 'active')",
        (group_id,),
    )
    return Rule(same=same, different=different, held=tuple(Place(resource_id=i, parent_id=p, free={}) for i, p in held))


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


def places(placement: PlacementRequest, *, limit: int | None = None, when_empty: bool = False) -> list[Place]:
    """Return the resources that a member could use now, starting with those reserved for its group. Locks nothing.

    Returns at most `limit` resources, by default the candidate limit of the installation. If `when_empty` is true,
    returns the resources that the member could use if nothing were leased.
    """
    room = suits(placement) & _IN_SERVICE if when_empty else has_room(placement)
    free = ", ".join(f"r.total_{name}" if when_empty else f"r.total_{name} - r.used_{name}" for name in CLASSES)
    extra_free = "c.total" if when_empty else "c.total - c.used"
    sql = f"""
        SELECT r.id, r.part_of_id, r.reserved_for_id IS NOT NULL, {free},
            (SELECT json_object_agg(c.name, {extra_free}) FROM leases_capacity c WHERE c.resource_id = r.id)
        FROM leases_resource r WHERE {room.text}
        ORDER BY r.reserved_for_id IS NULL, r.id LIMIT {limit or settings.DRYDOCK.candidate_limit}"""
    return [
        Place(
            resource_id=i, parent_id=p, reserved=reserved,
            free=dict(zip(CLASSES, free, strict=True)) | (read_json(extra) or {}),
        )
        for i, p, reserved, *free, extra in rows(sql, room.params)
    ]  # fmt: skip


_IN_SERVICE = Sql("r.state IN ('pending', 'active') AND NOT r.drained AND NOT r.quarantined")


_STEPS = 20_000


def assign(options: list[list[Place]], requests: list[PlacementRequest], rule: Rule) -> list[Place] | None:
    """Assign a resource to every pending member by the group's rule. Return None if that is impossible.

    A pure function that runs a bounded depth-first search. Successive members with the same list of options have equal
    requests. To skip equivalent assignments, the second of them gets the same option as the first or a later one.
    """
    budget = [_STEPS]

    def extend(chosen: list[Place], start: int) -> list[Place] | None:
        member = len(chosen)
        if member == len(options):
            return chosen
        if not member or options[member] is not options[member - 1]:
            start = 0
        for n, place in enumerate(options[member][start:], start):
            budget[0] -= 1
            if budget[0] < 0:
                return None
            if goes(place, requests[member], chosen, requests, rule):
                found = extend([*chosen, place], n)
                if found is not None:
                    return found
        return None

    return extend([], 0)


def goes(
    place: Place, placement: PlacementRequest, chosen: Sequence[Place], requests: Sequence[PlacementRequest], rule: Rule
) -> bool:  # fmt: skip
    """Return whether a member may be assigned to `place` if the members with `requests` are assigned to `chosen`.

    The group's rule must permit it, and the resource must have room for all members that are assigned to it.
    """
    beside = [asked for asked, one in zip(requests, chosen, strict=False) if one.resource_id == place.resource_id]
    return _keeps(place, [*rule.held, *chosen], rule) and _has_room_beside(place, placement, beside)


def _keeps(place: Place, chosen: list[Place], rule: Rule) -> bool:
    def of(what: str, one: Place) -> int | None:
        return one.parent_id if what == "parent" else one.resource_id

    if (
        rule.same in ("resource", "parent")
        and chosen
        and (of(rule.same, place) is None or of(rule.same, place) != of(rule.same, chosen[0]))
    ):
        return False
    return not rule.different or of(rule.different, place) not in {of(rule.different, one) for one in chosen}


def _has_room_beside(place: Place, own: PlacementRequest, beside: list[PlacementRequest]) -> bool:
    if beside and (own.exclusive or any(placement.exclusive for placement in beside)):
        return False
    needed = total([own, *beside])
    asked = {name: getattr(needed, name) for name in CLASSES} | dict(needed.extra)
    return all(amount <= place.free.get(name, 0) for name, amount in asked.items())
