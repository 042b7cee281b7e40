"""Checks that this process runs on the machine of a local host."""

from __future__ import annotations

from blueprints.answers import Failed, Scope
from blueprints.local import machine
from blueprints.specs import ResourceView


def sentence(resource: ResourceView) -> str:
    """Return an explanation if this process runs on another machine, or an empty string if it does not."""
    there, here = resource.facts.get("machine"), machine.identity()
    if there in (None, here):
        return ""
    return f"The host is {there}, but this worker runs on {here}. Run the workers of local hosts on one machine only."


def elsewhere(resource: ResourceView) -> Failed | None:
    """Return a failure if this process runs on another machine; a retry may reach the right one."""
    said = sentence(resource)
    return Failed(scope=Scope.STEP, code="other_machine", message=said) if said else None
