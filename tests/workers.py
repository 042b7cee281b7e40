"""A real Celery worker for tests, and what is left of its queues."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import redis

READY = "ready."


class Worker:
    """One worker process with all queues; `kill()` ends it at any instant, `stop()` in an orderly way."""

    def __init__(
        self, environment: dict[str, str] | None = None, concurrency: int = 2, beat: bool = False,
        app: str = "drydock.celery",
    ) -> None:  # fmt: skip
        command = [sys.executable, "-m", "celery", "-A", app, "--quiet", "worker", "-c", str(concurrency)]
        command += ["-Q", "claims,steps,periodic", "--loglevel", "INFO", "-n", f"test-{os.getpid()}-{id(self)}@%h"]
        command += ["--without-gossip", "--without-mingle", "--without-heartbeat"]
        command += ["--beat", "--scheduler", "leases.schedule:Scheduler"] if beat else []
        self.log = Path(os.environ["DRYDOCK_STATE"]) / f"worker-{os.getpid()}-{id(self)}.log"
        self.output = self.log.open("wb")
        self.process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=self.output,
            stderr=subprocess.STDOUT,
            cwd=Path(__file__).parents[1],
            env={**os.environ, **(environment or {}), "PYTHONUNBUFFERED": "1"},
            start_new_session=True,
        )

    def wait_ready(self, seconds: float = 90.0) -> None:
        """Until it takes tasks."""
        until = time.monotonic() + seconds
        while READY not in self.text():
            assert self.process.poll() is None, self.text()
            assert time.monotonic() < until, self.text()
            time.sleep(0.05)

    def text(self) -> str:
        """Its log so far."""
        return self.log.read_text(errors="replace")

    def kill(self) -> None:
        """SIGKILL to the worker and its children."""
        os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()

    def stop(self) -> None:
        """Warm shutdown; after a few seconds, SIGKILL."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(8)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.output.close()


def clear_broker(prefix: str) -> None:
    """Remove this run's keys from a broker given by BROKER_URL; the private one dies with its keys."""
    url = os.environ.get("BROKER_URL")
    if not url:
        return
    with redis.Redis.from_url(url.replace("redis+socket://", "unix://")) as broker:
        for key in broker.scan_iter(f"{prefix}:*"):
            broker.delete(key)
