"""Answers why a lease is waiting, as a pure function of facts.

The answer does not reveal other tenants. An owner is told number, name and end only of the owner's own leases. Of the
leases of others, an owner learns how many requests come first and when the next lease on a resource ends, but not to
whom they belong.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from blueprints.amounts import CLASSES, amount
from drydock.core.units import in_words
from drydock_client.values import Sibling, Verdict, WaitingInfo
from leases.engine.placement import quotas
from leases.engine.placement.budget_check import UNKNOWN, BudgetState, dollars
from leases.engine.scheduling.decision import URGENCY
from leases.models import Lease
from leases.reasons import Reason
from leases.reports import cleaning
from leases.reports.waiting_facts import Backend, Cleaning, Facts, Holder, Limits, Queue, Room, pk_allowed


@dataclass(frozen=True, kw_only=True)
class Asker:
    """The user who asks why a lease waits.

    Operators may know about every lease, other users only about their own (`id`).
    """

    id: int | None
    operator: bool = False

    def may_know(self, owner_id: int | None) -> bool:
        """Return whether the answer may name the leases of this owner."""
        return self.operator or (owner_id is not None and owner_id == self.id)


@dataclass(frozen=True, kw_only=True)
class Opinion:
    """The reason why a blueprint does not serve the lease, as a clause that follows "because", and the remedy."""

    backend: Backend
    answer: str
    clause: str
    reason: Reason = Reason.NONE
    help: str = ""
    ends_at: dt.datetime | None = None
    ends: str = ""
    """A clause that says when the next lease on the blueprint ends."""
    holder: int | None = None
    estimate: dt.timedelta | None = None
    offer: str = ""
    excluded: bool = False
    """True if the blueprint is disabled or drained, or the owner may not use it.

    Such an opinion is used only if there is no other.
    """
    decided: bool = True
    """Whether a decision was made. Only a decision determines whether the blueprint can build a resource."""


READY = Reason.REQUESTED
"""The reason code of an opinion without an obstacle. The next check will serve the lease."""
_URGENT = [READY, *URGENCY]
_JUST_ASKED = dt.timedelta(seconds=5)
"""How long a missing worker is not reported. A command that waits starts a worker of its own within this time."""


_OF_OPERATORS = ("authorizations allow", "blueprints", "budgets set", "installation", "resources", "worker")
"""Commands that only operators may use."""


def answer(row: Lease, facts: Facts, asker: Asker) -> WaitingInfo:
    """Return the reason why a lease is waiting now, and the remedy."""
    found = _in_state(_answer(row, facts, asker), row, facts)
    return replace(found, help=_advice(found.help, asker))


def _advice(helped: str, asker: Asker) -> str:
    """Return the advice for this user. Owners are told to ask an operator if only operators may use the command."""
    does, found, command = helped.partition("drydock ")
    if asker.operator or not found or not command.startswith(_OF_OPERATORS):
        return helped
    return f"Ask an operator. {does}drydock {command}"


def _in_state(found: WaitingInfo, row: Lease, facts: Facts) -> WaitingInfo:
    """Return the answer, after the problem of the installation if it has one."""
    if row.pk in facts.unattended and facts.now - row.since >= _JUST_ASKED:
        said = f"No worker is alive, so nothing is decided or built. Apart from that: {found.message}"
        return replace(found, reason=Reason.NO_WORKER, message=said, help="Start a worker: drydock worker")
    if facts.problem:
        said = f"The installation is suspended, so nothing is built or destroyed. Apart from that: {found.message}"
        return replace(found, reason=Reason.NEEDS_OPERATOR, message=said, help="See: drydock installation")
    return found


def _answer(row: Lease, facts: Facts, asker: Asker) -> WaitingInfo:
    place = facts.places.get(row.pk, 1)
    opinions = opinions_of(row, facts, asker)
    base = WaitingInfo(
        reason=Reason.REQUESTED, message="", place=place, siblings=_siblings(row, facts),
        verdicts=tuple(_verdict(one) for one in opinions),
    )  # fmt: skip
    if row.release_wanted:
        return replace(base, message="The release was requested. The lease ends within seconds.")
    if row.parked and row.reason == Reason.WAITING_RETRY:
        return _retry(row, facts, base)
    if (excess := _over_quota(row, facts)) is not None:
        return _of_quota(row, excess, base)
    if row.group_id is not None:
        return _too_large(row, facts, base) or _of_group(row, facts, opinions, base)
    head = facts.heads.get((row.type, row.shape))
    first = _first(opinions)
    if head is not None and head.id != row.pk and not (first and first.reason is Reason.WAITING_BUDGET):
        return _behind(head, first, place, base, asker)
    return _alone(row, first, opinions, place, base)


def _retry(row: Lease, facts: Facts, base: WaitingInfo) -> WaitingInfo:
    again = _coming(row.due_at, facts.now)
    said = (
        f"Attempt {row.bounces + 1} of {facts.attempts} follows {again}. The last attempt failed: "
        f"{_sentence(row.message)}"
    )
    return replace(
        base, reason=Reason.WAITING_RETRY, message=said, help=f"Try again now: drydock retry {row.pk}",
        ends_at=row.due_at,
    )  # fmt: skip


def _of_quota(row: Lease, excess: str, base: WaitingInfo) -> WaitingInfo:
    holder = excess.split("'s quota", 1)[0]
    helped = f"Release another lease of {holder}, or ask an operator for more: drydock quotas set"
    return replace(base, reason=Reason.WAITING_QUOTA, message=excess, help=helped)


def _over_quota(row: Lease, facts: Facts) -> str | None:
    """Return a sentence about the first quota that the lease or its group would exceed now, or None."""
    if row.root_id is not None or row.for_resource_id is not None:
        return None
    members = [one for one in facts.groups.get(row.group_id or 0, ()) if one.state == "pending"]
    times = max(1, len(members))
    asked = (times, *(getattr(row, name) * times for name in CLASSES))
    extra = {name: n * times for name, n in row.extra.items()}
    for one in facts.quotas:
        charged = one.user == row.owner_id if one.user is not None else one.group == row.charged_group_id
        if charged and (said := _exceeded(one, asked, extra)):
            return said
    return None


def _exceeded(one: Limits, asked: Sequence[int], extra: Mapping[str, int]) -> str:
    for name, most, used, wanted in zip(quotas.LIMITS, one.most, one.used, asked, strict=True):
        if most is not None and used + wanted > most:
            return quotas.Excess(holder=one.holder, limit=name, maximum=most, used=used, asked=wanted).sentence
    for name, most in sorted(one.most_extra.items()):
        used, wanted = one.used_extra.get(name, 0), extra.get(name, 0)
        if used + wanted > most:
            return quotas.Excess(holder=one.holder, limit=name, maximum=most, used=used, asked=wanted).sentence
    return ""


def _too_large(row: Lease, facts: Facts, base: WaitingInfo) -> WaitingInfo | None:
    """Return the answer for a group that requests more slots than the limits can ever allow. Otherwise return None."""
    pending = [one for one in facts.groups.get(row.group_id or 0, ()) if one.state == "pending"]
    asked = sum(one.slots for one in pending if one.type == row.type)
    most = {one.name: _most(one, facts.rooms[row.type, row.shape].get(one.id, Room())) for one in _named(row, facts)}
    known = [slots for slots in most.values() if slots is not None]
    if len(known) < len(most) or not most or asked <= sum(known):
        return None
    said = f"{amount('slots', asked)} were requested together, but at most {sum(known)} can exist"
    name = next(iter(most))
    return replace(
        base, reason=Reason.NEEDS_OPERATOR, message=f"Group {row.group_id} can never be granted: {said}.",
        help=f"Request fewer leases, or allow more resources: drydock blueprints change {name} --max NUMBER",
        verdicts=tuple(
            Verdict(blueprint=name, answer="no", sentence=f"has at most {amount('slots', slots or 0)}; {said}")
            for name, slots in most.items()
        ),
    )  # fmt: skip


def _named(row: Lease, facts: Facts) -> list[Backend]:
    """Return the blueprints that the request allows."""
    return [one for one in facts.backends.values() if one.type == row.type and pk_allowed(row, one.id)]


def _most(backend: Backend, room: Room) -> int | None:
    """Return the largest number of slots that a blueprint can ever provide for such requests.

    Returns None if there is no limit, or if the limit is unknown until the blueprint has a resource.
    """
    if not backend.builds:
        return None if room.more else room.slots
    if backend.max_resources is None or not room.suitable:
        return None
    return backend.max_resources * room.largest


def _of_group(row: Lease, facts: Facts, opinions: Sequence[Opinion], base: WaitingInfo) -> WaitingInfo:
    lacking = [one for one in base.siblings if one.state == "pending" and not one.resource]
    whole = f"The {len(base.siblings)} leases in group {row.group_id} are granted together"
    first = _first(opinions)
    if row.reason == Reason.WAITING_GROUP and any(
        one.same in ("host", "whole") for one in facts.groups[row.group_id or 0]
    ):
        return replace(base, reason=Reason.WAITING_GROUP, message=row.message)
    own = next((one for one in base.siblings if one.lease == row.pk), None)
    if own is not None and own.resource:
        others = [f"lease {one.lease}" for one in lacking if one.lease != row.pk]
        waits = f"; there is no room yet for {_listed(others)}" if others else ""
        said = f"{whole}: {own.resource} is reserved for this one{waits}."
        helped = f"See why: drydock show {lacking[0].lease}" if others else ""
        return replace(base, reason=Reason.WAITING_GROUP, message=said, help=helped)
    if first is None or first.reason is READY:
        return replace(
            base, reason=Reason.WAITING_GROUP, message=f"{whole}: {len(lacking)} of these leases have no room yet."
        )
    return replace(
        _told(base, first), reason=Reason.WAITING_GROUP,
        message=f"{whole}: there is no room for this lease because {first.clause}{first.ends}.",
    )  # fmt: skip


def _behind(
    head: Queue, first: Opinion | None, place: int, base: WaitingInfo, asker: Asker
) -> WaitingInfo:  # fmt: skip
    known = asker.may_know(head.owner_id)
    others = max(0, place - 2)
    if known:
        whose = f" of {head.owner}" if asker.operator and head.owner else ""
        before = f"lease {head.id}{whose}" + (f" and {others} other{'s' if others > 1 else ''}" if others else "")
    else:
        before = f"{place - 1} older requests" if place > 2 else "an older request"
    waits = "it waits" if others and known else "the first waits" if others else "which waits"
    join = "; " if others else ", "
    if first is None:
        return replace(base, behind=head.id if known else None, message=f"Queued behind {before}.")
    why = f"for which {first.clause}" if first.reason is READY else f"{waits} because {first.clause}"
    found = replace(_told(base, first), behind=head.id if known else None)
    return replace(found, message=f"Queued behind {before}{', ' if first.reason is READY else join}{why}{first.ends}.")


def _alone(
    row: Lease, first: Opinion | None, opinions: Sequence[Opinion], place: int, base: WaitingInfo
) -> WaitingInfo:  # fmt: skip
    if first is None:
        clauses = "; ".join(one.clause for one in opinions) or f"no blueprint provides {row.type!r} any more"
        helped = next((one.help for one in opinions if one.help), "")
        return replace(base, reason=Reason.NEEDS_OPERATOR, message=f"Cannot be served: {clauses}.", help=helped)
    queue = f"{place - 1} older request{'s' if place > 2 else ''} come{'' if place > 2 else 's'} first"
    if first.reason is READY:
        does = "serves it" if first.decided else "decides"
        turn = f"The lease is not first in the queue yet ({queue})" if place > 1 else f"The next check {does}"
        return replace(_told(base, first), message=f"{turn}: {first.clause}.")
    turn = f", and {queue}" if place > 1 else ""
    return replace(_told(base, first), message=f"Waits because {first.clause}{turn}{first.ends}.")


def _told(base: WaitingInfo, first: Opinion) -> WaitingInfo:
    return replace(
        base, reason=first.reason, help=first.help, ends_at=first.ends_at, holder=first.holder,
        estimate=first.estimate,
    )  # fmt: skip


def _siblings(row: Lease, facts: Facts) -> tuple[Sibling, ...]:
    return tuple(
        Sibling(lease=one.id, state=one.state, resource=one.reserved)
        for one in facts.groups.get(row.group_id or 0, ())
    )  # fmt: skip


def _verdict(one: Opinion) -> Verdict:
    return Verdict(blueprint=one.backend.name, answer=one.answer, sentence=one.clause + one.ends, offer=one.offer)


def _first(opinions: Iterable[Opinion]) -> Opinion | None:
    """Return the opinion with the best chance to serve the lease, or None if no blueprint can."""
    found = list(opinions)
    able = found if all(one.excluded for one in found) else [one for one in found if not one.excluded]
    hopeful = [one for one in able if one.answer != "no"]
    return min(hopeful, key=lambda one: _URGENT.index(one.reason), default=None)


def opinions_of(row: Lease, facts: Facts, asker: Asker) -> list[Opinion]:
    """Return the current opinion of every blueprint that the request allows.

    Facts that only a decision can find out are taken from the last decision on this lease, or on the head of its
    queue. Everything else, which may have changed since then, is checked again.
    """
    key = (row.type, row.shape)
    head, rooms = facts.heads.get(key), facts.rooms.get(key, {})
    said = tuple(row.verdicts or ()) or (head.verdicts if head is not None else ())
    stored = {one["blueprint"]: one for one in said}
    named = _named(row, facts)
    order = {one["blueprint"]: n for n, one in enumerate(said)}
    named.sort(key=lambda one: (order.get(one.name, len(order)), one.id))
    return [_Look(row, facts, asker, one, rooms.get(one.id, Room()), stored.get(one.name)).opinion() for one in named]


class _Look:
    """Finds out why one blueprint does not serve one waiting lease."""

    def __init__(
        self, row: Lease, facts: Facts, asker: Asker, backend: Backend, room: Room, said: Mapping[str, Any] | None
    ) -> None:  # fmt: skip
        self.row, self.facts, self.asker = row, facts, asker
        self.backend, self.room, self.said = backend, room, said or {}
        self.name = backend.name

    def opinion(self) -> Opinion:
        """Return the opinion of the blueprint, with the checks in the same order as in a decision."""
        said = self.said
        if said.get("answer") == "no" and not said.get("reason"):
            return self._no(f"{self.name}: {said['sentence']}")
        if not self.room.authorized:
            return self._unauthorized()
        if not self.backend.enabled:
            return self._off(f"{self.name} is disabled", f"Enable the blueprint: drydock blueprints enable {self.name}")
        if self.backend.drained:
            return self._off(
                f"{self.name} is drained", f"Undrain the blueprint: drydock blueprints undrain {self.name}"
            )
        return self._room() or self._build()

    def _off(self, clause: str, helped: str) -> Opinion:
        return replace(self._wait(Reason.NEEDS_OPERATOR, clause, helped), excluded=True)

    def _room(self) -> Opinion | None:
        """Return the opinion for a resource that has room now, or None if no resource has room."""
        if self.room.free:
            cost = self.room.cost
            if (budget := self._short_of(UNKNOWN if cost is None else cost)) is not None:
                what = self.room.name if self.room.suitable == 1 else "what is free"
                return self._over(budget, what, UNKNOWN if cost is None else cost)
            clause = f"{self._there()} {'has' if self.room.suitable == 1 else 'have'} room"
            if self.room.degraded >= self.room.free:
                clause = f"only degraded resources of {self.name} have room"
            return self._ready(clause)
        return None

    def _build(self) -> Opinion:
        if not self.said and self.backend.builds and not self.room.suitable and self.backend.max_resources != 0:
            return replace(self._ready(f"{self.name} may be able to build one"), decided=False)
        at_limit = self.backend.max_resources is not None and self.backend.there >= self.backend.max_resources
        kept = self.said.get("reason", "")
        if kept == Reason.WAITING_OFFER or (kept == Reason.NEEDS_OPERATOR and self.backend.errors):
            return self._failed()
        if kept == Reason.WAITING_CATALOGUE:
            return self._wait(
                kept, f"{self.name}: {self.said['sentence']}", f"Show the problem: drydock blueprints show {self.name}"
            )
        if kept == Reason.WAITING_ROOM and self.said.get("answer") == "no" and not self.room.suitable:
            return self._no(f"{self.name} has no resource that could serve it")
        if at_limit:
            return self._at_limit()
        if (over := self._over_budget()) is not None:
            return over
        if self.backend.building >= self.backend.max_builds:
            return self._wait(
                Reason.WAITING_LIMIT, f"{self.name} is already building {self.backend.building} resources, the maximum at a time",
                f"Allow more builds: drydock blueprints change {self.name} --max-builds {self.backend.max_builds * 2}",
                estimate=self._estimate(),
            )  # fmt: skip
        if not self.backend.builds:
            return self._full(Reason.WAITING_ROOM)
        return self._ready(f"{self.name} can build one", estimate=self._estimate())

    def _unauthorized(self) -> Opinion:
        asked = next((one for one in self.backend.requested if one["user"] == self.row.owner_id), None)
        if asked is None:
            return replace(
                self._no(f"{'its owner' if self.row.owner_id != self.asker.id else 'you'} may not use {self.name}"),
                excluded=True,
                help=f"Request permission: drydock authorizations ask {self.name}",
            )  # fmt: skip
        since = in_words(self.facts.now - dt.datetime.fromisoformat(asked["created_at"]))
        return self._wait(
            Reason.WAITING_AUTHORIZATION, f"the use of {self.name} was requested {since} ago and is not authorized yet",
            f"Allow the use: drydock authorizations allow {asked['id']}",
        )  # fmt: skip

    def _failed(self) -> Opinion:
        sentence = str(self.said.get("sentence", ""))
        errors = [one for one in self.backend.errors if one["message"] and one["message"] in sentence]
        if self.said.get("reason") == Reason.WAITING_OFFER and not self.backend.errors and not _passes(sentence):
            return self._ready(f"{self.name} can be tried again")
        error = next(iter((*errors, *self.backend.errors)), None)
        if error is None:
            return self._wait(Reason.WAITING_OFFER, f"{self.name}: {sentence}")
        until = None if error["until"] is None else dt.datetime.fromisoformat(error["until"])
        again = "" if until is None else f", and is tried again {_coming(until, self.facts.now)}"
        return self._wait(
            Reason.NEEDS_OPERATOR if until is None else Reason.WAITING_OFFER,
            f"{self.name} failed: {str(error['message']).rstrip('.')}{again}",
            f"Try again now: drydock blueprints forget {self.name}", ends_at=until,
        )  # fmt: skip

    def _at_limit(self) -> Opinion:
        maximum = self.backend.max_resources or 0
        if maximum == 0 and self.room.obstacle is None:
            return self._wait(Reason.NEEDS_OPERATOR, f"the limit of {self.name} is 0 resources", self._more(1))
        if self.room.suitable:
            return self._full(Reason.WAITING_ROOM)
        clause = f"{self.name} is at its limit of {maximum} resource{'s' if maximum > 1 else ''}"
        if self.backend.leaving:
            return self._wait(Reason.WAITING_RECLAIM, f"{clause}, of which {self.backend.leaving} are being removed")
        return self._wait(Reason.WAITING_LIMIT, f"{clause}, and none of them could serve it", self._more(maximum + 1))

    def _full(self, reason: Reason) -> Opinion:
        room = self.room
        if not room.suitable:
            return self._no(f"{self.name} has no resource that could serve it")
        if self.backend.leaving and self.row.reason == Reason.WAITING_RECLAIM:
            return self._wait(Reason.WAITING_RECLAIM, f"an idle resource of {self.name} is being removed to make room")
        clause, helped = self._why_full()
        ends_at, ends, holder = self._next_end()
        own = next((one for one in room.holders if one.owner_id == self.row.owner_id and one.owner_id), None)
        if not helped and own is not None and own.id != self.row.pk:
            helped = f"Release another lease of the same owner there: drydock release {own.id}"
        elif not helped:
            maximum = self.backend.max_resources
            helped = self._more(maximum + 1) if maximum is not None else ""
        return replace(self._wait(reason, clause, helped), ends_at=ends_at, ends=ends, holder=holder)

    def _why_full(self) -> tuple[str, str]:
        """Return a clause that says why the resources have no room, and a command that helps, or an empty string."""
        room, there = self.room, self._there()
        if room.suitable == 1:
            note = f" ({room.note.rstrip('.')})" if room.note else ""
            if room.drained:
                return f"{there} is drained{note}", f"Undrain the resource: drydock resources undrain {room.id}"
            if room.quarantined:
                return f"{there} is in quarantine{note}", f"End it: drydock resources unquarantine {room.id}"
            if room.silent:
                return f"{there} does not answer", f"See its checks: drydock resources show {room.id}"
            if room.cleaning is not None:
                return f"{there} must be cleaned first ({self._cleaning(room.cleaning)})", ""
            if room.in_maintenance:
                return f"{there} is in maintenance", ""
            if obstacle := self._obstacle():
                return f"{there} cannot be leased now: {obstacle}", ""
            if room.reserved:
                return f"{there} is reserved for a request that has waited longer", ""
            return self._short(there, "is"), ""
        out = room.drained + room.quarantined + room.in_maintenance + room.silent
        if out >= room.suitable:
            return f"{there} are out of service or do not answer", "See which: drydock resources list"
        if room.obstacle is not None and out + room.obstructed >= room.suitable:
            return f"{there} cannot be leased now: of {room.obstructed_name}, {self._obstacle()}", ""
        counts = {
            "drained": room.drained,
            "in quarantine": room.quarantined,
            "being cleaned": room.unclean,
            "in maintenance": room.in_maintenance - room.unclean,
            "silent": room.silent,
        }
        besides = "".join(f", {n} of them {what}" for what, n in counts.items() if n)
        if obstacle := self._obstacle():
            besides += f", and {room.obstructed} of them cannot be leased now, as {room.obstructed_name}: {obstacle}"
        return self._short(there, "are") + besides, ""

    def _cleaning(self, found: Cleaning) -> str:
        """Return the state of a cleaning in a few words. Only operators are told what steps said about earlier leases."""
        said = "" if not self.asker.operator else found.sentence if found.running else found.failure
        return cleaning.clause(running=found.running, percent=found.percent, said=said)

    def _obstacle(self) -> str:
        """Return the relative that is in the way of the first obstructed resource, as a clause, or an empty string."""
        found = self.room.obstacle
        return "" if found is None else found.sentence(lease=self.asker.may_know(found.owner))

    def _short(self, there: str, verb: str) -> str:
        """Return a clause that says which requested class of capacity is lacking."""
        for name in CLASSES[1:]:
            asked, free = getattr(self.row, name), self.room.most_free.get(name, 0)
            if asked > free and self.room.most_free.get("slots", 0) >= self.row.slots:
                has = "has" if verb == "is" else "have"
                return f"{there} {has} at most {amount(name, free)} free, {amount(name, asked, bare=True)} requested"
        if self.row.exclusive and self.room.used < self.room.slots:
            return f"{there} {verb} shared with others, and a whole resource was requested"
        return f"{there} {verb} full ({self.room.used} of {amount('slots', self.room.slots)} in use)"

    def _there(self) -> str:
        if self.room.suitable == 1:
            return self.room.name or self.name
        return f"all {self.room.suitable} suitable resources of {self.name}"

    def _next_end(self) -> tuple[dt.datetime | None, str, int | None]:
        """Return when the next lease on the blueprint ends: the time, a clause, and the id of that lease.

        The time is None if no lease has an end, and the id is None if this user may not know the lease.
        """
        where = self.room.name if self.room.suitable == 1 and self.room.name else self.name
        first = next((one for one in self.room.holders if one.until is not None), None)
        if first is None or first.until is None:
            shown = self.room.holders[0] if self.room.holders else None
            known = shown.id if shown is not None and self.asker.may_know(shown.owner_id) else None
            return None, "; none of its leases has an end" if self.room.holders else "", known
        which = self._whose(first)
        soon = "ends now" if first.until <= self.facts.now else f"ends {_coming(first.until, self.facts.now)}"
        return first.until, f"; the next lease on {where}{which} {soon}", first.id if which else None

    def _whose(self, one: Holder) -> str:
        if not self.asker.may_know(one.owner_id):
            return ""
        return f" ({one.id}{f' of {one.owner}' if self.asker.operator and one.owner else ''})"

    def _purses(self) -> list[BudgetState]:
        """Return the budgets that the lease is charged to."""
        row = self.row
        if row.for_resource_id is not None:
            return []
        return [
            BudgetState(holder=holder, maximum=most, used=used)
            for user, group, holder, most, used in self.facts.budgets
            if (user is not None and user == row.owner_id) or (group is not None and group == row.charged_group_id)
        ]

    def _short_of(self, cost: float) -> BudgetState | None:
        return next((one for one in self._purses() if not one.affords(cost)), None)

    def _over_budget(self) -> Opinion | None:
        """Return the opinion if a budget still prevents a build that was too expensive, or None."""
        if self.said.get("reason") != Reason.WAITING_BUDGET:
            return None
        cost, price = (UNKNOWN if self.said.get(name) is None else float(self.said[name]) for name in ("cost", "price"))
        what = self.said.get("offer") or "the resource"
        if (budget := self._short_of(cost)) is not None:
            return self._over(budget, what, cost)
        if self.backend.budget is None:
            return None
        own = BudgetState(holder=f"blueprint {self.name}", maximum=self.backend.budget[0], used=self.backend.budget[1])
        return None if own.affords(price) else self._over(own, what, price)

    def _over(self, budget: BudgetState, what: str, cost: float) -> Opinion:
        needed = "has no known price" if cost == UNKNOWN else f"costs {dollars(cost)}/h"
        never = "" if cost == UNKNOWN or cost <= budget.maximum else ", more than the whole budget"
        kind, _, name = budget.holder.rpartition(" ")
        option = f"--{kind or 'user'} {name}"
        return self._wait(
            Reason.WAITING_BUDGET,
            f"{what} of {self.name} {needed}{never}; {budget.standing}",
            f"Raise the budget: drydock budgets set DOLLARS {option}",
        )  # fmt: skip

    def _estimate(self) -> dt.timedelta | None:
        seconds = self.backend.build_seconds
        return None if seconds is None else dt.timedelta(seconds=round(seconds, 1))

    def _more(self, number: int) -> str:
        return f"Allow more resources: drydock blueprints change {self.name} --max {number}"

    def _ready(self, clause: str, estimate: dt.timedelta | None = None) -> Opinion:
        took = "" if estimate is None else f" (builds take about {in_words(estimate)})"
        return Opinion(backend=self.backend, answer="build", clause=clause + took, reason=READY, estimate=estimate)

    def _wait(self, reason: Any, clause: str, helped: str = "", **more: Any) -> Opinion:
        offer = str(self.said.get("offer", ""))
        return Opinion(
            backend=self.backend, answer="wait", clause=clause, reason=Reason(reason), help=helped, offer=offer, **more
        )

    def _no(self, clause: str) -> Opinion:
        return Opinion(backend=self.backend, answer="no", clause=clause.rstrip("."))


def _passes(sentence: str) -> bool:
    """Return whether the last decision waited for an obstacle that goes away by itself, such as a provider's quota."""
    return not sentence.startswith("it failed")


def _coming(moment: dt.datetime | None, now: dt.datetime) -> str:
    if moment is None or moment <= now:
        return "now"
    return f"in {in_words(moment - now)}"


def _listed(words: Sequence[str]) -> str:
    if len(words) < 2:
        return "".join(words)
    shown = list(words[:5]) + ([f"{len(words) - 5} more"] if len(words) > 5 else [])
    return f"{', '.join(shown[:-1])} and {shown[-1]}"


def _sentence(text: str) -> str:
    return text if text.endswith((".", "!", "?")) else f"{text}."
