"""Machines that somebody else switched off: kept for a while, started again where the blueprint says so."""

from __future__ import annotations

from blueprints.contract import Offers
from blueprints.specs import Owned
from drydock.core.units import in_words
from leases.engine import power, retiring, views
from leases.engine.installation import current as standing
from leases.engine.suspicion import suspect
from leases.engine.transaction import rows
from leases.engine.transitions import note
from leases.models import Resource
from leases.reasons import Reason
from leases.states import STOPPED

UNDISTURBED = """
    NOT r.in_maintenance AND NOT EXISTS (SELECT FROM leases_run n WHERE n.resource_id = r.id AND n.lease_id IS NULL)
    AND (r.power_wanted = '' OR r.facts #>> '{stopped,restart}' = 'true' AND r.power_wanted = 'on')"""
"""SQL: nobody here wants resource `r` off, and nothing is being done to it."""
_BY_OTHERS = f"SELECT 1 FROM leases_resource r WHERE r.id = %s AND r.state = 'active' AND {UNDISTURBED}"
_BEGIN = """
    UPDATE leases_resource SET facts = facts || jsonb_build_object('stopped', jsonb_build_object(
        'since', clock_timestamp(), 'restart', %s::boolean))
    WHERE id = %s AND state = 'active' AND NOT facts ? 'stopped' RETURNING id"""
_OVER = """
    SELECT (facts #>> '{stopped,since}')::timestamptz + %s * interval '1 s' <= clock_timestamp()
        OR coalesce(dies_at <= clock_timestamp(), FALSE)
    FROM leases_resource WHERE id = %s"""


def by_others(resource_id: int) -> bool:
    """Whether it should be running: nobody here wants it off, and nothing is being done to it."""
    return bool(rows(_BY_OTHERS, (resource_id,)))


def noticed(resource: Resource, found: Owned, kind: Offers) -> None:
    """It is off, by its own read. It is given up once its grace is over, or the end of its life has come."""
    what = kind.stops(views.config(resource.blueprint.kind, resource.blueprint.config))
    why = f"It was stopped, and not by us. {found.facts.get('reason') or ''}".strip()
    new = bool(rows(_BEGIN, (what.restart and what.grace > 0, resource.pk)))
    if rows(_OVER, (what.grace, resource.pk))[0][0]:
        after = f" It was not started again within {in_words(what.grace)}." if what.grace else ""
        retiring.lose(resource.pk, reason=Reason.LOST, message=why + after, actor="status")
        return
    then = "it is being started again" if what.restart else "start it again, or it is terminated"
    said = f"{why} It is kept for {in_words(what.grace)}: {then}."
    suspect(resource.pk, said, observed=STOPPED, reason=Reason.MACHINE_STOPPED)
    if new:
        note("resource.stopped", said, actor="status", resource_id=resource.pk, reason=Reason.MACHINE_STOPPED)
    if new and what.restart and not standing().problem:
        power.want(resource.pk, "on")
