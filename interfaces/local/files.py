"""Files on this machine, accessed directly if the account is our own, and otherwise through an agent with its uid."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

from interfaces.deadline import Deadline
from interfaces.endpoints import LocalEndpoint
from interfaces.errors import ConnectionLost, DeadlineExceeded, NotStarted
from interfaces.files import MOST_LISTED, PART, Entry, Files, Mode, OpenFile, file_error
from interfaces.local.agent import LENGTHS, frame
from interfaces.local.confined_fs import ConfinedFolder
from interfaces.local.restrictions import join, unprivileged

_Call = Callable[[str, dict[str, Any], bytes], Any]
_ANSWER_WITHIN, _END_WITHIN = 60.0, 1.0
_LONGEST_HEAD = 32 << 20
"""Maximum size of an answer's head in bytes. The longest possible listing of `MOST_LISTED` names is smaller."""
_LONGEST_BODY = 4 * PART


class _Agent:
    """The client of `agent.py`. The first call starts the agent; later calls restart it after a fork or a crash."""

    def __init__(self, endpoint: LocalEndpoint) -> None:
        self._endpoint = endpoint
        self._lock = threading.Lock()
        self._popen: subprocess.Popen[bytes] | None = None
        self._pid = 0

    def __call__(self, operation: str, arguments: dict[str, Any], body: bytes) -> Any:
        with self._lock:
            self._running()
            deadline = Deadline(_ANSWER_WITHIN)
            try:
                self._write(frame({"operation": operation, "arguments": arguments}, body), deadline)
                head, content = self._answer(deadline)
            except (BrokenPipeError, EOFError) as error:
                self._end()
                raise ConnectionLost("The file agent of this account has ended.") from error
            except BaseException:
                self._end()
                raise
        if "errno" in head:
            raise OSError(head["errno"], head["text"])
        return content if operation == "read" else head["value"]

    def _answer(self, deadline: Deadline) -> tuple[dict[str, Any], bytes]:
        """Read one frame. Raises ConnectionLost for one that cannot be an answer, before allocating memory for it."""
        head_size, body_size = LENGTHS.unpack(self._read(LENGTHS.size, deadline))
        if head_size > _LONGEST_HEAD or body_size > _LONGEST_BODY:
            raise ConnectionLost
        text, body = self._read(head_size, deadline), self._read(body_size, deadline)
        try:
            head = json.loads(text)
        except (ValueError, RecursionError):
            raise ConnectionLost from None
        if not isinstance(head, dict) or not ({"errno", "text"} <= head.keys() or "value" in head):
            raise ConnectionLost
        return head, body

    def _running(self) -> None:
        if self._popen is None or self._popen.poll() is not None or self._pid != os.getpid():
            self._end()
            self._pid = os.getpid()
            self._popen = unprivileged(self._start)
            try:
                join(self._popen.pid, self._endpoint)
            except NotStarted:
                self._end()
                raise
            assert self._popen.stdin is not None
            os.set_blocking(self._popen.stdin.fileno(), False)

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-P", "-s", "-S", "-m", "interfaces.local.agent",
             str(self._endpoint.uid), str(self._endpoint.gid)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, bufsize=0,
            cwd="/", env={"PYTHONPATH": str(Path(__file__).parents[2]), "PATH": os.defpath,
                          "PYTHONDONTWRITEBYTECODE": "1"},
        )  # fmt: skip

    def _write(self, rest: bytes, deadline: Deadline) -> None:
        assert self._popen is not None
        assert self._popen.stdin is not None
        descriptor, left = self._popen.stdin.fileno(), memoryview(rest)
        while left:
            _await(descriptor, select.POLLOUT, deadline)
            with contextlib.suppress(BlockingIOError):
                left = left[os.write(descriptor, left) :]

    def _read(self, size: int, deadline: Deadline) -> bytes:
        assert self._popen is not None
        assert self._popen.stdout is not None
        parts, descriptor = bytearray(), self._popen.stdout.fileno()
        while len(parts) < size:
            _await(descriptor, select.POLLIN, deadline)
            part = os.read(descriptor, size - len(parts))
            if not part:
                raise EOFError
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
            with contextlib.suppress(subprocess.TimeoutExpired):  # the kernel may hold it in a call to a file system
                popen.wait(_END_WITHIN)

    def close(self) -> None:
        with self._lock:
            self._end()

    def __del__(self) -> None:
        self._end()


def _await(descriptor: int, event: int, deadline: Deadline) -> None:
    ready = select.poll()
    ready.register(descriptor, event)
    if not ready.poll(deadline.remaining * 1000):
        raise DeadlineExceeded("The file agent of this account did not answer.")


class _Direct:
    def __init__(self) -> None:
        self._operations = ConfinedFolder()

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
    """Files on this machine. No operation can leave the root, even while the root's owner swaps links."""

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

    def remove_tree(self, path: str, seconds: float) -> bool:
        return bool(self._do("remove_tree", path, seconds=seconds))

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
