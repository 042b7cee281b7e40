"""Jobs: commands on a lease that outlive the request; their output is read by offset."""

from __future__ import annotations

from django.http import HttpResponse

from leases.client.values import JobInfo
from leases.hostcalls import of_job, of_lease
from leases.rest import bodies, queries
from leases.rest.endpoint import Asked, Endpoint, Page, json_response, operation
from leases.rest.models import Scope

BYTES = "application/octet-stream"
PART = {
    "Drydock-Next-Offset": "Where the next part begins.",
    "Drydock-Over": "`1` when it has ended and this is the rest.",
    "Drydock-Truncated": "`1` when it said more than is kept.",
}


def job_response(job: JobInfo) -> HttpResponse:
    """A job that was started, and its address."""
    return json_response(job, status=202, headers={"Location": f"/api/v1/jobs/{job.id}"})


class LeaseJobs(Endpoint):
    """The jobs of a lease."""

    @operation("List the jobs of a lease", gives=list[JobInfo])
    def get(self, asked: Asked, id: int) -> Page:
        """Newest first, as they were last seen."""
        asked.client.lease(id)
        return Page(results=asked.client.jobs(lease=id))

    @operation(
        "Run a command", gives=JobInfo, status=202, scope=Scope.LEASE, body=bodies.Job,
        headers={"Location": "The job's address."}, asks=of_lease,
    )  # fmt: skip
    def post(self, asked: Asked, id: int) -> HttpResponse:
        """Start a command that runs by itself until it ends, is cancelled, or the lease ends."""
        body = asked.body
        job = asked.client.start_job(
            id, body.command, env=body.env, cwd=body.cwd, ends_lease=body.ends_lease, stdin=body.stdin,
            apart=body.apart,
        )  # fmt: skip
        return job_response(job)


class Jobs(Endpoint):
    """All jobs of the caller's leases."""

    @operation("List jobs", gives=list[JobInfo], query=queries.OfLease)
    def get(self, asked: Asked) -> Page:
        """Newest first, as they were last seen."""
        return Page(results=asked.client.jobs(lease=asked.query.lease))


class Job(Endpoint):
    """One job."""

    @operation("Look at a job", gives=JobInfo, asks=of_job)
    def get(self, asked: Asked, id: int) -> JobInfo:
        """A job as it is now, looked at on its host."""
        return asked.client.job(id)


class Output(Endpoint):
    """What a job has said."""

    @operation("Read a job's output", gives=BYTES, query=queries.Output, headers=PART, asks=of_job)
    def get(self, asked: Asked, id: int) -> HttpResponse:
        """A part of it as it is, both streams together unless it keeps them apart; the headers say how to go on."""
        q = asked.query
        part = asked.client.job_output(id, offset=q.offset, limit=q.limit, stream=q.stream)
        flags = {"Drydock-Over": str(int(part.over)), "Drydock-Truncated": str(int(part.truncated))}
        return octets(part.content, {"Drydock-Next-Offset": str(part.next_offset), **flags})


def octets(content: bytes, headers: dict[str, str]) -> HttpResponse:
    """Bytes as they are, which no browser takes for a page."""
    return HttpResponse(content, content_type=BYTES, headers={"Content-Disposition": "attachment", **headers})


class Cancel(Endpoint):
    """The end of a job."""

    @operation("End a job", gives=JobInfo, scope=Scope.LEASE, asks=of_job)
    def post(self, asked: Asked, id: int) -> JobInfo:
        """End its processes; where the host cannot be reached now, a worker goes on."""
        return asked.client.cancel_job(id)
