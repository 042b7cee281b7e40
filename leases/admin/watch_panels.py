"""What stands on a lease's page of its workload and of what it uses."""

from __future__ import annotations

from typing import Any

from leases.admin import cells, job_output
from leases.admin.panels import Panel
from leases.client.values import MetricsInfo, WorkloadInfo
from leases.models import Job, Lease
from leases.operations import watches


def of(row: Lease) -> list[Panel]:
    """Workload and use of a watched lease; nothing of others."""
    watch = watches.of([row]).get(row.pk)
    work, used = watches.workload(watch), watches.metrics(watch)
    found = [] if work is None else [_workload(work, watch.job if watch is not None else None)]
    return found if used is None else [*found, _metrics(used)]


def _workload(work: WorkloadInfo, job: Job | None) -> Panel:
    """What it runs is told without arguments, which may be secret."""
    words = work.command if isinstance(work.command, str) else (work.command or [""])[0]
    runs = f"a container of {work.image}" if work.image else "a shell line" if work.command == words else words
    rows: list[tuple[Any, ...]] = [("State", cells.badge(work.state)), ("Runs", runs)]
    if work.message:
        rows.append(("It ended", work.message))
    if work.variables:
        rows.append(("Variables", ", ".join(work.variables)))
    if job is not None:
        rows += [("Job", cells.link(job)), ("Output", job_output.button(job))]
    if work.output_size is not None:
        rows.append(("Kept of its output", f"{work.output_kept} of {work.output_size} bytes"))
    return Panel(title="Workload", rows=rows, name="workload", empty="")


def _metrics(used: MetricsInfo) -> Panel:
    """In the units of `leases.client.values.MetricsInfo`."""
    rows = [
        ("Processor", _said(used.cpu_core_seconds, "core-seconds")),
        ("Memory", _said(used.memory_mib_seconds, "MiB-seconds")),
        ("Network in", _said(used.network_in_bytes, "bytes")), ("Network out", _said(used.network_out_bytes, "bytes")),
        ("Measured for", _said(used.wall_seconds, "seconds")),
        ("Last look", cells.moment(used.sampled_at)),
    ]  # fmt: skip
    scopes = {"machine": "The whole machine, which it holds alone.", "cgroup": "Its control group.",
              "processes": "Its processes."}  # fmt: skip
    note = "" if used.complete or used.sampled_at is None else " Not to its end yet."
    return Panel(
        title="What it uses", rows=rows if used.sampled_at is not None else [], name="metrics", always=True,
        empty="It was not looked at yet.", note=scopes.get(used.scope, "") + note,
    )  # fmt: skip


def _said(value: float | None, unit: str) -> str:
    if value is None:
        return "its host does not count it"
    return f"{value:,.1f} {unit}" if isinstance(value, float) else f"{value:,} {unit}"
