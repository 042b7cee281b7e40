"""Jobs on leases of the caller, including jobs that remove large folders."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from django.db import transaction

from drydock.core.errors import InvalidRequest, NotFound, NotSupported
from drydock_client.jobs import LONGEST_STDIN
from drydock_client.values import JobInfo, JobPart
from interfaces.command.contract import argv_of
from interfaces.command.jobs import Stream
from interfaces.errors import DeadlineExceeded, InterfaceError, JobMissing, LeaseEnded, NameTooLong, TooLarge
from interfaces.files import normal
from interfaces.launch import exports, one_line
from leases.engine.core.database import refuse_inside_transaction
from leases.engine.core.transitions import record_event
from leases.models import Job
from leases.operations import infos, interfaces
from leases.operations.callers import Caller, not_theirs, own_leases
from leases.validation import input_checks
from leases.validation.input_checks import checked, printable
from leases.workloads import jobs, units


@input_checks.checked
def start(
    who: Caller, lease_id: int, words: Sequence[str] | str, *, env: Mapping[str, str] | None = None, cwd: str = "",
    ends_lease: bool = False, stdin: bytes = b"", apart: bool = False,
) -> JobInfo:  # fmt: skip
    """Start a command as a job, which continues after this call returns. `stdin` is the job's standard input.

    If `ends_lease` is true, the lease is released when the job ends. If `apart` is true, standard error is kept
    separately. The row of the job is written before the host is called, so that a worker starts the job if this process
    dies in between. Raises NotFound, LeaseEnded, NotSupported, InvalidRequest, InsideTransaction.
    """
    argv_of(words)
    exports(list((env or {}).items()))
    input_checks.text(cwd, "cwd")
    input_checks.document(
        {"command": words if isinstance(words, str) else list(words), "env": dict(env or {})}, "command"
    )
    if len(stdin) > LONGEST_STDIN:
        raise InvalidRequest(
            f"A job can get at most {LONGEST_STDIN} bytes of standard input.", field="stdin",
            hint="Copy the input to the lease as a file, and let the command read the file.",
        )  # fmt: skip
    interfaces.command(who, lease_id)
    with transaction.atomic():
        # A lease that is transferred at this moment must not run a job of its former owner.
        if not own_leases(who).filter(pk=lease_id).select_for_update(no_key=True).values_list("pk").first():
            raise not_theirs(lease_id)
        job = jobs.write(lease_id, words, env=env or {}, cwd=cwd, ends_lease=ends_lease, stdin=stdin, apart=apart)
    record_event(
        "lease.job", f"Job {job.pk} was requested.", actor=who.actor, lease_id=lease_id, details={"job": job.pk}
    )
    return infos.job(jobs.advance(job.pk))


@input_checks.checked
def get(who: Caller, job_id: int) -> JobInfo:
    """Read a job's state from its host, and return the job.

    Raises NotFound, and errors from the connection to the host.
    """
    refuse_inside_transaction("Reading a job")
    return infos.job(jobs.advance(_job(who, job_id).pk))


@input_checks.checked
def list_(who: Caller, *, lease_id: int | None = None) -> list[JobInfo]:
    """Return jobs in their last known state, newest first: all of the caller's jobs, or those of one lease."""
    found = Job.objects.filter(lease__in=own_leases(who))
    found = found if lease_id is None else found.filter(lease_id=lease_id)
    return [infos.job(job) for job in found.defer("env", "environment", "stdin").order_by("-id")[:200]]


@input_checks.checked
def output(who: Caller, job_id: int, *, offset: int = 0, limit: int = 1 << 20, stream: Stream = "stdout") -> JobPart:
    """Return at most `limit` bytes of a job's output, starting at `offset`.

    The beginning and the end of a workload's output are kept after its lease has ended. Other output is deleted
    with the lease. Raises NotFound, LeaseEnded, InvalidRequest for an unknown stream, and NotSupported if standard
    error is requested but was not kept separately.
    """
    if stream not in ("stdout", "stderr"):
        raise InvalidRequest(
            f"Stream {stream!r} does not exist.", field="stream", hint="Choose one of: stdout, stderr."
        )
    job = _job(who, job_id)
    if stream == "stderr" and not job.apart:
        raise NotSupported(
            f"Job {job_id} stores standard error only together with standard output.",
            field="stream",
            hint="Read stdout for both, or start the job with `apart` to store them separately.",
        )
    refuse_inside_transaction("Reading a job's output")
    if job.state == Job.State.PENDING:
        job = jobs.advance(job_id)
    try:
        part = jobs.host(job.lease_id, units.watch_of(job)).jobs.output(jobs.host_id(job), offset, limit, stream)
    except InterfaceError as error:
        if (kept := infos.kept_output(job_id, offset, limit)) is not None:
            return kept
        if isinstance(error, JobMissing):
            raise _without_output(job_id) from None
        if isinstance(error, LeaseEnded):
            jobs.advance(job_id)
        raise
    if part.over:
        jobs.advance(job_id)
    return JobPart(content=part.content, next_offset=part.next_offset, over=part.over, truncated=part.truncated)


def _without_output(job_id: int) -> NotFound:
    """Return the error for a job of which the host knows nothing: it never started, or its folder was removed."""
    job = jobs.advance(job_id)
    if job.state == Job.State.LOST:
        return NotFound(f"Job {job_id} has no output, because it was lost: {job.message}", field="job")
    return NotFound(f"Job {job_id} has no output any more.", field="job")


@input_checks.checked
def cancel(who: Caller, job_id: int) -> JobInfo:
    """Terminate the processes of a job. If the job's host cannot be reached, a worker tries again later.

    Raises NotFound, and errors from the connection to the host.
    """
    job = _job(who, job_id)
    refuse_inside_transaction("Cancelling a job")
    if Job.objects.filter(pk=job_id, state__in=jobs.OPEN).update(cancel_wanted=True):
        record_event(
            "lease.job",
            f"Job {job_id} will be cancelled.",
            actor=who.actor,
            lease_id=job.lease_id,
            details={"job": job_id},
        )
    return infos.job(jobs.advance(job_id))


def _job(who: Caller, job_id: int) -> Job:
    found = Job.objects.filter(pk=job_id, lease__in=own_leases(who)).first()
    if found is None:
        raise NotFound(f"Job {job_id} does not exist or is not yours.", field="job")
    return found


# $1 is the lease's root and $2 the path in it (if empty, all of the root). Both are escaped for `printf %b`, because a
# name may contain any byte, but the row of a job only text. Keeps the folder of the lease's jobs, including this one.
_SCRIPT = r"""
root=$(printf %b. "$1"); root=${root%.}
cd -- "${root:-.}" || exit 1
if [ -z "$2" ]; then exec find . -mindepth 1 -maxdepth 1 ! -name .drydock -exec rm -rf -- {} +; fi
path=$(printf %b. "$2"); exec rm -rf -- "./${path%.}"
"""


@checked
def remove_path(who: Caller, lease_id: int, path: str, *, recursive: bool = False) -> None:
    """Remove a file or folder, and record an event. Raises what `Filesystem.remove` raises."""
    interfaces.filesystem(who, lease_id).remove(path, recursive=recursive, timeout=interfaces.LONGEST)
    _record_removal(who, lease_id, path)


@checked
def begin_removal(who: Caller, lease_id: int, path: str, *, recursive: bool, seconds: float) -> JobInfo | None:
    """Remove a file or folder within `seconds`. Return None, or the job that continues a removal that takes longer.

    Records an event. Raises what `Filesystem.remove` raises, and DeadlineExceeded if the removal takes longer but the
    lease cannot run commands, and so no jobs. To continue the removal, call again.
    """
    files, job = interfaces.filesystem(who, lease_id), None
    try:
        files.remove(path, recursive=recursive, timeout=seconds)
    except (DeadlineExceeded, TooLarge, NameTooLong) as error:
        try:
            job = start(who, lease_id, _removal_command(files.root, normal(path)))
        except NotSupported:
            error.hint = error.hint or "Part of the output is no longer stored. Read again to continue."
            raise error from None
    _record_removal(who, lease_id, path)
    return job


def _removal_command(root: str, path: str) -> list[str]:
    return ["/bin/sh", "-c", _SCRIPT, "sh", *(one_line(text).decode().rstrip("\n") for text in (root, path))]


def _record_removal(who: Caller, lease_id: int, path: str) -> None:
    record_event("lease.file", f"Removed {printable(path) or '.'}.", actor=who.actor, lease_id=lease_id)
