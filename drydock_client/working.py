"""Working on what is leased."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Literal, Protocol

from drydock_client.values import Ended, FileInfo, JobInfo, JobPart, LogPart, ServerInfo

Words = Sequence[str] | str
"""Exact arguments, or one line for a shell."""

Stream = Literal["stdout", "stderr"]
"""Standard output (with standard error, unless that is kept apart), or standard error alone."""

LONGEST_STDIN = 512 << 10
"""Bytes that may be given to a job to read."""


class Work(Protocol):
    """Working on what is leased."""

    def run(
        self, id: int, words: Words, *, env: Mapping[str, str] | None = None, cwd: str = "", stdin: bytes = b"",
        timeout: float | None = None, on_output: Callable[[str, bytes], None] | None = None,
    ) -> Ended:  # fmt: skip
        """Run a command to its end; `on_output(stream, content)` is given the output as it comes."""

    def read_file(self, id: int, path: str) -> bytes:
        """All of a file, up to 64 MiB."""

    def write_file(self, id: int, path: str, content: bytes) -> None:
        """Write a file in one step."""

    def upload(self, id: int, local: Path, path: str, on_file: Callable[[str], None] | None = None) -> tuple[int, int]:
        """Copy a file or tree of this machine into the lease; (files, bytes)."""

    def download(
        self, id: int, path: str, local: Path, on_file: Callable[[str], None] | None = None
    ) -> tuple[int, int]:
        """Copy a file or tree of the lease to this machine; (files, bytes)."""

    def start_job(
        self, id: int, words: Words, *, env: Mapping[str, str] | None = None, cwd: str = "", ends_lease: bool = False,
        stdin: bytes = b"", apart: bool = False,
    ) -> JobInfo:  # fmt: skip
        """Start a command that outlives this program; `apart` keeps its standard error by itself."""

    def job(self, id: int) -> JobInfo:
        """A job as it is now."""

    def jobs(self, *, lease: int | None = None) -> list[JobInfo]:
        """Jobs as they were last seen, newest first."""

    def job_output(self, id: int, *, offset: int = 0, limit: int = 1 << 20, stream: Stream = "stdout") -> JobPart:
        """Its output from `offset`."""

    def cancel_job(self, id: int) -> JobInfo:
        """End its processes."""

    def list_files(self, id: int, path: str = "") -> list[FileInfo]:
        """What is in a folder, by name."""

    def remove_path(
        self, id: int, path: str, *, recursive: bool = False, on_job: Callable[[JobInfo], None] | None = None
    ) -> None:
        """Remove a file or a folder, and wait until it is gone; what is not there is no error. `on_job` is told, again
        and again, of the job on the host that removes a large folder."""


class Serving(Protocol):
    """The web server of a lease: its interface `httpd`."""

    def publish(self, id: int, path: str, content: bytes) -> str:
        """Put a page in place in one step; its address."""

    def publish_tree(self, id: int, local: Path, path: str = "") -> tuple[int, int]:
        """Put a folder of this machine in place; (files, bytes)."""

    def unpublish(self, id: int, path: str) -> None:
        """Take a page or folder away; one that is not there is no error."""

    def uri(self, id: int, path: str = "") -> str:
        """The address of a page."""

    def server(self, id: int, act: str = "status") -> ServerInfo:
        """`status`, `start`, `stop`, `restart`, `reload`, or `test` its configuration; how it stands then."""

    def server_log(self, id: int, kind: str = "access", *, offset: int = 0, limit: int = 1 << 20) -> LogPart:
        """Its `access` or `error` log from `offset`."""
