"""The driver `command`: consoles that a program of the operator's connects to, with pipes as the line.

The program is called as `PROGRAM console ADDRESS`. The first line on its standard input is the credential as a JSON
object; after it come the bytes for the console. It prints the bytes of the console on its standard output, and ends
when its standard input ends. docs/bmc.md says which programs the installation allows.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

from blueprints.bmc.command import Access, Credential, allowed
from blueprints.bmc.texts import shown
from blueprints.consoles.contract import ConsoleDriver
from blueprints.programs import CLEAN
from interfaces.console.contract import LARGEST_READ, Line
from interfaces.deadline import Deadline
from interfaces.errors import ConsoleBusy, ConsoleClosed, Unreachable

BUSY = 75
"""Exit code of a program that found the console in use, after sysexits.h."""
_LONGEST_ERROR = 4096
_CLOSING = 2.0
"""Seconds that a program gets to end by itself once its input has ended."""


class CommandConsole(ConsoleDriver):
    """Opens consoles by the operator's programs."""

    name: ClassVar[str] = "command"
    Access = Access
    Credential = Credential

    def connect(self, access: Any, credential: Mapping[str, str], *, deadline: Deadline, take: bool) -> Line:
        """Start the program, with `take` as its third argument if a session of somebody else is to be ended.

        Raises BmcError if the installation does not allow the program, and Unreachable if it cannot be started.
        """
        words = [str(allowed(access.program)), "console", access.address, *(["take"] if take else [])]
        return ProgramLine(words, {name: value for name, value in credential.items() if value})


class ProgramLine(Line):
    """A running program, whose pipes are the line."""

    def __init__(self, words: list[str], credential: Mapping[str, str]) -> None:
        self._name, self._secrets, self._errors = Path(words[0]).name, tuple(credential.values()), b""
        try:
            self._process = subprocess.Popen(
                words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd="/", bufsize=0,
                env=CLEAN, start_new_session=True,
            )  # fmt: skip
        except OSError as error:
            raise Unreachable(f"The program {self._name} cannot be started: {error.strerror}.") from None
        for pipe in (self._process.stdin, self._process.stdout, self._process.stderr):
            assert pipe is not None
            os.set_blocking(pipe.fileno(), False)
        self._unsent = json.dumps(dict(credential)).encode() + b"\n"

    def read(self, wait: float) -> bytes:
        """Return what the program prints within `wait` seconds. Raises ConsoleClosed, ConsoleBusy."""
        output, errors = self._pipe("stdout"), self._pipe("stderr")
        self._send()
        ready = select.select([output, errors], [], [], wait)[0]
        if errors in ready and (said := os.read(errors, LARGEST_READ)):
            self._errors = (self._errors + said)[-_LONGEST_ERROR:]
        if output not in ready:
            if errors in ready and not said:  # it has closed its errors, and would be ready at every turn
                return self._output(output, wait)
            return b""
        return self._output(output, 0)

    def _output(self, output: int, wait: float) -> bytes:
        if not select.select([output], [], [], wait)[0]:
            return b""
        found = os.read(output, LARGEST_READ)
        if not found:
            raise self._ended()
        return found

    def write(self, content: bytes) -> int:
        """Write as much as the program takes now. Raises ConsoleClosed."""
        self._send()
        return 0 if self._unsent else self._put(content)

    def close(self) -> None:
        """End the input of the program, and kill its process group if it does not end by itself. Never raises."""
        with contextlib.suppress(OSError):
            assert self._process.stdin is not None
            self._process.stdin.close()
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_CLOSING)
        with contextlib.suppress(OSError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        for pipe in (self._process.stdout, self._process.stderr):
            assert pipe is not None
            pipe.close()

    def _send(self) -> None:
        """Send the credential, as far as the program takes it now."""
        if self._unsent:
            self._unsent = self._unsent[self._put(self._unsent) :]

    def _put(self, content: bytes) -> int:
        try:
            return os.write(self._pipe("stdin"), content)
        except BlockingIOError:
            return 0
        except OSError:
            return len(content)  # it reads no more; its output says when it ends

    def _pipe(self, name: str) -> int:
        pipe = getattr(self._process, name)
        return int(pipe.fileno())

    def _ended(self) -> ConsoleClosed | ConsoleBusy:
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(_CLOSING)
        with contextlib.suppress(OSError):
            self._errors = (self._errors + os.read(self._pipe("stderr"), LARGEST_READ))[-_LONGEST_ERROR:]
        code = self._process.poll()
        said = shown(self._errors, self._secrets)
        if code == BUSY:
            return ConsoleBusy(f"The program {self._name} says that somebody else uses the console. {said}".rstrip())
        how = "closed its output" if code is None else f"ended with exit code {code}"
        return ConsoleClosed(f"The program {self._name} {how}" + (f": {said}" if said else "."))
