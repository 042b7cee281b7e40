"""Jobs: commands on a lease that outlive the request. Their output is read by offset."""

from __future__ import annotations

from django.http import HttpResponse

from drydock_client.values import JobInfo
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
    """Return a response for a new job, with its address in `Location`."""
    return json_response(job, status=202, headers={"Location": f"/api/v1/jobs/{job.id}"})


class LeaseJobs(Endpoint):
    """The jobs of a lease."""

    @operation("List the jobs of a lease", gives=list[JobInfo])
    def get(self, asked: Asked, id: int) -> Page:
        """Return the jobs of the lease as last seen, newest first."""
        asked.client.lease(id)
        return Page(results=asked.client.jobs(lease=id))

    @operation(
        "Run a command", gives=JobInfo, status=202, scope=Scope.LEASE, body=bodies.Job,
        headers={"Location": "The job's address."}, asks=of_lease,
    )  # fmt: skip
    def post(self, asked: Asked, id: int) -> HttpResponse:
        """Start a command that runs until it exits, is cancelled, or the lease ends."""
        body = asked.body
        job = asked.client.start_job(
            id, body.command, env=body.env, cwd=body.cwd, ends_lease=body.ends_lease, stdin=body.stdin,
            apart=body.apart,
        )  # fmt: skip
        return job_response(job)


class Output(Endpoint):
    """The output of a job."""

    @operation("Read a job's output", gives=BYTES, query=queries.Output, headers=PART, asks=of_job)
    def get(self, asked: Asked, id: int) -> HttpResponse:
        """Return a part of the job's output as raw bytes. Both streams are combined unless the job keeps them apart;
        the headers say where to continue."""
        q = asked.query
        part = asked.client.job_output(id, offset=q.offset, limit=q.limit, stream=q.stream)
        flags = {"Drydock-Over": str(int(part.over)), "Drydock-Truncated": str(int(part.truncated))}
        return octets(part.content, {"Drydock-Next-Offset": str(part.next_offset), **flags})


def octets(content: bytes, headers: dict[str, str]) -> HttpResponse:
    """Return a response with raw bytes that browsers download instead of displaying."""
    return HttpResponse(content, content_type=BYTES, headers={"Content-Disposition": "attachment", **headers})
