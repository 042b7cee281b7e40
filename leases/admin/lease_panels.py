"""Panels of a lease: progress, reason for waiting, connection, runs, jobs, workload, share and events."""

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
from drydock_client.values import InstanceInfo, MetricsInfo, Verdict, WaitingInfo, WorkloadInfo
from leases import attestation, consoles
from leases.admin import jobs
from leases.admin.hosts import erasures
from leases.admin.toolkit import columns, equivalent_commands, html, panels, timeline
from leases.admin.toolkit.panels import Head, Panel
from leases.models import Event, Job, Lease, Run, Share, SlotLock
from leases.operations import infos, instances
from leases.reports import progress
from leases.states import LEASE


def workload_panels(row: Lease) -> list[Panel]:
    """Return the panels for the workload and the measured usage of a lease, or an empty list if it has neither."""
    watch = infos.watches_of([row]).get(row.pk)
    work, used = infos.workload(watch), infos.metrics(watch)
    found = [] if work is None else [_workload(work, watch.job if watch is not None else None)]
    return found if used is None else [*found, _metrics(used)]


def _workload(work: WorkloadInfo, job: Job | None) -> Panel:
    """Show the workload without its arguments, which may be secret."""
    words = work.command if isinstance(work.command, str) else (work.command or [""])[0]
    image = work.image or (f"the archive {work.archive}" if work.archive else "")
    runs = f"a container from {image}" if image else "a shell command" if work.command == words else words
    rows: list[tuple[Any, ...]] = [("State", html.badge(work.state)), ("Command", runs)]
    if work.message:
        rows.append(("Result", work.message))
    if work.ports:
        rows.append(("Open ports", ", ".join(work.ports)))
    if work.unit:
        rows.append(("Runs as", "a systemd unit of the host"))
    if work.variables:
        rows.append(("Variables", ", ".join(work.variables)))
    if job is not None:
        rows += [("Job", html.link(job)), ("Output", jobs.button(job))]
    if work.output_size is not None:
        rows.append(("Output kept", f"{work.output_kept} of {work.output_size} bytes"))
    return Panel(title="Workload", rows=rows, name="workload", empty="")


def _metrics(used: MetricsInfo) -> Panel:
    """Show what the lease has used, in the units of `drydock_client.values.MetricsInfo`."""
    rows = [
        ("Processor", _measured(used.cpu_core_seconds, "core-seconds")),
        ("Memory", _measured(used.memory_mib_seconds, "MiB-seconds")),
        *([("Most memory", _measured(used.memory_peak_mib, "MiB"))] if used.memory_peak_mib is not None else []),
        ("Network in", _measured(used.network_in_bytes, "bytes")),
        ("Network out", _measured(used.network_out_bytes, "bytes")),
        ("Measured for", _measured(used.wall_seconds, "seconds")),
        ("Last sample", html.time(used.sampled_at)),
    ]  # fmt: skip
    scopes = {"machine": "Measured for the whole machine, which the lease holds exclusively.",
              "cgroup": "Measured for the control group of the lease.",
              "processes": "Measured for the processes of the lease."}  # fmt: skip
    note = "" if used.complete or used.sampled_at is None else " Measurement continues."
    return Panel(
        title="Usage", rows=rows if used.sampled_at is not None else [], name="metrics", always=True,
        empty="Not measured yet.", note=scopes.get(used.scope, "") + note,
    )  # fmt: skip


def _measured(value: float | None, unit: str) -> str:
    if value is None:
        return "not available on this host"
    return f"{value:,.1f} {unit}" if isinstance(value, float) else f"{value:,} {unit}"


LEASE_OVER = frozenset(state for state, following in LEASE.transitions.items() if not following)

"""States that do not change any more, so that their duration has no meaning."""


def of(row: Lease, request: HttpRequest) -> list[Panel]:
    """Return all panels of a lease, starting with the most important one."""
    events = panels.latest(Event.objects.filter(lease=row))
    found = why(row)
    if found is not None:
        now = [waits(row, found), *siblings(found), connect(row, request), *workload_panels(row)]
    else:
        runs = progress.runs_for([row])
        now = [
            *under_way(row, runs), connect(row, request), *workload_panels(row),
            panels.runs([run for run in runs if run.lease_id == row.pk]), jobs_panel(row), *console_panels(row),
            *evidence_panels(row),
            *decided(row), *share_panels(row),
        ]  # fmt: skip
    return [
        progress_panel(row, events), *now, *erasures.of_lease(row), panels.timeline(events),
        panels.leases("Leases held by this lease", Lease.objects.filter(for_lease=row)
                      .select_related("owner", "resource").defer("secrets", "resource__secrets")
                      .order_by("id")[: panels.LATEST]),
    ]  # fmt: skip


def head(row: Lease) -> Head:
    """Return the state of a lease in one line, with what happens next."""
    facts: list[tuple[str, Any]] = [
        ("type", row.type), ("owner", row.owner or "Drydock"), ("for", html.duration(clock.now() - row.since)),
    ]  # fmt: skip
    if row.resource is not None:
        facts.append(("on", html.link_with_number(row.resource)))
    if row.until and row.ended_at is None:
        facts.append(("until", html.time(row.until)))
    if row.state == "pending" and row.due_at and row.due_at > clock.now():
        facts.append(("next check", html.time(row.due_at)))
    if instance := instances.of_lease(row):
        facts += _of_instance(instance)
    return Head(badges=html.badges(row.state, *flags(row)), sentence=columns.sentence(infos.said(row)), facts=facts)


def _of_instance(instance: InstanceInfo) -> list[tuple[str, Any]]:
    """Return labelled facts about the cloud machine of a lease: state, current cost and last failed action."""
    facts: list[tuple[str, Any]] = [("instance", html.badge(instance.state))]
    if instance.hourly_cost:
        facts.append(("costs", f"${instance.hourly_cost:.4f} per hour"))
    if instance.kept_until:
        facts.append(("machine kept until", html.time(instance.kept_until)))
    if failed := instance.failure:
        said = html.short(failed.message, 200)
        facts.append((f"{failed.act} failed {failed.attempts} times", said))
    return facts


def flags(row: Lease) -> list[str]:
    """Return the badges of a lease for special conditions: held, overdue."""
    over = row.state in ("acquired", "active") and row.until is not None and row.until < clock.now()
    return [*(["held"] if row.held else []), *(["overdue"] if over else [])]


_WAY = ("pending", "acquired", "active", "released", "destroyed")


def progress_panel(row: Lease, events: Sequence[Event]) -> Panel:
    """Show the past states of a lease, the duration of each, and the states that usually follow."""
    stages = _stages(row, events)
    known = [(state, took) for state, took in stages if took is not None]
    whole = sum((took for _, took in known), dt.timedelta()) or dt.timedelta(seconds=1)
    strip = timeline.stacked_bar(
        [(html.tone(state), took / whole, f"{state}: {in_words(took)}") for state, took in known]
    )
    listed = format_html_join(
        "", "<li>{} <span class='dd-took'>{}</span></li>",
        ((html.badge(state) if took is not None else format_html("<span class='dd-quiet'>{}</span>", state),
          "" if took is None or state in LEASE_OVER else in_words(took)) for state, took in stages),
    )  # fmt: skip
    return Panel(title="Progress", lead=format_html('<ol class="dd-way">{}</ol>{}', listed, strip), name="way")


def _stages(row: Lease, events: Sequence[Event]) -> list[tuple[str, dt.timedelta | None]]:
    """Return (state, duration) of each past state, followed by the usual next states without a duration."""
    moves = [event for event in events if event.to_state and event.kind.startswith("lease.")]
    gone = [(e.from_state, e.duration) for e in moves if e.from_state and e.duration is not None]
    ahead = _WAY[_WAY.index(row.state) + 1 :] if row.state in _WAY else ()
    return [*gone, (row.state, max(clock.now() - row.since, dt.timedelta())), *((state, None) for state in ahead)]


def under_way(row: Lease, runs: Sequence[Run]) -> list[Panel]:
    """Show the current step: its progress in percent, its attempts, its last failure, and who must act."""
    found = progress.of([row], runs).get(row.pk)
    if found is None:
        return []
    tried = f"{found.attempt} of {found.attempts}" if found.attempts else str(found.attempt)
    task = f"{found.who}: {found.task}" if found.task else ""
    rows = [
        ("Step", f"{found.phase}: {found.step}"), ("Progress", html.progress(found.percent)), ("Attempt", tried),
        ("Message", found.sentence), ("Waiting for a person", task), ("Last failure", found.failure),
        ("Since", html.time(found.since)),
        ("Usual build time", html.duration(found.estimate) if found.estimate else ""),
    ]  # fmt: skip
    return [Panel(title="In progress", name="progress", rows=[(words, value) for words, value in rows if value])]


def connect(row: Lease, request: HttpRequest) -> Panel:
    """Show lines to copy that use the lease: in a shell, by SSH, by REST and in Python."""
    ready = row.state == "active"
    return Panel(
        title="Connect", name="connect", always=row.ended_at is None,
        empty="Shown once the lease is active.",
        rows=[(words, html.copyable(line)) for words, line in _lines(row, request)] if ready else [],
    )  # fmt: skip


def _lines(row: Lease, request: HttpRequest) -> Iterator[tuple[str, str]]:
    names = () if row.resource is None else infos.interface_names(row.resource.blueprint.kind)
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
        yield "Private key (owner only)", f"(umask 077; drydock key {row.pk} > {key})"
        at = shlex.quote(f"{where['user']}@{where['host']}")
        yield "SSH", f"ssh -i {key} -p {int(where.get('port') or 22)} {at}"
    if "command" in names:
        yield "Python", f'Lease.get({row.pk}, owner="{row.owner or ""}").interface("command").check(["uname", "-a"])'
    call = equivalent_commands.line_for(request, "lease", {"id": row.pk}).call
    if call:
        yield "REST", call


def evidence_panels(row: Lease) -> list[Panel]:
    """Show the attestation evidence of a lease, the newest first, or nothing if there is none."""
    found = attestation.newest(row)
    rows = [
        (html.time(one.collected_at), html.badge("ok" if one.passed else "failed"), one.message,
         one.kind, html.short(one.mr_td or one.ak, 16), one.tcb_status or html.DASH, one.actor)
        for one in found
    ]  # fmt: skip
    note = f"Save and verify the newest: drydock attest {row.pk} --fetch FILE, drydock attest --verify FILE."
    columns_ = ("Collected", "Result", "Verdict", "Kind", "MR_TD or AK", "TCB status", "Requested by")
    return [Panel(title="Attestation", name="attestation", columns=columns_, rows=rows, note=note)] if found else []


_CONSOLE_SHOWN = 4096
"""Bytes of the record of a console that the page of a lease shows."""


def console_panels(row: Lease) -> list[Panel]:
    """Show the end of what the console of an active lease printed, or nothing if it printed nothing."""
    found = consoles.recorded(row.pk, _CONSOLE_SHOWN) if row.state == "active" else None
    if found is None:
        return []
    console, text = found
    rows = [
        ("Line", html.badge("open" if console.opened_at is not None and console.token is not None else "closed")),
        ("Last problem", console.problem or html.DASH),
        ("Output", format_html("<pre>{}</pre>", text)),
    ]  # fmt: skip
    note = f"Only what was printed while somebody was attached. Attach: drydock console {row.pk} --attach"
    return [Panel(title="Console", name="console", rows=rows, note=note)]


def why(row: Lease) -> WaitingInfo | None:
    """Return the reason why the lease waits if it has been read, or None."""
    return getattr(row, "why", None)


def waits(row: Lease, found: WaitingInfo) -> Panel:
    """Show why a lease waits, what would help, and the verdict on every blueprint."""
    return Panel(
        title="Why is it waiting?", columns=("Blueprint", "Offer", "Verdict", "Explanation") if found.verdicts else (),
        name="why", always=True, rows=_verdict_rows(found.verdicts), empty="No blueprint provides this type.",
        note=" ".join(filter(None, (found.message, f"Position in the queue: {found.place}.", _again(row), found.help))),
    )  # fmt: skip


def _again(row: Lease) -> str:
    """Return when the lease will be checked again, or an empty string if that time is not in the future."""
    if row.due_at is None or row.due_at <= clock.now():
        return ""
    return f"Next check by {row.due_at:%H:%M:%S} UTC."


def siblings(found: WaitingInfo) -> list[Panel]:
    """Return a panel with the other leases of the group and the resource that is reserved for each of them."""
    if not found.siblings:
        return []
    return [
        Panel(
            title="Other leases of the group", columns=("Lease", "State", "Resource"),
            rows=[
                (format_html('<a href="{}">lease {}</a>', reverse("admin:leases_lease_change", args=(one.lease,)),
                             one.lease), html.badge(one.state), one.resource or html.DASH)
                for one in found.siblings
            ],
        )
    ]  # fmt: skip


_DECIDED = ("acquired", "broken")

"""States in which the last placement decision is still of interest. An active lease already has its resource."""


def decided(row: Lease) -> list[Panel]:
    """Show the verdicts of the last placement decision about a lease."""
    if row.state not in _DECIDED:
        return []
    said = infos.verdicts(row.verdicts)
    return [
        Panel(
            title="Last placement decision", columns=("Blueprint", "Offer", "Verdict", "Explanation") if said else (),
            name="why", rows=_verdict_rows(said), empty="None needed: a resource had room.",
        )
    ]  # fmt: skip


def _verdict_rows(found: Sequence[Verdict]) -> list[tuple[Any, ...]]:
    return [(one.blueprint, one.offer or "-", html.badge(one.answer), one.sentence) for one in found]


def share_panels(row: Lease) -> list[Panel]:
    """Show the share and the slot locks of the lease."""
    share: Share | None = getattr(row, "share", None)
    locks = SlotLock.objects.filter(lease=row).order_by("key")
    return [
        Panel(
            title="Share", columns=("Resource", "Amounts", "Since"), empty="This lease holds no share.",
            rows=[] if share is None else [
                (html.link(row.resource), html.amounts(columns.amounts(share)), html.time(share.created_at))
            ],
        ),
        Panel(
            title="Slot locks", columns=("Key", "Requested as", "Chosen", "Since"),
            empty="This lease holds no slot locks.",
            rows=[(one.key, one.name or "-", one.value or "-", html.time(one.created_at)) for one in locks],
        ),
    ]  # fmt: skip


def jobs_panel(row: Lease) -> Panel:
    """List the jobs of a lease. Their output is read from the host only on request."""
    return Panel(
        title="Jobs", columns=("Job", "State", "Command", "Exit code", "Message", "Started", "Ended", ""), name="jobs",
        empty="No jobs.",
        rows=[
            (
                html.link(job), html.badge(job.state), jobs.program(job.command),
                "-" if job.exit_code is None else job.exit_code, html.short(job.message),
                html.time(job.started_at), html.time(job.ended_at), jobs.button(job),
            )
            for job in Job.objects.filter(lease=row).order_by("-id")[: panels.LATEST]
        ],
    )  # fmt: skip
