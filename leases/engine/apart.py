"""Setting a resource apart: what one owner spoiled goes to no other."""

from __future__ import annotations

from leases.engine.transaction import run
from leases.engine.transitions import note
from leases.models import Resource


def set_apart(resource: Resource, message: str) -> None:
    """Nobody else gets it: what we built is drained and so destroyed, anything else waits for an operator."""
    column = "drained" if resource.origin == Resource.Origin.BUILT else "quarantined"
    run(f"UPDATE leases_resource SET {column} = TRUE, note = %s WHERE id = %s", (message[:2000], resource.pk))
    note(f"resource.{column}", message, resource_id=resource.pk)
