"""The requirements of a pending lease as a frozen `PlacementRequest`, and the SQL that finds matching resources.

If an attribute must equal a value or be in a list or set, a second condition says that `attributes` contains the value.
That does not change the result, but lets PostgreSQL use an index. Attributes that are compared as numbers have an index
each.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from blueprints import registry
from blueprints.amounts import CLASSES, Amounts
from blueprints.matching import Match
from leases.engine.core.database import rows, run
from leases.owners import membership


@dataclass(frozen=True)
class Sql:
    """A piece of SQL with its parameters."""

    text: str
    params: tuple[Any, ...] = ()

    def __and__(self, other: Sql) -> Sql:
        return Sql(f"{self.text} AND {other.text}", self.params + other.params)


def matches(match: Match, value: Any) -> Sql:
    """Return an SQL condition that is true if an attribute of resource `r` meets the requirement.

    It is equivalent to `matching.misses` in Python.
    """
    has = f"r.attributes -> '{_attribute(match.attribute)}'"
    return _OPERATORS[match.operator](has, match.attribute, value)


def _equal(has: str, name: str, value: Any) -> Sql:
    params = (json.dumps({name: value}), json.dumps(value))
    return Sql(f"r.attributes @> %s::jsonb AND {has} = %s::jsonb", params)


def _compared(operator: str) -> Callable[[str, str, Any], Sql]:
    path = f'strict $ ? (@.type() == "number" && @ {operator} $v)'

    def compare(has: str, name: str, value: Any) -> Sql:
        if isinstance(value, bool) or not isinstance(value, int | float):
            return Sql("FALSE")
        known = Sql(f"r.attributes ? '{name}' AND {has} {operator} %s::jsonb", (json.dumps(value),))
        return known & Sql(f"jsonb_path_exists({has}, %s, %s::jsonb, TRUE)", (path, json.dumps({"v": value})))

    return compare


def _one_of(has: str, name: str, value: Any) -> Sql:
    listed = [one for one in value if one is not None] if isinstance(value, list) else []
    if not listed:
        return Sql("FALSE")
    by_index = " OR ".join("r.attributes @> %s::jsonb" for _ in listed)
    params = (*(json.dumps({name: one}) for one in listed), [json.dumps(one) for one in listed])
    return Sql(f"({by_index}) AND {has} = ANY(%s::jsonb[])", params)


def _contains(has: str, name: str, value: Any) -> Sql:
    return _contains_all(has, name, [value])


def _contains_all(has: str, name: str, value: Any) -> Sql:
    if not isinstance(value, list):
        return Sql("FALSE")
    found = Sql("TRUE")
    by_index = Sql("r.attributes @> %s::jsonb", (json.dumps({name: value}),))
    for one in value:
        found &= Sql(f"EXISTS (SELECT FROM jsonb_array_elements({has}) x WHERE x = %s::jsonb)", (json.dumps(one),))
    is_list = f"CASE WHEN jsonb_typeof({has}) = 'array' THEN {found.text} ELSE FALSE END"
    return by_index & Sql(is_list, found.params)


_OPERATORS: dict[str, Callable[[str, str, Any], Sql]] = {
    "=": _equal,
    ">=": _compared(">="),
    "<=": _compared("<="),
    "in": _one_of,
    "contains": _contains,
    "contains_all": _contains_all,
}


@lru_cache(maxsize=1024)
def _attribute(name: str) -> str:
    if not name.isidentifier():
        raise ValueError(f"{name!r} is not a valid attribute name")
    return name


def index_numbers() -> None:
    """Create an index for every attribute that an installed kind compares as a number. Called after migrations."""
    if rows("SELECT 1 WHERE to_regclass('leases_resource') IS NULL"):
        return
    for name in sorted(_numbers()):
        index, value = f"resource_number_{_attribute(name)}", f"(attributes -> '{name}')"
        run(
            f"CREATE INDEX IF NOT EXISTS {index} ON leases_resource (type, {value})"
            f" WHERE claimable AND attributes ? '{name}'"
        )
        # The planner takes no statistics from a partial index; without statistics it would read the whole table.
        run(f"CREATE STATISTICS IF NOT EXISTS {index}_known ON {value} FROM leases_resource")


def _numbers() -> set[str]:
    kinds = [registry.kind(name) for kind in registry.resource_types() for name in registry.kinds_of_type(kind)]
    return {match.attribute for kind in kinds for match in kind.matches if match.operator in (">=", "<=")}


TINY = 1e-6
"""An amount in US dollars that does not count as exceeding a budget, because sums of prices are inexact."""


@dataclass(frozen=True, kw_only=True)
class PlacementRequest:
    """Everything about a lease that determines which resources could serve it."""

    type: str
    requirements: Mapping[str, Any] = field(default_factory=dict)
    amounts: Amounts = field(default_factory=Amounts)
    exclusive: bool = False
    traits: tuple[str, ...] = ()
    forbidden_traits: tuple[str, ...] = ()
    preferred_traits: tuple[str, ...] = ()
    allowed_blueprints: tuple[int, ...] | None = None
    excluded_blueprints: tuple[int, ...] = ()
    avoided: tuple[int, ...] = ()
    """Resources that failed this lease before; used only if no other resource is suitable."""
    may_be_degraded: bool = False
    """Whether degraded resources may be used too: only if no healthy one has room and none can be built."""
    must_be_built: bool = False
    """Whether resources that are still being built are excluded."""
    owner_id: int | None = None
    """The id of the owner; None if every blueprint of the type serves every owner."""
    until: Any = None
    """The latest time at which the lease ends, or None."""
    ttl: Any = None
    """The duration of the lease, or None."""
    lease_id: int | None = None
    group: tuple[int, ...] = ()
    """The leases in its group. A reservation for one of them may serve any of them."""
    within: tuple[int, ...] = ()
    """Resources that related leases hold or have reserved, and the resources that contain them.

    Related leases are the others in its group, and leases that the same holder needs. Their parts and wholes are not
    excluded by the search. `claims` decides whether the related leases permit the placement.
    """
    related: tuple[int, ...] = ()
    """The lease's root and the others in the group of that. What they have reserved does not exclude its parts."""
    at_most: Amounts | None = None
    """The largest resource that an exclusive lease may take."""
    at_most_price: float | None = None
    """Maximum hourly cost of the lease's share in US dollars. Excludes resources without a known price."""
    only_resources: tuple[int, ...] | None = None
    not_resources: tuple[int, ...] = ()
    only_parents: tuple[int, ...] | None = None
    not_parents: tuple[int, ...] = ()
    choose: str = ""
    """The rule for choosing between blueprints that could build. If empty, the default of the installation is used."""
    beside_idle: bool = False
    """Whether idle resources that are built on devices may stand below a resource that the request takes whole."""
    also: tuple[PlacementRequest, ...] = ()
    """Constraints of other leases in the group that must share the resource."""
    carriers: int | None = None
    """Index of `Rule.carriers`, if a resource could be built for the request on one of these; otherwise None."""

    @property
    def holders(self) -> tuple[int, ...]:
        """The ids of the lease and its group's other leases. The request may use what is reserved for any of these."""
        return self.group or ((self.lease_id,) if self.lease_id is not None else ())


def suits(placement: PlacementRequest) -> Sql:
    """Return an SQL condition that is true if resource `r` could serve the request once it is empty."""
    found = (
        Sql("r.type = %s", (placement.type,))
        & _in_blueprints(placement)
        & _kinds(placement)
        & _traits(placement)
        & _totals(placement)
        & _life(placement)
        & _places(placement)
        & _price(placement)
    )
    for other in placement.also:
        found &= suits(other)
    return found


def held(placement: PlacementRequest) -> Sql:
    """Return SQL that keeps only those leases `h` whose resource could serve the request.

    Looks up each resource by its id. OFFSET keeps the subquery separate. Otherwise the planner would scan all
    resources, expecting to find the few held ones early in the scan.
    """
    fit = suits(placement)
    return Sql(
        f"CROSS JOIN LATERAL (SELECT FROM leases_resource r WHERE r.id = h.resource_id AND {fit.text} OFFSET 0) held",
        fit.params,
    )


def has_room(placement: PlacementRequest) -> Sql:
    """Return an SQL condition that is true if resource `r` can serve the request now."""
    return suits(placement) & is_free(placement)


def is_free(placement: PlacementRequest) -> Sql:
    """Return those conditions of `has_room` that can change at any time and are checked again on locked rows."""
    reserved = Sql("(r.reserved_for_id IS NULL OR r.reserved_for_id = ANY(%s))", (list(placement.holders),))
    built = Sql("r.state = 'active'") if placement.must_be_built else Sql("TRUE")
    return (
        Sql("r.claimable AND NOT r.held_alone AND r.suspect_since IS NULL")
        & built
        & _is_healthy(placement)
        & _is_open(placement)
        & reserved
        & _free(placement)
        & _is_free_below(placement)
    )


def _is_healthy(placement: PlacementRequest) -> Sql:
    """Return an SQL condition that excludes failed resources, and degraded ones unless they are the last resort.

    The literal lets the planner use the index of healthy resources, so that many degraded ones cost nothing.
    """
    return Sql("r.health <> 'failed'") if placement.may_be_degraded else Sql("r.health = 'ok'")


def _is_open(placement: PlacementRequest) -> Sql:
    """Return an SQL condition that is true unless something above the resource is closed to the request.

    The literal array lets the planner use the index of open resources.
    """
    if placement.within:
        return Sql("r.closed_by <@ %s::bigint[]", (list(placement.within),))
    return Sql("r.closed_by = '{}'")


def _is_free_below(placement: PlacementRequest) -> Sql:
    """Return an SQL condition that is true unless the request takes the whole resource, and something below is in use.

    `busy_below` also counts the leases of idle resources on their carriers, which do not prevent the lease. They are
    looked at for groups in one host only, because these may include such a resource, and because no index knows them.
    """
    condition, whole = Sql("r.busy_below = 0"), takes_all(placement)
    if placement.within:
        condition = Sql("(r.busy_below = 0 OR r.id = ANY(%s))", (list(placement.within),))
    found = Sql(f"({condition.text} OR NOT ({whole.text}))", condition.params + whole.params)
    if placement.beside_idle:
        return Sql(f"({found.text} OR ({_CARRIES} AND drydock_obstacle(r.id, TRUE) IS NULL))", found.params)
    return found


_CARRIES = "EXISTS (SELECT FROM leases_resource c WHERE c.part_of_id = r.id AND c.child_count > 0)"
"""False if no device of resource `r` carries anything. Saves most hosts the search for what stands below them."""


def takes_all(placement: PlacementRequest) -> Sql:
    """Return an SQL condition that is true if the lease would hold resource `r` whole, and so everything below it."""
    return Sql("TRUE") if placement.exclusive else Sql("r.total_slots <= %s", (placement.amounts.slots,))


def is_obstructed(placement: PlacementRequest) -> Sql:
    """Return an SQL condition that is true if a resource above or below `r` prevents a lease on `r`."""
    whole = takes_all(placement)
    return Sql(f"(r.closed_by <> '{{}}' OR (r.busy_below > 0 AND {whole.text}))", whole.params)


def _in_blueprints(placement: PlacementRequest) -> Sql:
    """Return a redundant condition on the allowed blueprints, by id.

    It tells the planner how many resources these blueprints have, so that only those are read if the type's other
    blueprints have many. A resource that is claimable or suitable is not gone.
    """
    if placement.allowed_blueprints is None:
        return Sql("TRUE")
    return Sql("r.blueprint_id = ANY(%s) AND r.gone_at IS NULL", (list(placement.allowed_blueprints),))


def _blueprints(placement: PlacementRequest) -> Sql:
    found = Sql("b.enabled AND NOT b.drained") & allowed(placement)
    if placement.allowed_blueprints is not None:
        found &= Sql("b.id = ANY(%s)", (list(placement.allowed_blueprints),))
    if placement.excluded_blueprints:
        found &= Sql("b.id <> ALL(%s)", (list(placement.excluded_blueprints),))
    return found


def allowed(placement: PlacementRequest) -> Sql:
    """Return an SQL condition that is true if the owner of the request may use blueprint `b`.

    Requests without an owner are the installation's own, and may use every blueprint.
    """
    return Sql("TRUE") if placement.owner_id is None else serves(placement.owner_id)


def serves(owner_id: int) -> Sql:
    """Return an SQL condition that is true if the user `owner_id` may use blueprint `b`."""
    table, user = membership()
    return Sql(
        "(b.audience = 'everyone' OR EXISTS (SELECT FROM leases_authorization a WHERE a.blueprint_id = b.id"
        " AND a.state = 'authorized' AND (a.user_id = %s OR a.group_id IN"
        f" (SELECT g.group_id FROM {table} g WHERE g.{user} = %s))))",
        (owner_id, owner_id),
    )


def _kinds(placement: PlacementRequest) -> Sql:
    """Return a condition for each kind on the ids of its blueprints and on the attributes that it matches.

    A kind that does not know a requirement cannot serve the request. The blueprints are read first, as a list of
    ids: the planner has no statistics on a table of a few rows, and expects so few results from a join with it that
    it would read all resources instead of the first ones.
    """
    asked = {name: value for name, value in placement.requirements.items() if value is not None}
    installed = registry.kinds_of_type(placement.type)
    if not asked:
        return _of_kinds(placement, installed)
    known = [piece for name in installed if (piece := _kind(placement, name, asked)) is not None]
    if not known:
        return Sql("FALSE")
    return Sql("(" + " OR ".join(p.text for p in known) + ")", tuple(x for p in known for x in p.params))


def _kind(placement: PlacementRequest, name: str, asked: Mapping[str, Any]) -> Sql | None:
    kind = registry.kind(name)
    if not asked.keys() <= kind.Requirements.model_fields.keys():
        return None
    found = _of_kinds(placement, (name,))
    for match in kind.matches:
        if match.requirement in asked:
            found &= matches(match, asked[match.requirement])
    return Sql(f"({found.text})", found.params)


def _of_kinds(placement: PlacementRequest, kinds: Sequence[str]) -> Sql:
    serving = _blueprints(placement) & Sql("b.kind = ANY(%s)", (list(kinds),))
    return Sql(
        f"r.blueprint_id = ANY(ARRAY(SELECT b.id FROM blueprints_blueprint b WHERE {serving.text}))", serving.params
    )


def _traits(placement: PlacementRequest) -> Sql:
    found = Sql("TRUE")
    if placement.traits:
        found &= Sql("r.traits @> %s::varchar[]", (list(placement.traits),))
    if placement.forbidden_traits:
        found &= Sql("NOT r.traits && %s::varchar[]", (list(placement.forbidden_traits),))
    return found


def _totals(placement: PlacementRequest) -> Sql:
    return _room(placement, "r.total_{0}", "c.total")


def _free(placement: PlacementRequest) -> Sql:
    if placement.exclusive:
        return Sql("r.used_slots = 0") & _bounded(placement.at_most)
    return _room(placement, "r.total_{0} - r.used_{0}", "c.total - c.used")


def _bounded(at_most: Amounts | None) -> Sql:
    found = Sql("TRUE")
    for name in CLASSES if at_most is not None else ():
        found &= Sql(f"r.total_{name} <= %s", (getattr(at_most, name),))
    for name, most in sorted(at_most.extra.items()) if at_most is not None else ():
        found &= Sql(
            "NOT EXISTS (SELECT FROM leases_capacity c WHERE c.resource_id = r.id AND c.name = %s AND c.total > %s)",
            (name, most),
        )
    return found


def _room(placement: PlacementRequest, column: str, capacity: str) -> Sql:
    """Return SQL for the requested amounts. One slot, which most requests ask for, is written as a literal.

    With a parameter, the planner would expect few resources with that much room, and read the whole index of these.
    """
    found = Sql("TRUE")
    for name in CLASSES:
        if (asked := getattr(placement.amounts, name)) == 1:
            found &= Sql(f"{column.format(name)} >= 1")
        elif asked:
            found &= Sql(f"{column.format(name)} >= %s", (asked,))
    for name, asked in sorted(placement.amounts.extra.items()):
        found &= Sql(
            f"EXISTS (SELECT FROM leases_capacity c WHERE c.resource_id = r.id AND c.name = %s AND {capacity} >= %s)",
            (name, asked),
        )
    return found


def _price(placement: PlacementRequest) -> Sql:
    if placement.at_most_price is None:
        return Sql("TRUE")
    part = 1.0 if placement.exclusive else float(placement.amounts.slots)
    slots = "1" if placement.exclusive else "greatest(r.total_slots, 1)"
    return Sql(
        f"CASE WHEN r.price IS NULL THEN r.offer = '' ELSE r.price * %s::float8 / {slots} <= %s::float8 END",
        (part, placement.at_most_price + TINY),
    )


def _life(placement: PlacementRequest) -> Sql:
    if placement.until is not None:
        return Sql("(r.dies_at IS NULL OR r.dies_at >= %s)", (placement.until,))
    if placement.ttl is not None:
        return Sql("(r.dies_at IS NULL OR r.dies_at >= now() + %s)", (placement.ttl,))
    return Sql("(r.dies_at IS NULL OR r.dies_at > now())")


def _places(placement: PlacementRequest) -> Sql:
    found = Sql("TRUE")
    if placement.only_resources is not None:
        found &= Sql("r.id = ANY(%s)", (list(placement.only_resources),))
    if unwanted := placement.not_resources:
        found &= Sql("r.id <> ALL(%s)", (list(unwanted),))
    if placement.only_parents is not None:
        found &= Sql("r.part_of_id = ANY(%s)", (list(placement.only_parents),))
    if placement.not_parents:
        found &= Sql("(r.part_of_id IS NULL OR r.part_of_id <> ALL(%s))", (list(placement.not_parents),))
    return found
