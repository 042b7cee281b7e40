"""What a person should look at: broken, quarantined, held, stuck, sick; and nothing else."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Iterator
from typing import Any

from django.conf import settings
from django.db.models import F, Q
from django.db.models.functions import Now

from blueprints.models import Reading, RememberedError
from leases.client.values import Attention
from leases.engine.installation import current
from leases.engine.purse import dollars
from leases.engine.question import TINY
from leases.models import Authorization, Lease, Resource, Run, Stray
from leases.operations import budgets, workers
from leases.operations.callers import Caller, own_leases
from leases.reasons import Reason
from leases.states import UNFINISHED

AT_MOST = 100
"""Of one sort; more of it is more of the same."""

OVERDUE = Q(state__in=("acquired", "active"), until__lt=Now())
HELD = Q(held=True, state__in=UNFINISHED)
HELD_STEP = Q(waits_for="operator")
BROKEN = Q(state="broken", gone_at=None)
QUARANTINED = Q(quarantined=True, gone_at=None)
SICK = Q(check_failures__gt=0, gone_at=None)
FAILING = ~Q(message="")
REMEMBERED = Q(until=None) | Q(until__gt=Now())
ASKED = Q(state=Authorization.State.REQUESTED)


def stuck() -> Q:
    """Leases that wait for longer than is usual, to be served or to be cleaned."""
    since = Now() - dt.timedelta(seconds=settings.DRYDOCK.attention_wait_seconds)
    waits = Q(state="pending", created_at__lt=since)
    return waits | Q(state__in=("acquired", "released"), held=False, since__lt=since)


def undecided() -> Q:
    """Orphans of which somebody must say what becomes of them."""
    waits = ~Q(proof=Stray.Proof.PROVEN) & Q(wanted="")
    return waits | Q(wanted="") if settings.DRYDOCK.orphan_dry_run else waits


def needed(who: Caller) -> list[Attention]:
    """Everything that needs attention, the most pressing sort first. Owners are told of their own leases."""
    sorts: tuple[Callable[[Caller], Iterator[Attention]], ...] = (
        _suspended, _without_workers, _held_steps, _resources, _leases, _readings, _orphans, _remembered,
        _asked, _budgets,
    )  # fmt: skip
    return [one for sort in sorts for one in sort(who)]


def _suspended(who: Caller) -> Iterator[Attention]:
    if problem := current().problem:
        yield Attention(
            what="suspended", kind="installation", id=None, name="", since=None,
            message=f"Nothing outside is touched until an operator confirms the installation: {problem}",
            mend="`drydock installation` lists what is not done; `drydock confirm-installation` goes on.",
        )  # fmt: skip


def _without_workers(who: Caller) -> Iterator[Attention]:
    if not workers.seen_lately() and _wanted():
        yield Attention(
            what="no_worker", kind="installation", id=None, name="", since=None,
            message="No worker was seen lately: nothing is built, cleaned or ended.",
            mend="drydock sweep" if settings.DRYDOCK.private_database else "drydock worker",
        )  # fmt: skip


def _wanted() -> bool:
    """Whether a worker is missed: on private engines only when something is under way, for a command that waits
    brings its own."""
    under_way = Lease.objects.filter(state__in=("pending", "acquired", "released"), held=False)
    return not settings.DRYDOCK.private_database or under_way.exists() or Run.objects.exists()


def _held_steps(who: Caller) -> Iterator[Attention]:
    found = Run.objects.filter(HELD_STEP).select_related("lease", "resource").order_by("id")
    if not who.operator:
        found = found.filter(lease__owner_id=who.id)
    for run in found[:AT_MOST]:
        kind, row = ("lease", run.lease) if run.lease is not None else ("resource", run.resource)
        yield _about(
            Reason.NEEDS_OPERATOR, kind, row, run.step_since or run.started_at,
            f"{run.phase}: {run.sentence or run.step}" + (f" (for {run.hold_who})" if run.hold_who else ""),
            f"drydock resolve --{kind} {row.pk} -m WHAT-WAS-DONE",
        )  # fmt: skip


def _about(what: str, kind: str, row: Any, since: dt.datetime | None, message: str, mend: str) -> Attention:
    return Attention(what=str(what), kind=kind, id=row.pk, name=str(row), since=since, message=message, mend=mend)


_OF_RESOURCES: tuple[tuple[str, Q, str, str], ...] = (
    ("broken", BROKEN, "Broken, and not gone yet.", "drydock resources show {id}"),
    ("quarantined", QUARANTINED, "In quarantine.", "drydock resources unquarantine {id}"),
    ("sick", SICK, "Its checks fail.", "drydock resources show {id}"),
)


def _resources(who: Caller) -> Iterator[Attention]:
    if not who.operator:
        return
    for what, condition, otherwise, mend in _OF_RESOURCES:
        for row in Resource.objects.filter(condition).order_by("since")[:AT_MOST]:
            said = row.note if what == "quarantined" else row.message
            yield _about(what, "resource", row, row.since, said or otherwise, mend.format(id=row.pk))


def _leases(who: Caller) -> Iterator[Attention]:
    for what, condition, otherwise, mend in (
        ("held", HELD, "Held for debugging.", "drydock unhold {id}"),
        ("stuck", stuck(), "It waits.", "drydock show {id}"),
        ("overdue", OVERDUE, "Past its end, and not ended.", "drydock sweep"),
    ):
        for row in own_leases(who).filter(condition).order_by("since", "id")[:AT_MOST]:
            yield _about(what, "lease", row, row.since, row.message or otherwise, mend.format(id=row.pk))


def _readings(who: Caller) -> Iterator[Attention]:
    """One of each account and sort of reading: all places of an account mostly fail for one reason."""
    if not who.operator:
        return
    found = Reading.objects.filter(FAILING).select_related("credential").defer("credential__secrets")
    for row in found.order_by("credential", "kind", "what", "place").distinct("credential", "kind", "what")[:AT_MOST]:
        where = f"{row.what} of {row.place}" if row.place else row.what
        yield _about(
            "reading_failed", "credential", row.credential, row.seen_at, f"{row.kind}, {where}: {row.message}",
            f"drydock credentials show {row.credential.name}",
        )  # fmt: skip


def _orphans(who: Caller) -> Iterator[Attention]:
    """Those with which nothing happens by itself."""
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


def _budgets(who: Caller) -> Iterator[Attention]:
    """Those of which nothing is left, or for more of which somebody waits."""
    for one in budgets.list_(who):
        if one.left > TINY and not one.waiting:
            continue
        whose, name = next((what, value) for what in ("user", "group", "blueprint") if (value := getattr(one, what)))
        said = f"Of its budget of {dollars(one.max_hourly)} an hour {dollars(one.used)} are spent."
        yield Attention(
            what="budget", kind="installation", id=None, name=f"{whose} {name}", since=None,
            message=said + (f" Leases that wait for more: {one.waiting}." if one.waiting else ""),
            mend=f"drydock budgets set DOLLARS --{whose} {name}",
        )  # fmt: skip


def _asked(who: Caller) -> Iterator[Attention]:
    if not who.operator:
        return
    found = Authorization.objects.filter(ASKED).select_related("blueprint", "user", "group")
    for row in found.order_by("created_at")[:AT_MOST]:
        yield _about(
            "authorization_asked", "blueprint", row.blueprint, row.created_at,
            f"{row.user or row.group} asks to use it. {row.note}".strip(), f"drydock authorizations allow {row.pk}",
        )  # fmt: skip
