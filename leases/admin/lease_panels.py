"""What stands on a lease's page: its way, why it waits, how to connect, runs, jobs, share, locks and events."""

from __future__ import annotations

import datetime as dt
import shlex
from collections.abc import Iterator, Sequence
from typing import Any

from django.http import HttpRequest
from django.urls import reverse
from django.utils.html import format_html, format_html_join

from drydock.core import clock
from drydock.core.units import in_words
from leases.admin import cells, columns, elsewhere, job_output, panels, strips, watch_panels
from leases.admin.panels import Head, Panel
from leases.client.values import InstanceInfo, Verdict, WaitingInfo
from leases.models import Event, Job, Lease, Run, Share, SlotLock
from leases.operations import instances, reading
from leases.reports import progress
from leases.states import LEASE

LEASE_OVER = frozenset(state for state, following in LEASE.transitions.items() if not following)
"""States that last for ever, whose length says nothing."""


def of(row: Lease, request: HttpRequest) -> list[Panel]:
    """All panels of a lease, in the order in which they are asked for."""
    events = panels.latest(Event.objects.filter(lease=row))
    found = why(row)
    if found is not None:
        now = [waits(row, found), *siblings(found), connect(row, request), *watch_panels.of(row)]
    else:
        runs = progress.runs_for([row])
        now = [
            *under_way(row, runs), connect(row, request), *watch_panels.of(row),
            panels.runs([run for run in runs if run.lease_id == row.pk]), jobs(row), *decided(row), *holding(row),
        ]  # fmt: skip
    return [
        way(row, events), *now, panels.timeline(events),
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
    if row.state == "pending" and row.due_at and row.due_at > clock.now():
        facts.append(("next check", cells.moment(row.due_at)))
    if instance := instances.of_lease(row):
        facts += _of_instance(instance)
    return Head(badges=cells.badges(row.state, *flags(row)), sentence=columns.sentence(reading.said(row)), facts=facts)


def _of_instance(instance: InstanceInfo) -> list[tuple[str, Any]]:
    """Its machine, in a cloud's own words: the state, what it costs now, and the act on it that failed last."""
    facts: list[tuple[str, Any]] = [("instance", cells.badge(instance.state))]
    if instance.hourly_cost:
        facts.append(("costs", f"${instance.hourly_cost:.4f} an hour"))
    if instance.kept_until:
        facts.append(("machine kept until", cells.moment(instance.kept_until)))
    if failed := instance.failure:
        said = cells.short(failed.message, 200)
        facts.append((f"{failed.act} failed {failed.attempts} times", said))
    return facts


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
    return Panel(title="Progress", lead=format_html('<ol class="dd-way">{}</ol>{}', listed, strip), name="way")


def _stages(row: Lease, events: Sequence[Event]) -> list[tuple[str, dt.timedelta | None]]:
    """(state, how long), as it happened; then the usual states that are still to come, without a length."""
    moves = [event for event in events if event.to_state and event.kind.startswith("lease.")]
    gone = [(e.from_state, e.duration) for e in moves if e.from_state and e.duration is not None]
    ahead = _WAY[_WAY.index(row.state) + 1 :] if row.state in _WAY else ()
    return [*gone, (row.state, max(clock.now() - row.since, dt.timedelta())), *((state, None) for state in ahead)]


def under_way(row: Lease, runs: Sequence[Run]) -> list[Panel]:
    """The step at hand: percent, attempt, the last failure in the provider's words, and the person it waits for."""
    found = progress.of([row], runs).get(row.pk)
    if found is None:
        return []
    tried = f"{found.attempt} of {found.attempts}" if found.attempts else str(found.attempt)
    task = f"{found.who}: {found.task}" if found.task else ""
    rows = [
        ("Step", f"{found.phase}: {found.step}"), ("Progress", cells.progress(found.percent)), ("Attempt", tried),
        ("It says", found.sentence), ("Waits for a person", task), ("Last failure", found.failure),
        ("Since", cells.moment(found.since)),
        ("Such builds take about", cells.span(found.estimate) if found.estimate else ""),
    ]  # fmt: skip
    return [Panel(title="Under way", name="progress", rows=[(words, value) for words, value in rows if value])]


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


def why(row: Lease) -> WaitingInfo | None:
    """Why it waits, where that was read with it."""
    return getattr(row, "why", None)


def waits(row: Lease, found: WaitingInfo) -> Panel:
    """Why it waits now, what would help, and what every blueprint says."""
    return Panel(
        title="Why is it waiting?", columns=("Blueprint", "Offer", "Answer", "It says") if found.verdicts else (),
        name="why", always=True, rows=_said(found.verdicts), empty="No blueprint gives this type.",
        note=" ".join(filter(None, (found.message, f"Place in the queue: {found.place}.", _again(row), found.help))),
    )  # fmt: skip


def _again(row: Lease) -> str:
    """When it is decided again, where that is to come."""
    if row.due_at is None or row.due_at <= clock.now():
        return ""
    return f"The next check comes at {row.due_at:%H:%M:%S} UTC at the latest."


def siblings(found: WaitingInfo) -> list[Panel]:
    """The other leases of its group, with what is kept for each."""
    if not found.siblings:
        return []
    return [
        Panel(
            title="Leases of its group", columns=("Lease", "State", "Resource"),
            rows=[
                (format_html('<a href="{}">lease {}</a>', reverse("admin:leases_lease_change", args=(one.lease,)),
                             one.lease), cells.badge(one.state), one.resource or cells.DASH)
                for one in found.siblings
            ],
        )
    ]  # fmt: skip


_DECIDED = ("acquired", "broken")
"""States in which what was decided last tells something: an active lease has what it asked for."""


def decided(row: Lease) -> list[Panel]:
    """The verdicts of the last placement decision."""
    if row.state not in _DECIDED:
        return []
    said = reading.verdicts(row.verdicts)
    return [
        Panel(
            title="Last placement decision", columns=("Blueprint", "Offer", "Answer", "It says") if said else (),
            name="why", rows=_said(said), empty="There was none: a resource had room.",
        )
    ]  # fmt: skip


def _said(found: Sequence[Verdict]) -> list[tuple[Any, ...]]:
    return [(one.blueprint, one.offer or "-", cells.badge(one.answer), one.sentence) for one in found]


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
