"""Assign the members of a group to resources: to the same one, below the same parent, or to different ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from django.conf import settings

from blueprints.amounts import CLASSES, Amounts
from leases.engine.core.database import rows
from leases.engine.placement.constraints import PlacementRequest, has_room
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
        """The whole free capacity of the resource, which an exclusive member takes."""
        extra = {name: amount for name, amount in self.free.items() if name not in CLASSES}
        return Amounts(**{name: self.free[name] for name in CLASSES}, extra=extra)


@dataclass(frozen=True, kw_only=True)
class Rule:
    """What the members of a group must share (`same`) or must not share (`different`): a resource or a parent.

    `held` has the resources that are already assigned to members.
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
    """Return the members' requests, restricted so that each resource they allow meets the group's rule.

    If all members must share one resource, each request asks for the amounts of all members.
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


def places(placement: PlacementRequest) -> list[Place]:
    """Return the resources that a member could use now, starting with those reserved for its group. Locks nothing."""
    room = has_room(placement)
    sql = f"""
        SELECT r.id, r.part_of_id, r.reserved_for_id IS NOT NULL, r.total_slots - r.used_slots,
            r.total_cpu_millicores - r.used_cpu_millicores, r.total_ram_mib - r.used_ram_mib,
            r.total_disk_mib - r.used_disk_mib,
            (SELECT json_object_agg(c.name, c.total - c.used) FROM leases_capacity c WHERE c.resource_id = r.id)
        FROM leases_resource r WHERE {room.text}
        ORDER BY r.reserved_for_id IS NULL, r.id LIMIT {settings.DRYDOCK.candidate_limit}"""
    return [
        Place(
            resource_id=i, parent_id=p, reserved=reserved,
            free=dict(zip(CLASSES, free, strict=True)) | (read_json(extra) or {}),
        )
        for i, p, reserved, *free, extra in rows(sql, room.params)
    ]  # fmt: skip


_STEPS = 20_000


def assign(options: list[list[Place]], requests: list[PlacementRequest], rule: Rule) -> list[Place] | None:
    """Assign a resource to every pending member by the group's rule. Return None if that is impossible.

    A pure function that runs a bounded depth-first search.
    """
    budget = [_STEPS]

    def extend(chosen: list[Place]) -> list[Place] | None:
        if len(chosen) == len(options):
            return chosen
        for place in options[len(chosen)]:
            budget[0] -= 1
            if budget[0] < 0:
                return None
            if goes(place, requests[len(chosen)], chosen, requests, rule):
                found = extend([*chosen, place])
                if found is not None:
                    return found
        return None

    return extend([])


def goes(
    place: Place, placement: PlacementRequest, chosen: Sequence[Place], requests: Sequence[PlacementRequest], rule: Rule
) -> bool:  # fmt: skip
    """Return whether a member may take `place`, after the members with `requests` have taken `chosen`."""
    beside = [asked for asked, one in zip(requests, chosen, strict=False) if one.resource_id == place.resource_id]
    return _keeps(place, [*rule.held, *chosen], rule) and _has_room_beside(place, placement, beside)


def _keeps(place: Place, chosen: list[Place], rule: Rule) -> bool:
    def of(what: str, one: Place) -> int | None:
        return one.parent_id if what == "parent" else one.resource_id

    if rule.same and chosen and (of(rule.same, place) is None or of(rule.same, place) != of(rule.same, chosen[0])):
        return False
    return not rule.different or of(rule.different, place) not in {of(rule.different, one) for one in chosen}


def _has_room_beside(place: Place, own: PlacementRequest, beside: list[PlacementRequest]) -> bool:
    if beside and (own.exclusive or any(placement.exclusive for placement in beside)):
        return False
    needed = total([own, *beside])
    asked = {name: getattr(needed, name) for name in CLASSES} | dict(needed.extra)
    return all(amount <= place.free.get(name, 0) for name, amount in asked.items())
