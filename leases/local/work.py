"""Operations of the in-process client that work on leased hosts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from drydock_client import values
from drydock_client.work import Serving, Stream, Words, Work
from interfaces.command.contract import Output
from leases.engine.core.database import patient
from leases.local.leases import LocalOperations
from leases.operations import interfaces, jobs


class LocalWork(LocalOperations, Work):
    """Operations on commands and files."""

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


class LocalServing(LocalOperations, Serving):
    """Operations on web sites."""

    def publish(self, id: int, path: str, content: bytes) -> str:
        return interfaces.publish(self.who, id, path, content)

    def publish_tree(self, id: int, local: Path, path: str = "") -> tuple[int, int]:
        done = interfaces.publish_tree(self.who, id, local, path)
        return done.files, done.bytes

    def unpublish(self, id: int, path: str) -> None:
        interfaces.unpublish(self.who, id, path)

    def uri(self, id: int, path: str = "") -> str:
        return interfaces.uri(self.who, id, path)

    def server(self, id: int, act: str = "status") -> values.ServerInfo:
        return interfaces.server_act(self.who, id, act)

    def server_log(self, id: int, kind: str = "access", *, offset: int = 0, limit: int = 1 << 20) -> values.LogPart:
        return interfaces.server_log(self.who, id, kind, offset=offset, limit=limit)


class LocalJobs(LocalOperations, Work):
    """Operations on jobs, commands that outlive this program."""

    def start_job(
        self, id: int, words: Words, *, env: Mapping[str, str] | None = None, cwd: str = "", ends_lease: bool = False,
        stdin: bytes = b"", apart: bool = False,
    ) -> values.JobInfo:  # fmt: skip
        return jobs.start(self.who, id, words, env=env, cwd=cwd, ends_lease=ends_lease, stdin=stdin, apart=apart)

    def job_output(
        self, id: int, *, offset: int = 0, limit: int = 1 << 20, stream: Stream = "stdout"
    ) -> values.JobPart:
        return patient(jobs.output, self.who, id, offset=offset, limit=limit, stream=stream)
