"""Work on leases: commands, files, jobs and the web server."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal

from drydock_client.operations import Operations, operation
from drydock_client.values import Ended, FileInfo, JobInfo, JobPart, LogPart, ServerInfo

Words = Sequence[str] | str
"""Exact arguments, or one line for a shell."""

Stream = Literal["stdout", "stderr"]
"""Standard output (with standard error, unless that is kept separately), or standard error alone."""

LONGEST_STDIN = 512 << 10
"""Maximum size of a job's standard input in bytes."""


class Work(Operations):
    """Work on leases."""

    @abstractmethod
    def run(
        self, id: int, words: Words, *, env: Mapping[str, str] | None = None, cwd: str = "", stdin: bytes = b"",
        timeout: float | None = None, on_output: Callable[[str, bytes], None] | None = None,
    ) -> Ended:  # fmt: skip
        """Run a command to its end; `on_output(stream, content)` receives the output as it comes."""

    @abstractmethod
    def read_file(self, id: int, path: str) -> bytes:
        """Return the content of a file, up to 64 MiB."""

    @abstractmethod
    def write_file(self, id: int, path: str, content: bytes) -> None:
        """Write a file atomically."""

    @abstractmethod
    def upload(self, id: int, local: Path, path: str, on_file: Callable[[str], None] | None = None) -> tuple[int, int]:
        """Copy a local file or tree into the lease. Return (files, bytes)."""

    @abstractmethod
    def download(
        self, id: int, path: str, local: Path, on_file: Callable[[str], None] | None = None
    ) -> tuple[int, int]:
        """Copy a file or tree of the lease to this machine. Return (files, bytes)."""

    @abstractmethod
    def start_job(
        self, id: int, words: Words, *, env: Mapping[str, str] | None = None, cwd: str = "", ends_lease: bool = False,
        stdin: bytes = b"", apart: bool = False,
    ) -> JobInfo:  # fmt: skip
        """Start a command that outlives this program; `apart` keeps its standard error separately."""

    @operation("GET", "jobs/{id}", "Look at a job", host="job")
    def job(self, id: int) -> JobInfo:
        """Return a job with its current state, read from its host."""

    @operation("GET", "jobs", "List jobs", query="OfLease")
    def jobs(self, *, lease: int | None = None) -> list[JobInfo]:
        """List jobs, newest first, in the state in which each was last seen."""

    @abstractmethod
    def job_output(self, id: int, *, offset: int = 0, limit: int = 1 << 20, stream: Stream = "stdout") -> JobPart:
        """Return a part of a job's output, at most `limit` bytes from `offset`."""

    @operation("POST", "jobs/{id}/cancel", "End a job", scope="lease", host="job")
    def cancel_job(self, id: int) -> JobInfo:
        """Terminate a job's processes. If the host cannot be reached now, a worker does it later."""

    @operation("GET", "leases/{id}/files", "List a folder", query="Place", host="lease")
    def list_files(self, id: int, path: str = "") -> list[FileInfo]:
        """List the entries of a folder, sorted by name."""

    @abstractmethod
    def remove_path(
        self, id: int, path: str, *, recursive: bool = False, on_job: Callable[[JobInfo], None] | None = None
    ) -> None:
        """Remove a file or a folder, and wait until it is gone. A missing one is not an error.

        If a job on the host removes a large folder, `on_job` is called repeatedly with that job.
        """


class Serving(Operations):
    """The web server of a lease, on which the lease has the interface `httpd`."""

    @abstractmethod
    def publish(self, id: int, path: str, content: bytes) -> str:
        """Publish a page atomically and return its address."""

    @abstractmethod
    def publish_tree(self, id: int, local: Path, path: str = "") -> tuple[int, int]:
        """Publish a local folder. Return (files, bytes)."""

    @abstractmethod
    def unpublish(self, id: int, path: str) -> None:
        """Remove a page or folder. A missing one is not an error."""

    @abstractmethod
    def uri(self, id: int, path: str = "") -> str:
        """Return the address of a page."""

    @abstractmethod
    def server(self, id: int, act: str = "status") -> ServerInfo:
        """Start, stop, restart, reload or test the web server, or do nothing (`status`), and return its status."""

    @abstractmethod
    def server_log(self, id: int, kind: str = "access", *, offset: int = 0, limit: int = 1 << 20) -> LogPart:
        """Return a part of the `access` or `error` log, at most `limit` bytes from `offset`."""
