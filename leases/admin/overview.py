"""The first page: problems, leases by state, blueprints with their capacity, workers, and the latest events.

Every number links to the rows that it counts. Counts stop at `MOST`, so that no query reads more than `MOST` ended
leases.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from django.conf import settings
from django.db.models import QuerySet
from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html_join
from django.utils.http import urlencode
from django.utils.safestring import SafeString

from blueprints.amounts import CLASSES
from blueprints.models import Reading, RememberedError
from drydock.core import clock
from leases.admin.toolkit import equivalent_commands, html, live_regions, panels
from leases.engine.core import installation
from leases.engine.core.database import rows
from leases.models import Authorization, Event, Failure, Lease, ProviderWatch, Resource, Run, Stray, Sync, Worker
from leases.operations import attention
from leases.reports import condition
from leases.states import LeaseState, ResourceState

MOST = 10_000

"""The highest count. Counting further would take time, and larger numbers are not useful."""


@dataclass(frozen=True, kw_only=True)
class Figure:
    """A number that links to the rows it counts."""

    of: Any
    number: int = 0
    address: str = ""
    said: Any = ""

    @property
    def shown(self) -> str:
        """The number as text."""
        return f"{MOST:,}+" if self.number > MOST else f"{self.number:,}"


def list_address(model: str, **chosen: Any) -> str:
    """Return the URL of a list page of `leases` with the given filters."""
    return f"{reverse(f'admin:leases_{model}_changelist')}?{urlencode(chosen)}"


def count_up_to_most(found: Sequence[QuerySet[Any]]) -> list[int]:
    """Return the number of rows of each query, counted up to `MOST`, in one statement."""
    parts: list[str] = []
    params: list[Any] = []
    for one in found:
        sql, given = one.order_by().values("pk")[: MOST + 1].query.sql_with_params()
        parts.append(f"(SELECT count(*) FROM ({sql}) AS bounded)")  # noqa: S608 - made by the ORM
        params += given
    return list(rows(f"SELECT {', '.join(parts)}", params)[0])


LIVE = (ResourceState.PENDING, ResourceState.ACTIVE, ResourceState.RELEASED, ResourceState.BROKEN)


@dataclass(frozen=True, kw_only=True)
class Pool:
    """A blueprint, with the number of its resources in each state and their free capacity."""

    blueprint: Figure
    states: list[Figure]
    room: list[SafeString] = field(default_factory=list)


_SUMS = ", ".join(f"sum(used_{name}) AS u{i}, sum(total_{name}) AS t{i}" for i, name in enumerate(CLASSES))

_SUMMED = ", ".join(f"r.u{i}, r.t{i}" for i in range(len(CLASSES)))

_POOLS = f"""
    SELECT b.id, b.name, b.enabled, b.drained, r.state, r.n, r.quarantined, r.sick, {_SUMMED}
    FROM blueprints_blueprint b LEFT JOIN (
        SELECT blueprint_id, state, count(*) AS n, count(*) FILTER (WHERE quarantined) AS quarantined,
            count(*) FILTER (WHERE check_failures > 0) AS sick, {_SUMS}
        FROM leases_resource WHERE gone_at IS NULL GROUP BY 1, 2) r ON r.blueprint_id = b.id
    WHERE r.n > 0 OR (b.enabled AND b.removed_at IS NULL) ORDER BY b."order", b.name, b.id LIMIT 2000"""  # noqa: S608 - made of our own classes


def _pool_rows() -> list[tuple[Any, ...]]:
    """Return one row for each blueprint and state of its existing resources."""
    return rows(_POOLS)


def _pools(there: list[tuple[Any, ...]]) -> list[Pool]:
    """Return the pools for these rows, with their used and total capacity."""
    table: dict[int, list[tuple[Any, ...]]] = {}
    for row in there:
        table.setdefault(row[0], []).append(row)
    return [_pool(pk, found) for pk, found in table.items()]


def _pool(pk: int, found: list[tuple[Any, ...]]) -> Pool:
    _, name, enabled, drained = found[0][:4]
    flags = [*([] if enabled else ["disabled"]), *(["drained"] if drained else [])]
    by = {state: n for *_, state, n in (row[:6] for row in found) if state}
    serving = [row[8:] for row in found if row[4] in (ResourceState.PENDING, ResourceState.ACTIVE)]
    sums = [sum(int(row[at]) for row in serving) for at in range(2 * len(CLASSES))]
    at = reverse("admin:blueprints_blueprint_change", args=(pk,))
    return Pool(
        blueprint=Figure(
            of=name, number=sum(by.values()), address=at, said=html.badges(*flags) if flags else ""
        ),
        states=[
            Figure(
                of=state, number=by.get(state, 0),
                address=list_address("resource", blueprint__id__exact=pk, state__exact=state, gone_at__isempty=1),
            )
            for state in LIVE
        ],
        room=[
            html.room(name, sums[2 * i], sums[2 * i + 1]) for i, name in enumerate(CLASSES) if sums[2 * i + 1]
        ],
    )  # fmt: skip


_NEEDS: tuple[tuple[tuple[str, str], Callable[[], QuerySet[Any]], Callable[[], str]], ...] = (
    (("step waits for a person", "steps wait for a person"), lambda: Run.objects.filter(attention.HELD_STEP),
     lambda: list_address("run", waits_for__exact="operator")),
    (("machine could not be destroyed and still costs money", "machines could not be destroyed and still cost money"),
     lambda: Failure.objects.filter(attention.UNDESTROYED),
     lambda: list_address("failure", act__exact="destroy")),
    (("resource still has files of ended leases", "resources still have files of ended leases"),
     lambda: Resource.objects.filter(attention.PUT_ASIDE), lambda: list_address("resource", attention="put aside")),
    (("machine action failed", "machine actions failed"), lambda: Failure.objects.filter(attention.FAILED_ACT),
     lambda: list_address("failure")),
    (("lease is overdue", "leases are overdue"), lambda: Lease.objects.filter(attention.OVERDUE),
     lambda: list_address("lease", attention="overdue")),
    (("lease has been waiting for a long time", "leases have been waiting for a long time"),
     lambda: Lease.objects.filter(attention.stuck()),
     lambda: list_address("lease", attention="waits long")),
    (("lease is held for debugging", "leases are held for debugging"), lambda: Lease.objects.filter(attention.HELD),
     lambda: list_address("lease", attention="held")),
    (("resource does not answer", "resources do not answer"), lambda: Resource.objects.filter(attention.UNREACHABLE),
     lambda: list_address("resource", attention="unreachable")),
    (("resource is degraded", "resources are degraded"), lambda: Resource.objects.filter(attention.DEGRADED),
     lambda: list_address("resource", attention="degraded")),
    (("resource with failed health is in service", "resources with failed health are in service"),
     lambda: Resource.objects.filter(attention.FAILED_HEALTH),
     lambda: list_address("resource", attention="failed health")),
    (("resource must not be rebooted", "resources must not be rebooted"),
     lambda: Resource.objects.filter(attention.NO_REBOOTS), lambda: list_address("resource", attention="no reboots")),
    (("request for authorization", "requests for authorization"), lambda: Authorization.objects.filter(attention.ASKED),
     lambda: list_address("authorization", state__exact="requested")),
    (("account poll is failing", "account polls are failing"), lambda: Reading.objects.filter(attention.FAILING),
     lambda: f"{reverse('admin:blueprints_reading_changelist')}?{urlencode({'attention': 'failing'})}"),
    (("watch is failing", "watches are failing"), lambda: ProviderWatch.objects.filter(attention.WATCH_FAILING),
     lambda: list_address("providerwatch", attention="failing")),
    (("discovery is failing", "discoveries are failing"), lambda: Sync.objects.filter(attention.NOT_DISCOVERED),
     lambda: list_address("sync", attention="failing")),
    (("place reports things that are already other resources", "places report things that are already other resources"),
     lambda: Sync.objects.filter(attention.FOUND_TWICE), lambda: list_address("sync", attention="found twice")),
    (("orphan needs a decision", "orphans need a decision"), lambda: Stray.objects.filter(attention.undecided()),
     lambda: list_address("stray")),
    (("remembered error", "remembered errors"), lambda: RememberedError.objects.filter(attention.REMEMBERED),
     lambda: f"{reverse('admin:blueprints_rememberederror_changelist')}?{urlencode({'standing': 'still remembered'})}"),
)  # fmt: skip


def _needs_attention(there: list[tuple[Any, ...]]) -> list[Figure]:
    """Return the numbers of items that need attention, starting with problems of the installation."""
    broken = sum(row[5] for row in there if row[4] == ResourceState.BROKEN)
    quarantined, sick = (sum(row[at] or 0 for row in there) for at in (6, 7))
    others = count_up_to_most([rows_of() for _, rows_of, _ in _NEEDS])
    found = [
        Figure(of=_words(broken, "broken resource still exists", "broken resources still exist"), number=broken,
               address=list_address("resource", attention="broken and not gone")),
        Figure(of=_words(quarantined, "quarantined resource", "quarantined resources"), number=quarantined,
               address=list_address("resource", attention="quarantined")),
        Figure(of=_words(sick, "resource is failing its checks", "resources are failing their checks"), number=sick,
               address=list_address("resource", attention="failing checks")),
        *(Figure(of=_words(number, *words), number=number, address=at())
          for (words, _, at), number in zip(_NEEDS, others, strict=True)),
    ]  # fmt: skip
    own = [
        Figure(of=one.message, address=_ADDRESSES[one.what](), said="" if one.since is None else html.time(one.since))
        for one in condition.troubles(installation.problem())
    ]
    return [*own, *(one for one in found if one.number)]


def _words(number: int, one: str, many: str) -> str:
    return one if number == 1 else many


_ADDRESSES: dict[str, Callable[[], str]] = {
    "suspended": lambda: list_address("installation"),
    "no_worker": lambda: reverse("admin:leases_worker_changelist"),
    "sweep_late": lambda: list_address("installation"),
    "broker_away": lambda: reverse("admin:leases_worker_changelist"),
    "disk_full": lambda: list_address("installation"),
    "disk_nearly_full": lambda: list_address("installation"),
}

"""The page of the console that explains each problem of the installation."""


def is_alive(worker: Worker) -> bool:
    """Return whether a worker sent a heartbeat recently."""
    return (clock.now() - worker.seen_at).total_seconds() <= float(settings.DRYDOCK.lost_worker_seconds)


LAST = 20


@dataclass(frozen=True, kw_only=True)
class Overview:
    """The content of the first page."""

    leases: list[Figure]
    states: list[SafeString]
    resources: list[Pool]
    attention: list[Figure]
    pulse: list[tuple[Any, ...]]
    events: panels.Panel | None


def context_for(request: HttpRequest) -> dict[str, Any] | HttpResponse:
    """Return the template context of the first page or, for htmx, only the region that refreshes itself."""
    if not request.user.has_perms(("leases.view_lease", "leases.view_resource")):
        return {"overview": None}
    found = overview(events=request.user.has_perm("leases.view_event"))
    shown = live_regions.region(request, "dd-overview", "admin/drydock/overview_live.html", {"overview": found})
    if live_regions.wanted(request) == "dd-overview":
        return live_regions.answer(request, shown)
    others = [equivalent_commands.line_for(request, key, {}) for key in ("attention", "leases", "resources", "doctor")]
    return {"overview": found, "live": shown, "elsewhere": others}


def overview(*, events: bool) -> Overview:
    """Return the current figures, with the latest events if `events` is true."""
    there, workers = _pool_rows(), list(Worker.objects.order_by("-seen_at")[:10])
    return Overview(
        leases=_leases(), states=[html.badge(s) for s in LIVE], resources=_pools(there),
        attention=_needs_attention(there), pulse=[_worker(one) for one in workers],
        events=_events() if events else None,
    )  # fmt: skip


_BY_STATE = " UNION ALL ".join(
    f"SELECT '{state}', count(*), min(created_at) FROM"  # noqa: S608 - made of our own states
    f" (SELECT created_at FROM leases_lease WHERE state = '{state}' LIMIT {MOST + 1}) AS bounded"
    for state in LeaseState
)


def _leases() -> list[Figure]:
    """Return the number of leases in each state. For `pending`, also return the longest wait."""
    return [
        Figure(
            of=html.badge(state), number=number, address=list_address("lease", state__exact=state),
            said=html.time(oldest) if number and state == LeaseState.PENDING else "",
        )
        for state, number, oldest in rows(_BY_STATE)
    ]  # fmt: skip


def _worker(worker: Worker) -> tuple[Any, ...]:
    """Return the table row of a worker, which shows whether the worker is alive."""
    return html.badge("alive" if is_alive(worker) else "lost"), worker.name, html.time(worker.seen_at)


def _events() -> panels.Panel:
    found = Event.objects.select_related("lease", "resource", "blueprint").order_by("-id")[:LAST]
    return panels.Panel(
        title="Latest events", columns=("Time", "Event", "Object", "Message", "By"), empty="No events yet.",
        rows=[
            (html.time(e.at), panels.transition(e), _subject(e), html.short(e.message or e.reason, 200), e.actor)
            for e in found.defer("lease__secrets", "resource__secrets")
        ],
        more=("All events", reverse("admin:leases_event_changelist")),
    )  # fmt: skip


def _subject(event: Event) -> SafeString:
    near = [one for one in (event.lease, event.resource, event.blueprint) if one is not None]
    return format_html_join(" · ", "{}", ((html.link_with_number(one),) for one in near)) if near else html.DASH
