"""A real web process for tests: gunicorn on a port of its own, on the test database."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


class Server:
    """`drydock.wsgi` under gunicorn; `url` is where it answers."""

    def __init__(self, environment: dict[str, str], log: Path, *, threads: int = 8) -> None:
        with socket.socket() as listening:
            listening.bind(("127.0.0.1", 0))
            listening.listen(64)
            self.url = f"http://127.0.0.1:{listening.getsockname()[1]}"
            self._log = log
            words = ["--worker-class", "drydock.webworker.Worker", "--threads", str(threads)]
            words += ["--bind", f"fd://{listening.fileno()}"]
            with log.open("wb") as output:
                self.process = subprocess.Popen(
                    [sys.executable, "-m", "gunicorn", "drydock.wsgi", *words, "--graceful-timeout", "1"],
                    env=environment, cwd=ROOT, stdin=subprocess.DEVNULL, stdout=output, stderr=subprocess.STDOUT,
                    pass_fds=[listening.fileno()],
                )  # fmt: skip

    @classmethod
    def on(cls, database: str, log: Path) -> Server:
        """On the test database of this process."""
        from tests.settings import DATABASE

        return cls({**os.environ, DATABASE: database, "DJANGO_SETTINGS_MODULE": "tests.settings"}, log)

    def __enter__(self) -> Server:
        until = time.monotonic() + 60
        while not self._answers():
            assert self.process.poll() is None, self.said()
            assert time.monotonic() < until, self.said()
            time.sleep(0.1)
        return self

    def _answers(self) -> bool:
        try:
            urllib.request.urlopen(f"{self.url}/api/nothing", timeout=10)
        except urllib.error.HTTPError as error:
            error.close()
            return error.code == 404
        except OSError:
            return False
        return False

    def __exit__(self, *_: object) -> None:
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def said(self) -> str:
        """Its log so far."""
        return self._log.read_text(errors="replace")
