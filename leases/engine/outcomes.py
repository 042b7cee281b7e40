"""What follows from a step's answer, in one short transaction: lease, resource, then the run under its token."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable
from typing import Any

from django.conf import settings
from django.db.models import F
from django.db.models.functions import Now

from blueprints.answers import Answer, Failed, Scope, Unknown
from blueprints.contract import Plan
from leases.engine import ends, eviction, failures, needs
from leases.engine.failpoints import failpoint
from leases.engine.transaction import Busy, rows, short
from leases.engine.transitions import note
from leases.models import Run

Outcome = Callable[[Run, Answer | None, Plan], bool]


def apply(run: Run, token: uuid.UUID, outcome: Outcome, answer: Answer | None, plan: Plan) -> bool:
    """Apply an outcome if the token still holds; True when the run can be gone on with at once."""
    for _ in range(8):
        more = _apply(run, token, outcome, answer, plan)
        if more is not None:
            return more
    raise Busy


@short
def _apply(run: Run, token: uuid.UUID, outcome: Outcome, answer: Answer | None, plan: Plan) -> bool | None:
    """None: a share was taken while its holders were locked; again."""
    holders = _lock(run)
    if holders is not None and not eviction.are_all(run.resource_id, holders):
        return None
    if not _still_holds(run, token):
        return False
    more = outcome(run, answer, plan)
    failpoint("run.applying")
    return more


def _lock(run: Run) -> eviction.Holders | None:
    """Lock what the outcome may touch, in order; the holders where it may take their shares away."""
    holders = None
    if run.lease_id is not None:
        rows("SELECT 1 FROM leases_lease WHERE id = %s FOR NO KEY UPDATE", (run.lease_id,))
    elif run.phase in ends.HOLDERS_CHANGE:
        holders = eviction.lock_holders(run.resource_id)
    rows("SELECT 1 FROM leases_resource WHERE id = %s FOR NO KEY UPDATE", (run.resource_id,))
    return holders


def _still_holds(run: Run, token: uuid.UUID) -> bool:
    """Lock the run and see whether it is still ours."""
    found = rows("SELECT cancel_wanted FROM leases_run WHERE id = %s AND token = %s FOR NO KEY UPDATE", (run.pk, token))
    if found:
        run.cancel_wanted = found[0][0]
    return bool(found)


def in_(seconds: float) -> Any:
    """By the database's clock: this machine's may be wrong."""
    return Now() + dt.timedelta(seconds=seconds)


def leave(run: Run, **columns: Any) -> None:
    """Leave the run to its next call; where that may be its end, a cancel waits no longer."""
    if run.cancel_wanted and not columns.get("in_call") and not columns.get("uninterruptible", run.uninterruptible):
        columns["due_at"] = Now()
    Run.objects.filter(pk=run.pk).update(token=None, token_until=None, **columns)


def cancelled(run: Run, answer: Answer | None, plan: Plan) -> bool:
    """The run was asked to end and may end here."""
    needs.end_phase(run)
    Run.objects.filter(pk=run.pk).delete()
    ends.cancelled(run)
    return False


def postponed(run: Run, answer: Answer | None, plan: Plan) -> bool:
    """Its kind is not installed here: nothing was called, and nothing has failed."""
    assert isinstance(answer, Unknown)
    leave(run, in_call=run.in_call, step_since=None, due_at=in_(_NOT_HERE), sentence=answer.message)
    return False


_NOT_HERE = 10.0


def unkept(run: Run, answer: Answer | None, plan: Plan) -> bool:
    """What the answer led to was refused by the database: the call happened, and is looked at again."""
    assert isinstance(answer, Unknown)
    return again(run, answer.message.replace("\0", ""), in_call=True)


def done(run: Run, answer: Answer | None, plan: Plan) -> bool:
    """Every step of the plan is done."""
    needs.end_phase(run)
    Run.objects.filter(pk=run.pk).delete()
    ends.succeeded(run)
    return False


def gone_with_parents(run: Run, answer: Answer | None, plan: Plan) -> bool:
    """Nothing is left of what it stood on, so nothing is left of it."""
    note("resource.gone_with_parents", "What it stood on is gone, and it with that.", resource_id=run.resource_id)
    return done(run, answer, plan)


def failed(run: Run, answer: Failed) -> bool:
    """The phase cannot succeed."""
    needs.end_phase(run)
    if ends.keeps_trying(run):
        return again(
            run, answer.message, code=answer.code, limit=False, tried=ends.kept(run, answer), position=0, memo={}, step_since=None, maintenance=None, waits_for="",
            uninterruptible=False,
        )  # fmt: skip
    Run.objects.filter(pk=run.pk).delete()
    ends.failed(run, answer)
    return False


def again(
    run: Run, message: str, *, code: str = "", in_call: bool = False, limit: bool = True, tried: int | None = None,
    **columns: Any,
) -> bool:  # fmt: skip
    """The same step later, with backoff; when it was tried too often the phase has failed. `tried`: how often, where
    the run does not count it."""
    tries = run.tries if tried is None else tried
    if run.phase == Run.Phase.DESTROY:
        failures.record(run, Failed(scope=Scope.STEP, code=code or "unknown", message=message))
    if limit and run.tries + 1 >= settings.DRYDOCK.step_retry_limit and not ends.keeps_trying(run):
        return failed(
            run, Failed(scope=Scope.OFFER, code="retries", message=f"Failed {run.tries + 1} times: {message}")
        )
    wait = min(settings.DRYDOCK.step_backoff_seconds * 2 ** min(tries, 20), settings.DRYDOCK.step_backoff_limit_seconds)
    leave(
        run, in_call=in_call, tries=F("tries") + 1, due_at=in_(wait),
        sentence=f"Try {tries + 2} follows: {message}"[:2000], **columns,
    )  # fmt: skip
    return False
