"""Jobs: commands on leases that continue after the program that starts them has ended."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal

from drydock_client.interfaces import Words
from drydock_client.operations import Operations, operation
from drydock_client.values import JobInfo, JobPart

Stream = Literal["stdout", "stderr"]
"""Standard output (with standard error, unless that is kept separately), or standard error alone."""

LONGEST_STDIN = 512 << 10
"""Maximum size of a job's standard input in bytes."""


class Jobs(Operations):
    """Operations on the jobs of leases."""

    @operation(
        "POST", "leases/{id}/jobs", "Start a job", scope="lease", status=202, body="Job", names={"words": "command"},
        location="jobs/{0.id}", host="lease",
    )  # fmt: skip
    def start_job(
        self, id: int, words: Words, *, env: Mapping[str, str] | None = None, cwd: str = "", ends_lease: bool = False,
        stdin: bytes = b"", apart: bool = False,
    ) -> JobInfo:  # fmt: skip
        """Start a command as a job, which runs until it exits, is cancelled, or its lease ends.

        If `apart` is true, standard error is kept separately. If `ends_lease` is true, the lease is released when the
        job ends.
        """

    @operation("GET", "jobs/{id}", "Get a job", host="job")
    def job(self, id: int) -> JobInfo:
        """Read a job's current state from its host, and return the job."""

    @operation("GET", "jobs", "List jobs", query="OfLease")
    def jobs(self, *, lease: int | None = None) -> list[JobInfo]:
        """List jobs, newest first, in their last known state."""

    @operation("GET", "leases/{id}/jobs", "List the jobs of a lease")
    def lease_jobs(self, id: int) -> list[JobInfo]:
        """List the jobs of a lease, newest first, in their last known state."""

    @operation("GET", "jobs/{id}/output", "Read a job's output", query="Output", host="job")
    def job_output(self, id: int, *, offset: int = 0, limit: int = 1 << 20, stream: Stream = "stdout") -> JobPart:
        """Return a part of a job's output: at most `limit` bytes, starting at `offset`.

        Standard output and standard error are combined unless the job keeps them separately.
        """

    @operation("POST", "jobs/{id}/cancel", "Cancel a job", scope="lease", host="job")
    def cancel_job(self, id: int) -> JobInfo:
        """Terminate a job's processes. If the job's host cannot be reached now, a worker tries again later."""
