"""Read the blueprints that could serve a pending lease, as candidates for the decision.

A candidate contains counts, limits, offers, remembered errors, and the capacity that is already being released.
"""

from __future__ import annotations

import datetime as dt
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, NamedTuple

from django.conf import settings
from django.db.models import Prefetch, Q
from django.db.models.functions import Now
from pydantic import ValidationError

from blueprints import registry
from blueprints.amounts import CLASSES, Amounts, shortfall
from blueprints.contract import Builds, CatalogueStale, Discovers, Kind, Offers
from blueprints.matching import misses
from blueprints.models import Blueprint, RememberedError
from blueprints.specs import Asked, Draft
from drydock.core.errors import DrydockError
from leases.engine.catalogue import drafts as machine_drafts
from leases.engine.core import specs
from leases.engine.core.database import rows
from leases.engine.placement import pending
from leases.engine.placement.budget_check import UNBOUNDED, BudgetCheck, BudgetState, price_of
from leases.engine.placement.claims import Obstacle
from leases.engine.placement.constraints import (
    PlacementRequest,
    allowed,
    held,
    is_free,
    is_obstructed,
    suits,
    takes_all,
)
from leases.engine.resources.provision import carrier_lease
from leases.engine.scheduling.decision import COUNTED, Candidate, Exclusion

_COUNTED = 100
"""Leases of one request class are counted up to this number."""


class Demand(NamedTuple):
    """How many pending leases compete for the capacity that one lease waits for."""

    alike: int
    """This lease and other leases of the same request class, counted up to `_COUNTED`."""
    others: int
    """Leases that wait only for a resource to be released: other heads of the queue, and members of this group."""

    def places(self, placement: PlacementRequest, drafts: Sequence[Draft]) -> int:
        """Return how many resources, built from the first draft, are needed to serve all these leases."""
        most = _fitting(placement, drafts[0].capacity) if drafts else 1
        return -(-self.alike // most) + self.others


ALONE = Demand(1, 0)


def _fitting(placement: PlacementRequest, capacity: Amounts) -> int:
    """Return how many leases with this request fit on one resource with this capacity."""
    if placement.exclusive:
        return 1
    asked = [(getattr(placement.amounts, name), getattr(capacity, name)) for name in CLASSES]
    return max(1, min((total // one for one, total in asked if one), default=1))


_ALIKE = f"""
    SELECT (SELECT count(*) FROM (SELECT FROM leases_lease w WHERE w.state = 'pending' AND NOT w.parked
            AND w.group_id IS NULL AND w.type = l.type AND w.shape >= l.shape AND w.shape <= l.shape
            AND l.group_id IS NULL AND w.id <> l.id ORDER BY w.shape LIMIT {_COUNTED}) x),
        (SELECT count(*) FROM leases_lease g WHERE g.group_id = l.group_id AND g.state = 'pending'
            AND g.reason = 'waiting_reclaim' AND g.id <> l.id)
    FROM leases_lease l WHERE l.id = %s"""


def demand(placement: PlacementRequest) -> Demand:
    """Return how many pending leases compete for the capacity that this lease waits for, including itself."""
    for alike, siblings in rows(_ALIKE, (placement.lease_id,)):
        return Demand(1 + alike, siblings + pending.reclaiming(placement.type, placement.lease_id))
    return ALONE


_LEAVES = """
    {0}.state IN ('released', 'broken') AND {0}.gone_at IS NULL AND EXISTS (
        SELECT FROM leases_run n WHERE n.resource_id = {0}.id AND n.lease_id IS NULL AND n.phase = 'destroy'
            AND n.waits_for = '' AND n.tries < 3)"""
"""True for a resource whose destruction has begun, waits for nothing and does not keep failing."""
_CLEANED = """
    i.gone_at IS NOT NULL AND NOT EXISTS (
        SELECT FROM leases_run m WHERE m.lease_id = h.id AND (m.waits_for <> '' OR m.tries >= 3))"""
"""True if resource `i` is gone, and the cleaning of its lease `h` waits for nothing and does not keep failing."""


def places_leaving(blueprint_id: int, maximum: int) -> int:
    """Return how many more resources the blueprint's limit will allow once the destructions under way are complete."""
    leaves = _LEAVES.format("r")
    sql = f"""
        SELECT count(*) FROM (SELECT FROM leases_resource r WHERE r.blueprint_id = %s AND r.gone_at IS NULL
            AND NOT ({leaves}) LIMIT %s) x"""
    return maximum - int(rows(sql, (blueprint_id, maximum))[0][0])


def holders_leaving(placement: PlacementRequest) -> int:
    """Return the number of resources whose destruction, under way or just completed, frees a suitable resource.

    A suitable resource is one that could serve the request. It is freed because the destroyed resource held a lease on
    it.
    """
    fit, leaves = held(placement), _LEAVES.format("i")
    sql = f"""
        SELECT count(DISTINCT i.id) FROM leases_resource i
        JOIN leases_lease h ON h.for_resource_id = i.id AND h.state IN ('acquired', 'active', 'released')
        {fit.text}
        WHERE {leaves} OR {_CLEANED}"""
    return int(rows(sql, fit.params)[0][0])


log = logging.getLogger(__name__)

_MACHINES = ("host", "machine")
"""Types of resources that messages call machines."""

_COUNTS = """
    SELECT b.id, {allowed},
        EXISTS (SELECT FROM leases_authorization a WHERE a.blueprint_id = b.id AND a.state = 'requested' AND a.user_id = %s),
        (SELECT count(*) FROM (SELECT FROM leases_resource r WHERE r.blueprint_id = b.id AND r.gone_at IS NULL
            LIMIT coalesce(b.max_resources, 0)) x),
        (SELECT count(*) FROM leases_resource r WHERE r.blueprint_id = b.id AND r.gone_at IS NULL AND r.state = 'pending'),
        (SELECT ARRAY[count(*), coalesce(sum(x.used_slots), 0), coalesce(sum(x.total_slots), 0)]::bigint[]
            FROM (SELECT r.used_slots, r.total_slots FROM leases_resource r WHERE r.blueprint_id = b.id
            AND r.gone_at IS NULL AND r.state IN ('pending', 'active') AND {suits} LIMIT {counted}) x),
        (SELECT count(*) FROM (SELECT FROM leases_resource r WHERE r.blueprint_id = b.id AND r.gone_at IS NULL
            AND r.state IN ('pending', 'active') AND r.suspect_since IS NOT NULL AND {suits} LIMIT {counted}) x),
        (SELECT json_build_array(count(*), (array_agg(x.name ORDER BY x.id))[1], (array_agg(x.health_reason ORDER BY x.id))[1])
            FROM (SELECT r.id, r.name, r.health_reason FROM leases_resource r WHERE r.blueprint_id = b.id
                AND r.gone_at IS NULL AND r.health <> 'ok' AND {suits} AND {free} LIMIT {counted}) x),
        (SELECT ARRAY[g.max_hourly, coalesce(sum(r.price), 0),
                coalesce(sum(r.price) FILTER (WHERE r.state NOT IN ('pending', 'active')), 0)]
            FROM leases_budget g LEFT JOIN leases_resource r ON r.blueprint_id = b.id AND r.gone_at IS NULL
            WHERE g.blueprint_id = b.id GROUP BY g.max_hourly),
        (SELECT json_build_array(count(*), (array_agg(x.name ORDER BY x.id))[1],
                drydock_obstacle(min(x.id), (array_agg(x.whole ORDER BY x.id))[1]))
            FROM (SELECT r.id, r.name, {whole} AS whole, {obstructed} AS so FROM leases_resource r
                WHERE r.blueprint_id = b.id AND r.gone_at IS NULL AND r.state IN ('pending', 'active') AND {suits}
                LIMIT {counted}) x WHERE x.so)
    FROM blueprints_blueprint b WHERE b.id = ANY(%s)"""


def candidates(
    placement: PlacementRequest, wanted: Demand = ALONE, spending: BudgetCheck = UNBOUNDED
) -> list[Candidate]:
    """Return a candidate for each blueprint that the request allows, in the order in which the blueprints are tried.

    `wanted` is how many leases wait for the same capacity. `spending` contains the budgets that the lease is charged
    to.
    """
    may, fit, whole, obstructed = allowed(placement), suits(placement), takes_all(placement), is_obstructed(placement)
    free = is_free(replace(placement, may_be_degraded=True))
    every = Blueprint.objects.filter(resource_type=placement.type).prefetch_related(_errors())
    named = [blueprint for blueprint in every if _named(blueprint, placement)]
    counted = {
        row[0]: row[1:]
        for row in rows(
            _COUNTS.format(
                allowed=may.text,
                suits=fit.text,
                counted=COUNTED,
                whole=whole.text,
                obstructed=obstructed.text,
                free=free.text,
            ),
            (
                *may.params,
                placement.owner_id,
                *fit.params,
                *fit.params,
                *fit.params,
                *free.params,
                *whole.params,
                *obstructed.params,
                *fit.params,
                [blueprint.pk for blueprint in named],
            ),
        )
    }
    return [
        _candidate(blueprint, placement, counted[blueprint.pk], wanted, spending)
        for blueprint in named
        if blueprint.pk in counted
    ]


def _errors() -> Any:
    """Return a prefetch of the remembered errors that are still in force, according to the database's clock."""
    return Prefetch("errors", RememberedError.objects.filter(Q(until=None) | Q(until__gt=Now())))


def _named(blueprint: Blueprint, placement: PlacementRequest) -> bool:
    if not all(_named(blueprint, other) for other in placement.also):
        return False
    listed = placement.allowed_blueprints is None or blueprint.pk in placement.allowed_blueprints
    return listed and blueprint.pk not in placement.excluded_blueprints


def _candidate(
    blueprint: Blueprint, placement: PlacementRequest, counts: tuple[Any, ...], wanted: Demand, spending: BudgetCheck
) -> Candidate:
    authorized, requested, there, building, (suitable, used_slots, slots), silent, ailing, money, related = counts
    obstructed, obstructed_name, said = pending.read_json(related)
    obstacle = Obstacle.of(said)
    degraded, degraded_name, ailment = pending.read_json(ailing)
    budget = (
        None if money is None else BudgetState(holder=f"blueprint {blueprint.name}", maximum=money[0], used=money[1])
    )

    def affords(draft: Draft) -> bool:
        return (budget is None or budget.affords(price_of(draft))) and not spending.against(draft)

    known: dict[str, Any] = _what_it_could_build(blueprint, placement, affords)
    if not known.get("builds", True) and not suitable and not known.get("impossible"):
        known |= _what_it_could_find(blueprint)
    at_limit = blueprint.max_resources is not None and there >= blueprint.max_resources
    return Candidate(
        id=blueprint.pk,
        name=blueprint.name,
        enabled=blueprint.enabled,
        drained=blueprint.drained,
        authorized=authorized,
        authorization_asked=requested,
        there=there,
        maximum=blueprint.max_resources,
        building=building,
        max_builds=blueprint.max_builds,
        noun="machine" if blueprint.resource_type in _MACHINES else "resource",
        suitable=suitable,
        used_slots=used_slots,
        slots=slots,
        silent=silent,
        degraded=degraded,
        degraded_name=f"{degraded_name} ({ailment})" if ailment else degraded_name or "",
        obstructed=obstructed,
        obstacle=f"{obstructed_name}: {obstacle.sentence()}" if obstacle is not None else "",
        setbacks=tuple(_setbacks(blueprint)),
        idle=_idle(blueprint.pk) if at_limit else (),
        leaving=places_leaving(blueprint.pk, blueprint.max_resources) if at_limit and blueprint.max_resources else 0,
        wanted=wanted.places(placement, known.get("drafts", ())),
        budget=budget,
        freeing=0.0 if money is None else money[2],
        spare=() if budget is None or any(map(affords, known.get("drafts", ()))) else _spare(blueprint.pk),
        **known,
    )


def _what_it_could_build(
    blueprint: Blueprint, placement: PlacementRequest, affords: Callable[[Draft], bool]
) -> dict[str, Any]:
    try:
        kind = registry.kind(blueprint.kind)
        config = specs.config(blueprint.kind, blueprint.config)
    except DrydockError as error:
        return {"impossible": f"it cannot be used: {error}"}
    asked = placement.also or (placement,)
    if too_long := next(filter(None, (_too_long(blueprint.max_lifetime, one) for one in asked)), ""):
        return {"impossible": too_long}
    try:
        wants = [asked_of(blueprint.kind, one) for one in asked]
    except ValidationError as error:
        return {
            "impossible": f"its kind {blueprint.kind} does not accept the requirement {error.errors()[0]['loc'][0]!r}"
        }
    if not machine_drafts.builds(kind):
        return {"builds": False}
    failing = [(error.scope, error.key) for error in blueprint.errors.all()]
    choose = placement.choose or settings.DRYDOCK.choose
    try:
        drafts = [
            draft
            for one in wants
            for draft in _drafts(blueprint, kind, config, one, affords, choose=choose, failing=failing)
        ]
        lacking = [_lacks_carrier(blueprint, want, one) for want, one in zip(wants, asked, strict=True)]
    except CatalogueStale as error:
        return {"stale": str(error) or "its catalogue has not been read yet"}
    except Exception as error:
        log.exception("Blueprint %s failed to draft a resource.", blueprint)
        return {"stale": f"its kind failed to draft a resource: {type(error).__name__}: {error}"}
    problems = {
        id(draft): problem
        for draft in drafts
        for want, one in zip(wants, asked, strict=True)
        if (problem := draft_misfit(draft, want, kind.matches) or _outlived(draft, one))
    }
    if fitting := tuple(draft for draft in drafts if id(draft) not in problems):
        return {"stale": lacking[0]} if all(lacking) else {"drafts": fitting}
    return {"impossible": next(iter(problems.values()), "it offers nothing that meets the request")}


def _lacks_carrier(blueprint: Blueprint, want: Asked, placement: PlacementRequest) -> str:
    """Return which carrier the resource would need that is not known; empty if there could be one.

    Such a build would wait, although another blueprint may have what was requested. A blueprint is no carrier of its
    own resources, so blueprints that name each other in a circle end the search.
    """
    lease = carrier_lease(blueprint, want)
    if lease is None:
        return ""
    carrier = PlacementRequest(
        type=lease.type, requirements=lease.requirements, amounts=lease.amounts, exclusive=lease.exclusive,
        excluded_blueprints=(*placement.excluded_blueprints, blueprint.pk),
    )  # fmt: skip
    if any(one.suitable or one.drafts for one in candidates(carrier)):
        return ""
    named = ", ".join(f"{name}={value}" for name, value in sorted(lease.requirements.items()))
    return f"it builds on a {lease.type}{f' with {named}' if named else ''}, and none is known"


def _drafts(
    blueprint: Blueprint, kind: Kind, config: Any, one: Asked, affords: Callable[[Draft], bool], **how: Any
) -> Sequence[Draft]:
    """Return what the blueprint would build for this request.

    If there is nothing and the kind drafts without offers, return what it could build for any request, so that the
    verdict can say why that does not suit. Only the best offers are read. If these are the fastest ones and budgets
    allow none of them, the cheapest are added.
    """
    found = machine_drafts.drafts(blueprint, kind, config, one, **how)
    if isinstance(kind, Offers) and how["choose"] == "fastest" and not any(map(affords, found)):
        found = [*found, *machine_drafts.drafts(blueprint, kind, config, one, **how | {"choose": "price"})]
    return found if found or not isinstance(kind, Builds) else kind.drafts(config, None)


def _what_it_could_find(blueprint: Blueprint) -> dict[str, Any]:
    if isinstance(registry.kind(blueprint.kind), Discovers):
        return {"builds": True, "stale": "it has not discovered anything that meets the request yet"}
    return {}


def asked_of(kind_name: str, placement: PlacementRequest) -> Asked:
    """Return a request as a kind receives it. Raises ValidationError if the kind does not accept a requirement."""
    return Asked(
        type=placement.type,
        requirements=registry.kind(kind_name).Requirements.model_validate(dict(placement.requirements)),
        amounts=placement.amounts,
        exclusive=placement.exclusive,
        traits=frozenset(placement.traits),
        forbidden_traits=frozenset(placement.forbidden_traits),
        preferred_traits=frozenset(placement.preferred_traits),
    )


def draft_misfit(draft: Draft, wants: Asked, matches: Any) -> str:
    """Return why a draft does not meet the request, or an empty string if it does."""
    if short := shortfall(wants.amounts.shortage(draft.capacity)):
        return short
    if lacking := wants.traits - draft.traits:
        return f"it does not have the trait {sorted(lacking)[0]}"
    if unwanted := wants.forbidden_traits & draft.traits:
        return f"it has the forbidden trait {sorted(unwanted)[0]}"
    missed = misses(matches, draft.attributes, wants.requirements.model_dump(mode="json", exclude_none=True))
    return missed[0] if missed else ""


def _outlived(draft: Draft, placement: PlacementRequest) -> str:
    return _too_long(None if draft.lives is None else dt.timedelta(seconds=draft.lives), placement)


def _too_long(longest: dt.timedelta | None, placement: PlacementRequest) -> str:
    wanted = placement.ttl
    if longest is None:
        return ""
    if placement.until is not None:
        wanted = placement.until - rows("SELECT clock_timestamp()")[0][0]
    if wanted is not None and wanted > longest:
        return f"it builds resources that live {longest}, but the lease would last {wanted}"
    return ""


def _setbacks(blueprint: Blueprint) -> list[Exclusion]:
    return [Exclusion(scope=e.scope, key=e.key, message=e.message, until=e.until) for e in blueprint.errors.all()]


_IN_HELD_WHOLE = """
    {0}.closed_by <> '{{}}' AND EXISTS (
        SELECT FROM leases_resource a WHERE a.id = ANY({0}.closed_by) AND a.whole_lease_id IS NOT NULL)"""
"""True if resource `{0}` is part of one that a lease holds whole: removing it would disturb that lease."""


def _idle(blueprint_id: int) -> tuple[int, ...]:
    """Return up to three resources that have been idle longest.

    Resources that hold leases or are part of another resource come first, because removing them frees more
    capacity.
    """
    sql = f"""
        SELECT r.id FROM (SELECT id, part_of_id, idle_since FROM leases_resource i
            WHERE blueprint_id = %s AND state = 'active' AND used_slots = 0 AND origin = 'built'
            AND reserved_for_id IS NULL AND NOT quarantined AND NOT in_maintenance
            AND NOT ({_IN_HELD_WHOLE.format("i")}) ORDER BY idle_since LIMIT 50) r
        ORDER BY r.part_of_id IS NULL AND NOT EXISTS (SELECT FROM leases_lease h WHERE h.for_resource_id = r.id
            AND h.state IN ('pending', 'acquired', 'active')), r.idle_since LIMIT 3"""
    return tuple(found for (found,) in rows(sql, (blueprint_id,)))


def _spare(blueprint_id: int) -> tuple[tuple[int, float], ...]:
    """Return the id and hourly price of resources with a price, starting with the one that has been idle longest."""
    sql = """
        SELECT r.id, r.price FROM leases_resource r
        WHERE r.blueprint_id = %s AND r.state = 'active' AND r.used_slots = 0 AND r.origin = 'built' AND r.price > 0
            AND r.reserved_for_id IS NULL AND NOT r.quarantined AND NOT r.in_maintenance ORDER BY r.idle_since LIMIT 10"""
    return tuple((pk, float(cost)) for pk, cost in rows(sql, (blueprint_id,)))


def idle_holders(placement: PlacementRequest) -> tuple[int, ...]:
    """Return the idle resources whose removal would free a suitable resource.

    They hold leases on resources that could serve the request.
    """
    fit = held(placement)
    sql = f"""
        SELECT i.id FROM leases_resource i JOIN leases_lease h ON h.for_resource_id = i.id AND h.state = 'active'
        {fit.text}
        WHERE i.state = 'active' AND i.used_slots = 0 AND i.origin = 'built' AND i.reserved_for_id IS NULL
            AND NOT i.quarantined AND NOT i.in_maintenance AND NOT ({_IN_HELD_WHOLE.format("i")})
        ORDER BY i.idle_since LIMIT 3"""
    return tuple(found for (found,) in rows(sql, fit.params))
