"""Check idle resources of a blueprint together, at a fraction of the cost of a run for each of them.

The resources of one bulk check have a run of phase `check` meanwhile, under one token, so that nothing else calls them.
It is deleted if the resource is as it should be. Otherwise, or if the worker dies, it is carried out as usual.
"""

from __future__ import annotations

import json
import logging
import uuid
from collections.abc import Sequence

from django.conf import settings

from blueprints import registry
from blueprints.contract import BulkChecked, BulkChecks
from blueprints.models import Blueprint
from drydock.core import clock
from drydock.core.errors import DrydockError
from drydock.core.logging import about, hidden
from leases.engine.core import database, specs
from leases.engine.core.database import patient, refuse_inside_transaction, rows, run, short
from leases.engine.core.installation import current as standing
from leases.messaging import hints
from leases.models import Resource

log = logging.getLogger(__name__)

_BUDGET = 10.0
"""Time in seconds for which one task goes on with further resources that are due."""
_MOST = 16
"""Resources that are checked together. A lease that comes for one of them waits for the slowest of the others."""

IS_CHECKED = "r.power_wanted <> 'off' AND NOT r.facts ? 'stopped'"
"""SQL that is false for a resource that is off on request."""
_DUE = f"""
    r.state = 'active' AND r.check_at <= statement_timestamp() AND b.check_interval IS NOT NULL AND {IS_CHECKED}"""
_AT_REST = """
    r.claimable AND r.used_slots = 0 AND r.idle_since IS NOT NULL AND r.observed = 'ok' AND r.health = 'ok'
    AND r.check_failures = 0 AND r.suspect_since IS NULL AND NOT r.changed AND r.generation = b.generation
    AND NOT EXISTS (SELECT FROM leases_run n WHERE n.resource_id = r.id)"""
IN_BULK = f"(r.blueprint_id = ANY(%s) AND {_AT_REST})"
"""SQL that is true for a resource `r` that is checked in bulk, if its blueprint `b` is one of those given."""
_BLUEPRINTS = f"""
    SELECT DISTINCT r.blueprint_id FROM leases_resource r JOIN blueprints_blueprint b ON b.id = r.blueprint_id
    WHERE {_DUE} AND {IN_BULK}"""
_TAKE = f"""
    INSERT INTO leases_run (resource_id, phase, wanted, token, token_until, in_call, step_since)
    SELECT r.id, 'check', '{{}}', %s, clock_timestamp() + %s * interval '1 s', TRUE, clock_timestamp()
    FROM leases_resource r JOIN blueprints_blueprint b ON b.id = r.blueprint_id
    WHERE r.id = ANY(ARRAY(
        SELECT r.id FROM leases_resource r JOIN blueprints_blueprint b ON b.id = r.blueprint_id
        WHERE {_DUE} AND {IN_BULK} ORDER BY r.check_at LIMIT %s))
    ON CONFLICT DO NOTHING RETURNING resource_id"""
_LOCK = """
    SELECT FROM leases_resource WHERE id IN (SELECT resource_id FROM leases_run WHERE token = %s)
    ORDER BY id FOR NO KEY UPDATE"""
"""Locks the resources before their runs, in the order of their ids, as all transactions do."""
_SOUND = """
    DELETE FROM leases_run n USING leases_resource r WHERE n.token = %s AND NOT n.cancel_wanted
        AND n.resource_id = ANY(%s) AND r.id = n.resource_id AND r.suspect_since IS NULL AND NOT r.changed
    RETURNING n.resource_id"""
"""Of a resource that is suspected meanwhile, or has changed, a whole check is wanted."""
_CHECKED = """
    UPDATE leases_resource r SET observed_at = clock_timestamp(), check_at = clock_timestamp() + b.check_interval
    FROM blueprints_blueprint b WHERE b.id = r.blueprint_id AND r.id = ANY(%s)"""
_LEFT = """
    UPDATE leases_run SET token = NULL, token_until = NULL, in_call = FALSE, step_since = NULL,
        due_at = clock_timestamp() WHERE token = %s RETURNING id"""
_FACTS = """
    UPDATE leases_resource r SET facts = r.facts || g.facts
    FROM jsonb_to_recordset(%s::jsonb) AS g(id bigint, facts jsonb), leases_run n
    WHERE r.id = g.id AND n.resource_id = r.id AND n.token = %s"""


def blueprints() -> list[int]:
    """Return the blueprints whose idle resources are checked in bulk, if the installed kinds allow it."""
    return [one.pk for one in Blueprint.objects.filter(kind__in=_kinds(), removed_at=None) if _allows(one)]


def _kinds() -> list[str]:
    found = []
    for name in registry.names():
        try:
            if isinstance(registry.kind(name), BulkChecks):
                found.append(name)
        except registry.KindBroken:
            continue
    return found


def _allows(blueprint: Blueprint) -> bool:
    kind = registry.kind(blueprint.kind)
    try:
        return isinstance(kind, BulkChecks) and kind.checks_in_bulk(specs.config(blueprint.kind, blueprint.config))
    except DrydockError:
        return False


def due(among: Sequence[int]) -> int:
    """Ask for a bulk check of each of these blueprints that has resources that are due. Return their number."""
    found = rows(_BLUEPRINTS, (list(among),)) if among else ()
    for (blueprint_id,) in found:
        hints.send("bulk_check", blueprint_id)
    return len(found)


def check(blueprint_id: int) -> bool:
    """Check the idle resources of a blueprint that are due. Return whether there were any."""
    refuse_inside_transaction("check")
    began, any_due = clock.monotonic(), False
    while not standing().problem and not database.is_draining():
        if not _together(blueprint_id):
            return any_due
        any_due = True
        if clock.monotonic() - began >= _BUDGET:
            hints.send("bulk_check", blueprint_id)
            break
    return any_due


def _together(blueprint_id: int) -> bool:
    """Check some resources. Return False if none is due."""
    blueprint = Blueprint.objects.filter(pk=blueprint_id, removed_at=None).first()
    if blueprint is None or not _allows(blueprint):
        return False
    token = uuid.uuid4()
    given = (token, settings.DRYDOCK.step_token_seconds, [blueprint_id], _MOST)
    if not (taken := [pk for (pk,) in patient(rows, _TAKE, given)]):
        return False
    with about(blueprint=blueprint.name):
        found = _found(blueprint, taken)
    for run_id in patient(_store, token, found):
        hints.send("step", run_id)
    return True


def _found(blueprint: Blueprint, taken: Sequence[int]) -> BulkChecked:
    """Return what the kind has found. An exception means that nothing is known about any of the resources."""
    kind = registry.kind(blueprint.kind)
    assert isinstance(kind, BulkChecks)
    try:
        resources = Resource.objects.filter(pk__in=taken).prefetch_related("capacities").order_by("pk")
        views = specs.idle_views(blueprint, resources)
        with hidden(*(secret for view in views for secret in specs.resource_secrets(view))):
            return kind.check_in_bulk(views, deadline=settings.DRYDOCK.step_token_seconds / 2)
    except Exception as error:
        if database.is_lost(error):
            raise
        log.exception("The bulk check of %s raised.", blueprint.name)
        return BulkChecked()


@short
def _store(token: uuid.UUID, found: BulkChecked) -> list[int]:
    """Store what was found, and return the runs of the resources that need a check of their own."""
    rows(_LOCK, (token,))
    if found.facts:
        run(_FACTS, (json.dumps([{"id": pk, "facts": facts} for pk, facts in sorted(found.facts.items())]), token))
    if sound := [pk for (pk,) in rows(_SOUND, (token, list(found.sound)))]:
        run(_CHECKED, (sound,))
    return [pk for (pk,) in rows(_LEFT, (token,))]
