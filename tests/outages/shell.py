"""`drydock` in the background, its output in files."""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
import time
from typing import Any

from tests.outages.site import ROOT


class Shell:
    """Starts commands as an operator; the end of the `with` ends those that still run."""

    def __init__(self, environment: dict[str, str]) -> None:
        self.environment = {**environment, "DRYDOCK_USER": "root"}
        self._begun: list[Command] = []

    def __enter__(self) -> Shell:
        return self

    def start(self, *words: str) -> Command:
        """Start a command."""
        self._begun.append(Command(words, self.environment))
        return self._begun[-1]

    def __call__(self, *words: str) -> str:
        """Run a command to its end: what it said."""
        return self.start(*words).end()

    def json(self, *words: str) -> Any:
        """What it says with --json."""
        return json.loads(self(*words, "--json"))

    def __exit__(self, *_: object) -> None:
        for command in self._begun:
            command.close()


class Command:
    """One command."""

    def __init__(self, words: tuple[str, ...], environment: dict[str, str]) -> None:
        self._out, self._err = (tempfile.TemporaryFile("w+") for _ in range(2))  # noqa: SIM115
        self._program = subprocess.Popen(
            [sys.executable, "-m", "drydock", *words], cwd=ROOT, env=environment, stdin=subprocess.DEVNULL,
            stdout=self._out, stderr=self._err,
        )  # fmt: skip

    def said(self) -> str:
        """Its output so far."""
        self._out.seek(0)
        return self._out.read()

    def until_said(self, text: str, seconds: float = 60) -> None:
        """Wait until its output begins so."""
        until = time.monotonic() + seconds
        while not self.said().startswith(text):
            assert self._program.poll() is None, self._told()
            assert time.monotonic() < until, self._told()
            time.sleep(0.05)

    def end(self, seconds: float = 90) -> str:
        """Wait until it has ended well: its output."""
        assert self._program.wait(seconds) == 0, self._told()
        assert "Traceback" not in self._told()
        return self.said()

    def _told(self) -> str:
        self._err.seek(0)
        return self.said() + self._err.read()

    def close(self) -> None:
        """End it, and forget its output."""
        if self._program.poll() is None:
            self._program.terminate()
            self._program.wait(30)
        self._out.close()
        self._err.close()
