"""Files on this machine: done here when the account is our own, else by an agent with the account's uid."""

from __future__ import annotations

import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from drydock.core import clock
from interfaces.endpoints import LocalEndpoint
from interfaces.errors import ConnectionLost
from interfaces.files import MOST_LISTED, PART, Entry, Files, Mode, OpenFile, file_error
from interfaces.local.agent import LENGTHS, send
from interfaces.local.beneath import Beneath
from interfaces.local.bounds import join

_Call = Callable[[str, dict[str, Any], bytes], Any]
_ANSWER_WITHIN = 60.0


class _Agent:
    """The asking side of `agent.py`; started at the first call, and again after a fork or its death."""

    def __init__(self, endpoint: LocalEndpoint) -> None:
        self._endpoint = endpoint
        self._lock = threading.Lock()
        self._popen: subprocess.Popen[bytes] | None = None
        self._pid = 0

    def __call__(self, operation: str, arguments: dict[str, Any], body: bytes) -> Any:
        with self._lock:
            popen = self._running()
            assert popen.stdin is not None
            try:
                send(popen.stdin, {"operation": operation, "arguments": arguments}, body)  # type: ignore[arg-type]
                lengths = LENGTHS.unpack(self._read(LENGTHS.size))
                head, content = json.loads(self._read(lengths[0])), self._read(lengths[1])
            except (BrokenPipeError, ConnectionLost) as error:
                self._end()
                raise ConnectionLost("The file agent of this account ended or did not answer.") from error
        if "errno" in head:
            raise OSError(head["errno"], head["text"])
        return content if operation == "read" else head["value"]

    def _running(self) -> subprocess.Popen[bytes]:
        if self._popen is None or self._popen.poll() is not None or self._pid != os.getpid():
            self._end()
            self._pid = os.getpid()
            self._popen = subprocess.Popen(
                [sys.executable, "-P", "-s", "-S", "-m", "interfaces.local.agent",
                 str(self._endpoint.uid), str(self._endpoint.gid)],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0,
                cwd="/", env={"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": os.defpath,
                              "PYTHONDONTWRITEBYTECODE": "1"},
            )  # fmt: skip
            join(self._popen.pid, self._endpoint)
        return self._popen

    def _read(self, size: int) -> bytes:
        assert self._popen is not None
        assert self._popen.stdout is not None
        until, parts = clock.monotonic() + _ANSWER_WITHIN, bytearray()
        descriptor = self._popen.stdout.fileno()
        answer = select.poll()
        answer.register(descriptor, select.POLLIN)
        while len(parts) < size:
            ready = answer.poll(max(0.0, until - clock.monotonic()) * 1000)
            part = os.read(descriptor, size - len(parts)) if ready else b""
            if not part:
                raise ConnectionLost
            parts += part
        return bytes(parts)

    def _end(self) -> None:
        popen, self._popen = self._popen, None
        if popen is None:
            return
        for pipe in (popen.stdin, popen.stdout):
            if pipe is not None:
                pipe.close()
        if self._pid == os.getpid():
            popen.kill()
            popen.wait()

    def close(self) -> None:
        with self._lock:
            self._end()

    def __del__(self) -> None:
        self._end()


class _Direct:
    def __init__(self) -> None:
        self._operations = Beneath()

    def __call__(self, operation: str, arguments: dict[str, Any], body: bytes) -> Any:
        if operation == "write":
            arguments = {**arguments, "body": body}
        return getattr(self._operations, operation)(**arguments)

    def close(self) -> None:
        self._operations.close_all()


class _LocalFile(OpenFile):
    def __init__(self, call: _Call, handle: int, path: str) -> None:
        self._call, self._handle, self._path = call, handle, path

    def read(self, size: int = PART) -> bytes:
        return bytes(self._do("read", {"size": size}))

    def write(self, part: bytes) -> None:
        self._do("write", {}, part)

    def sync(self) -> None:
        self._do("sync_file", {})

    def close(self) -> None:
        self._do("close", {})

    def _do(self, operation: str, arguments: dict[str, Any], body: bytes = b"") -> Any:
        try:
            return self._call(operation, {"handle": self._handle, **arguments}, body)
        except OSError as error:
            raise file_error(error.errno, error.strerror or "", self._path) from error


class LocalFiles(Files):
    """No operation can leave the root, even while its owner swaps links."""

    def __init__(self, root: str, endpoint: LocalEndpoint) -> None:
        self.root = root
        mine = os.geteuid() == endpoint.uid
        self._call: _Agent | _Direct = _Direct() if mine else _Agent(endpoint)

    def _do(self, operation: str, path: str, **arguments: Any) -> Any:
        try:
            return self._call(operation, {"root": self.root, "path": path, **arguments}, b"")
        except OSError as error:
            raise file_error(error.errno, error.strerror or "", path) from error

    def stat(self, path: str, *, follow: bool = True) -> Entry:
        return Entry(**self._do("stat", path, follow=follow))

    def list(self, path: str, *, most: int = MOST_LISTED) -> list[Entry]:
        return [Entry(**each) for each in self._do("list", path, most=most)]

    def open(self, path: str, mode: Mode, *, permissions: int = 0o644) -> OpenFile:
        handle = self._do("open", path, mode=mode, permissions=permissions)
        return _LocalFile(self._call, int(handle), path)

    def mkdir(self, path: str, *, permissions: int = 0o755) -> None:
        self._do("mkdir", path, permissions=permissions)

    def rename(self, source: str, target: str) -> None:
        try:
            self._call("rename", {"root": self.root, "source": source, "target": target}, b"")
        except OSError as error:
            raise file_error(error.errno, error.strerror or "", source) from error

    def unlink(self, path: str) -> None:
        self._do("unlink", path)

    def rmdir(self, path: str) -> None:
        self._do("rmdir", path)

    def symlink(self, target: str, path: str) -> None:
        self._do("symlink", path, target=target)

    def readlink(self, path: str) -> str:
        return str(self._do("readlink", path))

    def chmod(self, path: str, permissions: int) -> None:
        self._do("chmod", path, permissions=permissions)

    def sync(self, path: str) -> None:
        self._do("sync_folder", path)

    def close(self) -> None:
        self._call.close()
