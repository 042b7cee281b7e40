"""Jobs: detached commands on leased hosts, which are polled until they end. Their rows are written first."""

from __future__ import annotations

import base64
import logging
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any

from django.conf import settings
from django.db.models.functions import Now

from drydock.core.errors import Conflict, DrydockError
from interfaces.command.contract import Command
from interfaces.command.jobs import Job as HostJob
from interfaces.command.jobs import JobSpec, JobState
from interfaces.deadline import answering_within
from interfaces.errors import DeadlineExceeded, JobMissing, LeaseEnded, NotStarted
from leases.engine.core import specs
from leases.engine.core.database import rows, short
from leases.engine.core.installation import current
from leases.engine.lifecycle import release
from leases.messaging import hints
from leases.models import Job, Lease
from leases.models.job import Watch
from leases.operations.interfaces import still_mine
from leases.reasons import Reason
from leases.workloads import conclusion, units

log = logging.getLogger(__name__)

OPEN = (Job.State.PENDING, Job.State.RUNNING)


def write(
    lease_id: int, words: Sequence[str] | str, *, env: Mapping[str, str], cwd: str, ends_lease: bool,
    stdin: bytes = b"", apart: bool = False,
) -> Job:  # fmt: skip
    """Insert a job, which is started later, and return it."""
    line: Any = words if isinstance(words, str) else list(words)
    given = base64.b64encode(stdin).decode() if stdin else None
    return Job.objects.create(
        lease_id=lease_id, command=line, env=dict(env), cwd=cwd, ends_lease=ends_lease, stdin=given,
        apart=apart,
    )  # fmt: skip


def advance(job_id: int, *, worker: bool = False) -> Job:
    """Advance a job as far as is possible now, and return its row: start it, cancel it or record its end.

    Only a worker starts a job whose image must be copied to the host.

    Raises errors from the host (unreachable, connection lost). The row is then unchanged.
    """
    job = Job.objects.select_related("lease__owner", "lease__resource__blueprint").get(pk=job_id)
    if job.state not in OPEN:
        return job
    try:
        _advance(job, worker)
    except LeaseEnded:
        if conclusion.open_watch(job) is None:
            _close(job, Job.State.CANCELLED, message="The lease of the job has ended.")
        else:  # its output and usage are still to be gathered, if possible
            hints.send("watch", job.lease_id)
    job.refresh_from_db()
    return job


def _advance(job: Job, worker: bool) -> None:
    begun = units.watch_of(job)
    host = _host(job.lease, begun)
    name = host_id(job)
    try:
        if job.cancel_wanted:
            found = host.jobs.cancel(name)
        elif job.state == Job.State.PENDING:
            if units.has_archive(begun) and not (worker and units.copied(begun, host)):
                return None
            found = host.jobs.start(_spec(job, name))
        else:
            found = host.jobs.status(name)
    except JobMissing:
        ended = Job.State.CANCELLED if job.cancel_wanted else Job.State.LOST
        return _close(job, ended, message="The job does not exist on the host.")
    except NotStarted as error:
        return _close(job, Job.State.LOST, message=str(error))
    watch = conclusion.open_watch(job) if found.state.over else None
    _apply(job, found, None if watch is None else conclusion.gather(watch, host, name))
    return None


def _spec(job: Job, name: str) -> JobSpec:
    stdin = base64.b64decode(job.stdin or "")
    env = {**job.environment, **(job.env or {})}
    return JobSpec(id=name, words=job.command, env=env, cwd=job.cwd, stdin=stdin, apart=job.apart)


def _host(lease: Lease, watch: Watch | None) -> Command:
    def check() -> None:
        still_mine(lease.pk, lease.owner_id)

    check()
    found = specs.opened(specs.lease_view(lease, still_mine=check), "command", check)
    assert isinstance(found, Command)
    return units.command(watch, lease, found, check)


def host(lease_id: int, watch: Watch | None = None) -> Command:
    """Return the command interface of a lease. Raises LeaseEnded.

    Its jobs are those of the lease's account or, with a watch whose workload is a unit, that unit.
    """
    return _host(Lease.objects.select_related("owner", "resource__blueprint").get(pk=lease_id), watch)


def host_id(job: Job) -> str:
    """Return the name of a job on its host, which is unique even if several installations share an account."""
    return f"{specs.key('l', job.lease_id)}-j{job.pk}"


def _apply(job: Job, found: HostJob, left: conclusion.Gathered | None) -> None:
    if found.state in (JobState.STARTING, JobState.RUNNING):
        Job.objects.filter(pk=job.pk, state=Job.State.PENDING).update(
            state=Job.State.RUNNING, started_at=Now(), stdin=None, env=None, environment={}
        )
    elif found.state is JobState.EXITED:
        _close(job, Job.State.ENDED, exit_code=found.exit_code, left=left)
    elif found.state is JobState.CANCELLED:
        _close(job, Job.State.CANCELLED, exit_code=found.exit_code, left=left)
    else:
        _close(job, Job.State.LOST, message="The job ended without an exit code.", left=left)


def _close(
    job: Job, state: str, *, message: str = "", exit_code: int | None = None, left: conclusion.Gathered | None = None
) -> None:
    watch = conclusion.open_watch(job)
    if watch is None:
        reason = Reason.JOB_ENDED
        said = f"Job {job.pk} has {state}" + ("." if exit_code is None else f" with exit code {exit_code}.")
    else:
        end = conclusion.end_of(watch, state, exit_code, message, left)
        reason, said = end.reason, end.sentence
    if job.ends_lease:
        # The lease is locked before its watch, as everywhere.
        done = _written(job, state, message, exit_code, reason, watch, left)
    else:
        done = write_end(job, state, message, exit_code)
    if done and job.ends_lease:
        release.end(job.lease_id, reason=reason, actor="drydock", message=said)


@short
def _written(
    job: Job, state: str, message: str, exit_code: int | None, reason: Reason, watch: Watch | None,
    left: conclusion.Gathered | None,
) -> bool:  # fmt: skip
    """Store the end of a job, conclude its watch and request the release of its lease, in one transaction.

    Returns False if the job had already ended.
    """
    release.release(job.lease_id, reason=reason, actor="drydock")
    if not write_end(job, state, message, exit_code):
        return False
    if watch is not None:
        conclusion.write(watch, conclusion.end_of(watch, state, exit_code, message, left), left, exit_code=exit_code)
    return True


def write_end(job: Job, state: str, message: str, exit_code: int | None) -> bool:
    """Store the end of a job. Return False if it had already ended."""
    return bool(
        Job.objects.filter(pk=job.pk, state__in=OPEN).update(
            state=state, message=message, exit_code=exit_code, ended_at=Now(), stdin=None, env=None, environment={}
        )
    )


def watch(job_id: int) -> None:
    """Check a job on behalf of a worker. If its host fails, a later check tries again.

    A tenant can make a host hang, and workers serve all owners. Therefore a check takes at most
    `DRYDOCK_HOST_SECONDS`, and only one check of a lease runs at a time. After a check without an answer, all jobs
    of the lease, including new ones, are skipped for some time.
    """
    due = Job.objects.filter(pk=job_id, due_at__lte=_soon())
    for lease_id, owner_id in due.values_list("lease_id", "lease__owner_id"):
        with hints.looking(lease_id, owner_id) as mine:
            if not mine:
                _look_later(job_id, 0.0)
            elif _is_silent(job_id, lease_id):
                _look_later(job_id, 2 * SILENT)
            else:
                look(job_id)


def _soon() -> Any:
    return Now() + timedelta(seconds=_SELDOM + 1)


def _is_silent(job_id: int, lease_id: int) -> bool:
    """Return whether checks of the lease's jobs are paused, and this job has never been checked."""
    jobs = Job.objects.filter(lease_id=lease_id, state__in=OPEN)
    return jobs.filter(due_at__gt=_soon()).exists() and jobs.filter(pk=job_id, message="").exists()


def _look_later(job_id: int, seconds: float) -> None:
    Job.objects.filter(pk=job_id, state__in=OPEN).update(due_at=Now() + timedelta(seconds=seconds))


def look(job_id: int) -> None:
    """Check a job once. If its host fails, a later check tries again."""
    try:
        with answering_within(float(settings.DRYDOCK.host_seconds)):
            advance(job_id, worker=True)
    except Job.DoesNotExist:
        return
    except DrydockError as error:
        Job.objects.filter(pk=job_id, state__in=OPEN).update(message=str(error)[:2000])
        log.warning("Job %s could not be checked: %s", job_id, error)
        if isinstance(error, DeadlineExceeded):
            _leave_alone(job_id)


def _leave_alone(job_id: int) -> None:
    """Delay the next check of this job.

    The lease's other jobs are delayed longer, so that this job is checked first.
    """
    lease = Job.objects.filter(pk=job_id).values("lease_id")
    jobs = Job.objects.filter(lease_id__in=lease, state__in=OPEN)
    jobs.exclude(pk=job_id).update(due_at=Now() + timedelta(seconds=2 * SILENT))
    jobs.filter(pk=job_id).update(due_at=Now() + timedelta(seconds=SILENT))


_DUE = """
    UPDATE leases_job SET due_at = clock_timestamp() + least(%s * interval '1 s', (clock_timestamp() - created_at) / 10)
    WHERE id = ANY(ARRAY(
        SELECT id FROM leases_job WHERE state IN ('pending', 'running') AND due_at <= statement_timestamp()
        ORDER BY due_at LIMIT %s FOR NO KEY UPDATE SKIP LOCKED)) RETURNING id"""

"""As an array, which is read once: PostgreSQL may run a subquery of IN again for each row, past its LIMIT."""

_SELDOM = 10.0

"""Seconds between two checks of a job that has run for a long time. Younger jobs are checked more often."""

SILENT = 60.0

"""Seconds until the next check of a job whose host did not answer in time."""


def follow() -> int:
    """Ask workers to check the open jobs that are due, starting with those due longest. Return the number found."""
    if current().problem:
        return 0
    found = rows(_DUE, (_SELDOM, settings.DRYDOCK.sweep_batch))
    for (job_id,) in found:
        hints.send("job", job_id)
    return len(found)


def require_open(job: Job) -> None:
    """Raise Conflict if the job has ended."""
    if job.state not in OPEN:
        raise Conflict(f"Job {job.pk} has ended: {job.state}.")
