"""Files of ended leases that could not be removed and were put aside: an event, and the resource's fact `aside`.

The lease has ended and the resource serves on. Its health checks try again, and say what is still there.
"""

from __future__ import annotations

from typing import Any

from blueprints.answers import Ready
from leases.engine.transaction import run
from leases.engine.transitions import note
from leases.models import Debt, Run

AT_MOST = 1000
"""Places of one resource that are kept."""
_KEEP = """
    UPDATE leases_resource SET facts = jsonb_set(facts, '{aside}', coalesce(facts -> 'aside', '[]') || to_jsonb(%s::text))
    WHERE id = %s AND NOT coalesce(facts -> 'aside', '[]') ? %s
        AND jsonb_array_length(coalesce(facts -> 'aside', '[]')) < %s"""


def keep(current: Run, answer: Ready) -> None:
    """Keep what a cleaning put aside, and what a check has found of it."""
    if where := str(answer.facts.get("put_aside") or "")[:1000]:
        _put(current, where)
    if current.phase == Run.Phase.CHECK and "aside" in answer.facts:
        _found(current, answer.facts["aside"], current.resource.facts.get("aside") or [])


def _put(current: Run, where: str) -> None:
    lease_id = current.lease_id
    if current.debt_id is not None:
        lease_id = Debt.objects.values_list("lease_id", flat=True).get(pk=current.debt_id)
    message = f"Could not be removed, and is put aside: {where}"
    note("resource.cleaning_failed", message, lease_id=lease_id, resource_id=current.resource_id)
    run(_KEEP, (where, current.resource_id, where, AT_MOST))


def _found(current: Run, now: list[Any], before: list[Any]) -> None:
    if gone := [str(each) for each in before if each not in now]:
        message = f"Removed after all: {', '.join(gone)}"[:2000]
        note("resource.cleaned", message, resource_id=current.resource_id)
