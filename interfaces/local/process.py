"""A process on this machine, in its own session, with the uid of its endpoint."""

from __future__ import annotations

import contextlib
import os
import select
import signal
import subprocess
from typing import IO

from interfaces import launch as launching
from interfaces.endpoints import LocalEndpoint
from interfaces.errors import NotStarted
from interfaces.local.restrictions import join, started
from interfaces.transport import Exit, Launch, Process

_PART = 1 << 16
_END_WITHIN = 1.0


class LocalProcess(Process):
    """A process with three pipes that are read without blocking.

    If we are root, the process drops all privileges before its first instruction. For any account but ours, it can
    never regain them.
    """

    def __init__(self, launch: Launch, endpoint: LocalEndpoint) -> None:
        mark = launching.new_mark()
        script = launching.script_of(launch, endpoint.environment, endpoint.home, mark)
        self._greeting = launching.Greeting(mark)
        self._popen = _joined(started(endpoint, stdout=subprocess.PIPE, stderr=subprocess.PIPE), endpoint)
        self._ends: dict[str, int] = {}
        self._input: int | None = _unblocked(self._popen.stdin)
        for name, pipe in (("out", self._popen.stdout), ("err", self._popen.stderr)):
            self._ends[name] = _unblocked(pipe)
        self._script, self._closing = script, False

    @property
    def leader(self) -> str:
        return self._greeting.leader

    def read(self, wait: float, *, writing: bool = False) -> tuple[bytes, bytes]:
        writing = self._send_script() or writing
        if not self._ends:
            return b"", b""
        poll = select.poll()
        for descriptor in self._ends.values():
            poll.register(descriptor, select.POLLIN)
        if writing and self._input is not None:
            poll.register(self._input, select.POLLOUT)
        poll.poll(wait * 1000)
        out, err = self._greeting.out(self._part("out")), self._greeting.err(self._part("err"))
        if not self._ends and (missing := self._greeting.never_came()):
            raise missing
        return out, err

    def write(self, part: bytes) -> int:
        if self._send_script():
            return 0
        return self._write(part)

    def close_input(self) -> None:
        # What is left of the script goes with the next reads: the host's shell may never take it.
        self._closing = True
        self._send_script()

    @property
    def ended(self) -> bool:
        return not self._ends

    @property
    def exit(self) -> Exit | None:
        code = self._popen.poll()
        if code is None:
            return None
        if code < 0:
            return Exit(code=128 - code, signal=-code)
        return Exit(code=code, signal=code - 128 if 128 < code <= 192 else 0)

    def kill(self) -> None:
        if self._popen.poll() is None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._popen.pid, signal.SIGKILL)  # it leads a group of its own and is not waited for yet
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._popen.wait(_END_WITHIN)

    def close(self) -> None:
        self._shut_input()
        for pipe in (self._popen.stdout, self._popen.stderr):
            if pipe is not None:
                pipe.close()
        self._ends.clear()
        self._popen.poll()

    def _send_script(self) -> bool:
        """Send as much of the script as possible. Return whether some of it is left."""
        if self._script:
            self._script = self._script[self._write(self._script) :]
        if self._closing and not self._script:
            self._shut_input()
        return bool(self._script)

    def _write(self, part: bytes) -> int:
        if self._input is None:
            return len(part)
        try:
            return os.write(self._input, part[:_PART])
        except BlockingIOError:
            return 0
        except BrokenPipeError:
            # It does not want to read; that is its affair, as in a shell's pipeline.
            self._shut_input()
            return len(part)

    def _shut_input(self) -> None:
        if self._input is not None and self._popen.stdin is not None:
            self._input = None
            self._popen.stdin.close()

    def _part(self, name: str) -> bytes:
        if name not in self._ends:
            return b""
        try:
            part = os.read(self._ends[name], _PART)
        except BlockingIOError:
            return b""
        if not part:
            del self._ends[name]
        return part


def _unblocked(pipe: IO[bytes] | None) -> int:
    if pipe is None:
        raise NotStarted("A pipe to the process could not be opened.")
    os.set_blocking(pipe.fileno(), False)
    return pipe.fileno()


def _joined(popen: subprocess.Popen[bytes], endpoint: LocalEndpoint) -> subprocess.Popen[bytes]:
    try:
        join(popen.pid, endpoint)
    except NotStarted:
        popen.kill()
        popen.communicate()
        raise
    return popen
