"""Starting and stopping runs: rows only; `runner` carries them out."""

from __future__ import annotations

import json
from typing import Any

from blueprints import registry
from blueprints.contract import Kind, Plan
from leases import hints
from leases.engine.transaction import rows
from leases.models import Run

Phase = Run.Phase


def plan(kind: Kind, phase: str) -> Plan:
    """The kind's plan for a phase; empty where the kind has none."""
    make = getattr(kind, phase, None)
    return make() if make is not None else ()


def plan_of(kind_name: str, phase: str) -> Plan:
    return plan(registry.kind(kind_name), phase)


_START = """
    INSERT INTO leases_run (resource_id, lease_id, phase, asked, wanted)
    VALUES (%s, %s, %s, %s, %s) ON CONFLICT DO NOTHING RETURNING id"""


def start(
    *,
    resource_id: int,
    phase: str,
    lease_id: int | None = None,
    asked: Any = None,
    wanted: dict[str, Any] | None = None,
) -> int | None:
    """Begin a run unless one is under way for the same lease or resource; its id. Inside a transaction."""
    body = None if asked is None else json.dumps(asked)
    found = rows(_START, (resource_id, lease_id, phase, body, json.dumps(wanted or {})))
    if not found:
        return None
    hints.after_commit("step", found[0][0])
    return int(found[0][0])


_STOP = "DELETE FROM leases_run WHERE {whose} = %s AND {free} RETURNING id"
_CANCEL = (
    "UPDATE leases_run SET cancel_wanted = TRUE, due_at = CASE WHEN uninterruptible THEN due_at ELSE clock_timestamp() END"
    " WHERE {whose} = %s RETURNING id"
)
_FREE = "NOT in_call AND NOT uninterruptible"


def stop(*, lease_id: int | None = None, resource_id: int | None = None) -> bool:
    """End the run of a lease or of a resource itself where it may be interrupted now; else ask it to end.

    True when no run is left. A run that was asked ends at the next boundary between its steps.
    """
    whose = "lease_id" if lease_id is not None else "lease_id IS NULL AND resource_id"
    key = (lease_id if lease_id is not None else resource_id,)
    rows(_STOP.format(whose=whose, free=_FREE), key)
    left = rows(_CANCEL.format(whose=whose), key)
    for (run_id,) in left:
        hints.after_commit("step", run_id)
    return not left
