"""What a waiting lease asks of the resources: a frozen value, and the SQL that finds what answers it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from blueprints import registry
from blueprints.amounts import CLASSES, Amounts
from leases.engine.matching import Sql, matches
from leases.engine.owners import membership

TINY = 1e-6
"""Dollars. Sums of prices are not exact: so much more than a budget does not pass it."""


@dataclass(frozen=True, kw_only=True)
class Question:
    """Everything about a lease that decides which resource could serve it."""

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
    """Resources that failed this lease before: only when there is no other."""
    owner_id: int | None = None
    """None where all blueprints of the type serve whoever asks."""
    until: Any = None
    """Datetime to which the lease may last, or None."""
    ttl: Any = None
    """Timedelta it may last, or None."""
    lease_id: int | None = None
    group: tuple[int, ...] = ()
    """The leases of its group: what is reserved for one may serve any."""
    at_most: Amounts | None = None
    """For the whole of a resource: it must not be larger."""
    at_most_price: float | None = None
    """US dollars an hour that the lease's part of it may cost; then what has no known price is left out."""
    only_resources: tuple[int, ...] | None = None
    not_resources: tuple[int, ...] = ()
    only_parents: tuple[int, ...] | None = None
    not_parents: tuple[int, ...] = ()
    choose: str = ""
    """Which of the blueprints that could build is taken; empty: as the installation says."""
    also: tuple[Question, ...] = ()
    """What others ask of the same resource."""

    @property
    def holders(self) -> tuple[int, ...]:
        """Leases whose reservations count for this one."""
        return self.group or ((self.lease_id,) if self.lease_id is not None else ())


def suits(question: Question) -> Sql:
    """True for a resource `r` that could serve the question when it is empty."""
    found = (
        Sql("r.type = %s", (question.type,))
        & _in_blueprints(question)
        & _kinds(question)
        & _traits(question)
        & _totals(question)
        & _life(question)
        & _places(question)
        & _price(question)
    )
    for other in question.also:
        found &= suits(other)
    return found


def held(question: Question) -> Sql:
    """To join with leases `h`: those that hold what could serve the question. Looked at for each of them by its id
    (OFFSET keeps it apart): the planner would rather walk through all resources, expecting to meet the few held soon."""
    fit = suits(question)
    return Sql(
        f"CROSS JOIN LATERAL (SELECT FROM leases_resource r WHERE r.id = h.resource_id AND {fit.text} OFFSET 0) held",
        fit.params,
    )


def has_room(question: Question) -> Sql:
    """True for a resource that can serve the question now."""
    return suits(question) & is_free(question)


def is_free(question: Question) -> Sql:
    """The part of `has_room` that changes from one instant to the next: what a locked row is looked at again for."""
    reserved = Sql("(r.reserved_for_id IS NULL OR r.reserved_for_id = ANY(%s))", (list(question.holders),))
    return Sql("r.claimable AND NOT r.held_alone AND r.suspect_since IS NULL") & reserved & _free(question)


def _in_blueprints(question: Question) -> Sql:
    """Says again, as numbers, which blueprints are named: of these the planner knows how many resources they have, and
    reads them alone where the others of the type have many. What may be leased or suit is not gone."""
    if question.allowed_blueprints is None:
        return Sql("TRUE")
    return Sql("r.blueprint_id = ANY(%s) AND r.gone_at IS NULL", (list(question.allowed_blueprints),))


def _blueprints(question: Question) -> Sql:
    found = Sql("b.enabled AND NOT b.drained") & allowed(question)
    if question.allowed_blueprints is not None:
        found &= Sql("b.id = ANY(%s)", (list(question.allowed_blueprints),))
    if question.excluded_blueprints:
        found &= Sql("b.id <> ALL(%s)", (list(question.excluded_blueprints),))
    return found


def allowed(question: Question) -> Sql:
    """True for a blueprint `b` that serves the question's owner. The installation itself may use all."""
    if question.owner_id is None:
        return Sql("TRUE")
    table, user = membership()
    return Sql(
        "(b.audience = 'everyone' OR EXISTS (SELECT FROM leases_authorization a WHERE a.blueprint_id = b.id"
        " AND a.state = 'authorized' AND (a.user_id = %s OR a.group_id IN"
        f" (SELECT g.group_id FROM {table} g WHERE g.{user} = %s))))",
        (question.owner_id, question.owner_id),
    )


def _kinds(question: Question) -> Sql:
    """Per kind its blueprints that may serve this, with the conditions that it declares; a kind that does not know a
    requirement cannot serve it.

    The blueprints are read first, as a list of ids: of a table of a few rows the planner knows nothing, and of a join
    with it expects so little that it would rather read all resources than the first of them.
    """
    asked = {name: value for name, value in question.requirements.items() if value is not None}
    installed = registry.kinds_of_type(question.type)
    if not asked:
        return _of_kinds(question, installed)
    known = [piece for name in installed if (piece := _kind(question, name, asked)) is not None]
    if not known:
        return Sql("FALSE")
    return Sql("(" + " OR ".join(p.text for p in known) + ")", tuple(x for p in known for x in p.params))


def _kind(question: Question, name: str, asked: Mapping[str, Any]) -> Sql | None:
    kind = registry.kind(name)
    if not asked.keys() <= kind.Requirements.model_fields.keys():
        return None
    found = _of_kinds(question, (name,))
    for match in kind.matches:
        if match.requirement in asked:
            found &= matches(match, asked[match.requirement])
    return Sql(f"({found.text})", found.params)


def _of_kinds(question: Question, kinds: Sequence[str]) -> Sql:
    serving = _blueprints(question) & Sql("b.kind = ANY(%s)", (list(kinds),))
    return Sql(
        f"r.blueprint_id = ANY(ARRAY(SELECT b.id FROM blueprints_blueprint b WHERE {serving.text}))", serving.params
    )


def _traits(question: Question) -> Sql:
    found = Sql("TRUE")
    if question.traits:
        found &= Sql("r.traits @> %s::varchar[]", (list(question.traits),))
    if question.forbidden_traits:
        found &= Sql("NOT r.traits && %s::varchar[]", (list(question.forbidden_traits),))
    return found


def _totals(question: Question) -> Sql:
    return _room(question, "r.total_{0}", "c.total")


def _free(question: Question) -> Sql:
    if question.exclusive:
        return Sql("r.used_slots = 0") & _bounded(question.at_most)
    return _room(question, "r.total_{0} - r.used_{0}", "c.total - c.used")


def _bounded(at_most: Amounts | None) -> Sql:
    found = Sql("TRUE")
    for name in CLASSES if at_most is not None else ():
        found &= Sql(f"r.total_{name} <= %s", (getattr(at_most, name),))
    return found


def _room(question: Question, column: str, capacity: str) -> Sql:
    """One is written out, as most ask for one slot: of a parameter the planner expects that few resources have so
    much, and reads an index of all that do."""
    found = Sql("TRUE")
    for name in CLASSES:
        if (asked := getattr(question.amounts, name)) == 1:
            found &= Sql(f"{column.format(name)} >= 1")
        elif asked:
            found &= Sql(f"{column.format(name)} >= %s", (asked,))
    for name, asked in sorted(question.amounts.extra.items()):
        found &= Sql(
            f"EXISTS (SELECT FROM leases_capacity c WHERE c.resource_id = r.id AND c.name = %s AND {capacity} >= %s)",
            (name, asked),
        )
    return found


def _price(question: Question) -> Sql:
    if question.at_most_price is None:
        return Sql("TRUE")
    part = 1.0 if question.exclusive else float(question.amounts.slots)
    slots = "1" if question.exclusive else "greatest(r.total_slots, 1)"
    return Sql(
        f"CASE WHEN r.price IS NULL THEN r.offer = '' ELSE r.price * %s::float8 / {slots} <= %s::float8 END",
        (part, question.at_most_price + TINY),
    )


def _life(question: Question) -> Sql:
    if question.until is not None:
        return Sql("(r.dies_at IS NULL OR r.dies_at >= %s)", (question.until,))
    if question.ttl is not None:
        return Sql("(r.dies_at IS NULL OR r.dies_at >= now() + %s)", (question.ttl,))
    return Sql("(r.dies_at IS NULL OR r.dies_at > now())")


def _places(question: Question) -> Sql:
    found = Sql("TRUE")
    if question.only_resources is not None:
        found &= Sql("r.id = ANY(%s)", (list(question.only_resources),))
    if unwanted := question.not_resources:
        found &= Sql("r.id <> ALL(%s)", (list(unwanted),))
    if question.only_parents is not None:
        found &= Sql("r.part_of_id = ANY(%s)", (list(question.only_parents),))
    if question.not_parents:
        found &= Sql("(r.part_of_id IS NULL OR r.part_of_id <> ALL(%s))", (list(question.not_parents),))
    return found
