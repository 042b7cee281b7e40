"""The first page: what needs attention, leases by state, blueprints by state and room, workers, the last events.

Every number leads to the rows it counts. Counts stop at MOST, and no statement reads ended leases beyond that.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.urls import reverse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from leases.admin import cells, elsewhere, live, needs, panels, pools
from leases.admin.figures import MOST, Figure, listed
from leases.admin.pools import LIVE, Pool
from leases.engine.core.database import rows
from leases.models import Event, Worker
from leases.states import LeaseState

LAST = 20


@dataclass(frozen=True, kw_only=True)
class Overview:
    """What the first page shows."""

    leases: list[Figure]
    states: list[SafeString]
    resources: list[Pool]
    attention: list[Figure]
    pulse: list[tuple[Any, ...]]
    events: panels.Panel | None


def of(request: HttpRequest) -> dict[str, Any] | HttpResponse:
    """What the first page's template is given; or, for htmx, only the region that renews itself."""
    if not request.user.has_perms(("leases.view_lease", "leases.view_resource")):
        return {"overview": None}
    found = overview(events=request.user.has_perm("leases.view_event"))
    shown = live.region(request, "dd-overview", "admin/drydock/overview_live.html", {"overview": found})
    if live.wanted(request) == "dd-overview":
        return live.answer(request, shown)
    others = [elsewhere.same(request, key, {}) for key in ("attention", "leases", "resources", "doctor")]
    return {"overview": found, "live": shown, "elsewhere": others}


def overview(*, events: bool) -> Overview:
    """The figures as they are now."""
    there, workers = pools.there(), list(Worker.objects.order_by("-seen_at")[:10])
    return Overview(
        leases=_leases(), states=[cells.badge(s) for s in LIVE], resources=pools.of(there),
        attention=needs.of(there), pulse=[_beat(one) for one in workers],
        events=_events() if events else None,
    )  # fmt: skip


_BY_STATE = " UNION ALL ".join(
    f"SELECT '{state}', count(*), min(created_at) FROM"  # noqa: S608 - made of our own states
    f" (SELECT created_at FROM leases_lease WHERE state = '{state}' LIMIT {MOST + 1}) AS bounded"
    for state in LeaseState
)


def _leases() -> list[Figure]:
    """Every state, also those without a lease; the oldest wait beside `pending`."""
    return [
        Figure(
            of=cells.badge(state), number=number, address=listed("lease", state__exact=state),
            said=cells.moment(oldest) if number and state == LeaseState.PENDING else "",
        )
        for state, number, oldest in rows(_BY_STATE)
    ]  # fmt: skip


def _beat(worker: Worker) -> tuple[Any, ...]:
    """A worker, and whether it lives."""
    return cells.badge("alive" if needs.lives(worker) else "lost"), worker.name, cells.moment(worker.seen_at)


def _events() -> panels.Panel:
    found = Event.objects.select_related("lease", "resource", "blueprint").order_by("-id")[:LAST]
    return panels.Panel(
        title="Last events", columns=("When", "What", "Of", "Message", "By"), empty="Nothing has happened yet.",
        rows=[
            (cells.moment(e.at), panels.happened(e), _of(e), cells.short(e.message or e.reason, 200), e.actor)
            for e in found.defer("lease__secrets", "resource__secrets")
        ],
        more=("All events", reverse("admin:leases_event_changelist")),
    )  # fmt: skip


def _of(event: Event) -> SafeString:
    near = [one for one in (event.lease, event.resource, event.blueprint) if one is not None]
    return format_html_join(" · ", "{}", ((cells.numbered(one),) for one in near)) if near else cells.DASH
