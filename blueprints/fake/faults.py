"""The fault plan of a blueprint's config, and its effect: each fault wraps its target action.

A fault defines its effect, the call that it strikes, how often, and for which resource.
"""

from __future__ import annotations

import hashlib
import os
import signal
from collections.abc import Callable, Mapping
from dataclasses import replace
from fnmatch import fnmatchcase
from functools import partial
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import Field

from blueprints.answers import (
    Answer,
    Failed,
    Health,
    HealthState,
    Hold,
    Json,
    Maintenance,
    Need,
    NeededLease,
    NeededLock,
    Ready,
    Scope,
    Unknown,
    Wait,
)
from blueprints.contract import Act, Fields, Step
from blueprints.fake.capacity import Capacity
from blueprints.fake.cloud import Cloud
from blueprints.specs import LeaseView, Spec
from drydock.core import clock


class _Where(Fields):
    at: str = Field(description='Which calls: "build.create", "create", "build.create.find"; * and ? match.')
    keys: str = Field(default="*", description="Which resources, by key; * and ? match.")
    offers: str = Field(default="*", description="Which offers; * and ? match.")

    def touches(self, call: str, key: str, offer: str) -> bool:
        """Return whether this fault targets the call on the resource with this key and offer."""
        return self.names(call) and fnmatchcase(key, self.keys) and fnmatchcase(offer, self.offers)

    def names(self, call: str) -> bool:
        """Return whether `at` matches the call. A step's bare name means its act in any phase."""
        step = call.partition(".")[2]
        return fnmatchcase(call, self.at) or ("." not in step and fnmatchcase(step, self.at))


class _Fault(_Where):
    skip: int = Field(default=0, ge=0, description="Number of matching calls that succeed first.")
    times: int | None = Field(default=1, ge=1, description="Number of times that the fault strikes; null: no limit.")
    each: bool = Field(default=False, description="Count separately for every resource.")
    name: str = Field(default="", description="Faults with the same name are counted together.")

    def identity(self, blueprint: str) -> str:
        """Return the name under which the fault's strikes are counted."""
        return self.name or hashlib.sha256(f"{blueprint}:{self.model_dump_json()}".encode()).hexdigest()[:16]


class Slow(_Fault):
    """The step answers Wait `polls` times with a rising percent, or blocks for `seconds`."""

    does: Literal["slow"] = "slow"
    polls: int = Field(default=0, ge=0)
    after: float = Field(default=0.05, ge=0, description="Seconds until the next call of each Wait.")
    seconds: float = Field(default=0, ge=0, le=600)


class Fail(_Fault):
    """The step fails without any effect."""

    does: Literal["fail"] = "fail"
    scope: Scope = Scope.STEP
    message: str = "The fault plan makes this step fail."
    code: str = "fault"
    key: str = ""
    blames_request: bool = False
    remember: float | None = None
    quarantines_carrier: bool = False


class Refuse(_Fault):
    """The provider has no capacity for this offer, or in this zone."""

    does: Literal["refuse"] = "refuse"
    scope: Literal[Scope.OFFER, Scope.ZONE] = Scope.OFFER
    remember: float | None = None


class Lose(_Fault):
    """The answer is lost: the action happened, or did not if `happened` is false."""

    does: Literal["lose"] = "lose"
    happened: bool = True


class Kill(_Fault):
    """The worker's own process is killed with SIGKILL, before or after the act."""

    does: Literal["kill"] = "kill"
    when: Literal["before", "after"] = "after"


class Die(_Fault):
    """The instance dies by itself just before this call: with at "check.look" and skip 3, after three checks."""

    does: Literal["die"] = "die"
    at: str = "check.look"
    each: bool = True


class PartDies(_Fault):
    """A part is dead whenever it is checked; the instance lives on."""

    does: Literal["part_dies"] = "part_dies"
    at: str = "check.look"
    times: int | None = Field(default=None, ge=1, description="Number of times that the fault strikes; null: no limit.")
    part: str = Field(description="Identity of the part.")


class PartsRemoved(_Fault):
    """The step removes discovered parts of the resource, and may report its health."""

    does: Literal["parts_removed"] = "parts_removed"
    gone: tuple[str, ...] = Field(description="Identities of the parts.")
    health: HealthState | None = None


class CarrierSick(_Fault):
    """The step is done, and reports the carrier of the resource as degraded, or as well again."""

    does: Literal["carrier_sick"] = "carrier_sick"
    state: Literal["ok", "degraded"] = "degraded"


class EndsPhase(_Fault):
    """The step says that the steps that follow have nothing to do."""

    does: Literal["ends_phase"] = "ends_phase"


class DiskFails(_Fault):
    """A disk cannot be erased, and the step fails after it has erased the others."""

    does: Literal["disk_fails"] = "disk_fails"
    at: str = "clean.wipe"
    disk: str = Field(default="disk0", description="Name of the disk.")


class HoldFault(_Fault):
    """A person must act; the step continues after the provider's `resolve` was called.

    If `resolved_by` is "operator", the step takes the operator's answer instead: it continues after yes, and fails with
    the operator's text after no.
    """

    does: Literal["hold"] = "hold"
    who: str = "operator"
    what: str = "Resolve the hold at the fake provider."
    resolved_by: Literal["provider", "operator"] = "provider"
    each: bool = True


class LeaseFields(Fields):
    """A lease that the step requests."""

    name: str
    type: str
    requirements: Mapping[str, Any] = {}
    amounts: Capacity = Capacity()
    exclusive: bool = False
    lifetime: Literal["life", "phase"] = "life"
    same_resource_as: str = Field(default="", description="Another needed lease, which is requested first.")

    def needed(self, parents: Mapping[str, LeaseView]) -> NeededLease | None:
        """Return the lease to request, or None while the lease whose resource it must share is missing."""
        if self.same_resource_as and self.same_resource_as not in parents:
            return None
        on = (parents[self.same_resource_as].resource.id,) if self.same_resource_as else ()
        said = self.model_dump(exclude={"amounts", "same_resource_as"})
        return NeededLease(**said, amounts=self.amounts.amounts(), on_resources=on)


def carrier_of(config: Any) -> NeededLease | None:
    """Return the lease of the carrier that a config names, or None."""
    named = config.carrier and config.carrier.needed({})
    return replace(named, exclusive=True, lifetime="life") if named else None


class NeedLeases(_Where):
    """The step requests leases whenever one of them is missing."""

    does: Literal["need_leases"] = "need_leases"
    at: str = "build.reserve"
    leases: tuple[LeaseFields, ...]


class LockFields(Fields):
    """A slot lock that the step requests."""

    name: str
    scope: str = ""
    candidates: tuple[str, ...] = ()
    part_class: str = ""


class NeedLocks(_Where):
    """The step requests slot locks whenever one of them is missing."""

    does: Literal["need_locks"] = "need_locks"
    at: str = "build.reserve"
    locks: tuple[LockFields, ...]


class NeedMaintenance(_Where):
    """The step requests maintenance of a related resource, and proceeds only once it is granted."""

    does: Literal["need_maintenance"] = "need_maintenance"
    relation: str = "parent"
    action: Literal["drain", "alone", "vacate", "reboot", "power_cycle"] = "alone"
    holders: Literal["tell", "wait", "refuse"] = "wait"
    times: int = 1

    def maintenance(self) -> Maintenance:
        """Return the maintenance in the contract's form."""
        wanted = Maintenance(relation=self.relation, action=self.action, holders=self.holders, times=self.times)
        return replace(wanted, sentence=f"The fault plan requests maintenance of the {self.relation}.")


Fault: TypeAlias = Annotated[
    Slow
    | Fail
    | Refuse
    | Lose
    | Kill
    | Die
    | PartDies
    | PartsRemoved
    | CarrierSick
    | EndsPhase
    | DiskFails
    | HoldFault
    | NeedLeases
    | NeedLocks
    | NeedMaintenance,
    Field(discriminator="does"),
]


def faulty(call: str, act: Act) -> Act:
    """Wrap an action with the faults of the spec's config, or return it unchanged if there are none."""

    def struck(spec: Spec, memo: Json) -> Answer:
        wrapped = act
        for fault in reversed(spec.config.faults):
            if fault.touches(call, spec.resource.key, spec.resource.offer):
                wrapped = partial(_STRIKES[fault.does], fault, wrapped)
        return wrapped(spec, memo)

    return struck


def _strikes(fault: Any, spec: Spec) -> bool:
    """Count this call. Return whether the fault strikes now."""
    return Cloud(spec.config.provider).fires(
        _identity(fault, spec), spec.resource.key if fault.each else "", skip=fault.skip, times=fault.times
    )


def _identity(fault: Any, spec: Spec) -> str:
    return str(fault.identity(spec.resource.blueprint.name))


def _slow(fault: Slow, act: Act, spec: Spec, memo: Json) -> Answer:
    mark = f"slow {_identity(fault, spec)}"
    done = memo.get(mark, 0)
    if not done and not _strikes(fault, spec):
        return act(spec, memo)
    if not done and fault.seconds:
        clock.sleep(fault.seconds)
    if done >= fault.polls:
        return act(spec, memo)
    percent = 100 * (done + 1) // (fault.polls + 1)
    return Wait(after=fault.after, memo=memo | {mark: done + 1}, percent=percent, sentence="The fake provider is slow.")


def _fail(fault: Fail, act: Act, spec: Spec, memo: Json) -> Answer:
    if not _strikes(fault, spec):
        return act(spec, memo)
    names = ("scope", "message", "code", "key", "blames_request", "remember", "quarantines_carrier")
    return Failed(**{name: getattr(fault, name) for name in names})


def _refuse(fault: Refuse, act: Act, spec: Spec, memo: Json) -> Answer:
    if not _strikes(fault, spec):
        return act(spec, memo)
    what = "this zone" if fault.scope is Scope.ZONE else f"offer {spec.resource.offer or 'default'}"
    message = f"The provider has no capacity for {what}."
    return Failed(scope=Scope(fault.scope), message=message, code="capacity", remember=fault.remember)


def _lose(fault: Lose, act: Act, spec: Spec, memo: Json) -> Answer:
    if not _strikes(fault, spec):
        return act(spec, memo)
    if fault.happened:
        act(spec, memo)
    return Unknown(message="The connection to the fake provider was lost.")


def _kill(fault: Kill, act: Act, spec: Spec, memo: Json) -> Answer:
    if not _strikes(fault, spec):
        return act(spec, memo)
    if fault.when == "after":
        act(spec, memo)
    os.kill(os.getpid(), signal.SIGKILL)
    raise SystemExit("killed by the fault plan")


def _die(fault: Die, act: Act, spec: Spec, memo: Json) -> Answer:
    if _strikes(fault, spec):
        Cloud(spec.config.provider).kill(spec.resource.key)
    return act(spec, memo)


def _part_dies(fault: PartDies, act: Act, spec: Spec, memo: Json) -> Answer:
    answer = act(spec, memo)
    if not isinstance(answer, Ready) or not _strikes(fault, spec):
        return answer
    parts = (replace(one, state="dead") if one.identity == fault.part else one for one in answer.parts or ())
    return replace(answer, parts=tuple(parts))


def _parts_removed(fault: PartsRemoved, act: Act, spec: Spec, memo: Json) -> Answer:
    if not _strikes(fault, spec):
        return act(spec, memo)
    health = None if fault.health is None else Health(state=fault.health, reason="The fault plan removed its parts.")
    return Ready(rediscover=True, gone=fault.gone, health=health)


def _carrier_sick(fault: CarrierSick, act: Act, spec: Spec, memo: Json) -> Answer:
    answer = act(spec, memo)
    if not isinstance(answer, Ready) or not _strikes(fault, spec):
        return answer
    reason = "The fault plan has left something on it." if fault.state == "degraded" else ""
    return replace(answer, carrier_health=Health(state=fault.state, reason=reason))


def _ends_phase(fault: EndsPhase, act: Act, spec: Spec, memo: Json) -> Answer:
    answer = act(spec, memo)
    return replace(answer, ends_phase=True) if isinstance(answer, Ready) and _strikes(fault, spec) else answer


def _disk_fails(fault: DiskFails, act: Act, spec: Spec, memo: Json) -> Answer:
    answer = act(spec, memo)
    if not (isinstance(answer, Ready) and answer.erasures and _strikes(fault, spec)):
        return answer
    problem = "The disk is read-only."
    erasures = tuple(
        replace(one, method="", bytes=0, verified=False, problem=problem) if one.disk == fault.disk else one
        for one in answer.erasures
    )
    message = f"{fault.disk} could not be erased: {problem}"
    return Failed(scope=Scope.OPERATOR, code="disk", message=message, erasures=erasures)


def _hold(fault: HoldFault, act: Act, spec: Spec, memo: Json) -> Answer:
    if fault.resolved_by == "operator":
        return _ask(fault, act, spec, memo)
    ask = partial(Cloud(spec.config.provider).hold, _identity(fault, spec), spec.resource.key)
    is_open = ask(begin=False)
    if is_open is None and _strikes(fault, spec):
        is_open = ask(begin=True)
    return Hold(who=fault.who, what=fault.what) if is_open else act(spec, memo)


def _ask(fault: HoldFault, act: Act, spec: Spec, memo: Json) -> Answer:
    """Hold until the operator has answered. The memo says whether this fault has asked, and got its answer."""
    mark = f"hold {_identity(fault, spec)}"
    asked = memo.get(mark)
    if asked == "answered" or (asked is None and not _strikes(fault, spec)):
        return act(spec, memo)
    if asked is None or spec.resolution is None:
        return Hold(who=fault.who, what=fault.what, memo=memo | {mark: "asked"})
    if not spec.resolution.yes:
        message = f"{spec.resolution.actor} answered no: {spec.resolution.text}"
        return Failed(scope=Scope.OPERATOR, code="refused", message=message)
    return act(spec, memo | {mark: "answered"})


def _need_leases(fault: NeedLeases, act: Act, spec: Spec, memo: Json) -> Answer:
    missing = [lease.needed(spec.parents) for lease in fault.leases if lease.name not in spec.parents]
    return Need(leases=tuple(lease for lease in missing if lease)) if missing else act(spec, memo)


def _need_locks(fault: NeedLocks, act: Act, spec: Spec, memo: Json) -> Answer:
    missing = tuple(NeededLock(**dict(lock)) for lock in fault.locks if lock.name not in spec.locks)
    return Need(locks=missing) if missing else act(spec, memo)


def _need_maintenance(fault: NeedMaintenance, act: Act, spec: Spec, memo: Json) -> Answer:
    wanted = fault.maintenance()
    return act(spec, memo) if wanted.name in spec.granted else Need(maintenance=wanted)


_STRIKES: dict[str, Callable[[Any, Act, Spec, Json], Answer]] = {
    "slow": _slow,
    "fail": _fail,
    "refuse": _refuse,
    "lose": _lose,
    "kill": _kill,
    "die": _die,
    "part_dies": _part_dies,
    "parts_removed": _parts_removed,
    "carrier_sick": _carrier_sick,
    "ends_phase": _ends_phase,
    "disk_fails": _disk_fails,
    "hold": _hold,
    "need_leases": _need_leases,
    "need_locks": _need_locks,
    "need_maintenance": _need_maintenance,
}


def step(phase: str, name: str, act: Act, find: Act | None = None, *, interruptible: bool = True) -> Step:
    """Return a step that the fault plan may strike, under the name `PHASE.NAME`."""
    call = f"{phase}.{name}"
    return Step(
        name=name,
        act=faulty(call, act),
        find=faulty(f"{call}.find", find) if find else None,
        interruptible=interruptible,
    )
