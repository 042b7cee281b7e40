"""The processes of an installation: started, killed, and started again when they have ended."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from drydock.engines.process import end_with_parent

ROOT = Path(__file__).resolve().parents[1]


@dataclass(kw_only=True)
class Process:
    """One process and its children, in a session of their own."""

    name: str
    command: Sequence[str]
    environment: Mapping[str, str]
    log: Path
    once: bool = False
    """It ends by itself when its work is done."""
    child: subprocess.Popen[bytes] | None = None
    starts: int = 0
    killed: int = 0
    deaths: list[int] = field(default_factory=list)
    """How it ended whenever nobody had killed it."""
    down_since: float | None = None

    def start(self) -> None:
        """Start it, its output added to its log."""
        with self.log.open("ab") as output:
            self.child = subprocess.Popen(
                list(self.command),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=ROOT,
                env={**os.environ, **self.environment, "PYTHONUNBUFFERED": "1"},
                start_new_session=True,
                preexec_fn=end_with_parent(signal.SIGKILL),
            )
        self.starts, self.down_since = self.starts + 1, None

    @property
    def alive(self) -> bool:
        """It runs."""
        return self.child is not None and self.child.poll() is None

    @property
    def done(self) -> bool:
        """It has ended by itself, and well."""
        return self.once and self.child is not None and self.child.poll() == 0

    def kill(self) -> bool:
        """SIGKILL to it and to all its children; False when it was not there."""
        if not self.alive:
            return False
        self.killed += 1
        self._signal(signal.SIGKILL)
        return True

    def kill_a_child(self, aim: float) -> bool:
        """SIGKILL to one of its children; False when it has none."""
        children = self._children()
        if not children:
            return False
        with contextlib.suppress(psutil.NoSuchProcess):
            children[int(aim * len(children))].kill()
        return True

    def _children(self) -> list[psutil.Process]:
        if self.child is None:
            return []
        with contextlib.suppress(psutil.NoSuchProcess):
            return sorted(psutil.Process(self.child.pid).children(), key=lambda process: process.pid)
        return []

    def mend(self, pause: float) -> None:
        """Start it again when it has been down for `pause` seconds."""
        if self.alive or self.done:
            return
        if self.down_since is None:
            self.down_since = time.monotonic()
            self._note_death()
            self._signal(signal.SIGKILL)
        elif time.monotonic() - self.down_since >= pause:
            self.start()

    def _note_death(self) -> None:
        assert self.child is not None
        if self.child.returncode != -signal.SIGKILL:
            self.deaths.append(self.child.returncode)

    def ask_to_stop(self) -> None:
        """SIGTERM."""
        if self.alive and self.child is not None:
            self.child.terminate()

    def insist(self, until: float) -> bool:
        """Wait until `until` (monotonic seconds), then kill; True when it ended by itself."""
        if self.child is None:
            return True
        try:
            self.child.wait(max(0.1, until - time.monotonic()))
        except subprocess.TimeoutExpired:
            self.kill()
            self.child.wait()
            return False
        self._signal(signal.SIGKILL)
        return True

    def _signal(self, number: signal.Signals) -> None:
        if self.child is not None:
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.child.pid, number)


def stop(processes: Sequence[Process], patience: float = 20.0) -> list[str]:
    """Ask all to stop; the names of those that had to be killed."""
    for process in processes:
        process.ask_to_stop()
    until = time.monotonic() + patience
    return [process.name for process in processes if not process.insist(until)]


def celery(*words: str, app: str = "drydock.celery") -> list[str]:
    """A command of Celery's."""
    return [sys.executable, "-m", "celery", "-A", app, "--quiet", *words]


def worker(number: int, app: str = "drydock.celery") -> list[str]:
    """A worker for all queues, with two processes."""
    quiet = ["--without-gossip", "--without-mingle", "--without-heartbeat", "--loglevel", "INFO"]
    return celery("worker", *quiet, "-c", "2", "-Q", "claims,steps,periodic", "-n", f"chaos-{number}@%h", app=app)


def beat() -> list[str]:
    """Beat, as `make up` starts it."""
    return celery("beat", "--scheduler", "leases.schedule:Scheduler", "--pidfile", "", "--loglevel", "INFO")


def web(port: int) -> list[str]:
    """The web process, as `make up` starts it."""
    bind = ["--bind", f"127.0.0.1:{port}", "--threads", "4", "--graceful-timeout", "3", "--log-level", "warning"]
    return [sys.executable, "-m", "gunicorn", "drydock.wsgi", "--worker-class", "drydock.webworker.Worker", *bind]


def left_behind(state: Path) -> list[str]:
    """Processes of this installation that still run, whoever started them."""
    found = []
    for process in psutil.process_iter(["pid", "cmdline", "cwd", "status"]):
        with contextlib.suppress(psutil.Error):
            if process.pid == os.getpid() or process.info["status"] == psutil.STATUS_ZOMBIE:
                continue
            words = [*(process.info["cmdline"] or []), process.info["cwd"] or ""]
            if any(str(state) in word for word in words) or process.environ().get("DRYDOCK_STATE") == str(state):
                found.append(f"{process.pid}: {' '.join(words)[:120]}")
    return found
