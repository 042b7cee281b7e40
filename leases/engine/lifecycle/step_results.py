"""Decide what a step's answer means for its run (next step, wait, retry or fail), and store the results."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.db.models import Case, F, When
from django.db.models.functions import Greatest, Least, Now

from blueprints.answers import Absent, Answer, Failed, Hold, Json, Need, Ready, Scope, Unknown, Wait
from blueprints.contract import Plan
from drydock.core.errors import Busy, InvalidRequest
from leases.engine.actions import needs
from leases.engine.core import runs, specs
from leases.engine.core.database import failpoint, rows, run, short
from leases.engine.core.transitions import Holders, are_all_holders, lock_holders, record_event, take_out_of_service
from leases.engine.lifecycle import phases, resource_phases, watches
from leases.engine.records import erasures, evidence, sensors
from leases.engine.resources import cleanup, failures, provision, retirement, unreachable
from leases.messaging import hints
from leases.models import Debt, Lease, Resource, Run

AT_MOST = 1000
"""Maximum number of moved files that are recorded for one resource."""
_KEEP = """
    UPDATE leases_resource SET facts = jsonb_set(facts, '{aside}', coalesce(facts -> 'aside', '[]') || to_jsonb(%s::text))
    WHERE id = %s AND NOT coalesce(facts -> 'aside', '[]') ? %s
        AND jsonb_array_length(coalesce(facts -> 'aside', '[]')) < %s"""


def keep_aside(current: Run, answer: Ready) -> None:
    """Record the files that a cleaning moved aside because it could not remove them.

    The lease has ended and the resource stays in service. Health checks try again to remove these files, and report the
    files that are left. This function also records which files a check has removed.
    """
    if where := str(answer.facts.get("put_aside") or "")[:1000]:
        _put(current, where)
    if current.phase == Run.Phase.CHECK and "aside" in answer.facts:
        _found(current, answer.facts["aside"], current.resource.facts.get("aside") or [])


def _put(current: Run, where: str) -> None:
    lease_id = current.lease_id
    if current.debt_id is not None:
        lease_id = Debt.objects.values_list("lease_id", flat=True).get(pk=current.debt_id)
    message = f"Could not be removed, and was moved aside: {where}"
    record_event("resource.cleaning_failed", message, lease_id=lease_id, resource_id=current.resource_id)
    run(_KEEP, (where, current.resource_id, where, AT_MOST))


def _found(current: Run, now: list[Any], before: list[Any]) -> None:
    if gone := [str(each) for each in before if each not in now]:
        message = f"Removed in a later attempt: {', '.join(gone)}"[:2000]
        record_event("resource.cleaned", message, resource_id=current.resource_id)


Outcome = Callable[[Run, Answer | None, Plan], bool]


def apply(run: Run, token: uuid.UUID, outcome: Outcome, answer: Answer | None, plan: Plan) -> bool:
    """Apply the outcome of a step if the token is still valid. Return True if the run can continue at once.

    Raises Busy if every attempt to lock the leases of the resource fails because its shares change meanwhile.
    """
    for _ in range(8):
        more = _apply(run, token, outcome, answer, plan)
        if more is not None:
            return more
    raise Busy


@short
def _apply(run: Run, token: uuid.UUID, outcome: Outcome, answer: Answer | None, plan: Plan) -> bool | None:
    """Apply an outcome.

    Return None if the resource's leases changed while they were locked, so that the caller retries.
    """
    holders = _lock(run, answer)
    if holders is not None and not are_all_holders(run.resource_id, holders):
        return None
    if not _still_holds(run, token):
        return False
    more = outcome(run, answer, plan)
    failpoint("run.applying")
    return more


def _lock(run: Run, answer: Answer | None) -> Holders | None:
    """Lock the rows that the outcome may affect, in the global lock order.

    Returns the locked leases if the phase may change the shares of all leases, or None.
    """
    holders = None
    if run.lease_id is not None:
        rows("SELECT 1 FROM leases_lease WHERE id = %s FOR NO KEY UPDATE", (run.lease_id,))
    elif run.phase in phases.HOLDERS_CHANGE:
        holders = lock_holders(run.resource_id)
    touched = [run.resource_id, *([provision.carrier_of(run)] if _is_about_carrier(answer) else [])]
    rows("SELECT 1 FROM leases_resource WHERE id = ANY(%s) ORDER BY id FOR NO KEY UPDATE", (touched,))
    return holders


def _is_about_carrier(answer: Answer | None) -> bool:
    """Return whether an answer says something about the carrier of the run's resource."""
    if isinstance(answer, Failed):
        return answer.quarantines_carrier
    return isinstance(answer, Ready) and answer.carrier_health is not None


def _still_holds(run: Run, token: uuid.UUID) -> bool:
    """Lock the run and return whether the token is still valid."""
    found = rows("SELECT cancel_wanted FROM leases_run WHERE id = %s AND token = %s FOR NO KEY UPDATE", (run.pk, token))
    if found:
        run.cancel_wanted = found[0][0]
    return bool(found)


def in_(seconds: float) -> Any:
    """Return the time that is `seconds` from now by the database's clock, because this machine's clock may be wrong."""
    return Now() + dt.timedelta(seconds=seconds)


def leave(run: Run, **columns: Any) -> None:
    """Release the token and schedule the run's next step.

    A run that is being cancelled is due at once if it can end after the present step.
    """
    if run.cancel_wanted and not columns.get("in_call") and not columns.get("uninterruptible", run.uninterruptible):
        columns["due_at"] = Now()
    Run.objects.filter(pk=run.pk).update(token=None, token_until=None, **columns)


def _due_after(run: Run, answer: Wait) -> Any:
    """Return when to call a step again that waits: as soon as a wake is allowed if an object changed during the call."""
    after = in_(watches.pause(run.resource.blueprint, answer))
    return Case(When(woken=True, then=Least(after, Greatest(Now(), "woken_at"))), default=after)


def cancelled(run: Run, answer: Answer | None, plan: Plan) -> bool:
    """End a run that was cancelled. Always returns False, because the run does not continue."""
    needs.end_phase(run)
    Run.objects.filter(pk=run.pk).delete()
    phases.cancelled(run)
    return False


def postponed(run: Run, answer: Answer | None, plan: Plan) -> bool:
    """Postpone a run whose kind is not installed here. No attempt is counted, because no step was called."""
    assert isinstance(answer, Unknown)
    leave(run, in_call=run.in_call, step_since=None, due_at=in_(_NOT_HERE), sentence=answer.message)
    return False


_NOT_HERE = 10.0


def held_back(run: Run, answer: Answer | None, plan: Plan) -> bool:
    """Postpone a step that must not begin yet. The step has not been called."""
    assert isinstance(answer, Wait)
    leave(run, in_call=False, step_since=None, due_at=in_(answer.after), sentence=answer.sentence)
    return False


def put_off(run: Run, answer: Answer | None, plan: Plan) -> bool:
    """Postpone a call that must not be made while another one is made. The step goes on as it was afterwards."""
    assert isinstance(answer, Wait)
    leave(run, in_call=run.in_call, due_at=in_(answer.after), **({"sentence": answer.sentence} if not run.memo else {}))
    return False


def unkept(run: Run, answer: Answer | None, plan: Plan) -> bool:
    """Schedule another attempt after a step whose answer could not be stored.

    The step may have called the provider, so the next attempt first looks up the result of that call.
    """
    assert isinstance(answer, Unknown)
    return again(run, answer.message.replace("\0", ""), in_call=True)


def done(run: Run, answer: Answer | None, plan: Plan) -> bool:
    """Finish a run whose plan is complete."""
    needs.end_phase(run)
    Run.objects.filter(pk=run.pk).delete()
    phases.succeeded(run)
    return False


def gone_with_parents(run: Run, answer: Answer | None, plan: Plan) -> bool:
    """Finish the destruction of a resource that existed only inside its dependencies, which are all gone."""
    record_event("resource.gone_with_parents", "The resource that contained it is gone.", resource_id=run.resource_id)
    return done(run, answer, plan)


def failed(run: Run, answer: Failed) -> bool:
    """End a run whose phase has failed, or repeat the phase if it must succeed eventually."""
    needs.end_phase(run)
    if phases.keeps_trying(run):
        return again(
            run, answer.message, code=answer.code, limit=False, tried=phases.kept(run, answer), position=0, memo={}, resolution=None, step_since=None, maintenance=None, waits_for="",
            uninterruptible=False,
        )  # fmt: skip
    Run.objects.filter(pk=run.pk).delete()
    phases.failed(run, answer)
    return False


def again(
    run: Run, message: str, *, code: str = "", in_call: bool = False, limit: bool = True, tried: int | None = None,
    **columns: Any,
) -> bool:  # fmt: skip
    """Schedule another attempt of the step, later after each failure. After too many attempts, the phase fails.

    Pass `tried`, the number of earlier attempts, if it differs from the number stored with the run.
    """
    tries = run.tries if tried is None else tried
    if run.phase == Run.Phase.DESTROY:
        failures.record(run, Failed(scope=Scope.STEP, code=code or "unknown", message=message))
    if limit and run.tries + 1 >= settings.DRYDOCK.step_retry_limit and not phases.keeps_trying(run):
        return failed(
            run, Failed(scope=Scope.OFFER, code="retries", message=f"Failed {run.tries + 1} times: {message}")
        )
    wait = min(settings.DRYDOCK.step_backoff_seconds * 2 ** min(tries, 20), settings.DRYDOCK.step_backoff_limit_seconds)
    leave(
        run, in_call=in_call, tries=F("tries") + 1, due_at=in_(wait),
        sentence=f"Attempt {tries + 2} follows: {message}"[:2000], **columns,
    )  # fmt: skip
    return False


_CHECKED = (Run.Phase.BUILD, Run.Phase.CHECK, Run.Phase.UPDATE)
"""Phases that fail if a step reports the resource as failed."""


def answered(run: Run, answer: Answer | None, plan: Plan) -> bool:
    """Act on the answer of a step."""
    step = plan[run.position]
    if log := getattr(answer, "log", ""):
        record_event("step.log", log[:20_000], details={"step": step.name, "phase": run.phase}, **_about(run))
    if getattr(answer, "erasures", ()):
        erasures.record(run, step.name, answer)
    if (report := getattr(answer, "sensors", None)) is not None:
        sensors.record(run, report)
    if getattr(answer, "evidence", ()):
        evidence.record(run, answer)
    if isinstance(answer, Failed) and answer.quarantines:
        _take_out(run.resource_id, answer.message)
    if isinstance(answer, Failed) and answer.quarantines_carrier and (carrier := provision.carrier_of(run)) is not None:
        _take_out(carrier, answer.message)
    match answer:
        case Ready() if answer.health is not None and answer.health.state == "failed" and run.phase in _CHECKED:
            _keep(run, answer)
            message = answer.health.reason or "The health of the resource is reported as failed."
            return failed(run, Failed(scope=Scope.OFFER, code=resource_phases.FAILED_HEALTH, message=message))
        case Ready():
            return _ready(run, answer, plan)
        case Wait():
            leave(
                run, memo=answer.memo, due_at=_due_after(run, answer), in_call=False, tries=0, step=step.name, percent=answer.percent,
                waits_for="", sentence=answer.sentence, uninterruptible=not step.interruptible,
            )  # fmt: skip
            return answer.after <= 0
        case Unknown():
            return again(run, answer.message, in_call=True, **_memo(answer))
        case Absent():
            leave(run, in_call=False, due_at=Now())
            return True
        case Hold() | Need() if run.cancel_wanted:
            leave(run, in_call=False, uninterruptible=False)
            return True
        case Hold():
            leave(
                run, in_call=False, due_at=None, waits_for="operator", hold_who=answer.who, sentence=answer.what,
                step=step.name, uninterruptible=False, step_since=None, resolution=None, tries=0, **_memo(answer),
            )  # fmt: skip
            record_event("step.hold", f"{answer.who}: {answer.what}", details={"step": step.name}, **_about(run))
            return False
        case Need():
            return _need(run, answer, step.name)
        case Failed() if unreachable.ends_phase(run, answer):
            return failed(run, answer)
        case Failed() if answer.scope is Scope.STEP and run.tries + 1 < settings.DRYDOCK.step_retry_limit:
            unreachable.notice(run, answer)
            record_event("step.failed", answer.message, details={"step": step.name, "code": answer.code}, **_about(run))
            if answer.code != "deadline":
                return again(run, answer.message, code=answer.code)
            return failed(run, answer)
        case Failed():
            if answer.facts:
                _keep(run, Ready(facts=answer.facts))
            return failed(run, answer)
    raise AssertionError(f"no answer: {answer!r}")


def _memo(answer: Unknown | Hold) -> dict[str, Any]:
    """Return the column of the memo, or nothing if the step keeps the memo that it has."""
    return {} if answer.memo is None else {"memo": answer.memo}


def _about(run: Run) -> dict[str, Any]:
    return {"lease_id": run.lease_id, "resource_id": run.resource_id}


def _ready(run: Run, answer: Ready, plan: Plan) -> bool:
    _keep(run, answer)
    if run.phase == Run.Phase.BUILD:
        provision.join_carrier(run)
    step, further = plan[run.position], 1 + not_applying(run, plan, run.position + 1)
    if answer.ends_phase:
        further = len(plan) - run.position
    record_event("step.done", f"{run.phase}: {step.name}", details={"step": step.name}, **_about(run))
    Run.objects.filter(pk=run.pk).update(
        token=None, token_until=None, position=F("position") + further, memo={}, resolution=None, in_call=False, tries=0, waits_for="",
        step="", sentence="", percent=None, uninterruptible=False, due_at=Now(), step_since=None,
    )  # fmt: skip
    if run.position + further < len(plan) or run.cancel_wanted:
        return True
    return done(run, None, plan)


def not_applying(run: Run, plan: Plan, position: int) -> int:
    """Return how many steps, counted from this position, do not apply to the config of the run's blueprint."""
    left = plan[position:]
    if not left or left[0].applies is None:
        return 0
    try:
        config = specs.config(run.resource.blueprint.kind, run.resource.blueprint.config)
    except specs.BadConfig:
        return 0  # the call of the step tells what is wrong
    return next((at for at, step in enumerate(left) if step.applies is None or step.applies(config)), len(left))


def skipping(count: int) -> Outcome:
    """Return the outcome that skips this number of steps, which do not apply to the config."""

    def skipped(run: Run, answer: Answer | None, plan: Plan) -> bool:
        Run.objects.filter(pk=run.pk).update(
            token=None, token_until=None, position=F("position") + count, in_call=False, tries=0, step="", sentence="",
            percent=None, due_at=Now(), step_since=None,
        )  # fmt: skip
        if run.position + count < len(plan) or run.cancel_wanted:
            return True
        return done(run, None, plan)

    return skipped


def _keep(run: Run, answer: Ready) -> None:
    """Store what a step's answer says, with the lease or the resource.

    Facts and secrets of a deferred cleanup are stored with it, because its lease has ended or is on another resource.
    """
    keep_aside(run, answer)
    if answer.resource_facts or answer.resource_secrets:
        _merge(Resource, run.resource_id, answer.resource_facts, answer.resource_secrets)
    if answer.rediscover:
        retirement.hand_back_parts(run.resource_id, answer.gone)
        retirement.search_again(run.resource_id)
    if answer.own_credential:
        provision.add_to_credential(run.resource_id, answer.own_credential)
    if answer.gives_back and run.lease_id is None:
        runs.give_back(run.resource_id, answer.gives_back, run.phase)
    if answer.host is not None:
        provision.place_in_host(run.resource_id, answer.host)
    if answer.power:
        resource_phases.keep_power(run.resource_id, answer.power)
    if answer.carrier_health is not None and (carrier := provision.carrier_of(run)) is not None:
        provision.amend(carrier, Ready(health=answer.carrier_health))
    if run.debt_id is not None:
        cleanup.learned(run.debt_id, answer)
        _amend(run, answer)
        return
    if run.phase == Run.Phase.CHECK and (power := answer.facts.get("power")) in ("on", "off"):
        Resource.objects.filter(pk=run.resource_id).exclude(power=power).update(power=power)
    if run.phase == Run.Phase.CHECK and (leaving := answer.facts.get("leaving")):
        hints.once_committed(unreachable.announce, run.resource_id, str(leaving))
    holder: Lease | Resource = run.lease if run.lease is not None else run.resource
    if answer.facts or answer.secrets:
        _merge(type(holder), holder.pk, answer.facts, answer.secrets)
    _amend(run, answer)


def _merge(model: type[Lease | Resource], pk: int, facts: Json, secrets: Json) -> None:
    """Add facts and secrets to those of a lease or resource, which is locked. What is the same is not written."""
    fresh = model.objects.only("facts", "secrets").get(pk=pk)
    found = {"facts": {**fresh.facts, **facts}, "secrets": {**(fresh.secrets or {}), **secrets}}
    changed = [name for name, value in found.items() if value != (getattr(fresh, name) or {})]
    for name in changed:
        setattr(fresh, name, found[name])
    if changed:
        fresh.save(update_fields=changed)


def _amend(run: Run, answer: Ready) -> None:
    """Store what a step's answer says about the resource itself."""
    if (
        answer.attributes
        or answer.traits is not None
        or answer.capacity is not None
        or answer.parts is not None
        or answer.identities
        or answer.dies_at is not None
        or answer.health is not None
    ):
        provision.amend(run.resource_id, answer)
    if answer.health is not None and answer.health.state == "failed" and run.phase not in _CHECKED:
        _take_out(run.resource_id, f"Its health is reported as failed: {answer.health.reason}".rstrip(": "))


def _take_out(resource_id: int, message: str) -> None:
    resource = Resource.objects.get(pk=resource_id)
    if not (resource.drained or resource.quarantined):
        take_out_of_service(resource, message)


def _need(run: Run, answer: Need, step: str) -> bool:
    try:
        waits_for = needs.provide(run, answer)
    except (needs.NotToBeHad, InvalidRequest) as error:
        return failed(run, Failed(scope=Scope.OFFER, code="need", message=str(error)))
    sentence = {"": "", "leases": "Waiting for the leases that it needs.", "maintenance": "Waiting for maintenance."}[
        waits_for
    ]
    leave(
        run, in_call=False, waits_for=waits_for, step=step, sentence=sentence, maintenance=run.maintenance,
        due_at=None if waits_for else Now(), uninterruptible=False, step_since=None,
    )  # fmt: skip
    if waits_for:
        hints.after_commit("sweep")
    return not waits_for
