"""The interfaces of leases: commands, files and the web server."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from drydock_client.operations import Operations, operation
from drydock_client.values import AccessInfo, Ended, FileInfo, JobInfo, LogPart, ServerInfo

Words = Sequence[str] | str
"""Exact arguments, or one line for a shell."""


class Interfaces(Operations):
    """Access, commands, files and the web server of leases."""

    @operation("GET", "leases/{id}/access", "Get the SSH access to a lease")
    def access(self, id: int) -> AccessInfo:
        """Return how to reach a lease by SSH now: host, port, user and host keys with fingerprints. No secrets."""

    @abstractmethod
    def run(
        self, id: int, words: Words, *, env: Mapping[str, str] | None = None, cwd: str = "", stdin: bytes = b"",
        timeout: float | None = None, on_output: Callable[[str, bytes], None] | None = None,
    ) -> Ended:  # fmt: skip
        """Run a command and wait until it ends. `on_output(stream, content)` receives the output as it arrives."""

    @abstractmethod
    def read_file(self, id: int, path: str) -> bytes:
        """Return the content of a file, up to 64 MiB."""

    @abstractmethod
    def write_file(self, id: int, path: str, content: bytes) -> None:
        """Write a file atomically."""

    @abstractmethod
    def upload(self, id: int, local: Path, path: str, on_file: Callable[[str], None] | None = None) -> tuple[int, int]:
        """Copy a local file or tree into the lease. Return the number of files and of bytes copied."""

    @abstractmethod
    def download(
        self, id: int, path: str, local: Path, on_file: Callable[[str], None] | None = None
    ) -> tuple[int, int]:
        """Copy a file or tree of the lease to this machine. Return the number of files and of bytes copied."""

    @operation("GET", "leases/{id}/files", "List a folder", query="Place", host="lease")
    def list_files(self, id: int, path: str = "") -> list[FileInfo]:
        """List the entries of a folder, sorted by name."""

    @abstractmethod
    def remove_path(
        self, id: int, path: str, *, recursive: bool = False, on_job: Callable[[JobInfo], None] | None = None
    ) -> None:
        """Remove a file or a folder, and wait until it is gone. A missing path is not an error.

        If removing a large folder takes long, a job on the host continues, and `on_job` is called repeatedly with that
        job.
        """

    # The web server, on which a lease has the interface `httpd`

    @abstractmethod
    def publish(self, id: int, path: str, content: bytes) -> str:
        """Publish a page atomically and return its address."""

    @abstractmethod
    def publish_tree(self, id: int, local: Path, path: str = "") -> tuple[int, int]:
        """Publish a local folder. Return the number of files and of bytes copied."""

    @operation("DELETE", "leases/{id}/page", "Unpublish a page or folder", scope="lease", query="File", host="lease")
    def unpublish(self, id: int, path: str) -> None:
        """Remove a page or folder. A missing page is not an error."""

    @operation(
        "GET", "leases/{id}/page", "Get the address of a page", query="Place", inside="Address.uri", host="lease"
    )
    def uri(self, id: int, path: str = "") -> str:
        """Return the address of a page."""

    @operation("GET", "leases/{id}/server", "Get the status of the web server", host="lease")
    def server_status(self, id: int) -> ServerInfo:
        """Return whether the web server is stopped, running or failed, and its last error."""

    @operation(
        "POST",
        "leases/{id}/server",
        "Start, stop, restart, reload or test the web server",
        scope="lease",
        body="ServerAct",
        host="lease",
    )
    def change_server(self, id: int, act: str) -> ServerInfo:
        """Start, stop, restart, reload or test the web server, and return its status."""

    def server(self, id: int, act: str = "status") -> ServerInfo:
        """Start, stop, restart, reload or test the web server, and return its status. `status` changes nothing."""
        return self.server_status(id) if act == "status" else self.change_server(id, act)

    @operation("GET", "leases/{id}/server/log", "Read a log of the web server", query="Log", host="lease")
    def server_log(self, id: int, kind: str = "access", *, offset: int = 0, limit: int = 1 << 20) -> LogPart:
        """Return a part of the web server's `access` or `error` log: at most `limit` bytes, starting at `offset`."""
