"""Jobs on a caller's leases."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from drydock.core.errors import InvalidRequest, NotFound, NotSupported
from drydock_client.working import LONGEST_STDIN
from interfaces.command.contract import argv_of
from interfaces.command.jobs import Stream
from interfaces.errors import InterfaceError, JobMissing, LeaseEnded
from interfaces.launch import exports
from leases import given, jobs
from leases.client.values import JobInfo, JobPart
from leases.engine.core.database import refuse_inside_transaction
from leases.engine.core.transitions import record_event
from leases.models import Job
from leases.operations import reading, using, watches
from leases.operations.callers import Caller, own_leases


@given.checked
def start(
    who: Caller, lease_id: int, words: Sequence[str] | str, *, env: Mapping[str, str] | None = None, cwd: str = "",
    ends_lease: bool = False, stdin: bytes = b"", apart: bool = False,
) -> JobInfo:  # fmt: skip
    """Start a command that outlives this call and reads `stdin`. `ends_lease`: the lease is released when the job is
    over. `apart`: standard error is kept by itself.

    The row is written before the host is called; when this process dies in between, a worker starts it. Raises
    NotFound, LeaseEnded, NotSupported, InvalidRequest, InsideTransaction.
    """
    argv_of(words)
    exports(list((env or {}).items()))
    given.text(cwd, "cwd")
    given.document({"command": words if isinstance(words, str) else list(words), "env": dict(env or {})}, "command")
    if len(stdin) > LONGEST_STDIN:
        raise InvalidRequest(
            f"A job reads at most {LONGEST_STDIN} bytes that are given with it.", field="stdin",
            hint="Copy it there as a file, and let the command read that.",
        )  # fmt: skip
    using.command(who, lease_id)
    job = jobs.write(lease_id, words, env=env or {}, cwd=cwd, ends_lease=ends_lease, stdin=stdin, apart=apart)
    record_event("lease.job", f"Job {job.pk} asked for.", actor=who.actor, lease_id=lease_id, details={"job": job.pk})
    return reading.job(jobs.advance(job.pk))


@given.checked
def get(who: Caller, job_id: int) -> JobInfo:
    """A job as it is now, looked at on its host. Raises NotFound, and what reaching the host raises."""
    refuse_inside_transaction("A look at a job")
    return reading.job(jobs.advance(_job(who, job_id).pk))


@given.checked
def list_(who: Caller, *, lease_id: int | None = None) -> list[JobInfo]:
    """The jobs of the caller's leases (or of one of them), newest first, as they were last seen."""
    found = Job.objects.filter(lease__in=own_leases(who))
    found = found if lease_id is None else found.filter(lease_id=lease_id)
    return [reading.job(job) for job in found.order_by("-id")[:200]]


@given.checked
def output(who: Caller, job_id: int, *, offset: int = 0, limit: int = 1 << 20, stream: Stream = "stdout") -> JobPart:
    """At most `limit` bytes of its output from `offset`. Of a workload its beginning and its end are kept when the
    lease is over. Raises NotFound; LeaseEnded: all other output goes with the lease; NotSupported where standard error
    is asked for that is not kept apart."""
    if stream not in ("stdout", "stderr"):
        raise InvalidRequest(f"There is no stream {stream!r}.", field="stream", hint="There are: stdout, stderr.")
    job = _job(who, job_id)
    if stream == "stderr" and not job.apart:
        raise NotSupported(f"Job {job_id} keeps both streams together.", field="stream", hint="Start it with `apart`.")
    refuse_inside_transaction("Reading a job's output")
    if job.state == Job.State.PENDING:
        job = jobs.advance(job_id)
    try:
        part = jobs.host(job.lease_id).jobs.output(jobs.host_id(job), offset, limit, stream)
    except InterfaceError as error:
        if (kept := watches.kept_output(job_id, offset, limit)) is not None:
            return kept
        if isinstance(error, JobMissing):
            raise NotFound(f"There is no output of job {job_id}.", field="job") from None
        if isinstance(error, LeaseEnded):
            jobs.advance(job_id)
        raise
    if part.over:
        jobs.advance(job_id)
    return JobPart(content=part.content, next_offset=part.next_offset, over=part.over, truncated=part.truncated)


@given.checked
def cancel(who: Caller, job_id: int) -> JobInfo:
    """End its processes. The wish is kept, so that a worker goes on where the host cannot be reached now.

    Raises NotFound, and what reaching the host raises.
    """
    job = _job(who, job_id)
    refuse_inside_transaction("Cancelling a job")
    if Job.objects.filter(pk=job_id, state__in=jobs.OPEN).update(cancel_wanted=True):
        record_event(
            "lease.job", f"Job {job_id} is to end.", actor=who.actor, lease_id=job.lease_id, details={"job": job_id}
        )
    return reading.job(jobs.advance(job_id))


def _job(who: Caller, job_id: int) -> Job:
    found = Job.objects.filter(pk=job_id, lease__in=own_leases(who)).first()
    if found is None:
        raise NotFound(f"No job {job_id}, or it is not yours.", field="job")
    return found
