"""Whether this process runs on the machine that a local host is."""

from __future__ import annotations

from blueprints.answers import Failed, Scope
from blueprints.local import machine
from blueprints.specs import ResourceView


def sentence(resource: ResourceView) -> str:
    """What is wrong when it does not; empty when it does."""
    there, here = resource.facts.get("machine"), machine.identity()
    if there in (None, here):
        return ""
    return f"The host is {there}; this worker runs on {here}. Let workers of local hosts run on one machine only."


def elsewhere(resource: ResourceView) -> Failed | None:
    """The answer of every step that came to another machine; a later try may come to the right one."""
    said = sentence(resource)
    return Failed(scope=Scope.STEP, code="other_machine", message=said) if said else None
