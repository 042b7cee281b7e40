"""A program of the operator's as a process: bounded in time and output, and ended with all its children."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from drydock.core import clock
from interfaces.deadline import Deadline
from interfaces.launch import CLEAN_PATH

LONGEST = 1 << 20
"""Maximum number of bytes on each of the two outputs."""
_CHUNK = 1 << 16
LINGER = 0.5
"""Seconds that the outputs stay open after the program has ended, for what its children still print."""


@dataclass(frozen=True, kw_only=True)
class Finished:
    """How a program ended."""

    code: int
    """The exit code; negative for a signal."""
    output: bytes
    errors: bytes
    late: bool = False
    too_long: bool = False


def finished(words: Sequence[str], given: Mapping[str, str], deadline: Deadline) -> Finished:
    """Run a program in a clean environment, with `given` as JSON on its standard input, and wait for its end.

    All processes of its group are killed at the deadline, when it prints too much, and after its end.
    """
    with subprocess.Popen(
        list(words),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd="/",
        env={"PATH": CLEAN_PATH, "LANG": "C.UTF-8", "DRYDOCK_BMC_SECONDS": f"{deadline.remaining:.1f}"},
        start_new_session=True,
        bufsize=0,
    ) as process:
        exchange = _Exchange(process, json.dumps(dict(given)).encode())
        try:
            exchange.run(deadline)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
    outputs = exchange.outputs
    return Finished(
        code=process.returncode,
        output=bytes(outputs["stdout"]),
        errors=bytes(outputs["stderr"]),
        late=exchange.late,
        too_long=exchange.too_long,
    )


class _Exchange:
    """Writes the input of a process, and reads its outputs."""

    def __init__(self, process: subprocess.Popen[bytes], given: bytes) -> None:
        self._process, self._given = process, memoryview(given)
        self.outputs = {"stdout": bytearray(), "stderr": bytearray()}
        self.late = self.too_long = False

    def run(self, deadline: Deadline) -> None:
        """Exchange until both outputs and the process have ended, or it must be killed."""
        ended_at = 0.0
        with selectors.DefaultSelector() as selector:
            self._register(selector)
            while selector.get_map() or not self._over:
                if deadline.expired:
                    self.late = not self._over
                    return
                if not ended_at and self._over:
                    ended_at = clock.monotonic()
                if self.too_long or (ended_at and clock.monotonic() - ended_at > LINGER):
                    return
                self._turn(selector, min(0.05, deadline.remaining))

    @property
    def _over(self) -> bool:
        """Whether the process has ended. It is not reaped yet, so that its number is still that of its group."""
        return os.waitid(os.P_PID, self._process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None

    def _register(self, selector: selectors.BaseSelector) -> None:
        process = self._process
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        os.set_blocking(process.stdin.fileno(), False)
        selector.register(process.stdin, selectors.EVENT_WRITE, "stdin")
        selector.register(process.stdout, selectors.EVENT_READ, "stdout")
        selector.register(process.stderr, selectors.EVENT_READ, "stderr")

    def _turn(self, selector: selectors.BaseSelector, wait: float) -> None:
        if not selector.get_map():
            clock.sleep(wait)
        for key, _ in selector.select(wait):
            ended = self._write(key.fd) if key.data == "stdin" else self._read(key.fd, self.outputs[key.data])
            if ended:
                selector.unregister(key.fileobj)
                key.fileobj.close()  # type: ignore[union-attr]

    def _write(self, pipe: int) -> bool:
        """Write a part of the input. Returns whether nothing is left, or nobody reads it."""
        try:
            self._given = self._given[os.write(pipe, self._given) :]
        except BlockingIOError:
            return False
        except OSError:
            return True
        return not self._given

    def _read(self, pipe: int, output: bytearray) -> bool:
        """Read a part of an output. Returns whether it has ended."""
        part = os.read(pipe, _CHUNK)
        output += part
        self.too_long = self.too_long or len(output) > LONGEST
        return not part
