"""Carry out the steps of a run under a token."""

from __future__ import annotations

import json
import logging
import uuid
from typing import Any

from django.conf import settings
from django.db import connection

from blueprints.answers import Absent, Answer, Failed, Hold, Need, Ready, Scope, Unknown, Wait
from blueprints.contract import Act, Plan, Step
from drydock.core import clock
from drydock.core.errors import NotFound
from drydock.core.logging import about, hidden
from leases.engine.actions import grants
from leases.engine.core import database, runs, specs
from leases.engine.core.database import failpoint, patient, refuse_inside_transaction, rows
from leases.engine.core.installation import current as standing
from leases.engine.lifecycle import step_results
from leases.messaging import hints
from leases.models import Run

log = logging.getLogger(__name__)

_BUDGET = 10.0
"""Time in seconds for which one task continues a run whose next step is due at once."""


def carry_on(run_id: int) -> bool:
    """Carry out the due steps of a run. Return whether at least one step was called.

    Calls nothing while the installation is suspended, and starts no step in a worker that is shutting down.
    """
    refuse_inside_transaction("carry_on")
    began, called = clock.monotonic(), False
    while clock.monotonic() - began < _BUDGET and not database.is_draining():
        if not _one(run_id):
            return called
        called = True
    hints.send("step", run_id)
    return called


_TAKE = """
    UPDATE leases_run n SET token = %s, token_until = clock_timestamp() + %s * interval '1 s', in_call = TRUE,
        woken = FALSE, progress = NULL, step_since = coalesce(n.step_since, clock_timestamp())
    FROM (SELECT id, in_call, CASE WHEN progress_at = woken_at THEN progress END AS progress
        FROM leases_run WHERE id = %s FOR NO KEY UPDATE SKIP LOCKED) before
    WHERE n.id = before.id AND n.due_at <= clock_timestamp()
        AND (n.token IS NULL OR n.token_until < clock_timestamp() OR n.token = %s)
    RETURNING before.in_call, before.progress, extract(epoch FROM clock_timestamp() - n.step_since)::float8,
        n.lease_id IS NOT NULL"""


_OF_LEASE = ("lease__owner", "lease__resource__blueprint")
"""What is read with the run of a lease. Checks have none, and Django takes longer to name all columns than to read them."""


def _one(run_id: int) -> bool:
    """Claim the run, call its next step and apply the answer. Return False if nothing is due."""
    if standing().problem:
        return False
    token = uuid.uuid4()
    # From here on the token keeps other workers away, so if the database goes away, wait until it is back.
    if not (found := patient(rows, _TAKE, (token, settings.DRYDOCK.step_token_seconds, run_id, token))):
        return False
    failpoint("run.taken")
    in_call, progress, seconds, is_of_lease = found[0]
    related = Run.objects.select_related("resource__blueprint", *(_OF_LEASE if is_of_lease else ()))
    current = patient(related.filter(pk=run_id, token=token).first)
    if current is None:
        return False
    current.in_call, current.progress = in_call, json.loads(progress) if progress else None
    patient(specs.restore_generation, current)
    with about(**_ids(current)):
        return _go_on(current, token, seconds)


def _ids(current: Run) -> dict[str, Any]:
    """Return the fields that log lines about the run contain."""
    return {
        "run": current.pk, "phase": current.phase, "resource": current.resource_id, "lease": current.lease_id,
        "blueprint": current.resource.blueprint.name,
    }  # fmt: skip


def _go_on(current: Run, token: uuid.UUID, seconds: float) -> bool:
    try:
        plan = runs.plan_of(current.resource.blueprint.kind, current.phase, current.wanted)
    except NotFound as error:
        if current.phase == Run.Phase.ACT and _ends_here(current, None):
            return _apply(current, token, step_results.cancelled, None, ())
        return _apply(current, token, step_results.postponed, Unknown(message=str(error)), ())
    if current.phase == Run.Phase.DESTROY and patient(specs.has_lost_all_dependencies, current.resource):
        return _apply(current, token, step_results.gone_with_parents, None, plan)
    step = plan[current.position] if current.position < len(plan) else None
    if _ends_here(current, step):
        return _apply(current, token, step_results.cancelled, None, plan)
    if step is None:
        return _apply(current, token, step_results.done, None, plan)
    skipped = 0 if _is_begun(current) else step_results.not_applying(current, plan, current.position)
    # A phase begins with its first step that applies, so whether it may begin is asked before others are skipped.
    first = plan[current.position + skipped] if current.position + skipped < len(plan) else step
    begins = not _is_begun(current) and (not skipped or current.position == 0)
    if begins and (reason := patient(grants.why_not_now, current, first)):
        wait = Wait(after=_HELD_BACK + current.pk % 7 / 10, sentence=reason)
        return _apply(current, token, step_results.held_back, wait, plan)
    if skipped:
        return _apply(current, token, step_results.skipping(skipped), None, plan)
    if step.exclusive and (reason := patient(grants.why_not_beside, current, step)):
        wait = Wait(after=_BESIDE + current.pk % 7 / 20, sentence=reason)
        return _apply(current, token, step_results.put_off, wait, plan)
    answer = _in_time(_call(current, step), step, seconds)
    failpoint("run.called")
    return _apply(current, token, step_results.answered, answer, plan)


_HELD_BACK = 1.0
"""Seconds until a step that must not begin yet is tried again; slightly more for some, so that two do not collide."""


_BESIDE = 0.5
"""Seconds until an exclusive step is called that must not be called beside another one; see `_HELD_BACK`."""


def _is_begun(current: Run) -> bool:
    """Return whether the step may have been called before, so that it must go on."""
    return current.in_call or current.uninterruptible or bool(current.memo)


def _ends_here(current: Run, step: Step | None) -> bool:
    """Return whether to cancel the run now. A run is not cancelled while the effect of its last call is unknown."""
    open_ = current.in_call and step is not None and (step.find is not None or not step.interruptible)
    return current.cancel_wanted and not current.uninterruptible and not open_


def _in_time(answer: Answer, step: Step, seconds: float) -> Answer:
    """Return the answer of a step, or a failure if the step has not finished by its deadline.

    The deadline is checked after the call, because the step may not have been called for a long time.
    """
    unfinished = isinstance(answer, Wait | Absent) or (isinstance(answer, Failed) and answer.scope is Scope.STEP)
    if seconds <= step.deadline or not unfinished:
        return answer
    said = getattr(answer, "message", "") or getattr(answer, "sentence", "")
    message = f"{step.name} did not finish within {step.deadline:.0f} s. {said}".strip()
    return Failed(scope=Scope.STEP, code="deadline", message=message)


def _call(current: Run, step: Step) -> Answer:
    """Call a step once, and return its answer. An exception is returned as an answer."""
    assert not connection.in_atomic_block, "no transaction is open during a call outside"
    look = step.find if current.in_call else None
    answer = _answer(current, step, look)
    if look is not None and isinstance(answer, Failed) and answer.scope is Scope.STEP:
        return Unknown(message=answer.message)
    return answer


def _answer(current: Run, step: Step, look: Act | None) -> Answer:
    try:
        spec = patient(specs.spec, current, deadline=min(step.deadline, settings.DRYDOCK.step_token_seconds / 2))
    except Exception as error:
        if database.is_lost(error):
            raise
        return _raised(error, current, step)
    with hidden(*specs.secrets_of(spec)):
        try:
            failpoint("run.calling")
            answer = _understood((look or step.act)(spec, dict(current.memo)), step)
        except Exception as error:
            answer = _raised(error, current, step)
        return specs.redacted(answer)


def _raised(error: Exception, current: Run, step: Step) -> Answer:
    log.exception("Step %s of %s raised.", step.name, current)
    said = f"{type(error).__name__}: {error}"
    if step.find is not None:
        return Unknown(message=said)
    return Failed(scope=Scope.STEP, code=type(error).__name__, message=said)


def _understood(answer: Any, step: Step) -> Answer:
    if isinstance(answer, Ready | Wait | Failed | Unknown | Absent | Hold | Need):
        return answer
    return Failed(
        scope=Scope.OPERATOR,
        code="bad_answer",
        message=f"{step.name} returned {answer!r}, which is not a valid answer.",
    )


def _apply(current: Run, token: uuid.UUID, outcome: Any, answer: Answer | None, plan: Plan) -> bool:
    """Apply the outcome of a call to its run. Return True if the run can continue at once."""
    try:
        again = patient(step_results.apply, current, token, outcome, answer, plan)
    except Exception as error:
        if database.is_lost(error):
            raise
        log.exception("The result of %s could not be stored.", current)
        unkept = Unknown(message=f"The result could not be stored: {type(error).__name__}: {error}")
        again = patient(step_results.apply, current, token, step_results.unkept, unkept, plan)
    failpoint("run.applied")
    return again
