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

from drydock.core.characters import escaped
from drydock.engines.process import end_with_parent

COLOURS = (36, 33, 35, 32, 34)
# Leases of this machine need root; celery says at length what it thinks of that.
ROOT_IS_FINE = "ignore:You're running the worker with superuser privileges"
RESTARTS, RESTART_WINDOW = 3, 60.0
LONGEST_PAUSE = 60.0
# Celery ends its tasks at the first TERM, and drops them at QUIT: late acks bring them back.
ESCALATION = ((signal.SIGTERM, 6.0), (signal.SIGQUIT, 2.0), (signal.SIGKILL, 5.0))


@dataclasses.dataclass(frozen=True)
class Program:
    """A name for the log, and what to run.

    `needed`: when it ends again and again, all is stopped. Others are started again for as long as we run, with
    growing pauses, for what is left does their work more slowly.
    """

    name: str
    command: Sequence[str]
    needed: bool = True


class Foreground:
    """Runs programs until told to stop, or until one keeps dying."""

    def __init__(self, programs: Sequence[Program], say: Callable[[str, str], None] | None = None) -> None:
        self.programs = programs
        self.say = say or Log([program.name for program in programs]).line
        self.children: dict[str, subprocess.Popen[str]] = {}
        self.deaths: dict[str, list[float]] = {program.name: [] for program in programs}
        self.due: dict[str, float] = {}
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
        assert child.stdout is not None
        with child.stdout as lines:
            for line in lines:
                self.say(name, line.rstrip())

    def _mend(self) -> bool:
        """Start again what has died; False when a needed one dies again and again."""
        for program in self.programs:
            if self.children[program.name].poll() is not None and not self._again(program):
                return False
        return True

    def _again(self, program: Program) -> bool:
        """Start a dead program again, now or later; False to give up."""
        now = time.monotonic()
        if program.name not in self.due:
            pause = self._pause(program, now)
            if pause is None:
                self.say("drydock", f"{program.name} keeps ending; giving up. Its last lines above say why.")
                return False
            self.due[program.name] = now + pause
            later = f" in {pause:g} s" if pause else ""
            self.say("drydock", f"starting {program.name} again{later}")
        if now >= self.due[program.name]:
            del self.due[program.name]
            self._start(program)
        return True

    def _pause(self, program: Program, now: float) -> float | None:
        """Note a death; seconds until the next start, None when there will be none."""
        child = self.children[program.name]
        _kill_session(child.pid)
        self.say("drydock", f"{program.name} ended with status {child.returncode}")
        recent = [at for at in self.deaths[program.name] if now - at < RESTART_WINDOW + LONGEST_PAUSE]
        self.deaths[program.name] = [*recent, now]
        if program.needed:
            return 0.0 if sum(now - at < RESTART_WINDOW for at in recent) < RESTARTS else None
        return min(LONGEST_PAUSE, 2.0 ** (len(recent) - 1)) if recent else 0.0


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
            print(f"{head} {escaped(text, keep=chr(9))}", flush=True)


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
