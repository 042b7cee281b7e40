"""Working on what is leased."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from interfaces.command.contract import Output
from leases.client import values
from leases.client.protocol import Stream, Words
from leases.engine.core.database import patient
from leases.operations import jobs, removal, serving, using
from leases.operations.callers import Caller


class LocalWork:
    """Commands and files."""

    who: Caller

    def run(
        self, id: int, words: Words, *, env: Mapping[str, str] | None = None, cwd: str = "", stdin: bytes = b"",
        timeout: float | None = None, on_output: Callable[[str, bytes], None] | None = None,
    ) -> values.Ended:  # fmt: skip
        def told(output: Output) -> None:
            assert on_output is not None
            on_output(output.stream, output.content)

        return using.run_command(
            self.who, id, words, env=env, cwd=cwd, stdin=stdin, timeout=timeout,
            on_output=None if on_output is None else told,
        )  # fmt: skip

    def read_file(self, id: int, path: str) -> bytes:
        return using.read_file(self.who, id, path)

    def write_file(self, id: int, path: str, content: bytes) -> None:
        using.write_file(self.who, id, path, content)

    def upload(self, id: int, local: Path, path: str, on_file: Callable[[str], None] | None = None) -> tuple[int, int]:
        done = using.upload(self.who, id, local, path, None if on_file is None else lambda p: on_file(p.path))
        return done.files, done.bytes

    def download(
        self, id: int, path: str, local: Path, on_file: Callable[[str], None] | None = None
    ) -> tuple[int, int]:
        done = using.download(self.who, id, path, local, None if on_file is None else lambda p: on_file(p.path))
        return done.files, done.bytes

    def list_files(self, id: int, path: str = "") -> list[values.FileInfo]:
        return using.list_files(self.who, id, path)

    def remove_path(
        self, id: int, path: str, *, recursive: bool = False, on_job: Callable[[values.JobInfo], None] | None = None
    ) -> None:
        removal.remove(self.who, id, path, recursive=recursive)


class LocalServing:
    """Web sites."""

    who: Caller

    def publish(self, id: int, path: str, content: bytes) -> str:
        return serving.publish(self.who, id, path, content)

    def publish_tree(self, id: int, local: Path, path: str = "") -> tuple[int, int]:
        done = serving.publish_tree(self.who, id, local, path)
        return done.files, done.bytes

    def unpublish(self, id: int, path: str) -> None:
        serving.unpublish(self.who, id, path)

    def uri(self, id: int, path: str = "") -> str:
        return serving.uri(self.who, id, path)

    def server(self, id: int, act: str = "status") -> values.ServerInfo:
        return serving.act(self.who, id, act)

    def server_log(self, id: int, kind: str = "access", *, offset: int = 0, limit: int = 1 << 20) -> values.LogPart:
        return serving.log(self.who, id, kind, offset=offset, limit=limit)


class LocalJobs:
    """Commands that outlive this program."""

    who: Caller

    def start_job(
        self, id: int, words: Words, *, env: Mapping[str, str] | None = None, cwd: str = "", ends_lease: bool = False,
        stdin: bytes = b"", apart: bool = False,
    ) -> values.JobInfo:  # fmt: skip
        return jobs.start(self.who, id, words, env=env, cwd=cwd, ends_lease=ends_lease, stdin=stdin, apart=apart)

    def job(self, id: int) -> values.JobInfo:
        return patient(jobs.get, self.who, id)

    def jobs(self, *, lease: int | None = None) -> list[values.JobInfo]:
        return jobs.list_(self.who, lease_id=lease)

    def job_output(
        self, id: int, *, offset: int = 0, limit: int = 1 << 20, stream: Stream = "stdout"
    ) -> values.JobPart:
        return patient(jobs.output, self.who, id, offset=offset, limit=limit, stream=stream)

    def cancel_job(self, id: int) -> values.JobInfo:
        return jobs.cancel(self.who, id)
