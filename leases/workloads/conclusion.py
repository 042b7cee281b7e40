"""The end of a measured lease: the last counters and the output are read from the host and stored."""

from __future__ import annotations

import base64
import datetime as dt
import logging
from dataclasses import dataclass, replace
from typing import Any

from django.conf import settings
from django.db.models.functions import Now

from blueprints.units import UnitCommand
from drydock.core.errors import DrydockError
from interfaces.command import container, metering
from interfaces.command.contract import Command
from interfaces.command.jobs import JobEnd
from interfaces.command.metering import Sample, Used, advanced
from interfaces.errors import ConnectionLost, JobMissing, LeaseEnded, Unreachable
from interfaces.local.transport import LocalTransport
from leases.engine.core import specs
from leases.engine.core.database import rows
from leases.engine.core.transitions import record_event
from leases.models import Job, Lease, Share
from leases.models.job import KeptOutput, Watch
from leases.workloads import outcomes

log = logging.getLogger(__name__)

_REMOVAL = 30.0

"""How long podman may take to stop and remove a container, in seconds."""


@dataclass(frozen=True, kw_only=True)
class Gathered:
    """The data that was last read from the host: the end of the workload's job, and its counters with the time."""

    end: JobEnd | None = None
    sample: Sample | None = None
    at: dt.datetime | None = None


def open_watch(job: Job) -> Watch | None:
    """Return the watch whose workload is this job, or None if there is none that is still open."""
    if not job.ends_lease:
        return None
    return Watch.objects.select_related("lease__resource__blueprint").filter(job=job, over_at=None).first()


def gather(watch: Watch, host: Command, name: str, *, remove: bool = True) -> Gathered:
    """Read the counters and the output of job `name`, and remove its container.

    Raises errors from the connection to the host, so that the caller tries again.
    """
    sample, at = measured(watch, host)
    end: JobEnd | None = None
    if name:
        try:
            end = host.jobs.remains(name, *_bounds())
        except JobMissing:
            log.warning("The workload no longer exists on the host of lease %s.", watch.lease_id)
    if remove and (watch.workload or {}).get("image") and not isinstance(host, UnitCommand):
        _remove_container(watch, host)
    return Gathered(end=end, sample=sample, at=at)


def _bounds() -> tuple[int, int]:
    return settings.DRYDOCK.kept_head_kib << 10, settings.DRYDOCK.kept_tail_kib << 10


def _remove_container(watch: Watch, host: Command) -> None:
    done = host.run(container.removal(specs.key("l", watch.lease_id)), timeout=_REMOVAL)
    if not done.ok:
        record_event("lease.workload", f"The container could not be removed: {done.error_text.strip()[:500]}",
             lease_id=watch.lease_id)  # fmt: skip


def measured(watch: Watch, host: Command) -> tuple[Sample | None, dt.datetime | None]:
    """Return the current counters and the time by the database's clock.

    Returns None for both if the host does not report counters. Raises errors from the connection to the host.
    """
    try:
        sample = _sample(watch, host)
    except (LeaseEnded, Unreachable, ConnectionLost):
        raise
    except DrydockError as error:
        log.warning("The usage of lease %s could not be read: %s", watch.lease_id, error)
        return None, None
    return sample, rows("SELECT clock_timestamp()")[0][0]


def _sample(watch: Watch, host: Command) -> Sample:
    if isinstance(host, UnitCommand):
        return host.jobs.sample()
    machine, shared = _holds(watch.lease, host)
    return metering.read(host, lease=specs.key("l", watch.lease_id), machine=machine, shared=shared)


def _holds(lease: Lease, host: Command) -> tuple[bool, bool]:
    """Return whether the lease has a whole remote machine, and whether other leases may use its account."""
    share = Share.objects.filter(lease=lease).first()
    resource = lease.resource
    isolation = lease.facts.get("isolation") or (resource.attributes.get("isolation") if resource else "")
    alone = isolation == "machine" or (share is not None and share.exclusive)
    far = not isinstance(host.transport, LocalTransport) and resource is not None and resource.part_of_id is None
    return alone and far, isolation != "uid"


def used(watch: Watch) -> Used:
    """Return what the lease has used according to all samples so far."""
    return Used(
        cpu_seconds=watch.cpu_seconds, memory_mib_seconds=watch.memory_mib_seconds, network_in=watch.network_in,
        network_out=watch.network_out, wall_seconds=watch.wall_seconds,
    )  # fmt: skip


def counted(watch: Watch, sample: Sample | None, at: dt.datetime | None) -> dict[str, Any]:
    """Return the columns of the watch that a sample of the counters changes."""
    if sample is None or at is None:
        return {}
    before = None if watch.sample is None else Sample.from_json(watch.sample)
    if sample.peak is None and before is not None:
        sample = replace(sample, peak=before.peak)
    seconds = 0.0 if watch.sampled_at is None else (at - watch.sampled_at).total_seconds()
    now = advanced(used(watch), before, sample, seconds)
    return {
        "cpu_seconds": now.cpu_seconds, "memory_mib_seconds": now.memory_mib_seconds, "network_in": now.network_in,
        "network_out": now.network_out, "wall_seconds": now.wall_seconds, "sample": sample.to_json(),
        "sampled_at": at, "samples": watch.samples + 1,
    }  # fmt: skip


def end_of(watch: Watch, state: str, exit_code: int | None, message: str, last: Gathered | None) -> outcomes.End:
    """Return the outcome of a workload, as determined by the end of its job."""
    cause = last.end.cause if last is not None and last.end is not None else ""
    asked = watch.workload or {}
    image = str(asked.get("image") or asked.get("archive") or "")
    return outcomes.of_job(state, exit_code=exit_code, message=message, cause=cause, image=image)


def write(watch: Watch, end: outcomes.End | None, last: Gathered | None, *, exit_code: int | None = None) -> bool:
    """Store the end of a watch with all data that is available. Return False if it had already ended.

    Call inside a transaction.
    """
    columns = {} if last is None else counted(watch, last.sample, last.at)
    changed = Watch.objects.filter(pk=watch.pk, over_at=None).update(
        over_at=Now(), env=None, outcome="" if end is None else end.outcome,
        message="" if end is None else end.sentence,
        complete=bool(columns), **columns,
    )  # fmt: skip
    if not changed:
        return False
    if last is not None and last.end is not None and watch.job_id is not None:
        _keep(watch.lease_id, watch.job_id, last.end)
    if end is not None:
        details = {"outcome": str(end.outcome), "job": watch.job_id, "exit_code": exit_code}
        record_event("lease.workload", end.sentence, lease_id=watch.lease_id, reason=end.reason, details=details)
    return True


def _keep(lease_id: int, job_id: int, end: JobEnd) -> None:
    kept = len(end.head) + len(end.tail)
    KeptOutput.objects.get_or_create(
        lease_id=lease_id, job_id=job_id,
        defaults={
            "head": base64.b64encode(end.head).decode(), "tail": base64.b64encode(end.tail).decode(),
            "size": max(end.size, kept), "left_out": max(0, end.size - kept),
        },
    )  # fmt: skip
