"""Several processes in the foreground under one log: started, watched, started again, stopped together."""

from __future__ import annotations

import dataclasses
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence

from drydock.engines.process import end_with_parent

COLOURS = (36, 33, 35, 32, 34)
# Leases of this machine need root; celery says at length what it thinks of that.
ROOT_IS_FINE = "ignore:You're running the worker with superuser privileges"
RESTARTS, RESTART_WINDOW = 3, 60.0
# Celery ends its tasks at the first TERM, and drops them at QUIT: late acks bring them back.
ESCALATION = ((signal.SIGTERM, 6.0), (signal.SIGQUIT, 2.0), (signal.SIGKILL, 5.0))


@dataclasses.dataclass(frozen=True)
class Program:
    """A name for the log, and what to run."""

    name: str
    command: Sequence[str]


class Foreground:
    """Runs programs until told to stop, or until one keeps dying."""

    def __init__(self, programs: Sequence[Program], say: Callable[[str, str], None] | None = None) -> None:
        self.programs = programs
        self.say = say or Log([program.name for program in programs]).line
        self.children: dict[str, subprocess.Popen[str]] = {}
        self.deaths: dict[str, list[float]] = {program.name: [] for program in programs}
        self.stopping = False

    def run(self) -> int:
        """Start all and stay; the exit status to end with."""
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self._ask_to_stop)
        status = 0
        try:
            for program in self.programs:
                self._start(program)
            while not self.stopping and status == 0:
                time.sleep(0.2)
                status = 0 if self.stopping or self._mend() else 1
        finally:
            self.stop()
        return status

    def _ask_to_stop(self, *_: object) -> None:
        # A plain flag: an Event may be set while the loop holds its lock.
        self.stopping = True

    def stop(self) -> None:
        """End every child, harder with time; nothing of a child's session stays."""
        self.say("drydock", "stopping")
        for number, seconds in ESCALATION:
            alive = [child for child in self.children.values() if child.poll() is None]
            for child in alive:
                child.send_signal(number)
            _wait(alive, seconds)
        for child in self.children.values():
            _kill_session(child.pid)
        self.say("drydock", "stopped")

    def _start(self, program: Program) -> None:
        child = subprocess.Popen(
            list(program.command),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
            start_new_session=True,
            preexec_fn=end_with_parent(signal.SIGTERM),
            env={**os.environ, "PYTHONUNBUFFERED": "1", "PYTHONWARNINGS": ROOT_IS_FINE},
        )
        self.children[program.name] = child
        threading.Thread(target=self._pump, args=(program.name, child), daemon=True).start()

    def _pump(self, name: str, child: subprocess.Popen[str]) -> None:
        for line in child.stdout or ():
            self.say(name, line.rstrip())

    def _mend(self) -> bool:
        """Start again what has died; False when one dies again and again."""
        for program in self.programs:
            child = self.children[program.name]
            if child.poll() is None:
                continue
            now = time.monotonic()
            recent = [at for at in self.deaths[program.name] if now - at < RESTART_WINDOW]
            self.deaths[program.name] = [*recent, now]
            self.say("drydock", f"{program.name} ended with status {child.returncode}")
            if len(recent) >= RESTARTS:
                self.say("drydock", f"{program.name} keeps ending; giving up. Its last lines above say why.")
                return False
            _kill_session(child.pid)
            self.say("drydock", f"starting {program.name} again")
            self._start(program)
        return True


class Log:
    """Lines with the name of their process in front, coloured on a terminal."""

    def __init__(self, names: Sequence[str]) -> None:
        self.width = max(len(name) for name in (*names, "drydock"))
        self.colours = dict(zip(names, COLOURS, strict=False))
        self.terminal = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self.guard = threading.Lock()

    def line(self, name: str, text: str) -> None:
        """Print one line."""
        head = f"{name:<{self.width}} |"
        if self.terminal:
            head = f"\x1b[{self.colours.get(name, 1)}m{head}\x1b[0m"
        with self.guard:
            print(f"{head} {text}", flush=True)


def _wait(children: Sequence[subprocess.Popen[str]], seconds: float) -> None:
    until = time.monotonic() + seconds
    while any(child.poll() is None for child in children) and time.monotonic() < until:
        time.sleep(0.05)


def _kill_session(leader: int) -> None:
    """Whatever a dead child has left in its process group."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return
