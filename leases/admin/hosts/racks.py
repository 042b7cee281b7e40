"""The page of racks: every host with its status, progress, power and health, in the order of its position."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlencode

from django.contrib.postgres.expressions import ArraySubquery
from django.core.exceptions import PermissionDenied
from django.db.models import F, OuterRef, Q
from django.db.models.fields.json import KT
from django.http import HttpRequest, HttpResponse
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

from drydock_client.values import CleaningInfo
from leases.admin.toolkit import equivalent_commands, html, search
from leases.admin.toolkit.panels import Panel
from leases.models import Lease, Resource, Run
from leases.reports import cleaning, status
from leases.states import LeaseState

MOST = 2000
"""The maximum number of hosts on one page. Others are found by rack, blueprint or name."""
_MAY = ("leases.view_resource", "leases.view_lease", "blueprints.view_blueprint")
_LIVE = (LeaseState.ACQUIRED, LeaseState.ACTIVE, LeaseState.RELEASED)


@dataclass(frozen=True, kw_only=True)
class Slot:
    """A host in its rack."""

    row: Any
    rack: str
    """The rack of its registration, or the name of its blueprint in parentheses."""
    position: str
    status: str
    percent: int | None
    said: str

    @property
    def order(self) -> tuple[float, str, str]:
        """The place in the rack: from the top down, then hosts whose position is not a number."""
        number = float(self.position) if self.position.isdecimal() and self.position.isascii() else -1.0
        return (-number, self.position, self.row.name)


def page(site: Any, request: HttpRequest) -> HttpResponse:
    """Render the racks. Raises PermissionDenied."""
    if not request.user.has_perms(_MAY):
        raise PermissionDenied
    words, chosen = search.clean(request.GET.get("q", "")), request.GET.get("status", "")
    rows = list(_found(words)[: MOST + 1])
    slots = _slots(rows[:MOST])
    racks: dict[str, list[Slot]] = defaultdict(list)
    for one in slots:
        racks[one.rack].append(one)
    shown = {name: _chosen(found, chosen) for name, found in racks.items()}
    context = {
        **site.each_context(request), "title": "Racks", "searched_hosts": words, "status": chosen,
        "statuses": status.STATUSES, "panels": [_summary(racks, full=len(rows) > MOST)] +
        [_rack(name, found) for name, found in sorted(shown.items()) if found],
        "elsewhere": [equivalent_commands.line_for(request, key, {}) for key in ("hosts", "erasures")],
    }  # fmt: skip
    return TemplateResponse(request, "admin/drydock/racks.html", context)


def _found(words: str) -> Any:
    """Return the hosts whose name begins with the words, or that are in this rack or of this blueprint."""
    holders = Lease.objects.filter(resource=OuterRef("pk"), state__in=_LIVE).order_by()
    found = Resource.objects.filter(type="host", gone_at=None).select_related("blueprint").annotate(
        rescue=KT("facts__rescue"), lease_states=ArraySubquery(holders.values("state")),
    )  # fmt: skip
    if words:
        found = found.filter(
            Q(name__istartswith=words) | Q(attributes__contains={"rack": words}) | Q(blueprint__name=words)
        )
    return found.only(
        "name", "state", "message", "attributes", "power", "health", "health_reason", "drained", "quarantined",
        "in_maintenance", "suspect_since", "gone_at", "note", "blueprint__name", "observed",
    ).order_by(F("name").asc(), "id")  # fmt: skip


def _slots(rows: Sequence[Any]) -> list[Slot]:
    """Return the hosts with their status, in at most three further statements."""
    runs: dict[int, list[Run]] = defaultdict(list)
    columns = ("resource_id", "lease_id", "phase", "wanted", "percent", "sentence")
    for run in Run.objects.filter(resource__in=[row.pk for row in rows]).only(*columns):
        runs[run.resource_id].append(run)
    unclean = cleaning.of(rows)
    return [_slot(row, runs.get(row.pk, []), unclean.get(row.pk)) for row in rows]


def _slot(row: Any, runs: Sequence[Run], unclean: CleaningInfo | None) -> Slot:
    own = next((run for run in runs if run.lease_id is None), None)
    word = status.status(row, own, unclean, row.lease_states, rescued=bool(row.rescue))
    run = own if own is not None and own.phase != Run.Phase.CHECK else next((one for one in runs if one.lease_id), None)
    percent = unclean.percent if unclean is not None else run.percent if run is not None else None
    said = unclean.sentence if unclean is not None else run.sentence if run is not None else ""
    troubles = (row.note if row.quarantined or row.drained else "", row.health_reason, row.message, said)
    return Slot(
        row=row, rack=str(row.attributes.get("rack") or f"({row.blueprint.name})"), status=word, percent=percent,
        position=str(row.attributes.get("position") or ""), said=next(filter(None, troubles), ""),
    )  # fmt: skip


def _chosen(found: Sequence[Slot], chosen: str) -> list[Slot]:
    return sorted((one for one in found if chosen in ("", one.status)), key=lambda one: one.order)


def _summary(racks: Mapping[str, Sequence[Slot]], *, full: bool) -> Panel:
    """Show how many hosts of each rack have which status, as links to these hosts."""
    rows = [
        (_link(name, rack=_words(name)), len(found), _counts(name, Counter(one.status for one in found)))
        for name, found in sorted(racks.items())
    ]
    note = f"The first {MOST} hosts. Search for a rack or a blueprint to see others." if full else ""
    return Panel(
        title="Racks", columns=("Rack", "Hosts", "Status"), rows=rows, name="racks", note=note,
        empty="No hosts. Register them with `drydock hosts register` or `drydock hosts import`.",
    )  # fmt: skip


def _words(rack: str) -> str:
    """Return the words that find a rack, or the blueprint in its place."""
    return rack.removeprefix("(").removesuffix(")") if rack.startswith("(") else rack


def _counts(rack: str, counts: Counter[str]) -> SafeString:
    ordered = [word for word in status.STATUSES if counts[word]]
    return format_html_join(
        " ", '<a href="{}">{} {}</a>',
        ((_address(rack=_words(rack), status=word), counts[word], html.badge(word)) for word in ordered),
    )  # fmt: skip


def _address(*, rack: str, status: str = "") -> str:
    chosen = {"q": rack, **({"status": status} if status else {})}
    return f"{reverse('admin:racks')}?{urlencode(chosen)}"


def _link(words: str, *, rack: str) -> SafeString:
    return format_html('<a href="{}">{}</a>', _address(rack=rack), words)


def _rack(name: str, found: Sequence[Slot]) -> Panel:
    return Panel(
        title=name, name="rack",
        columns=("Position", "Host", "Status", "Progress", "Power", "Health", "Leases", "Message"),
        rows=[
            (
                one.position or html.DASH, html.link_with_number(one.row), html.badge(one.status),
                html.progress(one.percent), one.row.power or html.DASH, html.badge(one.row.health),
                len(one.row.lease_states) or html.DASH, html.short(one.said, 200),
            )
            for one in found
        ],
    )  # fmt: skip
