"""`make up`: run engines, web process, workers and beat in the foreground, and restart those that exit."""

from __future__ import annotations

import dataclasses
import errno
import os
import secrets
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence

import django
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError

from drydock.cli.toolkit.session import make_operator, os_user
from drydock.core import semaphores
from drydock.core.characters import escaped
from drydock.core.errors import DrydockError
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
    """A program to run, and its name in the log.

    If a `needed` program keeps exiting, all programs are stopped. Other programs are restarted indefinitely, with
    growing pauses, because the installation works without them, only more slowly.
    """

    name: str
    command: Sequence[str]
    needed: bool = True


class Foreground:
    """Runs programs until a signal, or until a needed program keeps exiting."""

    def __init__(self, programs: Sequence[Program], say: Callable[[str, str], None] | None = None) -> None:
        self.programs = programs
        self.say = say or Log([program.name for program in programs]).line
        self.children: dict[str, subprocess.Popen[str]] = {}
        self.deaths: dict[str, list[float]] = {program.name: [] for program in programs}
        self.due: dict[str, float] = {}
        self.stopping = False

    def run(self) -> int:
        """Start all programs and wait. Return the exit status."""
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
        """Stop every child with increasingly strong signals, then kill the processes left in its process group."""
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
        """Restart the programs that have exited. Return False if a needed one keeps exiting."""
        for program in self.programs:
            if self.children[program.name].poll() is not None and not self._again(program):
                return False
        return True

    def _again(self, program: Program) -> bool:
        """Restart a program that has exited, now or later. Return False to give up."""
        now = time.monotonic()
        if program.name not in self.due:
            pause = self._pause(program, now)
            if pause is None:
                self.say(
                    "drydock",
                    f"{program.name} keeps exiting, so everything is stopped. Its last lines above show the reason.",
                )
                return False
            self.due[program.name] = now + pause
            later = f" in {pause:g} s" if pause else ""
            self.say("drydock", f"starting {program.name} again{later}")
        if now >= self.due[program.name]:
            del self.due[program.name]
            self._start(program)
        return True

    def _pause(self, program: Program, now: float) -> float | None:
        """Record that a program has exited.

        Return the seconds until its restart, or None if it will not be restarted.
        """
        child = self.children[program.name]
        _kill_session(child.pid)
        self.say("drydock", f"{program.name} ended with status {child.returncode}")
        recent = [at for at in self.deaths[program.name] if now - at < RESTART_WINDOW + LONGEST_PAUSE]
        self.deaths[program.name] = [*recent, now]
        if program.needed:
            return 0.0 if sum(now - at < RESTART_WINDOW for at in recent) < RESTARTS else None
        return min(LONGEST_PAUSE, 2.0 ** (len(recent) - 1)) if recent else 0.0


class Log:
    """Prints lines with the name of their process in front, coloured on a terminal."""

    def __init__(self, names: Sequence[str]) -> None:
        self.width = max(len(name) for name in (*names, "drydock"))
        self.colours = dict(zip(names, COLOURS, strict=False))
        self.terminal = sys.stdout.isatty() and "NO_COLOR" not in os.environ
        self.guard = threading.Lock()

    def line(self, name: str, text: str) -> None:
        """Print a line with the name of its process."""
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
    """Kill the processes that an exited child has left in its process group."""
    try:
        os.killpg(leader, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        return


ADMIN = "admin"


def port_problem(address: str, port: int) -> str:
    """Return why the web process could not listen at an address; empty if it can."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    try:
        with socket.socket(family) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind((address, port))
    except OSError as error:
        if error.errno == errno.EADDRINUSE:
            return (
                f"Port {port} on {address} is taken by another program. "
                f"Stop it, or choose another: DRYDOCK_WEB_PORT={port + 1} make up"
            )
        return (
            f"Cannot listen on {address} port {port}: {error.strerror}. Set DRYDOCK_WEB_ADDRESS and DRYDOCK_WEB_PORT."
        )
    return ""


def programs(address: str, port: int) -> list[Program]:
    """Return the programs to run in addition to the engines."""
    python = sys.executable
    wanted = settings.DRYDOCK
    celery = [python, "-m", "celery", "-A", "drydock.celery", "--quiet"]
    worker = [
        *celery,
        "worker",
        "--without-gossip",
        "--without-mingle",
        "--without-heartbeat",
        "--loglevel",
        wanted.log_level,
    ]
    host = f"[{address}]" if ":" in address else address
    web = [
        python,
        "-m",
        "gunicorn",
        "drydock.wsgi",
        "--bind",
        f"{host}:{port}",
        "--worker-class",
        "drydock.webworker.Worker",
    ]
    web += ["--no-control-socket"]  # it would be in the user's home, one for all installations
    return [
        Program(
            "web", [*web, "--threads", str(wanted.web_threads), "--graceful-timeout", "3", "--log-level", "warning"]
        ),
        Program(
            "claims",
            [
                *worker,
                "-n",
                f"claims-{port}@%h",
                "-Q",
                "claims,periodic",
                "-c",
                str(max(2, wanted.worker_concurrency // 2)),
            ],
            needed=False,
        ),
        Program(
            "steps",
            [*worker, "-n", f"steps-{port}@%h", "-Q", "steps", "-c", str(wanted.worker_concurrency)],
            needed=False,
        ),
        Program(
            "beat",
            [*celery, "beat", "--scheduler", "leases.schedule:Scheduler", "--pidfile", "", "--loglevel", "WARNING"],
            needed=False,
        ),
    ]


def prepare() -> str:
    """Start the engines and apply migrations. Return how to sign in, as a sentence for the terminal."""
    from django.core.management import call_command

    call_command("migrate", verbosity=0, interactive=False)
    return sign_in()


def sign_in() -> str:
    """Return how an administrator signs in. If no administrator has a password, one of them is given a new password.

    Commands make the operating system's user an administrator without a password, so an administrator
    may exist although no one can sign in.
    """
    from django.contrib.auth import get_user_model

    model = get_user_model()
    users = model._default_manager
    administrators = users.filter(is_superuser=True, is_active=True).order_by("pk")
    able = [row.get_username() for row in administrators if row.has_usable_password()]
    if able:
        name = ADMIN if ADMIN in able else able[0]
        return f"sign in as {name}   (to set a new password: `drydock users password {name}`)"
    taken = users.filter(**{model.USERNAME_FIELD: ADMIN}).exclude(pk__in=administrators).exists()
    name, password = os_user() if taken else ADMIN, secrets.token_urlsafe(12)
    make_operator(name)
    row = users.get(**{model.USERNAME_FIELD: name})
    row.set_password(password)
    row.is_active = True
    row.save(update_fields=["password", "is_active"])
    return f"first run: sign in as {name} with {password}   (shown only once; change the password after signing in)"


def main() -> int:
    """Run until Ctrl-C, and return the exit status."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "drydock.settings")
    try:
        django.setup()
        address, port = settings.DRYDOCK.web_address, settings.DRYDOCK.web_port
        if problem := port_problem(address, port) or semaphores.problem():
            print(problem, file=sys.stderr)
            return 1
        foreground = Foreground(programs(address, port))
        how = prepare()
    except (DrydockError, ImproperlyConfigured, OperationalError) as error:
        print(f"Drydock cannot start. {str(error).strip()}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    _announce(foreground, address, port, how)
    return foreground.run()


def _announce(foreground: Foreground, address: str, port: int, how: str) -> None:
    shown = {"0.0.0.0": "localhost", "::": "localhost"}.get(address, address)  # noqa: S104
    foreground.say("drydock", f"http://{shown}:{port}/   (Ctrl-C stops everything)")
    foreground.say("drydock", how)


if __name__ == "__main__":
    sys.exit(main())
