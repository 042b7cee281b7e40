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

from drydock.cli.session import make_operator, os_user
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
    """Start the engines and migrate. Returns how to sign in, as a sentence for the person at the terminal."""
    from django.core.management import call_command

    call_command("migrate", verbosity=0, interactive=False)
    return sign_in()


def sign_in() -> str:
    """Return how an administrator signs in. One is given a password where none has any.

    Commands make the user of the operating system an administrator without a password, so that one exists does not
    mean that anybody can sign in.
    """
    from django.contrib.auth import get_user_model

    model = get_user_model()
    users = model._default_manager
    administrators = users.filter(is_superuser=True, is_active=True).order_by("pk")
    able = [row.get_username() for row in administrators if row.has_usable_password()]
    if able:
        name = ADMIN if ADMIN in able else able[0]
        return f"sign in as {name}   (password forgotten: `drydock users password {name}` gives a new one)"
    taken = users.filter(**{model.USERNAME_FIELD: ADMIN}).exclude(pk__in=administrators).exists()
    name, password = os_user() if taken else ADMIN, secrets.token_urlsafe(12)
    make_operator(name)
    row = users.get(**{model.USERNAME_FIELD: name})
    row.set_password(password)
    row.is_active = True
    row.save(update_fields=["password", "is_active"])
    return f"first run: sign in as {name} with {password}   (shown only now; change it there)"


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
