"""What a resource turns out to have once it is there: attributes, capacity, parts, the end of its life."""

from __future__ import annotations

from collections.abc import Sequence

from blueprints import parts as specs
from blueprints.amounts import CLASSES, Amounts
from blueprints.answers import Ready
from leases import hints
from leases.engine.transaction import rows
from leases.engine.transitions import note
from leases.models import Capacity, Part, Resource


def amend(resource_id: int, answer: Ready) -> None:
    """Write what a step found out about a resource. Inside the transaction that applies its answer.

    A capacity that shrinks below what is used only stops growth; nobody's share is taken away.
    """
    resource = Resource.objects.get(pk=resource_id)
    columns: dict[str, object] = {}
    if answer.attributes:
        columns["attributes"] = {**resource.attributes, **answer.attributes}
    if answer.traits is not None:
        columns["traits"] = sorted(answer.traits)
    if answer.capacity is not None:
        columns |= {f"total_{name}": getattr(answer.capacity, name) for name in CLASSES}
        set_further(resource_id, answer.capacity)
    if answer.dies_at is not None:
        columns["dies_at"] = min(filter(None, (resource.dies_at, answer.dies_at)))
    if columns:
        Resource.objects.filter(pk=resource_id).update(**columns)
    if answer.parts and set_parts(resource_id, answer.parts):
        hints.after_commit("serve", resource.type)


def set_further(resource_id: int, capacity: Amounts) -> None:
    """The totals of the further classes of capacity."""
    for name, total in capacity.extra.items():
        Capacity.objects.update_or_create(resource_id=resource_id, name=name, defaults={"total": total})


def set_parts(resource_id: int, parts: Sequence[specs.Part], *, whole: bool = False) -> bool:
    """The named parts that are there, and their states; True when one came back to be had.

    Those of the same classes (`whole`: of any class) that are not named stay as missing, since a lease may hold them.
    """
    known = {(part.part_class, part.identity): part for part in Part.objects.filter(resource_id=resource_id)}
    for part in parts:
        _set_part(resource_id, known.pop((part.part_class, part.identity), None), part)
    classes = {part.part_class for part in parts}
    for gone in known.values():
        if (whole or gone.part_class in classes) and gone.state != "missing":
            _tell(gone, "missing")
            Part.objects.filter(pk=gone.pk).update(state="missing")
            classes.add(gone.part_class)
    return sum(_count(resource_id, name) for name in sorted(classes)) > 0


def _set_part(resource_id: int, known: Part | None, part: specs.Part) -> None:
    if known is None:
        Part.objects.create(
            resource_id=resource_id, part_class=part.part_class, identity=part.identity,
            attributes=part.attributes, state=part.state,
        )  # fmt: skip
        return
    if known.state != part.state:
        _tell(known, part.state)
    if (known.attributes, known.state) != (part.attributes, part.state):
        Part.objects.filter(pk=known.pk).update(attributes=part.attributes, state=part.state)


def _tell(part: Part, state: str) -> None:
    """An event for the resource, and for the lease that holds the part."""
    message = f"{part.part_class} {part.identity} was {part.state} and is {state}."
    holder = rows("SELECT lease_id FROM leases_slotlock WHERE key = %s", (part_lock(part.resource_id, part),))
    note("resource.part", message, resource_id=part.resource_id, lease_id=holder[0][0] if holder else None)


def part_lock(resource_id: int, part: Part) -> str:
    """The key of the slot lock on a part."""
    return f"{part_scope(resource_id, part.part_class)}/{part.identity}"[:255]


def part_scope(resource_id: int, part_class: str) -> str:
    """The scope of the slot locks on the parts of one class."""
    return f"{part_class} of resource {resource_id}"


def _count(resource_id: int, part_class: str) -> bool:
    """A class of capacity that is named like the parts is as many as are well; True when it grew."""
    grown = rows(
        "UPDATE leases_capacity c SET total = w.n FROM leases_capacity o, (SELECT count(*) AS n FROM leases_part p"
        " WHERE p.resource_id = %s AND p.part_class = %s AND p.state = 'ok') w"
        " WHERE o.id = c.id AND c.resource_id = %s AND c.name = %s AND c.total <> w.n RETURNING w.n > o.total",
        (resource_id, part_class, resource_id, part_class),
    )
    return any(more for (more,) in grown)
