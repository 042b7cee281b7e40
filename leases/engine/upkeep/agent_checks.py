"""Periodic checks of agents: agents that blueprints require, and agents that do not report."""

from __future__ import annotations

from blueprints import registry
from blueprints.contract import Reports
from blueprints.models import Blueprint
from drydock.core.errors import DrydockError
from leases.engine.core import specs
from leases.engine.core.database import rows, short
from leases.engine.sync import discovery, silent_agents
from leases.models import Agent, Event

MISSED = 3
"""The number of intervals without a report after which an agent is silent."""


def expected() -> int:
    """Store the agents that blueprints require, so that absent agents are noticed. Return the number of new agents."""
    required = {blueprint: _required(blueprint) for blueprint in _requiring()}
    if not required:
        return 0
    there = set(Agent.objects.filter(blueprint__in=required, revoked_at=None).values_list("blueprint", "place"))
    missing = [
        Agent(blueprint=blueprint, place=place, interval=discovery.interval(blueprint))
        for blueprint, places in required.items() for place in sorted(places) if (blueprint.pk, place) not in there
    ]  # fmt: skip
    Agent.objects.bulk_create(missing, ignore_conflicts=True)
    wanted = {(blueprint.pk, place) for blueprint, places in required.items() for place in places}
    never = Agent.objects.filter(blueprint__in=required, joined_at=None, revoked_at=None)
    Agent.objects.filter(
        pk__in=[one.pk for one in never if (one.blueprint_id, one.place) not in wanted], joined_at=None
    ).delete()
    return len(missing)


def _requiring() -> list[Blueprint]:
    """Return the enabled blueprints whose kind can require agents."""
    kinds = [name for name in registry.names() if _can_require(name)]
    return list(Blueprint.objects.filter(kind__in=kinds, enabled=True, removed_at=None)) if kinds else []


def _can_require(name: str) -> bool:
    try:
        kind = registry.kind(name)
    except registry.KindBroken:
        return False
    return isinstance(kind, Reports) and type(kind).required_agents is not Reports.required_agents


def _required(blueprint: Blueprint) -> set[str]:
    kind = registry.kind(blueprint.kind)
    assert isinstance(kind, Reports)
    try:
        return set(kind.required_agents(specs.config(blueprint.kind, blueprint.config)))
    except DrydockError:
        return set()


_SILENT = """
    UPDATE leases_agent a SET silent_since = clock_timestamp() WHERE a.id = ANY(ARRAY(
        SELECT o.id FROM leases_agent o JOIN blueprints_blueprint b ON b.id = o.blueprint_id
        WHERE o.silent_since IS NULL AND o.revoked_at IS NULL AND b.enabled AND b.removed_at IS NULL
            AND coalesce(o.reported_at, o.joined_at, o.created_at) + %s * o."interval" * interval '1 s'
                < clock_timestamp()
        ORDER BY o.id LIMIT 500 FOR NO KEY UPDATE OF o SKIP LOCKED))
    RETURNING a.id, a.blueprint_id, a.place, a.joined_at IS NOT NULL, a.reported_at"""


def silent() -> int:
    """Notice agents that have missed three reports, and close the resources in their places to new leases.

    Return the number of agents newly noticed.
    """
    found = _notice()
    silent_agents.close()
    return found


@short
def _notice() -> int:
    found = rows(_SILENT, (MISSED,))
    Event.objects.bulk_create(
        Event(
            kind="agent.silent", actor="drydock", blueprint_id=blueprint, details={"agent": number},
            message=f"The agent of {place} "
            + ("has not joined." if not joined else "has never reported." if at is None
               else f"has not reported since {at:%Y-%m-%d %H:%M:%S} UTC."),
        )
        for number, blueprint, place, joined, at in found
    )  # fmt: skip
    return len(found)
