"""The beginning and the end of a validation: the power that the host had, and what must be undone."""

from __future__ import annotations

import datetime as dt
from collections import Counter

from blueprints.answers import Answer, Failed, Json, Ready, Scope, Wait
from blueprints.baremetal.power import boot, bring, is_meant_on
from blueprints.baremetal.ramdisk import clear
from blueprints.baremetal.sessions import bmc_told, session, since, whole
from blueprints.baremetal.validation.deploying import ERASE, is_deployed, leave
from blueprints.baremetal.validation.media import inserted
from blueprints.baremetal.validation.record import FACT, noted, record_of, verdict_of
from blueprints.baremetal.validation.values import Verdict, unmet
from blueprints.bmc.contract import Boots, Mounts
from blueprints.bmc.errors import BmcError
from blueprints.bmc.values import PowerState
from blueprints.hostshell import NeedsOperator
from blueprints.specs import ResourceView, Spec
from drydock.core import clock

LEFT = "left"
_IMAGE = "image_left"
"""Name of the part of the record that says that an earlier validation has left its image on a disk."""
_AGAIN, _PATIENCE = 5.0, 300.0
"""Seconds between two attempts to leave the host as it was, and for how long they are made."""


def begin(spec: Spec, memo: Json) -> Answer:
    """Begin the record with the power that the host has now, and whether an image of an earlier validation is left."""
    now = clock.now().isoformat()
    try:
        with session(spec.resource, whole(spec)) as bmc:
            state = bmc.power()
    except (BmcError, NeedsOperator):
        state = PowerState.UNKNOWN  # the first checks say why
    known = state if state in (PowerState.ON, PowerState.OFF) else _meant(spec.resource)
    record: Json = {"began_at": now, "at": now, "was": known.value, "rows": {}}
    return Ready(resource_facts={FACT: {**record, _IMAGE: True} if _has_image(spec) else record})


def _has_image(spec: Spec) -> bool:
    """Return whether an image that a validation has written may be on a disk, which no erasure has removed since."""
    record, erased = record_of(spec), spec.resource.facts.get("erased_at")
    if not (is_deployed(spec) or record.get(_IMAGE)) or verdict_of(spec, ERASE) == Verdict.OK:
        return False
    return not erased or dt.datetime.fromisoformat(erased) < dt.datetime.fromisoformat(record["began_at"])


def _meant(host: ResourceView) -> PowerState:
    return PowerState.ON if is_meant_on(host) else PowerState.OFF


def restore(spec: Spec, memo: Json) -> Answer:
    """Bring the host back: off if it has a ramdisk, else to the power that it had. Without media and override."""
    memo = dict(memo)
    first = memo.pop("first", None) or clock.now().isoformat()
    answer = leave(spec, memo) if spec.config.ramdisk is not None else _restored(spec, memo)
    if isinstance(answer, Failed) and since(first) < _PATIENCE and memo.get("attempts", 0) < 3:
        again = {"first": first, "attempts": memo.get("attempts", 0) + 1}
        return Wait(after=_AGAIN, memo=again, sentence=f"Tried again: {answer.message}"[:500])
    if isinstance(answer, Wait):
        kept = {"first": first, "attempts": memo.get("attempts", 0)}
        return Wait(after=answer.after, memo={**answer.memo, **kept}, sentence=answer.sentence)
    return answer


@bmc_told
def _restored(spec: Spec, memo: Json) -> Answer:
    wanted = PowerState(record_of(spec).get("was") or PowerState.OFF)
    if memo.get("stage") == "boot":
        answer = boot(spec, memo)
        return unmet(f"It was on, and accepts no login now: {answer.message}") if isinstance(answer, Failed) else answer
    with session(spec.resource, whole(spec)) as bmc:
        clear(bmc)
        waits = bring(bmc, spec, memo, wanted)
    if waits is not None or wanted is PowerState.OFF:
        return waits or Ready()
    return Wait(after=0.0, memo={**memo, "stage": "boot"}, sentence="The host is on.")


@bmc_told
def read_back(spec: Spec, memo: Json) -> Answer:
    """Check that the host has the power that it should have, and that neither medium nor boot override is left."""
    wanted = PowerState.OFF if spec.config.ramdisk is not None else PowerState(record_of(spec).get("was") or "off")
    with session(spec.resource, whole(spec)) as bmc:
        state = bmc.power()
        media = inserted(bmc.media()) if isinstance(bmc, Mounts) else []
        override = bmc.boot() if isinstance(bmc, Boots) else None
    wrong = [f"Its power is {state}, and not {wanted}."] if state is not wanted else []
    wrong += [f"A medium is left in {', '.join(media)}."] if media else []
    wrong += [f"It still boots from {override.device} next."] if override is not None else []
    return unmet(" ".join(wrong)) if wrong else Ready(log=f"The host is {wanted}, without media and boot override.")


def conclude(spec: Spec, memo: Json) -> Answer:
    """End the validation. It fails, so that the host is quarantined, if the host could not be left as it was."""
    rows = record_of(spec).get("rows", {})
    count = Counter(row["verdict"] for row in rows.values())
    failed = ", ".join(name for name, row in rows.items() if row["verdict"] == Verdict.FAILED)
    told = f"{count[Verdict.OK]} checks are ok, {count[Verdict.NOT_POSSIBLE]} were not possible"
    told += f", and these FAILED: {failed}." if failed else ". None failed."
    facts = noted(spec, ended_at=clock.now().isoformat())
    power = str(record_of(spec).get("was") or "") if spec.config.ramdisk is None else "off"
    if problem := _problem(spec, rows):
        return Failed(scope=Scope.OPERATOR, code=FACT, message=f"{problem} {told}", facts=facts)
    changed = power if power in ("on", "off") and power != spec.resource.power else ""
    return Ready(facts=facts, resource_secrets={FACT: {}}, power=changed, log=told)  # type: ignore[arg-type]


def _problem(spec: Spec, rows: Json) -> str:
    if verdict_of(spec, LEFT) != Verdict.OK:
        why = rows.get(LEFT, {}).get("message", "")
        return f"The host could not be left as it was: {why} Correct that, then validate it again with --only {LEFT}."
    if _has_image(spec):
        return "The image of the validation is still on a disk. Erase the host: drydock hosts erase."
    return ""
