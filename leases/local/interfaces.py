"""Operations of the in-process client that stream data to and from leased hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from drydock_client import values
from drydock_client.interfaces import Interfaces, Words
from interfaces.command.contract import Output
from interfaces.endpoints import LocalEndpoint
from leases.operations import interfaces, jobs
from leases.operations.callers import Caller


class LocalInterfaces(Interfaces):
    """Implements the operations on commands, files and web pages, which stream or copy data."""

    who: Caller

    def run(
        self, id: int, words: Words, *, env: Mapping[str, str] | None = None, cwd: str = "", stdin: bytes = b"",
        timeout: float | None = None, on_output: Callable[[str, bytes], None] | None = None,
    ) -> values.Ended:  # fmt: skip
        def told(output: Output) -> None:
            assert on_output is not None
            on_output(output.stream, output.content)

        return interfaces.run_command(
            self.who, id, words, env=env, cwd=cwd, stdin=stdin, timeout=timeout,
            on_output=None if on_output is None else told,
        )  # fmt: skip

    def read_file(self, id: int, path: str) -> bytes:
        return interfaces.read_file(self.who, id, path)

    def write_file(self, id: int, path: str, content: bytes) -> None:
        interfaces.write_file(self.who, id, path, content)

    def upload(self, id: int, local: Path, path: str, on_file: Callable[[str], None] | None = None) -> tuple[int, int]:
        done = interfaces.upload(self.who, id, local, path, None if on_file is None else lambda p: on_file(p.path))
        return done.files, done.bytes

    def download(
        self, id: int, path: str, local: Path, on_file: Callable[[str], None] | None = None
    ) -> tuple[int, int]:
        done = interfaces.download(self.who, id, path, local, None if on_file is None else lambda p: on_file(p.path))
        return done.files, done.bytes

    def remove_path(
        self, id: int, path: str, *, recursive: bool = False, on_job: Callable[[values.JobInfo], None] | None = None
    ) -> None:
        jobs.remove_path(self.who, id, path, recursive=recursive)

    def publish(self, id: int, path: str, content: bytes) -> str:
        return interfaces.publish(self.who, id, path, content)

    def publish_tree(self, id: int, local: Path, path: str = "") -> tuple[int, int]:
        done = interfaces.publish_tree(self.who, id, local, path)
        return done.files, done.bytes

    def local_account(self, id: int) -> LocalEndpoint | None:
        """Return the account of a lease if it is on this machine. Otherwise return None."""
        return interfaces.local_account(self.who, id)
