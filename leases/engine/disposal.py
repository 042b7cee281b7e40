"""Destroying an orphan: the destroy plan of its kind, with no more to go by than its key and what its provider tells."""

from __future__ import annotations

import logging

from django.conf import settings

from blueprints import registry
from blueprints.amounts import Amounts
from blueprints.answers import Answer, Failed, Ready, Wait
from blueprints.contract import Step
from blueprints.models import Blueprint
from blueprints.specs import BlueprintView, Owned, ResourceView, Spec
from drydock.core.logging import hidden, redact
from leases.engine.transitions import note
from leases.models import Stray

log = logging.getLogger(__name__)


def dispose(stray: Stray, blueprint: Blueprint, view: BlueprintView, owned: Owned) -> None:
    """Go on with the plan as far as it goes now; what is left is for the next search, from `position` and `memo`."""
    plan = registry.kind(blueprint.kind).destroy()
    if stray.position >= len(plan):
        # Seen again after its end: once more from the beginning.
        stray.position, stray.memo = 0, {}
    if (stray.position, stray.memo) == (0, {}):
        note(
            "orphan.destroying", f"{stray.key} is destroyed: it has no row.", actor="orphans", blueprint_id=blueprint.pk
        )
    with hidden(view.credentials):
        while stray.position < len(plan) and _step(stray, plan[stray.position], _spec(stray, view, blueprint, owned)):
            pass
    if stray.position >= len(plan):
        _keep(stray, "Destroyed; the next search confirms it.")
        note("orphan.destroyed", f"{stray.key} was destroyed.", actor="orphans", blueprint_id=blueprint.pk)


def _spec(stray: Stray, view: BlueprintView, blueprint: Blueprint, owned: Owned) -> Spec:
    resource = ResourceView(
        id=stray.resource_number, key=owned.key, name=owned.key, type=blueprint.resource_type, origin="built",
        blueprint=view, attributes={}, capacity=Amounts(), facts=dict(owned.facts),
    )  # fmt: skip
    deadline = settings.DRYDOCK.step_token_seconds / 2
    token = f"{owned.key}-orphan-{stray.position}"
    return Spec(phase="destroy", key=owned.key, token=token, resource=resource, tags=owned.tags, deadline=deadline)


def _step(stray: Stray, step: Step, spec: Spec) -> bool:
    """One call; True when the next step may be called."""
    try:
        answer: Answer = step.act(spec, dict(stray.memo))
    except Exception as error:
        log.exception("Step %s of destroying %s raised.", step.name, stray.key)
        _keep(stray, f"{step.name} raised {type(error).__name__}: {error}")
        return False
    match answer:
        case Ready():
            stray.position, stray.memo = stray.position + 1, {}
            _keep(stray, f"{step.name} is done.")
            return True
        case Wait():
            stray.memo = answer.memo
            _keep(stray, answer.sentence or f"{step.name} is under way.")
        case Failed():
            stray.position, stray.memo = 0, {}
            _keep(stray, f"{step.name} failed: {answer.message}")
        case _:
            _keep(stray, f"{step.name} answered {type(answer).__name__}: {getattr(answer, 'message', '')}")
    return False


def _keep(stray: Stray, message: str) -> None:
    stray.message = redact(message).replace("\0", "")[:2000]
    stray.save(update_fields=["position", "memo", "message"])
