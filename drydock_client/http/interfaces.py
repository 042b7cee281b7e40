"""Stream the files and web pages of a lease over HTTP."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import urllib3
from urllib3.exceptions import HTTPError

from drydock_client import trees
from drydock_client.errors import DrydockError
from drydock_client.http.connection import LONGEST, Connection, unreachable
from drydock_client.http.operations import HttpOperations
from drydock_client.interfaces import Interfaces
from drydock_client.values import JobInfo, from_json

LARGEST_READ = 64 << 20
_POLL = 1.0
_BYTES = {"Content-Type": "application/octet-stream"}
_TAR = {"Content-Type": "application/x-tar"}


class HttpInterfaces(HttpOperations, Interfaces):
    """The streaming operations of `drydock_client.interfaces.Interfaces` over HTTP."""

    def read_file(self, id: int, path: str) -> bytes:
        answer = self.http.ask("GET", f"leases/{id}/file", query={"path": path})
        return self.http.content(answer, LARGEST_READ)

    def write_file(self, id: int, path: str, content: bytes) -> None:
        self._put(id, "file", path, content)

    def upload(self, id: int, local: Path, path: str, on_file: Callable[[str], None] | None = None) -> tuple[int, int]:
        return self._tree(id, "tree", local, path, on_file)

    def _tree(
        self, id: int, address: str, local: Path, path: str, on_file: Callable[[str], None] | None
    ) -> tuple[int, int]:
        body = trees.pack(local, on_file=on_file)
        answer = self.http.ask(
            "PUT", f"leases/{id}/{address}", query={"path": path}, body=body, headers=_TAR, read=LONGEST
        )
        done = self.http.json(answer)
        return int(done["files"]), int(done["bytes"])

    def download(
        self, id: int, path: str, local: Path, on_file: Callable[[str], None] | None = None
    ) -> tuple[int, int]:
        answer = self.http.ask("GET", f"leases/{id}/tree", query={"path": path}, read=LONGEST)
        read = reader(self.http, answer)
        done = trees.unpack(read, lambda _: local, on_file=on_file)
        while read(1 << 16):
            pass
        return done.files, done.bytes

    def remove_path(
        self, id: int, path: str, *, recursive: bool = False, on_job: Callable[[JobInfo], None] | None = None
    ) -> None:
        # An empty path is the root, and must be said.
        query = {"recursive": recursive} | ({"path": path} if path else {"path": "."})
        began = self.http.send("DELETE", f"leases/{id}/file", query=query)
        if began is not None:
            self._wait_for_removal(from_json(JobInfo, began), on_job or (lambda job: None))

    def _wait_for_removal(self, job: JobInfo, on_job: Callable[[JobInfo], None]) -> None:
        while job.state in ("pending", "running"):
            on_job(job)
            time.sleep(_POLL)
            job = from_json(JobInfo, self.http.get(f"jobs/{job.id}"))
        if job.exit_code != 0:
            raise DrydockError(
                f"Job {job.id}, which removes the folder, is {job.state}"
                + (f" with exit code {job.exit_code}." if job.exit_code is not None else f". {job.message}"),
                hint=f"`drydock job output {job.id}` shows what could not be removed.",
            )

    def _put(self, id: int, address: str, path: str, content: bytes) -> Any:
        answer = self.http.ask(
            "PUT", f"leases/{id}/{address}", query={"path": path}, body=content, headers=_BYTES, again=True
        )
        return self.http.json(answer)

    # The web server

    def publish(self, id: int, path: str, content: bytes) -> str:
        return str(self._put(id, "page", path, content)["uri"])

    def publish_tree(self, id: int, local: Path, path: str = "") -> tuple[int, int]:
        return self._tree(id, "pages", local, path, None)


def reader(http: Connection, answer: urllib3.BaseHTTPResponse) -> Callable[[int], bytes]:
    """Return a function that reads the next bytes of an answer, at most as many as it is asked for."""

    def read(size: int) -> bytes:
        try:
            return answer.read(size)
        except HTTPError as error:
            raise unreachable(http.url, error) from None

    return read
