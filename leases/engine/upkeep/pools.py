"""Keep idle resources ready, and retire idle, drained, outdated and excess resources.

Each check returns the number of resources that it acted on.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from django.conf import settings

from blueprints import registry
from blueprints.contract import CatalogueStale, Checks
from blueprints.models import Blueprint
from drydock.core.errors import DrydockError
from leases.engine.actions import updates
from leases.engine.catalogue import drafts as machine_drafts
from leases.engine.catalogue import generations
from leases.engine.core import specs
from leases.engine.core.database import attempt, each, rows, short
from leases.engine.core.runs import start
from leases.engine.lifecycle import bulk_checks, watches
from leases.engine.placement import budgets
from leases.engine.resources import maintenance, provision, retirement
from leases.engine.scheduling.decision import rules_out
from leases.messaging import hints
from leases.models import Resource
from leases.reasons import Reason

_BATCH = 200
_UNUSED = """
    r.state = 'active' AND r.used_slots = 0 AND r.reserved_for_id IS NULL
    AND r.origin = 'built' AND r.gone_at IS NULL AND r.idle_since IS NOT NULL"""
_FREE = f"{_UNUSED} AND NOT r.in_maintenance"
_FREE_OR_UNCLEAN = f"""
    {_UNUSED} AND (NOT r.in_maintenance OR EXISTS (SELECT FROM leases_debt d WHERE d.resource_id = r.id AND d.apart))"""
"""As `_FREE`, and resources that must be cleaned. A resource that must go anyway is destroyed without being cleaned."""
_OF = f"SELECT r.id, r.idle_since FROM leases_resource r WHERE r.blueprint_id = b.id AND {_FREE}"
_IDLE = f"""
    SELECT i.id FROM blueprints_blueprint b CROSS JOIN LATERAL (
        {_OF} AND NOT r.quarantined AND r.idle_since < statement_timestamp() - b.idle_timeout
        ORDER BY r.idle_since, r.id LIMIT CASE WHEN b.min_ready = 0 THEN {_BATCH} ELSE (
            SELECT greatest(0, count(*) - b.min_ready) FROM (SELECT FROM leases_resource o WHERE o.blueprint_id = b.id
                AND o.claimable AND o.health = 'ok' AND o.suspect_since IS NULL AND o.state = 'active' AND o.gone_at IS NULL AND o.idle_since IS NOT NULL
                LIMIT b.min_ready + {_BATCH}) n) END) i
    WHERE b.idle_timeout IS NOT NULL LIMIT {_BATCH}"""
"""Resources that have been idle for too long and are not needed to keep the blueprint's minimum ready."""
_OLD = f"""
    SELECT r.id FROM leases_resource r WHERE {_FREE_OR_UNCLEAN} AND r.dies_at <= statement_timestamp()
    ORDER BY r.dies_at LIMIT {_BATCH}"""
_DRAINED = f"""
    SELECT r.id FROM leases_resource r WHERE r.drained AND {_FREE_OR_UNCLEAN} AND NOT r.quarantined
    UNION SELECT i.id FROM blueprints_blueprint b CROSS JOIN LATERAL (
        SELECT r.id FROM leases_resource r WHERE r.blueprint_id = b.id AND {_FREE_OR_UNCLEAN} AND NOT r.quarantined
        LIMIT {_BATCH}) i
        WHERE b.drained LIMIT {_BATCH}"""
_OVER = f"""
    SELECT i.id FROM blueprints_blueprint b CROSS JOIN LATERAL ({_OF} ORDER BY r.idle_since, r.id LIMIT 1) i
    WHERE b.max_resources IS NOT NULL AND EXISTS (SELECT FROM leases_resource o WHERE o.blueprint_id = b.id
        AND o.gone_at IS NULL AND o.state IN ('pending', 'active') OFFSET b.max_resources)"""

_OVER_BUDGET = f"""
    SELECT i.id FROM leases_budget b CROSS JOIN LATERAL (
        SELECT r.id FROM leases_resource r WHERE r.blueprint_id = b.blueprint_id AND r.price > 0 AND {_FREE}
        ORDER BY r.idle_since, r.id LIMIT 1) i
    WHERE b.max_hourly < (SELECT sum(o.price) FROM leases_resource o WHERE o.blueprint_id = b.blueprint_id
        AND o.gone_at IS NULL AND o.state IN ('pending', 'active'))"""


_RETIRING = (
    (_IDLE, "Idle too long."), (_OLD, "Older than the blueprint allows."), (_OVER, "Over the blueprint's limit."),
    (_OVER_BUDGET, "Over the blueprint's budget."), (_DRAINED, "Drained."),
)  # fmt: skip


def would_retire() -> list[tuple[int, str]]:
    """Return the id of each resource that the next sweep would retire, with the reason. Changes nothing."""
    return [(resource_id, why) for found, why in _RETIRING for (resource_id,) in rows(found)]


def retire_due() -> int:
    """Retire resources that are idle for too long, too old, or over the blueprint's limit or budget."""
    found = _retire(_IDLE, Reason.IDLE, "Idle too long.")
    found += _retire(_OLD, Reason.TOO_OLD, "Older than the blueprint allows.")
    found += _retire(_OVER_BUDGET, Reason.OVER_BUDGET, "Over the blueprint's budget.")
    return found + _retire(_OVER, Reason.OVER_LIMIT, "Over the blueprint's limit.")


def retire_drained() -> int:
    """Retire drained resources that no lease holds."""
    found = [resource_id for (resource_id,) in rows(_DRAINED)]
    return sum(
        retirement.retire_idle(resource_id, reason=Reason.DRAINED, message=retirement.why_not_kept(resource_id)[1])
        for resource_id in found
    )


def _retire(found: str, reason: Reason, message: str) -> int:
    return sum(retirement.retire_idle(resource_id, reason=reason, message=message) for (resource_id,) in rows(found))


_GENERATIONS = """
    SELECT DISTINCT b.id, r.generation FROM blueprints_blueprint b JOIN leases_resource r ON r.blueprint_id = b.id
    WHERE r.state = 'active' AND r.generation < b.generation AND b.kind = ANY(%s) ORDER BY b.id, r.generation"""
_IDLE_NOW = """
    r.used_slots = 0 AND (NOT r.in_maintenance OR b.kind = ANY(%(at_once)s)) AND r.reserved_for_id IS NULL
    AND (r.origin = 'built' OR b.kind = ANY(%(updating)s))"""
_MILD = """
    b.kind = ANY(%(updating)s) AND EXISTS (SELECT FROM unnest(%(blueprints)s::bigint[], %(generations)s::int[]) AS m(of, generation)
        WHERE m.of = b.id AND m.generation = r.generation)"""
_RESTS = """
    EXISTS (SELECT FROM leases_failure f WHERE f.resource_id = r.id AND f.act = 'update' AND f.at > clock_timestamp()
        - least(%(limit)s, %(backoff)s * 2 ^ least(f.attempts - 1, 20)) * interval '1 s')"""
_RUNS = "EXISTS (SELECT FROM leases_run n WHERE n.resource_id = r.id AND n.lease_id IS NULL)"
_OUTDATED = f"""
    SELECT r.id, b.id, b.kind, b.max_outdated, r.origin, r.mild, {retirement.top_of("r")}
    FROM blueprints_blueprint b CROSS JOIN LATERAL (
        (SELECT r.id, r.origin, r.generation, TRUE AS mild FROM leases_resource r WHERE r.blueprint_id = b.id
            AND r.state = 'active' AND r.generation < b.generation AND NOT r.quarantined AND r.suspect_since IS NULL
            AND {_MILD} AND NOT {_RESTS} AND NOT {_RUNS} ORDER BY r.generation, r.id LIMIT 50)
        UNION ALL
        (SELECT r.id, r.origin, r.generation, FALSE FROM leases_resource r WHERE r.blueprint_id = b.id
            AND r.state = 'active' AND r.generation < b.generation AND NOT r.quarantined AND r.suspect_since IS NULL
            AND {_IDLE_NOW} AND NOT ({_MILD}) ORDER BY r.generation, r.id LIMIT 50)) r
    WHERE b.kind = ANY(%(at_once)s) OR b.max_outdated > 0
    ORDER BY b.id, r.generation, r.id"""
"""Outdated resources: those whose update disturbs no lease, and idle ones."""
_ROLLING = f"""
    SELECT o.blueprint_id, {retirement.top_of("o")} FROM leases_resource o
    LEFT JOIN leases_run n ON n.resource_id = o.id AND n.lease_id IS NULL
    WHERE o.gone_at IS NULL AND o.blueprint_id = ANY(%s) AND {retirement.UPDATING}"""


class _Outdated(NamedTuple):
    """An outdated resource that can be updated or replaced now, with the topmost resource that it is part of."""

    id: int
    blueprint_id: int
    kind: str
    max_outdated: int
    origin: str
    mild: bool
    top: int


def roll_outdated() -> int:
    """Update a limited number of outdated resources. A resource whose kind cannot update is replaced.

    Resources of one host are updated together. Leased resources are updated if that disturbs no lease.
    """
    at_once, updating = maintenance.kinds_that_update(at_once=True), maintenance.kinds_that_update()
    found = [_Outdated(*row) for row in rows(_OUTDATED, {**_mild_ones(updating), "at_once": at_once})]
    rolling = dict[int, set[int]]()
    for blueprint_id, top in rows(_ROLLING, (sorted({one.blueprint_id for one in found}),)) if found else ():
        rolling.setdefault(blueprint_id, set()).add(top)
    begun = 0
    for one in found:
        bounded, hosts = one.kind not in at_once, rolling.setdefault(one.blueprint_id, set())
        if bounded and one.top not in hosts and len(hosts) >= one.max_outdated:
            continue
        if attempt(_roll, one, bounded):
            hosts.add(one.top)
            begun += 1
    return begun


def _mild_ones(updating: list[str]) -> dict[str, Any]:
    """Return the parameters of `_OUTDATED`: the generations from which an update disturbs no lease, and the backoff."""
    found = rows(_GENERATIONS, (updating,))
    blueprints = Blueprint.objects.in_bulk({blueprint_id for blueprint_id, _ in found})
    mild = [
        (blueprint_id, generation)
        for blueprint_id, generation in found
        if blueprint_id in blueprints and attempt(generations.disruption, blueprints[blueprint_id], generation) == ""
    ]
    return {
        "updating": updating, "blueprints": [one for one, _ in mild], "generations": [one for _, one in mild],
        "backoff": settings.DRYDOCK.step_backoff_seconds, "limit": settings.DRYDOCK.step_backoff_limit_seconds,
    }  # fmt: skip


def _roll(one: _Outdated, bounded: bool) -> bool:
    if one.mild:
        return updates.begin_undisturbed(one.id, bounded=bounded)
    if generations.in_place(one.id):
        return _update(one.id, bounded)
    return one.origin == "built" and retirement.retire_idle(
        one.id, reason=Reason.OUTDATED, message="Built from an older blueprint."
    )


@short
def _update(resource_id: int, bounded: bool) -> bool:
    return not (bounded and retirement.may_roll(resource_id) is False) and retirement.begin_update(resource_id)


def keep_ready() -> int:
    """Build resources until every blueprint has its minimum of idle resources, or has reached its limit."""
    short_of = Blueprint.objects.filter(min_ready__gt=0, enabled=True, drained=False)
    return sum(attempt(_make_ready, blueprint.pk) or 0 for blueprint in short_of)


def _make_ready(blueprint_id: int) -> int:
    for made in range(50):
        if not _build_spare(blueprint_id):
            return made
    return 50


@short
def _build_spare(blueprint_id: int) -> bool:
    blueprint = provision.lock_blueprint(blueprint_id)
    if (
        blueprint is None
        or not provision.may_build(blueprint)
        or _ready(blueprint_id, blueprint.min_ready) >= blueprint.min_ready
    ):
        return False
    kind = registry.kind(blueprint.kind)
    failing = set(
        blueprint.errors.extra(where=["until IS NULL OR until > statement_timestamp()"]).values_list("scope", "key")
    )
    try:
        config = specs.config(blueprint.kind, blueprint.config)
        drafts = machine_drafts.drafts(
            blueprint, kind, config, None, choose=settings.DRYDOCK.choose, failing=sorted(failing)
        )
    except (CatalogueStale, DrydockError):
        return False
    for draft in drafts:
        if not draft.refused and not any(rules_out(scope, key, draft) for scope, key in failing):
            if not budgets.blueprint_affords(blueprint_id, draft):
                continue
            message = f"Built to keep {blueprint.min_ready} ready."
            provision.insert(blueprint, draft, actor="drydock", message=message)
            return True
    return False


def _ready(blueprint_id: int, up_to: int) -> int:
    return int(
        rows(
            "SELECT count(*) FROM (SELECT FROM leases_resource WHERE blueprint_id = %s AND claimable AND suspect_since IS NULL"
            " AND health = 'ok' AND used_slots = 0"
            " AND gone_at IS NULL AND idle_since IS NOT NULL LIMIT %s) x",
            (blueprint_id, up_to),
        )[0][0]
    )


def check_due() -> int:
    """Start the health checks that are due.

    A healthy resource of which a watch reports changes is checked after one, and seldom otherwise. Idle resources of
    kinds that can do so are checked together.
    """
    in_bulk = bulk_checks.blueprints()
    found = rows(
        "SELECT r.id, b.kind, r.suspect_since IS NOT NULL AND r.generation < b.generation"
        " AND r.used_slots = 0 FROM leases_resource r JOIN blueprints_blueprint b ON b.id = r.blueprint_id"
        " WHERE r.state = 'active' AND r.check_at <= statement_timestamp() "
        " AND (b.check_interval IS NOT NULL OR r.suspect_since IS NOT NULL)"
        " AND (NOT b.id = ANY(%s) OR r.changed OR r.suspect_since IS NOT NULL OR r.check_failures > 0"
        " OR r.health <> 'ok' OR r.check_at <= statement_timestamp() - %s * interval '1 s')"
        f" AND NOT {bulk_checks.IN_BULK} AND {bulk_checks.IS_CHECKED} AND NOT EXISTS ("
        " SELECT FROM leases_run n WHERE n.resource_id = r.id AND n.lease_id IS NULL) ORDER BY r.check_at LIMIT 200",
        (watches.seldom_checked(), watches.SELDOM, in_bulk),
    )
    return each(_check, found) + bulk_checks.due(in_bulk)


@short
def _check(resource_id: int, kind: str, renew: bool) -> bool:
    """Start a health check or, if `renew` is true and the kind can update, an update of the resource."""
    if renew and generations.in_place(resource_id) and retirement.begin_update(resource_id):
        return True
    if not isinstance(registry.kind(kind), Checks) or start(resource_id=resource_id, phase="check") is None:
        return False
    # What changes from now on may not be seen by this check.
    Resource.objects.filter(pk=resource_id, changed=True).update(changed=False)
    return True


def forget_errors() -> int:
    """Delete expired remembered errors, and wake the leases that wait for the resource types of their blueprints."""
    found = rows(
        "DELETE FROM blueprints_rememberederror e USING blueprints_blueprint b WHERE b.id = e.blueprint_id"
        " AND e.id = ANY(ARRAY(SELECT id FROM blueprints_rememberederror WHERE until <= statement_timestamp()"
        " ORDER BY id FOR UPDATE SKIP LOCKED)) RETURNING b.resource_type"
    )
    for resource_type in sorted({row[0] for row in found}):
        hints.send("serve", resource_type)
    return len(found)
