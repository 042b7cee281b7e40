"""`make up`: engines, web, workers and beat in the foreground, until Ctrl-C."""

from __future__ import annotations

import errno
import os
import secrets
import socket
import sys

import django
from django.conf import settings
from django.core.exceptions import ImproperlyConfigured
from django.db import OperationalError

from drydock.core.errors import DrydockError
from drydock.foreground import Foreground, Program

ADMIN = "admin"


def port_problem(address: str, port: int) -> str:
    """Why the web process could not listen there; empty when it can."""
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
    """What runs beside the engines."""
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
    web = [python, "-m", "gunicorn", "drydock.wsgi", "--bind", f"{host}:{port}", "--worker-class", "gthread"]
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
        ),
        Program("steps", [*worker, "-n", f"steps-{port}@%h", "-Q", "steps", "-c", str(wanted.worker_concurrency)]),
        Program(
            "beat",
            [*celery, "beat", "--scheduler", "leases.schedule:Scheduler", "--pidfile", "", "--loglevel", "WARNING"],
        ),
    ]


def prepare() -> str:
    """Engines up, migrations applied; the one-time password of a fresh admin, else nothing."""
    from django.contrib.auth import get_user_model
    from django.core.management import call_command

    call_command("migrate", verbosity=0, interactive=False)
    users = get_user_model().objects
    if users.filter(is_superuser=True).exists():
        return ""
    password = secrets.token_urlsafe(12)
    users.create_superuser(username=ADMIN, password=password)
    return password


def main() -> int:
    """Run until Ctrl-C; the exit status."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "drydock.settings")
    try:
        django.setup()
        address, port = settings.DRYDOCK.web_address, settings.DRYDOCK.web_port
        if problem := port_problem(address, port):
            print(problem, file=sys.stderr)
            return 1
        foreground = Foreground(programs(address, port))
        password = prepare()
    except (DrydockError, ImproperlyConfigured, OperationalError) as error:
        print(f"Drydock cannot start. {str(error).strip()}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    _announce(foreground, address, port, password)
    return foreground.run()


def _announce(foreground: Foreground, address: str, port: int, password: str) -> None:
    shown = {"0.0.0.0": "localhost", "::": "localhost"}.get(address, address)  # noqa: S104
    foreground.say("drydock", f"http://{shown}:{port}/   (Ctrl-C stops everything)")
    if password:
        foreground.say("drydock", f"first run: sign in as {ADMIN} with {password}   (shown only now; change it there)")


if __name__ == "__main__":
    sys.exit(main())
