"""Poll measured leases: start the workload, measure what it uses, and collect its results when the lease ends."""

from __future__ import annotations

import datetime as dt
import logging

from django.conf import settings
from django.db.models.functions import Coalesce, Now

from drydock.core.errors import Conflict, DrydockError
from interfaces.command.contract import Command
from interfaces.command.metering import Sample
from interfaces.deadline import answering_within
from interfaces.errors import DeadlineExceeded, JobMissing, LeaseEnded
from leases.engine.core import specs
from leases.engine.core.database import rows, short
from leases.engine.core.installation import current
from leases.engine.core.transitions import record_event
from leases.engine.lifecycle import release
from leases.messaging import hints
from leases.models import Job
from leases.models.job import Watch
from leases.states import LeaseState
from leases.workloads import conclusion, jobs, outcomes, units

log = logging.getLogger(__name__)


def poll(lease_id: int) -> None:
    """Check a measured lease on behalf of a worker. If its host fails, a later check tries again."""
    watch = (
        Watch.objects.select_related("job", "lease__owner", "lease__resource__blueprint")
        .filter(lease_id=lease_id, over_at=None)
        .first()
    )
    if watch is None or current().problem or _paused(watch):
        return
    with hints.looking(lease_id, watch.lease.owner_id) as mine:
        if mine:
            _look(watch)
        else:
            Watch.objects.filter(pk=watch.pk, over_at=None).update(due_at=Now())


def _look(watch: Watch) -> None:
    lease_id = watch.lease_id
    try:
        _STEPS.get(LeaseState(watch.lease.state), _wait)(watch)
    except LeaseEnded:
        return
    except DrydockError as error:
        log.warning("Lease %s could not be checked: %s", lease_id, error)
        if isinstance(error, DeadlineExceeded):
            pause = _usual() + _between_gatherings() if watch.lease.state == LeaseState.RELEASED else _SILENT
            Watch.objects.filter(pk=watch.pk, over_at=None).update(due_at=Now() + pause)


_SILENT = dt.timedelta(seconds=jobs.SILENT)


def _usual() -> dt.timedelta:
    """Return the longest time until the next check of an active lease whose host answers."""
    return dt.timedelta(seconds=settings.DRYDOCK.metrics_interval_seconds)


def _between_gatherings() -> dt.timedelta:
    """Return the time between two attempts to gather results.

    A host that does not answer is asked up to three times before it is cleaned.
    """
    return dt.timedelta(seconds=settings.DRYDOCK.gather_seconds / 3)


def _paused(watch: Watch) -> bool:
    """Return whether results of an ended lease are not gathered now, because its host has just failed to answer."""
    later = Watch.objects.filter(pk=watch.pk, due_at__gt=Now() + _usual())
    return watch.lease.state == LeaseState.RELEASED and later.exists()


def _wait(watch: Watch) -> None:
    """Do nothing, because the lease is not active yet."""


def _follow(watch: Watch) -> None:
    """Measure what an active lease uses, and start its workload. The host has `DRYDOCK_HOST_SECONDS` to answer."""
    with answering_within(float(settings.DRYDOCK.host_seconds)):
        host = jobs.host(watch.lease_id, watch)
        sample, at = conclusion.measured(watch, host)
    unseen = Watch.objects.filter(pk=watch.pk, over_at=None, samples=watch.samples)
    unseen.update(began_at=Coalesce("began_at", Now()), **conclusion.counted(watch, sample, at))
    if watch.workload is not None and watch.job_id is None and (job_id := _begin(watch.lease_id)) is not None:
        jobs.look(job_id)  # not `watch`: the mark of a look at this lease is ours already


@short
def _begin(lease_id: int) -> int | None:
    """Insert the job of a workload, unless that was done before.

    Return the id of the job, or None if the lease has ended meanwhile.
    """
    locked = rows("SELECT state, release_wanted FROM leases_lease WHERE id = %s FOR NO KEY UPDATE", (lease_id,))
    watches = Watch.objects.select_related("lease__owner", "lease__resource__blueprint")
    watch = watches.select_for_update(no_key=True, of=("self",)).filter(lease_id=lease_id, over_at=None).first()
    if watch is None or watch.workload is None or locked != [(LeaseState.ACTIVE, "")]:
        return None
    if watch.job_id is None:
        asked, env = watch.workload, watch.env or {}
        how = units.begun(watch.lease, asked, env)
        job = jobs.write(lease_id, how.words, env=env, cwd=how.cwd, ends_lease=True)
        Watch.objects.filter(pk=watch.pk).update(
            job=job, env=None, began_at=Coalesce("began_at", Now()), workload=units.kept(asked, how.unit)
        )
        record_event(
            "lease.workload", f"The workload was started as job {job.pk}.", lease_id=lease_id, details={"job": job.pk}
        )
        return job.pk
    return watch.job_id


def _gather(watch: Watch) -> None:
    """Stop the workload of a lease that has ended but is not cleaned yet, and gather its results.

    The host has `DRYDOCK_HOST_SECONDS` to answer.
    """
    last = None
    if watch.began_at is not None:
        with answering_within(float(settings.DRYDOCK.host_seconds)):
            last = _ended(watch)
    _conclude(watch.pk, last)
    release.end(watch.lease_id)


def _ended(watch: Watch) -> conclusion.Gathered:
    host = _host(watch)
    job, name = watch.job, "" if watch.job is None else jobs.host_id(watch.job)
    first = conclusion.measured(watch, host)
    if first[0] is not None:
        _count(watch, *first)
    if job is not None and job.state in jobs.OPEN and not watch.lease.held:
        _cancel(host, name)
    return conclusion.gather(watch, host, name, remove=not watch.lease.held)


def _count(watch: Watch, sample: Sample | None, at: dt.datetime | None) -> None:
    columns = conclusion.counted(watch, sample, at)
    if Watch.objects.filter(pk=watch.pk, over_at=None, samples=watch.samples).update(**columns):
        for name, value in columns.items():
            setattr(watch, name, value)


def _cancel(host: Command, name: str) -> None:
    try:
        host.jobs.cancel(name)
    except JobMissing:
        return
    except Conflict as error:
        log.warning("Job %s: %s", name, error)


def _host(watch: Watch) -> Command:
    """Return the command interface of an ended lease. It works until the cleaning of the lease begins."""

    def check() -> None:
        found = rows(
            "SELECT 1 FROM leases_lease l WHERE l.id = %s AND l.state = 'released' AND NOT EXISTS ("
            "SELECT FROM leases_run n WHERE n.lease_id = l.id)",
            (watch.lease_id,),
        )
        if not found:
            raise LeaseEnded(f"Lease {watch.lease_id} is being cleaned.")

    check()
    found = specs.opened(specs.lease_view(watch.lease, still_mine=check), "command", check)
    assert isinstance(found, Command)
    return units.command(watch, watch.lease, found, check)


def _close(watch: Watch) -> None:
    """End the watch of a lease whose host is gone, or was cleaned before results could be gathered."""
    _conclude(watch.pk, None)


@short
def _conclude(pk: int, last: conclusion.Gathered | None) -> None:
    """Store the end of a watch whose lease ended first, and the end of its workload's job."""
    lease_id = Watch.objects.values_list("lease_id", flat=True).get(pk=pk)
    rows("SELECT 1 FROM leases_lease WHERE id = %s FOR NO KEY UPDATE", (lease_id,))
    watch = Watch.objects.select_related("job", "lease").get(pk=pk)
    end = None if watch.workload is None else _end(watch)
    exit_code = last.end.job.exit_code if last is not None and last.end is not None else None
    if not conclusion.write(watch, end, last, exit_code=exit_code) or watch.job is None or end is None:
        return
    lost = end.outcome is outcomes.Outcome.LOST
    jobs.write_end(watch.job, Job.State.LOST if lost else Job.State.CANCELLED, end.sentence, exit_code)


def _end(watch: Watch) -> outcomes.End:
    lease = watch.lease
    why = lease.message or f"{lease.reason.replace('_', ' ')}."
    if lease.state == LeaseState.BROKEN and watch.job is not None:
        return outcomes.End(outcomes.Outcome.LOST, f"The workload was lost together with its host. {why}")
    return outcomes.cut(why, begun=watch.job is not None)


_STEPS = {
    LeaseState.ACTIVE: _follow,
    LeaseState.RELEASED: _gather,
    LeaseState.DESTROYED: _close,
    LeaseState.BROKEN: _close,
}
