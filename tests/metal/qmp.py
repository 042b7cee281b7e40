"""QEMU's monitor protocol (QMP), as far as machines of tests need it."""

from __future__ import annotations

import contextlib
import json
import socket
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any


class QmpError(Exception):
    """QEMU refused a command, or has ended."""


@contextlib.contextmanager
def monitor(path: Path, *, seconds: float = 30.0) -> Iterator[Monitor]:
    """Open the monitor at a socket, which QEMU may not have made yet."""
    end = time.monotonic() + seconds
    while True:
        opened = socket.socket(socket.AF_UNIX)
        opened.settimeout(seconds)
        try:
            opened.connect(str(path))
            break
        except OSError as error:
            opened.close()
            if time.monotonic() > end:
                raise QmpError(f"the monitor does not answer: {error}") from None
            time.sleep(0.05)
    with opened, opened.makefile("rw", encoding="utf-8") as stream:
        made = Monitor(stream)
        made.greet()
        yield made


class Monitor:
    """A connection to the monitor."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def greet(self) -> None:
        self._read()
        self.execute("qmp_capabilities")

    def execute(self, command: str, **arguments: Any) -> Any:
        """Carry out a command, and return its result."""
        self._stream.write(json.dumps({"execute": command, "arguments": arguments}) + "\n")
        self._stream.flush()
        while True:
            answer = self._read()
            if "error" in answer:
                raise QmpError(f"{command}: {answer['error'].get('desc')}")
            if "return" in answer:
                return answer["return"]

    def _read(self) -> dict[str, Any]:
        line = self._stream.readline()
        if not line:
            raise QmpError("QEMU has closed its monitor")
        found: dict[str, Any] = json.loads(line)
        return found
