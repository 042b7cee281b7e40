"""Jobs: a row first, then a detached command on the leased host that is looked at until it is over.

Everything here is called outside transactions and may be called again after any death: starting is by an id
derived from the row, and a row only changes from the states it may change from.
"""

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
from leases import concluding, hints
from leases.engine.core import specs
from leases.engine.core.database import rows, short
from leases.engine.core.installation import current
from leases.engine.lifecycle import release
from leases.models import Job, Lease
from leases.models.job import Watch
from leases.operations.using import still_mine
from leases.reasons import Reason

log = logging.getLogger(__name__)

OPEN = (Job.State.PENDING, Job.State.RUNNING)


def write(
    lease_id: int, words: Sequence[str] | str, *, env: Mapping[str, str], cwd: str, ends_lease: bool,
    stdin: bytes = b"", apart: bool = False,
) -> Job:  # fmt: skip
    """The row of a job that is to be started."""
    line: Any = words if isinstance(words, str) else list(words)
    given = base64.b64encode(stdin).decode() if stdin else None
    return Job.objects.create(
        lease_id=lease_id, command=line, env=dict(env), cwd=cwd, ends_lease=ends_lease, stdin=given,
        apart=apart,
    )  # fmt: skip


def advance(job_id: int) -> Job:
    """Look at a job and do what is due: start it, cancel it, note its end. Answers the row as it is then.

    What the host raises (unreachable, lost connection) is raised; the row stays as it was.
    """
    job = Job.objects.select_related("lease__owner", "lease__resource__blueprint").get(pk=job_id)
    if job.state not in OPEN:
        return job
    try:
        _advance(job)
    except LeaseEnded:
        if concluding.open_watch(job) is None:
            _close(job, Job.State.CANCELLED, message="Its lease has ended.")
        else:  # what it said and used is still to be gathered, if it can be
            hints.send("watch", job.lease_id)
    job.refresh_from_db()
    return job


def _advance(job: Job) -> None:
    host = _host(job.lease)
    name = host_id(job)
    try:
        if job.cancel_wanted:
            found = host.jobs.cancel(name)
        elif job.state == Job.State.PENDING:
            found = host.jobs.start(_spec(job, name))
        else:
            found = host.jobs.status(name)
    except JobMissing:
        ended = Job.State.CANCELLED if job.cancel_wanted else Job.State.LOST
        return _close(job, ended, message="The host does not know it.")
    except NotStarted as error:
        return _close(job, Job.State.LOST, message=str(error))
    watch = concluding.open_watch(job) if found.state.over else None
    _apply(job, found, None if watch is None else concluding.left(watch, host, name))
    return None


def _spec(job: Job, name: str) -> JobSpec:
    stdin = base64.b64decode(job.stdin or "")
    env = {**job.environment, **(job.env or {})}
    return JobSpec(id=name, words=job.command, env=env, cwd=job.cwd, stdin=stdin, apart=job.apart)


def _host(lease: Lease) -> Command:
    def check() -> None:
        still_mine(lease.pk, lease.owner_id)

    check()
    found = specs.opened(specs.lease_view(lease, still_mine=check), "command", check)
    assert isinstance(found, Command)
    return found


def host(lease_id: int) -> Command:
    """The command interface of a job's lease. Raises LeaseEnded."""
    return _host(Lease.objects.select_related("owner", "resource__blueprint").get(pk=lease_id))


def host_id(job: Job) -> str:
    """Its name on the host: unique also where several installations share an account."""
    return f"{specs.key('l', job.lease_id)}-j{job.pk}"


def _apply(job: Job, found: HostJob, left: concluding.Left | None) -> None:
    if found.state in (JobState.STARTING, JobState.RUNNING):
        Job.objects.filter(pk=job.pk, state=Job.State.PENDING).update(
            state=Job.State.RUNNING, started_at=Now(), stdin=None, env=None, environment={}
        )
    elif found.state is JobState.EXITED:
        _close(job, Job.State.ENDED, exit_code=found.exit_code, left=left)
    elif found.state is JobState.CANCELLED:
        _close(job, Job.State.CANCELLED, exit_code=found.exit_code, left=left)
    else:
        _close(job, Job.State.LOST, message="It is gone without an exit code.", left=left)


def _close(
    job: Job, state: str, *, message: str = "", exit_code: int | None = None, left: concluding.Left | None = None
) -> None:
    watch = concluding.open_watch(job)
    if watch is None:
        reason = Reason.JOB_ENDED
        said = f"Job {job.pk} has {state}" + ("." if exit_code is None else f" with exit code {exit_code}.")
    else:
        end = concluding.end_of(watch, state, exit_code, message, left)
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
    left: concluding.Left | None,
) -> bool:  # fmt: skip
    """Write the end of a job and, in the same commit, the wish for the end of its lease and what is known of its
    workload; False when it was over."""
    release.release(job.lease_id, reason=reason, actor="drydock")
    if not write_end(job, state, message, exit_code):
        return False
    if watch is not None:
        concluding.write(watch, concluding.end_of(watch, state, exit_code, message, left), left, exit_code=exit_code)
    return True


def write_end(job: Job, state: str, message: str, exit_code: int | None) -> bool:
    """The end of a job; False when it was over."""
    return bool(
        Job.objects.filter(pk=job.pk, state__in=OPEN).update(
            state=state, message=message, exit_code=exit_code, ended_at=Now(), stdin=None, env=None, environment={}
        )
    )


def watch(job_id: int) -> None:
    """A worker's look at a job; what its host raises is for the next look.

    A tenant can stop what answers on a host, and workers serve everybody. A look lasts `DRYDOCK_HOST_SECONDS` at most,
    and after one without an answer the other jobs of the lease are left alone for a while.
    """
    if Job.objects.filter(pk=job_id, due_at__gt=Now() + timedelta(seconds=_SELDOM + 1)).exists():
        return
    try:
        with answering_within(float(settings.DRYDOCK.host_seconds)):
            advance(job_id)
    except Job.DoesNotExist:
        return
    except DrydockError as error:
        Job.objects.filter(pk=job_id, state__in=OPEN).update(message=str(error)[:2000])
        log.warning("Job %s could not be looked at: %s", job_id, error)
        if isinstance(error, DeadlineExceeded):
            _leave_alone(job_id)


def _leave_alone(job_id: int) -> None:
    """Look at this job again after a while, and at the others of its lease only when it had the time to answer."""
    lease = Job.objects.filter(pk=job_id).values("lease_id")
    jobs = Job.objects.filter(lease_id__in=lease, state__in=OPEN)
    jobs.exclude(pk=job_id).update(due_at=Now() + timedelta(seconds=2 * SILENT))
    jobs.filter(pk=job_id).update(due_at=Now() + timedelta(seconds=SILENT))


_DUE = """
    UPDATE leases_job SET due_at = clock_timestamp() + least(%s * interval '1 s', (clock_timestamp() - created_at) / 10)
    WHERE id IN (SELECT id FROM leases_job WHERE state IN ('pending', 'running') AND due_at <= statement_timestamp()
        ORDER BY due_at LIMIT %s FOR NO KEY UPDATE SKIP LOCKED) RETURNING id"""
_SELDOM = 10.0
"""Seconds between two looks at a job that has run for long; they come the closer, the younger it is."""
SILENT = 60.0
"""Seconds until the next look at a job whose host did not answer in time."""


def follow() -> int:
    """For the sweep: have the open jobs looked at that are due, the longest unseen first; how many were found."""
    if current().problem:
        return 0
    found = rows(_DUE, (_SELDOM, settings.DRYDOCK.sweep_batch))
    for (job_id,) in found:
        hints.send("job", job_id)
    return len(found)


def require_open(job: Job) -> None:
    """Raises Conflict when the job is over."""
    if job.state not in OPEN:
        raise Conflict(f"Job {job.pk} is over: {job.state}.")
