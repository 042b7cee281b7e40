"""Items that need attention by a person: broken, quarantined, held, stuck or failing."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any

from django.conf import settings
from django.db.models import Exists, F, Min, OuterRef, Q, QuerySet, Subquery
from django.db.models.functions import Now

from blueprints.models import Blueprint, Reading, RememberedError
from drydock_client.values import Attention
from leases.agents.administration import problem
from leases.engine.placement.budget_check import dollars
from leases.engine.resources import failures
from leases.lifecycle import LAST_ON_MACHINE
from leases.models import (
    Agent,
    Authorization,
    Debt,
    Event,
    Failure,
    Installation,
    Lease,
    ProviderWatch,
    Resource,
    Run,
    Stray,
    Sync,
)
from leases.operations import costs, infos
from leases.operations.callers import Caller, own_leases
from leases.reasons import Reason
from leases.reports import condition, updates
from leases.states import STOPPED, SUSPECTED, UNFINISHED, VANISHED

AT_MOST = 100
"""The maximum number of items of one type, because more items of the same type tell a reader nothing new."""

OVERDUE = Q(state__in=("acquired", "active"), until__lt=Now())
HELD = Q(held=True, state__in=UNFINISHED)
HELD_STEP = Q(waits_for="operator")
VANISHED_ONES = Q(observed=VANISHED, state="active", gone_at=None)
SUSPECTED_ONES = Q(observed=SUSPECTED, state="active", gone_at=None)
STOPPED_ONES = Q(observed=STOPPED, state="active", gone_at=None, facts__has_key="stopped")
UNREACHABLE = Q(suspect_since__isnull=False, observed="unreachable", state="active", gone_at=None)
UNCHECKED = Q(suspect_since__isnull=False, state="pending", gone_at=None)
BROKEN = Q(state="broken", gone_at=None)
QUARANTINED = Q(quarantined=True, gone_at=None)
DEGRADED = Q(health="degraded", gone_at=None)
FAILED_HEALTH = Q(health="failed", quarantined=False, gone_at=None)
NO_REBOOTS = ~Q(no_reboots="") & Q(gone_at=None)
UNCLEAN = Exists(Debt.objects.filter(resource=OuterRef("pk")))
CLEANING_FAILS = Exists(Debt.objects.filter(resource=OuterRef("pk"), tries__gt=0)) & Q(gone_at=None)
PUT_ASIDE = Q(gone_at=None, facts__has_key="aside") & ~Q(facts__aside=[])
SICK = Q(check_failures__gt=0, gone_at=None) & ~Q(state="pending")
IN_USE = Q(used_slots__gt=0) | Q(busy_below__gt=0) | ~Q(closed_by=[])
OUTDATED = Q(IN_USE, state="active", gone_at=None, generation__lt=F("blueprint__generation"))
FAILING = ~Q(message="")
FOUND_TWICE = ~Q(conflicts=[]) & Q(blueprint__enabled=True, blueprint__removed_at=None)
NOT_DISCOVERED = FAILING & Q(blueprint__enabled=True, blueprint__removed_at=None)
WATCH_FAILING_AFTER = dt.timedelta(minutes=5)
"""How long a watch may fail before operators are told. Meanwhile, steps are polled."""
WATCH_FAILING = Q(failing_since__lt=Now() - WATCH_FAILING_AFTER)
TROUBLED_AGENT = Q(revoked_at=None, blueprint__enabled=True, blueprint__removed_at=None) & (
    Q(silent_since__isnull=False)
    | Q(clock_off_since__isnull=False)
    | Q(outdated_since__isnull=False)
    | ~Q(problem="")
    | ~Q(offered={})
)
REMEMBERED = Q(until=None) | Q(until__gt=Now())
ASKED = Q(state=Authorization.State.REQUESTED)


_REPORTED = Q(attempts__gte=failures.TELLING) | Q(code=failures.DEADLINE)
UNDESTROYED = Q(_REPORTED, act=failures.DESTROY, resource__gone_at=None)
FAILED_ACT = ~Q(act=failures.DESTROY) & Q(resource__state="active") & (Q(lease=None) | Q(lease__state="active"))


def stuck() -> Q:
    """Return the query condition for leases that have waited unusually long for capacity or for cleaning."""
    since = Now() - dt.timedelta(seconds=settings.DRYDOCK.attention_wait_seconds)
    waits = Q(state="pending", created_at__lt=since)
    return waits | Q(state__in=("acquired", "released"), held=False, since__lt=since)


def undecided() -> Q:
    """Return the query condition for orphans on which an operator must decide."""
    waits = ~Q(proof=Stray.Proof.PROVEN) & Q(wanted="")
    return waits | Q(wanted="") if settings.DRYDOCK.orphan_dry_run else waits


def needed(who: Caller) -> list[Attention]:
    """Return everything that needs the caller's attention, most urgent first. Owners see only their own items."""
    sorts: tuple[Callable[[Caller], Iterator[Attention]], ...] = (
        _installation, _dropped, _undestroyed, _failed_acts, _held_steps, _resources, _updates, _leases, _readings, _watches,
        _discoveries, _agents, _conflicts, _orphans, _remembered, _switched_off, _asked, _budgets,
    )  # fmt: skip
    return [one for sort in sorts for one in sort(who)]


_FOR_ALL = ("suspended", "no_worker", "sweep_late")
"""Problems of the installation that are also shown to owners, because their leases make no progress."""


def _installation(who: Caller) -> Iterator[Attention]:
    """Yield the problems of the installation as a whole."""
    for one in condition.troubles():
        if one.what not in _FOR_ALL and not who.operator:
            continue
        yield Attention(
            what=one.what, kind="installation", id=None, name="", since=one.since, message=one.message, mend=one.mend
        )


def _dropped(who: Caller) -> Iterator[Attention]:
    """Yield an item if workers have dropped messages, because another program writes to the broker."""
    if not who.operator:
        return
    lately = Installation.objects.filter(dropped_at__gt=Now() - dt.timedelta(days=1))
    for row in lately:
        yield Attention(
            what="dropped_messages", kind="installation", id=None, name="", since=row.dropped_at,
            message=f"So far, {row.dropped_messages} broker messages were dropped because Drydock did not send them. "
                f"The last one was dropped because {row.dropped_message}.",
            mend=("Check who can write to the broker. Give Drydock a broker of its own, or set a password "
"(BROKER_URL)."),
        )  # fmt: skip


def _undestroyed(who: Caller) -> Iterator[Attention]:
    """Yield resources whose destruction keeps failing, so that they continue to cost money.

    Owners see the resources that their leases held last.
    """
    found = Failure.objects.filter(UNDESTROYED).select_related("resource").order_by("since")
    if not who.operator:
        yield from _undestroyed_of(who, found)
        return
    for row in found[:AT_MOST]:
        said = failures.sentence(row.resource, row.attempts, row.message)
        yield _about(
            "destroy_failed", "resource", row.resource, row.since, said, f"drydock resources show {row.resource_id}"
        )  # fmt: skip


def _undestroyed_of(who: Caller, found: QuerySet[Failure]) -> Iterator[Attention]:
    held = own_leases(who).filter(LAST_ON_MACHINE, resource__failure__in=found)
    for lease in held.select_related("resource__failure").order_by("id")[:AT_MOST]:
        assert lease.resource is not None
        failure = lease.resource.failure
        said = failures.sentence(lease.resource, failure.attempts, failure.message)
        yield _about("destroy_failed", "lease", lease, failure.since, said, f"drydock events --lease {lease.pk}")


def _failed_acts(who: Caller) -> Iterator[Attention]:
    """Yield machines whose last action failed: a stop, start, reboot, larger disk, change of type or tags."""
    found = Failure.objects.filter(FAILED_ACT).select_related("resource").order_by("since")
    if not who.operator:
        found = found.filter(lease__owner_id=who.id)
    for row in found[:AT_MOST]:
        of, number = ("--resource ", row.resource_id) if row.lease_id is None else ("", row.lease_id)
        yield _about(
            "act_failed", "resource", row.resource, row.since,
            f"{row.act} failed ({row.attempts} attempts): {row.message}", f"drydock machine show {of}{number}",
        )  # fmt: skip


def _held_steps(who: Caller) -> Iterator[Attention]:
    found = Run.objects.filter(HELD_STEP).select_related("lease", "resource").order_by("id")
    if not who.operator:
        found = found.filter(lease__owner_id=who.id)
    for run in found[:AT_MOST]:
        kind, row = ("lease", run.lease) if run.lease is not None else ("resource", run.resource)
        yield _about(
            Reason.NEEDS_OPERATOR, kind, row, run.step_since or run.started_at,
            f"{run.phase}: {run.sentence or run.step}" + (f" (for {run.hold_who})" if run.hold_who else ""),
            f"drydock resolve --{kind} {row.pk} [--no] -m TEXT",
        )  # fmt: skip


def _about(what: str, kind: str, row: Any, since: dt.datetime | None, message: str, mend: str) -> Attention:
    return Attention(what=str(what), kind=kind, id=row.pk, name=str(row), since=since, message=message, mend=mend)


_OF_RESOURCES: tuple[tuple[str, Any, str, str], ...] = (
    (
        "vanished", VANISHED_ONES, "The machine disappeared together with everything else in its account.",
        "drydock credentials show; if it is gone for good: drydock resources destroy {id}",
    ),
    ("suspected", SUSPECTED_ONES, "The machine may be gone.", "drydock resources show {id}"),
    ("stopped", STOPPED_ONES, "The machine was switched off, but not by Drydock.", "drydock resources power {id} on"),
    ("unreachable", UNREACHABLE, "The resource does not answer.", "drydock resources show {id}"),
    (
        "first_check", UNCHECKED, "The first check of the resource fails.",
        "drydock resources change {id} FIELD=VALUE, or drydock resources remove {id}",
    ),
    ("broken", BROKEN, "The resource is broken, but still exists.", "drydock resources show {id}"),
    ("quarantined", QUARANTINED, "The resource is in quarantine.", "drydock resources unquarantine {id}"),
    ("sick", SICK, "Health checks of the resource fail.", "drydock resources show {id}"),
    (
        "failed_health", FAILED_HEALTH, "The health of the resource is reported as failed.",
        "Repair it; then: drydock resources check {id}",
    ),
    (
        "degraded", DEGRADED, "The resource is degraded, and serves new leases only as a last resort.",
        "drydock resources show {id}",
    ),
    (
        "no_reboots", NO_REBOOTS, "Maintenance must not reboot the resource.",
        "drydock resources allow-reboots {id}",
    ),
    (
        "cleaning_failed", CLEANING_FAILS, "The resource could not be cleaned.",
        "Remove the cause; then: drydock resources check {id}",
    ),
    (
        "put_aside", PUT_ASIDE, "Leftovers of ended leases could not be removed.",
        "Find out which process writes there; then: drydock resources check {id}",
    ),
)  # fmt: skip


def _updates(who: Caller) -> Iterator[Attention]:
    """Yield resources whose update waits for leases, or for something else before its first step."""
    if not who.operator:
        return
    outdated = updates.that_disturb(Resource.objects.filter(OUTDATED))
    rows = list(outdated.select_related("blueprint").defer("secrets").order_by("id")[:AT_MOST])
    runs = {run.resource_id: run for run in Run.objects.filter(resource__in=rows, lease=None)}
    found = updates.of(rows, runs)
    for row in rows:
        if row.pk in found and found[row.pk].state == updates.WAITING:
            yield _about(
                "update_waits", "resource", row, None, found[row.pk].sentence,
                f"Wait until its leases end; or: drydock resources update {row.pk} REASON",
            )  # fmt: skip


def _message(row: Resource) -> str:
    return row.message


def _put_aside(row: Resource) -> str:
    return f"Could not be removed, and was moved aside: {', '.join(map(str, row.facts['aside']))}"[:2000]


def _cleaning(row: Resource) -> str:
    debts = Debt.objects.filter(resource=row, tries__gt=0).order_by("-tries", "id")
    return " ".join(
        f"After lease {debt.lease_id}, failed {debt.tries} times at {debt.message}"
        for debt in debts.only("resource", "lease", "tries", "message")[:AT_MOST]
    )[:2000]


_SAYS: dict[str, Callable[[Resource], str]] = {
    "quarantined": lambda row: row.note, "put_aside": _put_aside,
    "failed_health": lambda row: row.health_reason, "degraded": lambda row: row.health_reason,
    "no_reboots": lambda row: row.no_reboots, "cleaning_failed": _cleaning,
}  # fmt: skip


_BEGAN = {
    "quarantined": "resource.quarantined", "sick": "resource.check_failed", "suspected": "resource.suspected",
    "vanished": "resource.vanished", "failed_health": "resource.health", "degraded": "resource.health",
    "no_reboots": "resource.no_reboots", "cleaning_failed": "resource.owes",
}  # fmt: skip
"""The event with which each problem begins. The state of the resource usually began earlier."""


def _resources(who: Caller) -> Iterator[Attention]:
    if not who.operator:
        return
    for what, matching, otherwise, mend in _OF_RESOURCES:
        began = Event.objects.filter(resource=OuterRef("pk"), kind=_BEGAN.get(what, "")).order_by("-id")
        if what == "sick":
            began = began.filter(details__failures=1)
        words = Event.objects.filter(resource=OuterRef("pk"), kind="resource.check_failed").order_by("-id")
        found = Resource.objects.filter(matching).defer("secrets").order_by("since").annotate(
            began=Subquery(began.values("at")[:1]), words=Subquery(words.values("message")[:1])
        )  # fmt: skip
        for row in found[:AT_MOST]:
            said = row.words or "" if what == "sick" else _SAYS.get(what, _message)(row)
            since = row.suspect_since if what == "unreachable" else row.began or row.since
            yield _about(what, "resource", row, since, said or otherwise, mend.format(id=row.pk))


def _leases(who: Caller) -> Iterator[Attention]:
    held = Event.objects.filter(lease=OuterRef("pk"), kind="lease.held").order_by("-id").values("at")[:1]
    for what, matching, otherwise, mend in (
        ("held", HELD, "Held for debugging.", "drydock unhold {id}"),
        ("stuck", stuck(), "Waiting longer than usual.", "drydock show {id}"),
        ("overdue", OVERDUE, "Its end time has passed, but it has not ended.", "drydock sweep"),
    ):
        rows = list(own_leases(who).filter(matching).annotate(held_at=Subquery(held)).order_by("since", "id")[:AT_MOST])
        infos.with_waits(rows, who)
        for row in rows:
            began = {"held": row.held_at, "overdue": row.until}.get(what) or row.since
            said = otherwise if what == "overdue" else infos.said(row).message or otherwise
            yield _about(what, "lease", row, began, said, mend.format(id=row.pk))


def _readings(who: Caller) -> Iterator[Attention]:
    """Yield one item for each account and type of poll that fails.

    All places of an account usually fail for one reason, so they are combined.
    """
    if not who.operator:
        return
    found = Reading.objects.filter(FAILING).select_related("credential").defer("credential__secrets")
    for row in found.order_by("credential", "kind", "what", "place").distinct("credential", "kind", "what")[:AT_MOST]:
        where = f"{row.what} of {row.place}" if row.place else row.what
        yield _about(
            "reading_failed", "credential", row.credential, row.seen_at, f"{row.kind}, {where}: {row.message}",
            f"drydock credentials show {row.credential.name}",
        )  # fmt: skip


def _watches(who: Caller) -> Iterator[Attention]:
    """Yield one item for each watch that fails. Nothing is lost but time, because steps are polled instead."""
    if not who.operator:
        return
    for row in ProviderWatch.objects.filter(WATCH_FAILING).order_by("failing_since", "id")[:AT_MOST]:
        yield Attention(
            what="watch_failed", kind="credential", id=None, name=row.credential, since=row.failing_since,
            message=f"{row.kind}, {row.place}: {row.message}", mend=f"drydock credentials show {row.credential}".strip(),
        )  # fmt: skip


def _discoveries(who: Caller) -> Iterator[Attention]:
    """Yield one item for each place whose discovery fails, or whose report could not be stored completely."""
    if not who.operator:
        return
    found = Sync.objects.filter(NOT_DISCOVERED).select_related("blueprint").order_by("blueprint", "place")
    for row in found[:AT_MOST]:
        where = f"{row.place}: " if row.place else ""
        yield _about(
            "discovery_failed", "blueprint", row.blueprint, row.seen_at, f"{where}{row.message}",
            f"drydock blueprints show {row.blueprint.name}",
        )  # fmt: skip


def _agents(who: Caller) -> Iterator[Attention]:
    """Yield one item for each agent that is silent, outdated or refused, or has a wrong clock or a new certificate."""
    if not who.operator:
        return
    found = Agent.objects.filter(TROUBLED_AGENT).select_related("blueprint").defer("secrets")
    found = found.order_by("blueprint", "place")
    for row in found[:AT_MOST]:
        what, since = next((what, at) for what, at in (
            ("agent_silent", row.silent_since), ("agent_clock", row.clock_off_since),
            ("agent_outdated", row.outdated_since), ("agent_certificate", row.hello_at if row.offered else None),
            ("agent_refused", row.reported_at or row.joined_at),
        ) if at is not None)  # fmt: skip
        yield _about(
            what, "blueprint", row.blueprint, since, f"Agent of {row.place}: {problem(row)}",
            f"drydock agents show {row.pk}",
        )  # fmt: skip


def _conflicts(who: Caller) -> Iterator[Attention]:
    """Yield an item for each reported thing that another resource represents already."""
    if not who.operator:
        return
    places = Sync.objects.filter(FOUND_TWICE).select_related("blueprint").order_by("blueprint", "place")[:AT_MOST]
    for row, one in [(place, conflict) for place in places for conflict in place.conflicts][:AT_MOST]:
        yield _about(
            "identity_conflict", "blueprint", row.blueprint, dt.datetime.fromisoformat(one["since"]), one["message"],
            f"drydock resources show {one['resource']}",
        )  # fmt: skip


def _orphans(who: Caller) -> Iterator[Attention]:
    """Yield orphans that need an operator's decision."""
    if not who.operator:
        return
    for row in Stray.objects.filter(undecided()).select_related("blueprint").order_by("first_seen_at")[:AT_MOST]:
        what = "suspect" if row.proof == Stray.Proof.SUSPECT else "orphan"
        yield Attention(
            what=what, kind="blueprint", id=row.blueprint_id, name=str(row.blueprint), since=row.first_seen_at,
            message=f"{row.key}: {row.message}", mend="drydock orphans list",
        )  # fmt: skip


def _remembered(who: Caller) -> Iterator[Attention]:
    if not who.operator:
        return
    found = RememberedError.objects.filter(REMEMBERED).select_related("blueprint")
    for row in found.order_by(F("until").desc(nulls_first=True), "id")[:AT_MOST]:
        where = f"{row.scope} {row.key}".strip()
        yield _about(
            "remembered_error", "blueprint", row.blueprint, row.created_at, f"{where}: {row.message}",
            f"drydock blueprints forget {row.blueprint.name}",
        )  # fmt: skip


def _switched_off(who: Caller) -> Iterator[Attention]:
    """Yield disabled or drained blueprints for which leases wait."""
    if not who.operator:
        return
    for row in Blueprint.objects.filter(Q(enabled=False) | Q(drained=True)).order_by("name"):
        waiting = Lease.objects.filter(
            state="pending", reason=Reason.NEEDS_OPERATOR, type=row.resource_type,
            verdicts__contains=[{"blueprint": row.name, "answer": "wait"}],
        )  # fmt: skip
        since = waiting.aggregate(first=Min("since"))["first"]
        if since is None:
            continue
        what, cure = ("drained", "undrain") if row.enabled else ("disabled", "enable")
        yield _about(
            what, "blueprint", row, since, f"The blueprint is {what}, and leases wait for it.",
            f"drydock blueprints {cure} {row.name}",
        )  # fmt: skip


def _budgets(who: Caller) -> Iterator[Attention]:
    """Yield budgets that are exhausted or for which leases wait."""
    for one, since in costs.short_budgets(who):
        whose, name = next((what, value) for what in ("user", "group", "blueprint") if (value := getattr(one, what)))
        said = f"{dollars(one.used)}/h of the budget of {dollars(one.max_hourly)}/h is in use."
        yield Attention(
            what="budget", kind="installation", id=None, name=f"{whose} {name}", since=since,
            message=said + (f" Leases that wait for the budget: {one.waiting}." if one.waiting else ""),
            mend=f"drydock budgets set DOLLARS --{whose} {name}",
        )  # fmt: skip


def _asked(who: Caller) -> Iterator[Attention]:
    if not who.operator:
        return
    found = Authorization.objects.filter(ASKED).select_related("blueprint", "user", "group")
    for row in found.order_by("created_at")[:AT_MOST]:
        yield _about(
            "authorization_asked", "blueprint", row.blueprint, row.created_at,
            f"{row.user or row.group} requests to use the blueprint. {row.note}".strip(), f"drydock authorizations allow {row.pk}",
        )  # fmt: skip
