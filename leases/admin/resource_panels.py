"""Panels of a resource: leases over time, runs, parent and children, parts, events, remembered errors."""

from __future__ import annotations

from typing import Any

from django.db.models import Q, QuerySet, Value
from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html

from blueprints.models import RememberedError
from drydock.core import clock
from leases.admin import resource_acts
from leases.admin.hosts import erasures, sensors
from leases.admin.toolkit import columns, html, panels, timeline
from leases.admin.toolkit.panels import Head, Panel
from leases.models import Event, Failure, Lease, Part, Resource, Run, SlotLock
from leases.operations import infos
from leases.reports import cleaning, updates


def of(row: Resource, request: HttpRequest) -> list[Panel]:
    """Return all panels of a resource, starting with the most important one."""
    on, held = _leases(row)
    events = panels.latest(Event.objects.filter(resource=row))
    return [
        *failure(row), *resource_acts.panel(row, request, events), over_time(on),
        *sensors.of_resource(row),
        panels.runs(Run.objects.filter(resource=row)), *attested(row), family(row),
        panels.leases("Leases held by this resource", held), parts(row), locks(row),
        panels.timeline(events),
        errors(RememberedError.objects.filter(blueprint=row.blueprint_id)), *erasures.of_resource(row),
    ]  # fmt: skip


def head(row: Resource) -> Head:
    """Return the state of a resource in one line, with its use and its health."""
    facts: list[tuple[str, Any]] = [
        ("type", row.type), ("blueprint", html.link(row.blueprint)), ("for", html.duration(clock.now() - row.since)),
        ("used", html.bar("slots", row.used_slots, row.total_slots)),
    ]  # fmt: skip
    facts += _cleaning(row) + _update(row)
    if (host := host_of(row)) is not None:
        at = f"{reverse('admin:hardware')}?q={host}"
        facts.append(("hardware", format_html('<a href="{}">of host {}</a>', at, host)))
    if row.observed:
        facts.append(("observed", row.observed))
    if row.idle_since and row.gone_at is None:
        facts.append(("idle", html.duration(clock.now() - row.idle_since)))
    if row.price and row.gone_at is None:
        facts.append(("costs", f"${row.price:.4f} per hour"))
    if row.dies_at and row.gone_at is None:
        facts.append(("ends", html.time(row.dies_at)))
    said = " ".join(part for part in (columns.sentence(row), *(infos.problems(row) or (row.note,))) if part)
    return Head(badges=html.badges(row.state, *flags(row)), sentence=said, facts=facts)


def _cleaning(row: Resource) -> list[tuple[str, Any]]:
    """Return the state of the cleaning that a resource needs, with its progress and its last failure."""
    found = cleaning.of([row]).get(row.pk)
    if found is None:
        return []
    said = cleaning.clause(running=found.next_at is None, percent=found.percent, said=found.sentence)
    if found.failures:
        said += f"; failed {found.failures} times at {found.failure}"
    return [("to be cleaned", html.short(said, 500))]


def _update(row: Resource) -> list[tuple[str, Any]]:
    """Return the update that a resource needs, and for which leases it waits."""
    if row.generation >= row.blueprint.generation:
        return []
    runs = {run.resource_id: run for run in Run.objects.filter(resource=row, lease=None)}
    found = updates.of([row], runs).get(row.pk)
    return [] if found is None else [("update", html.short(found.sentence, 500))]


def host_of(row: Resource) -> int | None:
    """Return the id of the host about whose hardware there may be a report: the resource itself, or what it is in."""
    if row.type == "host":
        return row.pk
    host = row.facts.get("host") if "device" in row.facts else None
    return host if isinstance(host, int) else None


def flags(row: Resource) -> list[str]:
    """Return the badges of a resource for special conditions, such as suspect, drained or degraded."""
    unclean, cleaned = getattr(row, "is_unclean", False), getattr(row, "is_cleaned", False)
    found = {
        "suspect": row.gone_at is None and row.suspect_since is not None, "drained": row.drained,
        "quarantined": row.quarantined, "maintenance": row.in_maintenance and not unclean,
        cleaning.CLEANING: unclean and cleaned, cleaning.OWED: unclean and not cleaned,
        "no reboots": bool(row.no_reboots),
        "degraded": row.gone_at is None and row.health == "degraded",
        "failed": row.gone_at is None and row.health == "failed",
        "outdated": row.gone_at is None and row.generation < row.blueprint.generation,
    }  # fmt: skip
    return [word for word, on in found.items() if on]


def failure(row: Resource) -> list[Panel]:
    """Return a panel with the last failed action and the provider's message, or an empty list if there is none."""
    one: Failure | None = getattr(row, "failure", None)
    if one is None:
        return []
    said = html.short(one.message, 500)
    return [
        Panel(
            title="Last failure", name="failure",
            columns=("Action", "Code", "Provider message", "Attempts", "Since", "Last attempt"),
            rows=[(one.act, one.code or "-", said, one.attempts, html.time(one.since), html.time(one.at))],
        )
    ]  # fmt: skip


def over_time(rows: list[Lease]) -> Panel:
    """Show the leases on the resource over time, both as a chart and as a table."""
    now = clock.now()
    table = panels.leases("Leases over time", rows, empty="No lease has used this resource.")
    pieces = [
        timeline.Bar(
            start=one.acquired_at or one.created_at, end=one.ended_at, tone=html.tone(one.state),
            words=f"{one} (#{one.pk}), {one.state}, {one.owner or 'Drydock'}", address=html.address(one),
        )
        for one in rows
    ]  # fmt: skip
    note = f"The last {panels.LATEST} leases." if len(rows) == panels.LATEST else ""
    return Panel(
        title=table.title, columns=table.columns, rows=table.rows, empty=table.empty, name="gantt",
        always=True, note=note,
        lead=timeline.chart(pieces, now),
    )  # fmt: skip


def attested(row: Resource) -> list[Panel]:
    """Show what the evidence of a host must show, if the host was attested when it was enrolled."""
    known = row.facts.get("attestation") or {}
    tpm, tdx = (known.get(name) or {} for name in ("tpm", "tdx"))
    registered = tpm.get("registered", [])
    rows = [
        (f"PCR {number} ({tpm['bank']})", value, "registered" if int(number) in registered else "first seen")
        for number, value in tpm.get("pcrs", {}).items()
    ]  # fmt: skip
    if tpm:
        rows.append(("SHA-256 of the attestation key", tpm.get("ak_sha256", ""), "first seen"))
        rows.append(("issuer of the endorsement key", tpm.get("issuer", ""), "first seen"))
    if tdx:
        rows.append(("MR_TD", tdx["mr_td"], "registered" if tdx.get("registered") else "first seen"))
    columns_ = ("What", "Value", "Source")
    return [Panel(title="Attestation", name="attestation", columns=columns_, rows=rows)] if rows else []


def _leases(row: Resource) -> tuple[list[Any], list[Any]]:
    """Return the latest leases on the resource, and those that it holds on others, read by one query."""
    halves = [
        Lease.objects.filter(**{side: row}).annotate(side=Value(side)).select_related("owner", "resource")
        .defer("secrets", "resource__secrets").order_by("-id")[: panels.LATEST]
        for side in ("resource", "for_resource")
    ]  # fmt: skip
    found = list(halves[0].union(halves[1], all=True))
    on, held = ([one for one in found if one.side == side] for side in ("resource", "for_resource"))
    return on, held


def family(row: Resource) -> Panel:
    """Show the parent of a resource and its children."""
    found = Resource.objects.filter(part_of=row).defer("secrets").order_by("id")[: panels.LATEST]
    near = [("parent", row.part_of)] if row.part_of is not None else []
    return Panel(
        title="Parents and children", columns=("Relation", "Resource", "State", "Type"),
        empty="No parent and no children.",
        rows=[
            (word, html.link_with_number(one), html.badge(one.state), one.type)
            for word, one in [*near, *(("child", child) for child in found)]
        ],
    )  # fmt: skip


def parts(row: Resource) -> Panel:
    """List the named parts of the resource."""
    found = Part.objects.filter(resource=row).order_by("part_class", "identity")[: panels.EVENTS]
    return Panel(
        title="Named parts", columns=("Class", "Identity", "State", "Attributes"),
        empty="This resource has no named parts.",
        rows=[(p.part_class, p.identity, html.badge(p.state), html.values(p.attributes)) for p in found],
    )  # fmt: skip


def locks(row: Resource) -> Panel:
    """List the slot locks that the resource or the leases on it hold."""
    found = SlotLock.objects.filter(Q(resource=row) | Q(lease__share__resource=row)).select_related("lease")
    return Panel(
        title="Slot locks", columns=("Key", "Requested as", "Chosen", "Held by", "Since"), empty="No slot locks.",
        rows=[
            (
                one.key, one.name or "-", one.value or "-", html.link(one.lease) if one.lease else "this resource",
                html.time(one.created_at),
            )
            for one in found.defer("lease__secrets").order_by("key")[: panels.EVENTS]
        ],
    )  # fmt: skip


def errors(found: QuerySet[RememberedError]) -> Panel:
    """List the remembered errors of a blueprint."""
    return Panel(
        title="Remembered errors of the blueprint", columns=("Scope", "Object", "Message", "Until", "Since"),
        empty="No remembered errors.",
        rows=[
            (
                html.link(one, one.scope), one.key or "-", html.short(one.message, 300),
                html.time(one.until) if one.until else "cleared by an operator", html.time(one.created_at),
            )
            for one in found.order_by("-created_at")[: panels.LATEST]
        ],
    )  # fmt: skip
