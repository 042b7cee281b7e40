"""What stands on a lease's page: its way, why it waits, how to connect, runs, jobs, share, locks and events."""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from django.http import HttpRequest
from django.utils.html import format_html, format_html_join

from drydock.core import clock
from drydock.core.units import in_words
from leases.admin import cells, columns, elsewhere, job_output, panels, strips, watch_panels
from leases.admin.panels import Head, Panel
from leases.engine import waiting
from leases.models import Event, Job, Lease, Run, Share, SlotLock
from leases.operations import reading
from leases.states import LEASE

LEASE_OVER = frozenset(state for state, following in LEASE.transitions.items() if not following)
"""States that last for ever, whose length says nothing."""


def of(row: Lease, request: HttpRequest) -> list[Panel]:
    """All panels of a lease, in the order in which they are asked for."""
    events = panels.latest(Event.objects.filter(lease=row))
    first = [verdicts(row)] if row.state == "pending" else []
    return [
        way(row, events), *first, connect(row, request), *watch_panels.of(row),
        panels.runs(Run.objects.filter(lease=row)), jobs(row),
        *([] if first else [verdicts(row)]), *holding(row), panels.timeline(events),
        panels.leases("Leases that it holds", Lease.objects.filter(for_lease=row).select_related("owner", "resource")
                      .defer("secrets", "resource__secrets").order_by("id")[: panels.LATEST]),
    ]  # fmt: skip


def head(row: Lease) -> Head:
    """Its state in one line, with what comes next."""
    facts: list[tuple[str, Any]] = [
        ("type", row.type), ("owner", row.owner or "Drydock itself"), ("for", cells.span(clock.now() - row.since)),
    ]  # fmt: skip
    if row.resource is not None:
        facts.append(("on", cells.numbered(row.resource)))
    if row.until and row.ended_at is None:
        facts.append(("until", cells.moment(row.until)))
    if row.state == "pending" and row.due_at:
        facts.append(("looked at again", cells.moment(row.due_at)))
    return Head(badges=cells.badges(row.state, *flags(row)), sentence=columns.sentence(reading.said(row)), facts=facts)


def flags(row: Lease) -> list[str]:
    """What is special about it now, as words for badges."""
    over = row.state in ("acquired", "active") and row.until is not None and row.until < clock.now()
    return [*(["held"] if row.held else []), *(["overdue"] if over else [])]


_WAY = ("pending", "acquired", "active", "released", "destroyed")


def way(row: Lease, events: Sequence[Event]) -> Panel:
    """The states that it went through, how long each lasted, and those to come."""
    stages = _stages(row, events)
    known = [(state, took) for state, took in stages if took is not None]
    whole = sum((took for _, took in known), dt.timedelta()) or dt.timedelta(seconds=1)
    strip = strips.share([(cells.tone(state), took / whole, f"{state}: {in_words(took)}") for state, took in known])
    listed = format_html_join(
        "", "<li>{} <span class='dd-took'>{}</span></li>",
        ((cells.badge(state) if took is not None else format_html("<span class='dd-quiet'>{}</span>", state),
          "" if took is None or state in LEASE_OVER else in_words(took)) for state, took in stages),
    )  # fmt: skip
    return Panel(title="Its way", lead=format_html('<ol class="dd-way">{}</ol>{}', listed, strip), name="way")


def _stages(row: Lease, events: Sequence[Event]) -> list[tuple[str, dt.timedelta | None]]:
    """(state, how long), as it happened; then the usual states that are still to come, without a length."""
    moves = [event for event in events if event.to_state and event.kind.startswith("lease.")]
    gone = [(e.from_state, e.duration) for e in moves if e.from_state and e.duration is not None]
    ahead = _WAY[_WAY.index(row.state) + 1 :] if row.state in _WAY else ()
    return [*gone, (row.state, max(clock.now() - row.since, dt.timedelta())), *((state, None) for state in ahead)]


def connect(row: Lease, request: HttpRequest) -> Panel:
    """Lines to copy: from the shell, by SSH, by REST, in Python."""
    ready = row.state == "active"
    return Panel(
        title="Connect", name="connect", always=row.ended_at is None,
        empty="Once it is active, the ways to use it stand here.",
        rows=[(words, cells.copied(line)) for words, line in _lines(row, request)] if ready else [],
    )  # fmt: skip


def _lines(row: Lease, request: HttpRequest) -> Iterator[tuple[str, str]]:
    names = () if row.resource is None else reading.interface_names(row.resource.blueprint.kind)
    facts = row.facts if isinstance(row.facts, dict) else {}
    where = facts.get("endpoint") if isinstance(facts.get("endpoint"), dict) else {}
    if isinstance(facts.get("uri"), str):
        yield "Address", facts["uri"]
    if "command" in names:
        yield "Run", f"drydock run {row.pk} -- uname -a"
    if "filesystem" in names:
        yield "Copy", f"drydock cp FILE {row.pk}:FILE"
    if where and where.get("user") and where.get("host"):
        key = f"lease-{row.pk}.key"
        yield "Private key (its owner only)", f"(umask 077; drydock key {row.pk} > {key})"
        at = shlex.quote(f"{where['user']}@{where['host']}")
        yield "SSH", f"ssh -i {key} -p {int(where.get('port') or 22)} {at}"
    if "command" in names:
        yield "Python", f'Lease.get({row.pk}, owner="{row.owner or ""}").interface("command").check(["uname", "-a"])'
    call = elsewhere.same(request, "lease", {"id": row.pk}).call
    if call:
        yield "REST", call


def verdicts(row: Lease) -> Panel:
    """What every candidate said, and the place in the queue."""
    waits = row.state == "pending"
    said = [one for one in row.verdicts or () if isinstance(one, dict)]
    return Panel(
        title="Why is it waiting?" if waits else "What the candidates said when it was last decided",
        columns=("Blueprint", "Offer", "Answer", "It says") if said else (), name="why", always=waits,
        rows=[(v.get("blueprint"), v.get("offer") or "-", _answer(v), v.get("sentence")) for v in said],
        note=_place(row) if waits else "", empty="No candidate was asked yet." if waits else "None was asked.",
    )  # fmt: skip


def _answer(verdict: dict[str, Any]) -> Any:
    return cells.badge(str(verdict.get("answer", "")))


def _place(row: Lease) -> str:
    before = waiting.place(row.pk)
    turn = "It is the next of its type." if not before else f"{before} of its type wait before it."
    again = f" Looked at again at {row.due_at:%H:%M:%S} UTC at the latest." if row.due_at else ""
    said = f"{row.message.rstrip('.')}. " if row.message else ""
    return f"{said}{turn}{again}"


def holding(row: Lease) -> list[Panel]:
    """Its share and its slot locks."""
    share: Share | None = getattr(row, "share", None)
    locks = SlotLock.objects.filter(lease=row).order_by("key")
    return [
        Panel(
            title="Share", columns=("Resource", "Amounts", "Since"), empty="It holds no share.",
            rows=[] if share is None else [
                (cells.link(row.resource), cells.amounts(columns.amounts(share)), cells.moment(share.created_at))
            ],
        ),
        Panel(
            title="Slot locks", columns=("Key", "Asked for as", "Chosen", "Since"), empty="It holds no slot lock.",
            rows=[(one.key, one.name or "-", one.value or "-", cells.moment(one.created_at)) for one in locks],
        ),
    ]  # fmt: skip


def program(command: Any) -> str:
    """What a job runs, without its arguments, which may be secret."""
    if isinstance(command, list) and command:
        return f"{command[0]} and {len(command) - 1} arguments" if len(command) > 1 else str(command[0])
    return "a shell line"


def jobs(row: Lease) -> Panel:
    """Its detached commands; their output is read from the host when it is asked for."""
    return Panel(
        title="Jobs", columns=("Job", "State", "Runs", "Exit code", "It says", "Started", "Ended", ""), name="jobs",
        empty="No jobs.",
        rows=[
            (
                cells.link(job), cells.badge(job.state), program(job.command),
                "-" if job.exit_code is None else job.exit_code, cells.short(job.message),
                cells.moment(job.started_at), cells.moment(job.ended_at), job_output.button(job),
            )
            for job in Job.objects.filter(lease=row).order_by("-id")[: panels.LATEST]
        ],
    )  # fmt: skip
