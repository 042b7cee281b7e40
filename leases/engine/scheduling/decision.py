"""Decide what to do for a pending lease that found no room: build, reclaim, wait or refuse.

The decision is a pure function of the candidates.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeAlias

from blueprints.amounts import amount
from blueprints.offers import counts
from blueprints.specs import Draft
from leases.engine.placement.budget_check import UNBOUNDED, UNKNOWN, BudgetCheck, BudgetState, price_of
from leases.engine.placement.constraints import TINY
from leases.reasons import Reason

COUNTED = 1000
"""Suitable resources are counted up to this number, so that the cost of a decision does not grow with the fleet."""


@dataclass(frozen=True, kw_only=True)
class Verdict:
    """The verdict on one candidate, in words that a user can act on."""

    blueprint: str
    answer: str
    """`build`, `reclaim`, `wait` or `no`."""
    sentence: str
    offer: str = ""
    reason: str = ""
    """The reason code, if the candidate waits or is ruled out by something that can change before the next decision."""
    cost: float | None = None
    price: float | None = None
    """The hourly cost of the lease and of the whole resource, if a budget is exceeded. None if unknown."""

    def to_json(self) -> dict[str, Any]:
        """Return the verdict as JSON, in the form in which it is stored with the lease."""
        shown: dict[str, Any] = {
            "blueprint": self.blueprint,
            "offer": self.offer,
            "answer": self.answer,
            "sentence": self.sentence,
        }
        if self.reason:
            shown["reason"] = str(self.reason)
        if self.reason == Reason.WAITING_BUDGET:
            shown |= {"cost": self.cost, "price": self.price}
        return shown


@dataclass(frozen=True, kw_only=True)
class Exclusion:
    """A remembered error, what it excludes (an offer, zone, location or blueprint), and until when."""

    scope: str
    key: str
    message: str
    until: dt.datetime | None
    passes: bool = False
    """True if the exclusion is not due to an error, and ends on its own at an unknown time."""


@dataclass(frozen=True, kw_only=True)
class Candidate:
    """A blueprint that might serve the request, with the facts that the decision needs."""

    id: int
    name: str
    enabled: bool = True
    drained: bool = False
    authorized: bool = True
    authorization_asked: bool = False
    impossible: str = ""
    """The reason why the blueprint can never build for the request, though its resources may serve it; else empty."""
    builds: bool = True
    drafts: tuple[Draft, ...] = ()
    """The resources that the blueprint can build for the request, best first."""
    stale: str = ""
    there: int = 0
    """Number of resources that count towards the blueprint's limit, counted up to the limit."""
    maximum: int | None = None
    building: int = 0
    max_builds: int = 10
    setbacks: tuple[Exclusion, ...] = ()
    budget: BudgetState | None = None
    """The budget for everything that the blueprint has built; None if it has no budget."""
    freeing: float = 0.0
    """US dollars an hour that the budget regains once the current destructions are complete."""
    spare: tuple[tuple[int, float], ...] = ()
    """Idle resources that may be removed to free budget, as (id, hourly price)."""
    suitable: int = 0
    """Number of resources that could serve the request if they were empty, counted up to `COUNTED`."""
    used_slots: int = 0
    slots: int = 0
    """Total slots of the suitable resources; `used_slots` of them are in use."""
    noun: str = "resource"
    """The word that messages use for a resource of this blueprint."""
    silent: int = 0
    """Number of suitable resources that do not answer."""
    degraded: int = 0
    """Number of suitable resources that have room, but are degraded."""
    degraded_name: str = ""
    """The name of the first of these, and what is wrong with it."""
    obstructed: int = 0
    """Number of suitable resources that cannot be leased now because of an ancestor or a part of the resource."""
    obstacle: str = ""
    """The first of the obstructed resources and its obstacle, as in `gpu-1: host-3 is held whole by another lease`."""
    idle: tuple[int, ...] = ()
    """Idle resources that may be removed to make room under the blueprint's limit, in the order of removal."""
    leaving: int = 0
    """Number of further resources that the limit allows once the current destructions are complete."""
    wanted: int = 1
    """Resources that are needed for this lease, for others of its class, and for leases that wait for a release."""

    @property
    def enough_leaves(self) -> bool:
        """True if the destructions under way make enough room, so that no further resource has to be removed."""
        return self.leaving >= self.wanted


@dataclass(frozen=True, kw_only=True)
class Build:
    """Build a resource from this draft with this blueprint."""

    blueprint_id: int
    draft: Draft
    verdicts: tuple[Verdict, ...]


@dataclass(frozen=True, kw_only=True)
class Reclaim:
    """Remove these idle resources, and then decide again."""

    resource_ids: tuple[int, ...]
    verdicts: tuple[Verdict, ...]
    message: str


@dataclass(frozen=True, kw_only=True)
class Wait:
    """Do nothing now. Decide again when the lease is woken, or at `retry_at`."""

    reason: Reason
    message: str
    verdicts: tuple[Verdict, ...]
    retry_at: dt.datetime | None = None
    personal: bool = False
    """True if a candidate exceeds a budget of the owner or group, so that leases of other owners may be served."""
    only_personal: bool = False
    """True if all exceeded budgets belong to the lease's owner or group."""


@dataclass(frozen=True, kw_only=True)
class UseDegraded:
    """Grant room on a degraded resource, because nothing healthy has room and nothing can be built now."""

    verdicts: tuple[Verdict, ...]
    otherwise: Reclaim | Wait | Refuse
    """The decision to carry out if no degraded resource can be claimed after all."""


@dataclass(frozen=True, kw_only=True)
class Refuse:
    """Break the lease, because it cannot be served unless an operator changes something."""

    message: str
    verdicts: tuple[Verdict, ...]


Decision: TypeAlias = Build | UseDegraded | Reclaim | Wait | Refuse


@dataclass(frozen=True, kw_only=True)
class _Opinion:
    """The verdict on one candidate, and what to do if it determines the decision."""

    verdict: Verdict
    reason: Reason | None = None
    """Why the candidate waits. None if it builds, reclaims or is ruled out."""
    draft: Draft | None = None
    reclaim: tuple[int, ...] = ()
    enough: bool = False
    """True if the capacity that the candidate waits for is already being built or released."""
    until: dt.datetime | None = None
    personal: bool = False
    """True if a budget of the lease's owner or group is exceeded."""
    excluded: bool = False
    """True if the blueprint is disabled or drained, or the owner may not use it.

    Such a candidate is ignored when deciding whether the request must be refused.
    """


def decide(
    candidates: Sequence[Candidate], *, held_idle: Sequence[int] = (), held_leaving: int = 0, wanted: int = 1,
    choose: str = "order", spending: BudgetCheck = UNBOUNDED,
) -> Decision:  # fmt: skip
    """Return the decision for a request, given its candidates in order.

    Builds with the first candidate that can build, or with the cheapest or fastest of those that can (`choose`).
    Otherwise uses a degraded resource with room, or else reclaims a resource of the first candidate that has an idle
    one, or else waits.

    `held_idle` are idle resources that hold leases on resources that could serve this request. `held_leaving` is the
    number of such resources that are already being destroyed, and `wanted` the number of leases that wait for the same
    capacity. If the destructions under way free enough, no further resource is removed. `spending` contains the budgets
    that limit what may be built for this lease.
    """
    opinions = [(candidate, _opinion(candidate, spending)) for candidate in candidates]
    verdicts = tuple(opinion.verdict for _, opinion in opinions)
    able = [(candidate, opinion.draft) for candidate, opinion in opinions if opinion.draft is not None]
    if able:
        candidate, draft = min(able, key=lambda one: _CHOICES[choose](one[1]))
        return Build(blueprint_id=candidate.id, draft=draft, verdicts=verdicts)
    otherwise = _without_build(opinions, verdicts, held_idle, enough_leaves=held_leaving >= wanted)
    if any(candidate.degraded and not opinion.excluded for candidate, opinion in opinions):
        return UseDegraded(verdicts=verdicts, otherwise=otherwise)
    return otherwise


def _without_build(
    opinions: Sequence[tuple[Candidate, _Opinion]], verdicts: tuple[Verdict, ...], held_idle: Sequence[int], *,
    enough_leaves: bool,
) -> Reclaim | Wait | Refuse:  # fmt: skip
    """Return the decision if no candidate can build now."""
    if enough_leaves:
        message = "An idle resource is being removed, to free the capacity that this lease needs."
        return Wait(reason=Reason.WAITING_RECLAIM, message=message, verdicts=verdicts)
    if any(opinion.enough for _, opinion in opinions):
        return _wait_or_refuse([opinion for _, opinion in opinions if opinion.enough], verdicts)
    if held_idle:
        return Reclaim(
            resource_ids=tuple(held_idle[:1]),
            verdicts=verdicts,
            message="An idle resource is being removed, to free the capacity that this lease needs.",
        )
    for candidate, opinion in opinions:
        if opinion.reclaim:
            return Reclaim(
                resource_ids=opinion.reclaim[:1],
                verdicts=verdicts,
                message=f"{candidate.name} is at its limit or budget, so an idle resource is removed first.",
            )
    return _wait_or_refuse([opinion for _, opinion in opinions], verdicts)


_CHOICES: dict[str, Callable[[Draft], float]] = {
    "order": lambda draft: 0.0,
    "price": lambda draft: (float("inf") if draft.offer else 0.0) if draft.price is None else draft.price,
    "fastest": lambda draft: float("inf") if draft.boot_seconds is None else draft.boot_seconds,
}
"""Functions that return the key by which drafts are compared. If keys are equal, the blueprints' order decides.

A draft without an offer costs nothing extra, because it uses the operator's own hardware. Unknown prices come last.
"""


def _wait_or_refuse(opinions: list[_Opinion], verdicts: tuple[Verdict, ...]) -> Wait | Refuse:
    waiting = [opinion for opinion in opinions if opinion.reason is not None]
    if not all(opinion.excluded for opinion in opinions):
        # A blueprint that is switched off is worth waiting for only if there is no other.
        waiting = [opinion for opinion in waiting if not opinion.excluded]
    if not waiting:
        said = "; ".join(f"{v.blueprint}: {v.sentence}" for v in verdicts)
        message = f"No blueprint can serve this request: {said}" if said else "No blueprint provides this type."
        return Refuse(message=message, verdicts=verdicts)
    first = min(waiting, key=lambda opinion: URGENCY.index(opinion.reason))
    times = [opinion.until for opinion in waiting if opinion.until is not None]
    assert first.reason is not None
    message = f"{first.verdict.blueprint}: {first.verdict.sentence}"
    return Wait(
        reason=first.reason, message=message, verdicts=verdicts, retry_at=min(times, default=None),
        personal=any(opinion.personal for opinion in waiting),
        only_personal=all(opinion.personal for opinion in waiting),
    )  # fmt: skip


URGENCY: list[Any] = [
    Reason.WAITING_RECLAIM,
    Reason.WAITING_ROOM,
    Reason.WAITING_LIMIT,
    Reason.WAITING_OFFER,
    Reason.WAITING_CATALOGUE,
    Reason.WAITING_BUDGET,
    Reason.WAITING_AUTHORIZATION,
    Reason.NEEDS_OPERATOR,
]


def _opinion(candidate: Candidate, spending: BudgetCheck) -> _Opinion:
    """Return the opinion on a candidate. Its verdict mentions degraded resources that have room."""
    opinion = _opinion_on_healthy(candidate, spending)
    if not candidate.degraded or opinion.excluded:
        return opinion
    kept = f"{candidate.degraded_name} has room and is degraded, so it is used only if nothing can be built now"
    sentence = f"{opinion.verdict.sentence}; {kept}"
    return replace(opinion, verdict=replace(opinion.verdict, sentence=sentence))


def _opinion_on_healthy(candidate: Candidate, spending: BudgetCheck) -> _Opinion:
    if candidate.impossible and not candidate.suitable:
        return _no(candidate, candidate.impossible)
    if not candidate.authorized:
        if candidate.authorization_asked:
            return _wait(candidate, Reason.WAITING_AUTHORIZATION, "your request to use it is pending")
        return replace(
            _no(candidate, ("you are not authorized to use it; request that with: drydock authorizations ask "
                f"{candidate.name}"),
                Reason.WAITING_AUTHORIZATION), excluded=True,
        )  # fmt: skip
    if switched_off := _switched_off(candidate):
        return replace(_wait(candidate, Reason.NEEDS_OPERATOR, switched_off), excluded=True)
    if candidate.impossible or not candidate.builds:
        return _without_building(candidate, spending)
    if candidate.stale:
        return _wait(candidate, Reason.WAITING_CATALOGUE, candidate.stale)
    return _with_building(candidate, spending)


def _switched_off(candidate: Candidate) -> str:
    if not candidate.enabled:
        return f"it is disabled; an operator can enable it: drydock blueprints enable {candidate.name}"
    if candidate.drained:
        return f"it is drained; an operator can undrain it: drydock blueprints undrain {candidate.name}"
    return ""


def _without_building(candidate: Candidate, spending: BudgetCheck) -> _Opinion:
    if candidate.suitable:
        sentence = _full(candidate, "suitable ")
        if spending.budgets:
            sentence += ", or cost more than is left of a budget"
        return replace(_wait(candidate, Reason.WAITING_ROOM, sentence), personal=bool(spending.budgets))
    return _no(candidate, "it has no resource that could serve the request, even if empty", Reason.WAITING_ROOM)


def _full(candidate: Candidate, which: str) -> str:
    """Return a clause that says how full the suitable resources are, and how many of them do not answer."""
    n, one = candidate.suitable, candidate.suitable == 1
    there = f"its only {which}{candidate.noun}" if one else f"all {_number(n)} {which}{candidate.noun}s"
    if one and candidate.silent:
        return f"{there} does not answer (unreachable)"
    if candidate.obstacle and candidate.obstructed >= candidate.suitable:
        return f"{there} cannot be leased now ({candidate.obstacle})"
    if candidate.used_slots >= candidate.slots:
        full = f"{'is' if one else 'are'} full ({candidate.used_slots} of {amount('slots', candidate.slots)})"
    else:
        full = f"{'has' if one else 'have'} too little room for the request ({candidate.used_slots} of"
        full += f" {amount('slots', candidate.slots)} in use)"
    besides = f", or cannot be leased now ({candidate.obstacle})" if candidate.obstacle else ""
    besides += f" or do not answer (unreachable: {candidate.silent})" if candidate.silent else ""
    return f"{there} {full}{besides}"


def _counted(number: int, noun: str) -> str:
    return f"{number} {noun}{'' if number == 1 else 's'}"


def _number(suitable: int) -> str:
    return str(suitable) if suitable < COUNTED else f"{COUNTED} or more"


def _with_building(candidate: Candidate, spending: BudgetCheck) -> _Opinion:
    draft, setback = _first_draft(candidate, spending)
    if draft is not None and (beyond := _beyond_budget(candidate, draft, spending)):
        return _dear(beyond, draft, spending)
    if draft is None:
        if setback is None:
            return _no(candidate, "it offers nothing that meets the request")
        reason = Reason.WAITING_OFFER if setback.until is not None or setback.passes else Reason.NEEDS_OPERATOR
        sentence = setback.message if setback.passes else f"it failed: {setback.message}"
        return _wait(candidate, reason, sentence, until=setback.until)
    if candidate.maximum is not None and candidate.there >= candidate.maximum:
        return _at_limit(candidate, candidate.maximum)
    if candidate.building >= candidate.max_builds:
        return _wait(
            candidate,
            Reason.WAITING_LIMIT,
            f"{candidate.building} builds are running, which is its limit of {candidate.max_builds}",
        )
    what = f"can build {draft.offer}" if draft.offer else "can build one"
    if draft.price is not None:
        what += f" at ${draft.price:g} per hour"
    return _Opinion(verdict=_verdict(candidate, "build", what, draft.offer), draft=draft)


def _at_limit(candidate: Candidate, maximum: int) -> _Opinion:
    if maximum == 0 and not candidate.obstacle:
        return _wait(candidate, Reason.NEEDS_OPERATOR, "its limit is 0")
    if candidate.enough_leaves or (candidate.leaving and not candidate.idle):
        sentence = (
            f"at its limit of {_counted(maximum, candidate.noun)}, {candidate.leaving} of which are being removed"
        )
        return _Opinion(
            verdict=_verdict(candidate, "wait", sentence), reason=Reason.WAITING_RECLAIM, enough=candidate.enough_leaves
        )
    if candidate.idle:
        verdict = _verdict(
            candidate,
            "reclaim",
            f"at its limit of {_counted(maximum, candidate.noun)}, one of which is idle and will be removed",
        )
        return _Opinion(verdict=verdict, reason=Reason.WAITING_LIMIT, reclaim=candidate.idle)
    reason = Reason.WAITING_ROOM if candidate.suitable else Reason.WAITING_LIMIT
    if not candidate.suitable:
        return _wait(
            candidate, reason, f"at its limit of {_counted(maximum, candidate.noun)}, none of which meets the request"
        )
    return _wait(candidate, reason, _full(candidate, "" if candidate.suitable == maximum else "suitable "))


def _first_draft(candidate: Candidate, spending: BudgetCheck) -> tuple[Draft | None, Exclusion | None]:
    """Return the first draft that no remembered error rules out and all budgets allow.

    If budgets allow none, return the cheapest draft that no error rules out. If errors rule out all drafts, return
    the error that ends first.
    """
    errors = [setback for draft in candidate.drafts if (setback := _setback(candidate, draft))]
    able = [draft for draft in candidate.drafts if _setback(candidate, draft) is None]
    for draft in able:
        if _affords(candidate, draft) and not spending.against(draft):
            return draft, None
    if able:
        return min(able, key=price_of), None
    return None, min(errors, key=lambda e: (e.until is None, e.until or dt.datetime.max), default=None)


def _affords(candidate: Candidate, draft: Draft) -> bool:
    return candidate.budget is None or candidate.budget.affords(price_of(draft))


def _beyond_budget(candidate: Candidate, draft: Draft, spending: BudgetCheck) -> _Opinion | None:
    """Return the opinion on a candidate whose draft exceeds a budget, or None if all budgets allow the draft.

    If the blueprint's own budget is exceeded, the candidate reclaims its idle resources, provided that this frees
    enough.
    """
    if against := spending.against(draft):
        return replace(_wait(candidate, Reason.WAITING_BUDGET, against), personal=True)
    if candidate.budget is None or candidate.budget.affords(price_of(draft)):
        return None
    short = price_of(draft) - candidate.budget.left
    sentence = candidate.budget.sentence(draft.offer or "one more", price_of(draft))
    if short <= candidate.freeing + TINY:
        return replace(
            _wait(candidate, Reason.WAITING_RECLAIM, f"{sentence}; some of that is being removed"), enough=True
        )
    if candidate.spare and short <= candidate.freeing + sum(cost for _, cost in candidate.spare) + TINY:
        return _Opinion(
            verdict=_verdict(candidate, "reclaim", f"{sentence}; an idle resource can be removed"),
            reason=Reason.WAITING_BUDGET, reclaim=tuple(pk for pk, _ in candidate.spare),
        )  # fmt: skip
    return _wait(candidate, Reason.WAITING_BUDGET, sentence)


def _setback(candidate: Candidate, draft: Draft) -> Exclusion | None:
    known = next((s for s in candidate.setbacks if rules_out(s.scope, s.key, draft)), None)
    if known is None and draft.refused:
        return Exclusion(scope="offer", key=draft.offer, message=draft.refused, until=None, passes=True)
    return known


def rules_out(scope: str, key: str, draft: Draft) -> bool:
    """Return whether a remembered error with this scope and key rules out the draft."""
    if scope == "location":
        return counts(key, draft.counted)
    return {"offer": draft.offer, "zone": draft.zone, "blueprint": "", "operator": ""}.get(scope) == key


def _verdict(candidate: Candidate, answer: str, sentence: str, offer: str = "", reason: str = "") -> Verdict:
    return Verdict(blueprint=candidate.name, answer=answer, sentence=sentence, offer=offer, reason=reason)


def _no(candidate: Candidate, sentence: str, reason: str = "") -> _Opinion:
    return _Opinion(verdict=_verdict(candidate, "no", sentence, reason=reason))


def _wait(candidate: Candidate, reason: Reason, sentence: str, until: dt.datetime | None = None) -> _Opinion:
    return _Opinion(verdict=_verdict(candidate, "wait", sentence, reason=reason), reason=reason, until=until)


def _dear(opinion: _Opinion, draft: Draft, spending: BudgetCheck) -> _Opinion:
    """Return the opinion with the cost of the draft, so that it can be compared with the budget when that changes."""
    cost, whole = (None if value == UNKNOWN else value for value in (spending.cost(draft), price_of(draft)))
    return replace(
        opinion,
        verdict=replace(opinion.verdict, reason=Reason.WAITING_BUDGET, offer=draft.offer, cost=cost, price=whole),
    )
