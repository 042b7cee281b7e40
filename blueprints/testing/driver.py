"""Carries out a plan in memory as the engine would, and can crash or lose an answer at any call.

The memo is kept between calls, and Wait is repeated a limited number of times. After a lost answer or a crash, `find`
is called before `act` is repeated. A Need is met by what the test supplies.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from blueprints.answers import (
    Absent,
    Answer,
    Failed,
    Hold,
    Json,
    Maintenance,
    Need,
    NeededLease,
    NeededLock,
    Ready,
    Resolution,
    Scope,
    Unknown,
    Wait,
)
from blueprints.contract import Plan, Step
from blueprints.specs import LeaseView, ResourceView, Spec
from blueprints.testing.outcome import Call, Ended, Mishap, Outcome, Position
from blueprints.testing.rules import ContractBroken, called
from drydock.core import clock


class Surroundings(Protocol):
    """The surroundings of a plan: other leases, a person, maintenance."""

    def needed_types(self) -> frozenset[str]:
        """Return the resource types that the kind may lease, according to its `needed_types`."""

    def supply(self, needed: NeededLease) -> LeaseView:
        """Return a lease as requested."""

    def lock(self, needed: NeededLock) -> str:
        """Return one of the candidates of a slot lock."""

    def maintain(self, maintenance: Maintenance) -> None:
        """Carry out the requested maintenance."""

    def resolve(self, hold: Hold) -> Resolution | None:
        """Answer a hold as an operator would. Return None to give no answer; the plan then ends while it is held."""

    def secrets_of(self, credential: Mapping[str, Any]) -> Iterable[str]:
        """Return the texts of a credential that must stay secret."""


_ON_LEASE = frozenset({"activate", "deactivate", "clean"})


class Driver:
    """Carries out plans.

    `pace` is the longest sleep for one Wait, in seconds. `tries` is the maximum number of calls for one step.
    """

    def __init__(self, surroundings: Surroundings, *, pace: float = 0.0, tries: int = 200, retries: int = 3) -> None:
        self._around = surroundings
        self._pace = pace
        self._tries = tries
        self._retries = retries

    def run(self, plan: Plan, spec: Spec, *, start: Position | None = None, mishap: Mishap | None = None) -> Outcome:
        """Carry out the plan, from `start` if an earlier process died there."""
        return _Run(self._around, self._pace, self._tries, self._retries, mishap).carry_out(plan, spec, start)


class _End(Exception):
    def __init__(self, ended: Ended, answer: Answer | None) -> None:
        self.ended = ended
        self.answer = answer
        super().__init__(ended)


class _Run:
    def __init__(self, around: Surroundings, pace: float, tries: int, retries: int, mishap: Mishap | None) -> None:
        self._around = around
        self._pace = pace
        self._tries = tries
        self._retries = retries
        self._mishap = mishap
        self._calls: list[Call] = []
        self._at = Position()
        self._failed = 0

    def carry_out(self, plan: Plan, spec: Spec, start: Position | None) -> Outcome:
        self._plan, self._spec = plan, spec
        self._at = start or Position(facts=_facts(spec), secrets=_secrets(spec))
        ended: Ended = "ready"
        answer: Answer | None = None
        try:
            while self._at.step < len(plan):
                following = plan[self._at.step]
                if following.applies is not None and not following.applies(spec.config):
                    self._at = replace(self._at, step=self._at.step + 1)
                else:
                    self._finish(following)
        except _End as end:
            ended, answer = end.ended, end.answer
        step = plan[min(self._at.step, len(plan) - 1)].name
        return Outcome(
            ended=ended,
            spec=self._now(),
            position=self._at,
            calls=tuple(self._calls),
            step=step,
            answer=answer,
        )

    def _finish(self, step: Step) -> None:
        began = self._at.step
        self._failed = 0
        for _ in range(self._tries):
            self._take(step, self._call(step))
            if self._at.step != began:
                return
        raise ContractBroken(f"step {step.name} was not done after {self._tries} calls")

    def _call(self, step: Step) -> Answer:
        find = self._at.looking and step.find is not None
        answer = called(step, self._now(), self._at.memo, find=find, secrets=self._around.secrets_of)
        number = len(self._calls)
        self._calls.append(Call(step=step.name, made="find" if find else "act", answer=answer))
        if self._mishap is None or number != self._mishap.at or self._mishap.does == "stop":
            return answer
        if self._mishap.does == "lose":
            return Unknown(message="the driver lost the answer")
        self._at = replace(self._at, looking=True)
        raise _End("crashed", answer)

    def _take(self, step: Step, answer: Answer) -> None:
        self._commit(answer)
        if self._mishap is not None and self._mishap.does == "stop" and len(self._calls) == self._mishap.at + 1:
            raise _End("stopped", answer)

    def _commit(self, answer: Answer) -> None:
        match answer:
            case Ready():
                self._at = self._after(answer, len(self._plan) if answer.ends_phase else self._at.step + 1)
                self._spec = _without_parents(replace(self._spec, resolution=None), answer.gives_back)
            case Wait():
                self._at = replace(self._at, memo=answer.memo, looking=False)
                clock.sleep(min(answer.after, self._pace))
            case Unknown():
                memo = self._at.memo if answer.memo is None else answer.memo
                self._at = replace(self._at, memo=memo, looking=True)
                clock.sleep(self._pace)
            case Absent():
                self._at = replace(self._at, looking=False)
            case Failed():
                self._fail(answer)
            case Hold():
                memo = self._at.memo if answer.memo is None else answer.memo
                self._at = replace(self._at, memo=memo, looking=False)
                if (resolution := self._around.resolve(answer)) is None:
                    raise _End("held", answer)
                self._spec = replace(self._spec, resolution=resolution)
            case Need():
                self._meet(answer)

    def _after(self, answer: Ready, step: int) -> Position:
        """Return the position after an answer Ready, with its facts and secrets. `step` is the next step."""
        facts, secrets = self._at.facts | answer.facts, self._at.secrets | answer.secrets
        there, hidden = answer.resource_facts, answer.resource_secrets
        if not _is_on_lease(self._spec):
            facts, secrets = facts | there, secrets | hidden
        return Position(
            step=step, facts=facts, secrets=secrets, resource_facts=self._at.resource_facts | there,
            resource_secrets=self._at.resource_secrets | hidden,
            own_credential=self._at.own_credential | answer.own_credential,
        )  # fmt: skip

    def _fail(self, answer: Failed) -> None:
        self._failed += 1
        if answer.scope is not Scope.STEP or self._failed > self._retries:
            raise _End("failed", answer)
        clock.sleep(self._pace)

    def _meet(self, need: Need) -> None:
        if undeclared := {needed.type for needed in need.leases} - self._around.needed_types():
            raise ContractBroken(
                f"The step requests a lease of resource type {min(undeclared)!r}, which `needs` does not name."
            )
        found = {needed.name: self._around.supply(needed) for needed in need.leases}
        for_life = {needed.name: found[needed.name] for needed in need.leases if needed.lifetime == "life"}
        self._spec = _with_parents(replace(self._spec, parents={**self._spec.parents, **found}), for_life)
        self._spec = _with_locks(
            self._spec, {lock.name: self._around.lock(self._of_parts(lock)) for lock in need.locks}
        )
        if (asked := need.maintenance) is not None:
            self._around.maintain(asked)
            self._spec = replace(self._spec, granted=self._spec.granted | {asked.name})

    def _of_parts(self, lock: NeededLock) -> NeededLock:
        """Return a lock with the parts to choose from as its candidates."""
        parts = (one for one in self._spec.resource.parts if one.part_class == lock.part_class and one.state == "ok")
        return replace(lock, candidates=lock.candidates or tuple(one.identity for one in parts))

    def _now(self) -> Spec:
        """Return the spec with what has been committed so far."""
        spec, at = self._spec, self._at
        if not _is_on_lease(spec) or spec.lease is None:
            own = {**spec.resource.credential, **at.own_credential}
            return replace(spec, resource=replace(spec.resource, facts=at.facts, secrets=at.secrets, credential=own))
        there = _with(spec.resource, at)
        lease = replace(spec.lease, facts=at.facts, secrets=at.secrets, resource=_with(spec.lease.resource, at))
        return replace(spec, resource=there, lease=lease)


def _is_on_lease(spec: Spec) -> bool:
    return spec.phase in _ON_LEASE and spec.lease is not None


def _with(resource: ResourceView, at: Position) -> ResourceView:
    """Return a resource with what the steps of a lease's phase have stored with it."""
    facts, secrets = resource.facts | at.resource_facts, resource.secrets | at.resource_secrets
    return replace(
        resource, facts=facts, secrets=secrets, credential={**resource.credential, **at.own_credential}
    )  # fmt: skip


def _with_parents(spec: Spec, for_life: dict[str, LeaseView]) -> Spec:
    if spec.phase in _ON_LEASE and spec.lease is not None:
        return replace(spec, lease=replace(spec.lease, parents={**spec.lease.parents, **for_life}))
    return replace(spec, resource=replace(spec.resource, parents={**spec.resource.parents, **for_life}))


def _without_parents(spec: Spec, names: tuple[str, ...]) -> Spec:
    """Return a spec without the leases that a step has given back."""
    kept = {name: lease for name, lease in spec.parents.items() if name not in names}
    held = {name: lease for name, lease in spec.resource.parents.items() if name not in names}
    return replace(spec, parents=kept, resource=replace(spec.resource, parents=held))


def _with_locks(spec: Spec, locks: dict[str, str]) -> Spec:
    spec = replace(spec, locks={**spec.locks, **locks})
    if spec.phase in _ON_LEASE:
        return spec
    return replace(spec, resource=replace(spec.resource, locks={**spec.resource.locks, **locks}))


def _facts(spec: Spec) -> Json:
    return spec.lease.facts if spec.phase in _ON_LEASE and spec.lease else spec.resource.facts


def _secrets(spec: Spec) -> Json:
    return spec.lease.secrets if spec.phase in _ON_LEASE and spec.lease else spec.resource.secrets
