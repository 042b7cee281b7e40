"""What is watched of leases, as values; and what is kept of the output of their workloads."""

from __future__ import annotations

import base64
from collections.abc import Iterable

from django.db.models import F
from django.db.models.fields.json import KT

from leases import outcomes
from leases.client.values import JobPart, MetricsInfo, WorkloadInfo
from leases.models import Lease
from leases.models.job import KeptOutput, Watch


def of(rows: Iterable[Lease]) -> dict[int, Watch]:
    """Lease -> its watch, in one statement; in none where nothing is watched."""
    ids = [row.pk for row in rows if row.watched]
    if not ids:
        return {}
    found = Watch.objects.filter(lease__in=ids).select_related("job").defer("sample", "env", "job__env", "job__stdin")
    return {
        one.lease_id: one
        for one in found.annotate(
            said=F("job__kept_output__size"), left_out=F("job__kept_output__left_out"), scope=KT("sample__scope")
        )
    }


def workload(watch: Watch | None) -> WorkloadInfo | None:
    """The workload of a watched lease."""
    if watch is None or watch.workload is None:
        return None
    asked, job = watch.workload, watch.job
    exit_code = None if job is None else job.exit_code
    said, left_out = getattr(watch, "said", None), getattr(watch, "left_out", None)
    return WorkloadInfo(
        state="over" if watch.over_at is not None else "running" if job is not None else "waiting",
        outcome=watch.outcome, message=watch.message, exit_code=exit_code,
        signal=outcomes.signal_of(exit_code) if watch.outcome == outcomes.Outcome.SIGNAL else 0,
        job=watch.job_id, command=asked["command"], image=asked["image"], cwd=asked["cwd"],
        variables=asked["variables"], started_at=None if job is None else job.started_at,
        ended_at=None if job is None else job.ended_at, output_size=said,
        output_kept=None if said is None or left_out is None else said - left_out,
    )  # fmt: skip


def metrics(watch: Watch | None) -> MetricsInfo | None:
    """What a watched lease has used."""
    if watch is None:
        return None
    return MetricsInfo(
        scope=getattr(watch, "scope", None) or "", cpu_core_seconds=watch.cpu_seconds,
        memory_mib_seconds=watch.memory_mib_seconds, network_in_bytes=watch.network_in,
        network_out_bytes=watch.network_out, wall_seconds=watch.wall_seconds, sampled_at=watch.sampled_at,
        complete=watch.complete,
    )  # fmt: skip


def kept_output(job_id: int, offset: int, limit: int) -> JobPart | None:
    """A part of what is kept of a workload's output; None where nothing is. Offsets are those on its host."""
    row = KeptOutput.objects.filter(job=job_id).first()
    if row is None:
        return None
    return part(base64.b64decode(row.head), base64.b64decode(row.tail), row.size, offset, limit)


def part(head: bytes, tail: bytes, size: int, offset: int, limit: int) -> JobPart:
    """At most `limit` bytes from `offset` of an output of `size` bytes. A mark stands for those that are not kept."""
    resumes = size - len(tail)
    missing = resumes - len(head)
    if offset < len(head):
        content = head[offset : offset + limit]
        following = offset + len(content)
    elif offset < resumes:
        content, following = f"\n[... {missing} bytes were not kept ...]\n".encode()[:limit], resumes
    else:
        content = tail[offset - resumes : offset - resumes + limit]
        following = offset + len(content)
    return JobPart(content=content, next_offset=following, over=following >= size, truncated=missing > 0)
