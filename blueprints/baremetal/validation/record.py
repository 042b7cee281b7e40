"""The record of a validation, a fact of its host: what each check found, and what must be undone at the end.

It is written together with the answer of each step, so that a validation goes on after the death of its worker.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import replace
from typing import Any

from blueprints.answers import Answer, Failed, Json, Ready, Scope, Wait
from blueprints.baremetal.sessions import since
from blueprints.baremetal.validation.values import IMPOSSIBLE, Check, Stage, Verdict
from blueprints.contract import Act
from blueprints.specs import Spec
from drydock.core import clock

logger = logging.getLogger(__name__)

FACT = "validation"
"""Name of the fact, and of the secret of the image that is deployed on trial."""
_BEGAN = "validation_began"
_SPARE = 0.9
"""Part of the deadline of a step after which its check fails, so that the engine does not end the whole validation."""
_LONGEST = 1000
"""Maximum number of characters of a result."""


def record_of(spec: Spec) -> Json:
    """Return the record of the present validation."""
    found: Json = spec.resource.facts.get(FACT) or {}
    return found


def verdict_of(spec: Spec, check: str) -> str:
    """Return the verdict of a check; an empty string if it has none yet."""
    row = record_of(spec).get("rows", {}).get(check)
    return str(row["verdict"]) if row else ""


def noted(spec: Spec, **changes: Any) -> Json:
    """Return the facts that store the record with these changes."""
    return {FACT: {**record_of(spec), **changes}}


def with_row(record: Json, check: str, verdict: Verdict, message: str) -> Json:
    """Return the facts that store a record with the verdict of a check."""
    now = clock.now().isoformat()
    row = {
        "verdict": verdict.value, "message": message[:_LONGEST], "seconds": round(since(record.get("at") or now), 1),
    }  # fmt: skip
    return {FACT: {**record, "rows": {**record.get("rows", {}), check: row}, "at": now}}


def recorded(check: Check, stage: Stage, reason: Callable[[Check, Spec], str | None]) -> Act:
    """Wrap a stage so that a failure becomes the verdict of its check, and the plan goes on.

    `reason` returns why a check is not carried out: None if it is carried out, or an empty text if nobody wants
    it. After a verdict, the other stages of the check do nothing.
    """
    last = stage is check.stages[-1]

    def carried_out(spec: Spec, memo: Json) -> Answer:
        if verdict_of(spec, check.name):
            return Ready()
        if not memo and (why := reason(check, spec)) is not None:
            row = with_row(record_of(spec), check.name, Verdict.NOT_POSSIBLE, why) if why else {}
            return Ready(resource_facts=row)
        memo = dict(memo)
        began = memo.pop(_BEGAN, None) or clock.now().isoformat()
        answer = _within(_called(stage.act, spec, memo), began, stage.deadline * _SPARE)
        if isinstance(answer, Wait):
            return replace(answer, memo={**answer.memo, _BEGAN: began}, sentence=_told(check, answer.sentence))
        return _outcome(check, spec, answer, last=last)

    return carried_out


def _called(act: Act, spec: Spec, memo: Json) -> Answer:
    try:
        return act(spec, memo)
    except Exception as error:
        logger.exception("A check of %s raised.", spec.resource.key)
        return Failed(scope=Scope.STEP, message=f"The check raised {type(error).__name__}: {error}")


def _within(answer: Answer, began: str, limit: float) -> Answer:
    if not isinstance(answer, Wait) or since(began) < limit:
        return answer
    return Failed(scope=Scope.STEP, message=f"It did not finish within {limit:.0f} s. {answer.sentence}".strip())


def _told(check: Check, sentence: str) -> str:
    return f"{check.name}: {sentence or check.proves}"[:500]


def _outcome(check: Check, spec: Spec, answer: Answer, *, last: bool) -> Answer:
    """Return the answer of a stage that has ended.

    The power that it has brought about is not kept with the resource: the end of the validation decides on that.
    """
    if isinstance(answer, Ready):
        record = answer.resource_facts.get(FACT) or record_of(spec)
        row = with_row(record, check.name, Verdict.OK, answer.log) if last else {}
        kept = replace(answer, power="", resource_facts={**answer.resource_facts, **row})
        return replace(kept, log=f"{check.name}: ok. {answer.log}".rstrip()) if last else kept
    if not isinstance(answer, Failed):
        raise TypeError(f"a check cannot answer {answer!r}")
    verdict = Verdict.NOT_POSSIBLE if answer.code in IMPOSSIBLE else Verdict.FAILED
    row = with_row(record_of(spec), check.name, verdict, answer.message)
    return Ready(
        resource_facts=row, erasures=answer.erasures, log=f"{check.name}: {verdict}. {answer.message}"[:_LONGEST]
    )
