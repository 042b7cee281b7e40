"""How the faults of a plan strike: each wraps the act that it is meant for."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from blueprints.answers import Answer, Failed, Hold, Json, Need, NeededLock, Ready, Scope, Unknown, Wait
from blueprints.contract import Act
from blueprints.fake import faults
from blueprints.fake.cloud import Cloud
from blueprints.specs import Spec
from drydock.core import clock


def faulty(call: str, act: Act) -> Act:
    """The act, as the fault plan of the spec's config lets it go. Without faults for it: the act."""

    def struck(spec: Spec, memo: Json) -> Answer:
        wrapped = act
        for fault in reversed(spec.config.faults):
            if fault.touches(call, spec.resource.key, spec.resource.offer):
                wrapped = partial(_STRIKES[fault.does], fault, wrapped)
        return wrapped(spec, memo)

    return struck


def _strikes(fault: Any, spec: Spec) -> bool:
    """Count this call; True when the fault strikes now."""
    return Cloud(spec.config.provider).fires(
        _identity(fault, spec), spec.resource.key if fault.each else "", skip=fault.skip, times=fault.times
    )


def _identity(fault: Any, spec: Spec) -> str:
    return str(fault.identity(spec.resource.blueprint.name))


def _slow(fault: faults.Slow, act: Act, spec: Spec, memo: Json) -> Answer:
    mark = f"slow {_identity(fault, spec)}"
    done = memo.get(mark, 0)
    if not done and not _strikes(fault, spec):
        return act(spec, memo)
    if not done and fault.seconds:
        clock.sleep(fault.seconds)
    if done >= fault.polls:
        return act(spec, memo)
    percent = 100 * (done + 1) // (fault.polls + 1)
    return Wait(after=fault.after, memo=memo | {mark: done + 1}, percent=percent, sentence="The fake is slow.")


def _fail(fault: faults.Fail, act: Act, spec: Spec, memo: Json) -> Answer:
    if not _strikes(fault, spec):
        return act(spec, memo)
    said = {name: getattr(fault, name) for name in ("scope", "message", "code", "key", "blames_request", "remember")}
    return Failed(**said)


def _refuse(fault: faults.Refuse, act: Act, spec: Spec, memo: Json) -> Answer:
    if not _strikes(fault, spec):
        return act(spec, memo)
    what = "this zone" if fault.scope is Scope.ZONE else f"offer {spec.resource.offer or 'default'}"
    message = f"The provider has no capacity for {what}."
    return Failed(scope=Scope(fault.scope), message=message, code="capacity", remember=fault.remember)


def _lose(fault: faults.Lose, act: Act, spec: Spec, memo: Json) -> Answer:
    if not _strikes(fault, spec):
        return act(spec, memo)
    if fault.happened:
        act(spec, memo)
    return Unknown(message="The connection to the fake provider was lost.")


def _kill(fault: faults.Kill, act: Act, spec: Spec, memo: Json) -> Answer:
    if not _strikes(fault, spec):
        return act(spec, memo)
    if fault.when == "after":
        act(spec, memo)
    os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit("killed by the fault plan")


def _die(fault: faults.Die, act: Act, spec: Spec, memo: Json) -> Answer:
    if _strikes(fault, spec):
        Cloud(spec.config.provider).kill(spec.resource.key)
    return act(spec, memo)


def _part_dies(fault: faults.PartDies, act: Act, spec: Spec, memo: Json) -> Answer:
    answer = act(spec, memo)
    if not isinstance(answer, Ready) or not _strikes(fault, spec):
        return answer
    parts = (replace(one, state="dead") if one.identity == fault.part else one for one in answer.parts)
    return replace(answer, parts=tuple(parts))


def _hold(fault: faults.HoldFault, act: Act, spec: Spec, memo: Json) -> Answer:
    ask = partial(Cloud(spec.config.provider).hold, _identity(fault, spec), spec.resource.key)
    is_open = ask(begin=False)
    if is_open is None and _strikes(fault, spec):
        is_open = ask(begin=True)
    return Hold(who=fault.who, what=fault.what) if is_open else act(spec, memo)


def _need_leases(fault: faults.NeedLeases, act: Act, spec: Spec, memo: Json) -> Answer:
    missing = [lease.needed(spec.parents) for lease in fault.leases if lease.name not in spec.parents]
    return Need(leases=tuple(lease for lease in missing if lease)) if missing else act(spec, memo)


def _need_locks(fault: faults.NeedLocks, act: Act, spec: Spec, memo: Json) -> Answer:
    missing = tuple(NeededLock(**dict(lock)) for lock in fault.locks if lock.name not in spec.locks)
    return Need(locks=missing) if missing else act(spec, memo)


def _need_maintenance(fault: faults.NeedMaintenance, act: Act, spec: Spec, memo: Json) -> Answer:
    granted = f"{fault.relation}:{fault.action}" in spec.granted
    return act(spec, memo) if granted else Need(maintenance=fault.maintenance())


_STRIKES: dict[str, Callable[[Any, Act, Spec, Json], Answer]] = {
    "slow": _slow,
    "fail": _fail,
    "refuse": _refuse,
    "lose": _lose,
    "kill": _kill,
    "die": _die,
    "part_dies": _part_dies,
    "hold": _hold,
    "need_leases": _need_leases,
    "need_locks": _need_locks,
    "need_maintenance": _need_maintenance,
}
