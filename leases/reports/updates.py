"""The updates that outdated resources need: what each changes, and the leases for which it waits."""

from __future__ import annotations

import datetime as dt
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from django.db.models import Q, QuerySet

from blueprints import registry
from blueprints.contract import Updates
from blueprints.models import Blueprint
from drydock.core.errors import DrydockError
from drydock_client.values import UpdateInfo
from leases.engine.catalogue import generations
from leases.engine.core.database import rows
from leases.engine.resources import maintenance
from leases.models import Resource, Run

WAITING, DUE, RUNNING = "waiting", "due", "running"


class Holder(NamedTuple):
    """A lease that an update would disturb, with the name of its owner and its end."""

    lease_id: int
    owner: str
    until: dt.datetime | None


_HOLDERS = """
    SELECT DISTINCT t.id, l.id, coalesce(u.username, ''), l.until FROM unnest(%s::bigint[]) AS t(id)
    CROSS JOIN LATERAL (
        SELECT s.lease_id FROM leases_share s
        WHERE s.resource_id = t.id OR s.resource_id IN (SELECT id FROM drydock_below(t.id))
        UNION SELECT a.whole_lease_id FROM leases_resource a WHERE a.whole_lease_id IS NOT NULL
            AND NOT drydock_keeps(a.whole_lease_id, ARRAY[t.id]) AND a.id IN (SELECT id FROM drydock_above(t.id))) h
    JOIN leases_lease l ON l.id = h.lease_id LEFT JOIN auth_user u ON u.id = l.owner_id
    WHERE l.state IN ('acquired', 'active', 'released') ORDER BY t.id, l.id"""


def of(found: Iterable[Resource], runs: Mapping[int, Run]) -> dict[int, UpdateInfo]:
    """Return the update of each active resource that needs one, by the id of the resource.

    The blueprints of the rows must be loaded. `runs` has the runs of resources, by the id of the resource. Uses no
    statement if none of the resources is outdated.
    """
    outdated = {row.pk: row for row in found if _is_outdated(row)}
    said = dict[tuple[int, int], str]()
    for row in outdated.values():
        generation = (row.blueprint_id, row.generation)
        if generation not in said:
            said[generation] = generations.disruption(row.blueprint, row.generation)
    waits = [pk for pk, row in outdated.items() if said[row.blueprint_id, row.generation]]
    holders = defaultdict[int, list[Holder]](list)
    for pk, *holder in rows(_HOLDERS, (waits,)) if waits else ():
        holders[pk].append(Holder(*holder))
    return {
        pk: _info(said[row.blueprint_id, row.generation], holders[pk], runs.get(pk)) for pk, row in outdated.items()
    }


def that_disturb(outdated: QuerySet[Resource]) -> QuerySet[Resource]:
    """Return those of outdated resources that are updated in place, and whose update disturbs the leases on them."""
    outdated = outdated.filter(blueprint__kind__in=maintenance.kinds_that_update())
    pairs = outdated.order_by().values_list("blueprint_id", "generation").distinct()
    blueprints = Blueprint.objects.in_bulk({blueprint_id for blueprint_id, _ in pairs})
    found = Q(pk__in=())
    for blueprint_id, generation in pairs:
        if generations.disruption(blueprints[blueprint_id], generation):
            found |= Q(blueprint=blueprint_id, generation=generation)
    return outdated.filter(found)


def _is_outdated(row: Resource) -> bool:
    """Return whether a resource is outdated and updated in place."""
    if row.state != "active" or row.gone_at is not None or row.generation >= row.blueprint.generation:
        return False
    try:
        return isinstance(registry.kind(row.blueprint.kind), Updates)
    except DrydockError:
        return False


def _info(disruption: str, holders: Sequence[Holder], run: Run | None) -> UpdateInfo:
    if run is not None and run.phase == Run.Phase.UPDATE:
        return UpdateInfo(state=RUNNING, sentence=f"Being updated. {run.sentence}".strip(), disruption=disruption)
    if not disruption:
        return UpdateInfo(state=DUE, sentence="An update is due. It disturbs no lease.")
    if not holders:
        return UpdateInfo(state=DUE, sentence=f"An update is due. {disruption}", disruption=disruption)
    until = None if any(one.until is None for one in holders) else max(one.until for one in holders if one.until)
    first, more = holders[0], f" and {len(holders) - 1} more" if len(holders) > 1 else ""
    who = f"lease {first.lease_id}{f' of {first.owner}' if first.owner else ''}{more}"
    sentence = f"An update waits for {who}, {ends(until)}. {disruption}"
    ids = tuple(one.lease_id for one in holders)
    return UpdateInfo(state=WAITING, sentence=sentence, disruption=disruption, leases=ids, until=until)


def ends(until: dt.datetime | None) -> str:
    """Return the time at which the last lease ends, in words."""
    return "with no end" if until is None else f"until {until:%Y-%m-%d %H:%M} UTC"
