"""What a step's answer means for its run: kept, waited for, tried again, or the end of the phase."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.db.models import F
from django.db.models.functions import Now

from blueprints.answers import Absent, Answer, Failed, Hold, Need, Ready, Scope, Unknown, Wait
from blueprints.contract import Plan
from drydock.core.errors import InvalidRequest
from leases import hints
from leases.engine import aside, inventory, needs, suspicion, unreachable
from leases.engine.outcomes import again, done, failed, in_, leave
from leases.engine.transitions import note
from leases.models import Lease, Resource, Run


def answered(run: Run, answer: Answer | None, plan: Plan) -> bool:
    """Act on a step's answer."""
    step = plan[run.position]
    if log := getattr(answer, "log", ""):
        note("step.log", log[:20_000], details={"step": step.name, "phase": run.phase}, **_about(run))
    match answer:
        case Ready():
            return _ready(run, answer, plan)
        case Wait():
            leave(
                run, memo=answer.memo, due_at=in_(max(0.0, answer.after)), in_call=False, tries=0, step=step.name, percent=answer.percent,
                sentence=answer.sentence, uninterruptible=not step.interruptible,
            )  # fmt: skip
            return answer.after <= 0
        case Unknown():
            memo: dict[str, Any] = {} if answer.memo is None else {"memo": answer.memo}
            return again(run, answer.message, in_call=True, **memo)
        case Absent():
            leave(run, in_call=False, due_at=Now())
            return True
        case Hold() | Need() if run.cancel_wanted:
            leave(run, in_call=False, uninterruptible=False)
            return True
        case Hold():
            leave(
                run, in_call=False, due_at=None, waits_for="operator", hold_who=answer.who, sentence=answer.what,
                step=step.name, uninterruptible=False, step_since=None,
            )  # fmt: skip
            note("step.hold", f"{answer.who}: {answer.what}", details={"step": step.name}, **_about(run))
            return False
        case Need():
            return _need(run, answer, step.name)
        case Failed() if unreachable.ends_phase(run, answer):
            return failed(run, answer)
        case Failed() if answer.scope is Scope.STEP and run.tries + 1 < settings.DRYDOCK.step_retry_limit:
            unreachable.notice(run, answer)
            note("step.failed", answer.message, details={"step": step.name, "code": answer.code}, **_about(run))
            if answer.code != "deadline":
                return again(run, answer.message, code=answer.code)
            return failed(run, answer)
        case Failed():
            if answer.facts:
                _keep(run, Ready(facts=answer.facts))
            return failed(run, answer)
    raise AssertionError(f"no answer: {answer!r}")


def _about(run: Run) -> dict[str, Any]:
    return {"lease_id": run.lease_id, "resource_id": run.resource_id}


def _ready(run: Run, answer: Ready, plan: Plan) -> bool:
    _keep(run, answer)
    step = plan[run.position]
    note("step.done", f"{run.phase}: {step.name}", details={"step": step.name}, **_about(run))
    Run.objects.filter(pk=run.pk).update(
        token=None, token_until=None, position=F("position") + 1, memo={}, in_call=False, tries=0, waits_for="",
        step="", sentence="", percent=None, uninterruptible=False, due_at=Now(), step_since=None,
    )  # fmt: skip
    if run.position + 1 < len(plan) or run.cancel_wanted:
        return True
    return done(run, None, plan)


def _keep(run: Run, answer: Ready) -> None:
    """Keep what a step found out with the lease or the resource. Of a lease that is gone nothing is kept."""
    aside.keep(run, answer)
    if run.debt_id is not None:
        return
    if run.phase == Run.Phase.CHECK and (power := answer.facts.get("power")) in ("on", "off"):
        Resource.objects.filter(pk=run.resource_id).update(power=power)
    if run.phase == Run.Phase.CHECK and (leaving := answer.facts.get("leaving")):
        hints.once_committed(suspicion.announce, run.resource_id, str(leaving))
    holder: Lease | Resource = run.lease if run.lease is not None else run.resource
    if answer.facts or answer.secrets:
        fresh = type(holder).objects.only("facts", "secrets").get(pk=holder.pk)
        fresh.facts = {**fresh.facts, **answer.facts}
        fresh.secrets = {**(fresh.secrets or {}), **answer.secrets}
        fresh.save(update_fields=["facts", "secrets"])
    if (
        answer.attributes
        or answer.traits is not None
        or answer.capacity is not None
        or answer.parts
        or answer.dies_at is not None
    ):
        inventory.amend(run.resource_id, answer)


def _need(run: Run, answer: Need, step: str) -> bool:
    try:
        waits_for = needs.provide(run, answer)
    except (needs.NotToBeHad, InvalidRequest) as error:
        return failed(run, Failed(scope=Scope.OFFER, code="need", message=str(error)))
    sentence = {"": "", "leases": "Waits for the leases it needs.", "maintenance": "Waits for maintenance."}[waits_for]
    leave(
        run, in_call=False, waits_for=waits_for, step=step, sentence=sentence, maintenance=run.maintenance,
        due_at=None if waits_for else Now(), uninterruptible=False, step_since=None,
    )  # fmt: skip
    if waits_for:
        hints.after_commit("sweep")
    return not waits_for
