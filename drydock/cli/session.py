"""The way to a client: a server elsewhere (`drydock.cli.remote`), or the engine of this machine, Django set up and
its database ready.

Who asks is the user of the operating system (or DRYDOCK_USER). On private engines, which are theirs alone, they are
made an operator at the first use; on servers of your own they must be known there.
"""

from __future__ import annotations

import fcntl
import logging
import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from drydock.core.errors import DrydockError, NotAllowed

if TYPE_CHECKING:
    from leases.client import Client
    from leases.local import LocalClient


class NotMigrated(DrydockError):
    """The database lacks tables that this version needs."""

    code = "not_migrated"


def connect(owner: str | None = None) -> Client:
    """A client for this user, here or on the server that was named. Raises NotAllowed, NotMigrated, EngineError,
    OperationalError, ServerUnreachable."""
    from drydock.cli import server

    address = server.address()
    return server.connect(address, owner) if address else connect_here(owner)


def connect_here(owner: str | None = None) -> LocalClient:
    """A client of this machine's engine. Raises InvalidRequest where a server was named, and as `connect`."""
    set_up()
    ready_database()
    from leases.local import LocalClient
    from leases.operations.callers import caller

    return LocalClient(caller(user()), owner=owner, attend=_attendance())


def set_up() -> None:
    """Django with our settings, its logs kept to warnings. Raises InvalidRequest where a server was named."""
    import django

    from drydock.cli.server import here_only

    here_only()

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "drydock.settings")
    django.setup()
    if not os.environ.get("DRYDOCK_DEBUG"):
        _quiet_logs()


def _quiet_logs() -> None:
    """Logs go to the state folder where there is one of ours; people are told what they need to know otherwise."""
    from django.conf import settings

    root, folder = logging.getLogger(), settings.ENGINES.layout.logs
    if settings.DRYDOCK.private_database:
        from drydock.core.logging import RedactingFormatter

        kept = logging.FileHandler(folder / "cli.log", delay=True) if folder.is_dir() else logging.NullHandler()
        kept.setFormatter(RedactingFormatter("{asctime} {levelname:<7} {process} {name}: {message}", style="{"))
        root.handlers = [kept]
    else:
        root.setLevel(logging.CRITICAL)


def _attendance() -> Any:
    from django.conf import settings

    from leases.local import Onlooker

    if not (settings.DRYDOCK.private_database and settings.DRYDOCK.private_broker):
        return Onlooker
    from leases.private_worker import PrivateWorker

    return PrivateWorker


def ready_database() -> None:
    """Migrations applied: by us on a private database, by its operator on another. Raises NotMigrated."""
    from django.conf import settings
    from django.core.management import call_command

    if not missing_migrations():
        return
    if not settings.DRYDOCK.private_database:
        raise NotMigrated(
            "The database is not ready for this version.", hint="Its operator runs `drydock migrate` once."
        )
    with _alone():
        if missing_migrations():
            call_command("migrate", verbosity=0, interactive=False)


def missing_migrations() -> set[tuple[str, str]]:
    """Migrations on the disk that the database has not seen; found without importing any."""
    from django.apps import apps
    from django.db import connection

    there = {
        (app.label, entry.name.removesuffix(".py"))
        for app in apps.get_app_configs()
        if os.path.isdir(os.path.join(app.path, "migrations"))
        for entry in os.scandir(os.path.join(app.path, "migrations"))
        if entry.name.endswith(".py") and not entry.name.startswith("_")
    }
    with connection.cursor() as cursor:
        cursor.execute("SELECT to_regclass('django_migrations') IS NOT NULL")
        if not cursor.fetchone()[0]:
            return there
        cursor.execute("SELECT app, name FROM django_migrations")
        return there - set(cursor.fetchall())


@contextmanager
def _alone() -> Iterator[None]:
    """One process of this state folder at a time."""
    from django.conf import settings

    path = settings.DRYDOCK.state / "migrate.lock"
    # Whoever can open it can hold the lock, and leases of this machine may pass through the folder.
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "w") as lock:
        os.fchmod(lock.fileno(), 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def os_user() -> str:
    """The user of the operating system, or who DRYDOCK_USER says."""
    if given := os.environ.get("DRYDOCK_USER"):
        return given
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid-{os.geteuid()}"


def make_operator(name: str) -> None:
    """Make a user of this name an operator; one without a password when there is none yet."""
    from django.contrib.auth import get_user_model

    model = get_user_model()
    chosen = {"is_staff": True, "is_superuser": True}
    model._default_manager.update_or_create(
        **{model.USERNAME_FIELD: name}, defaults=chosen, create_defaults={**chosen, "password": "!"}
    )


def user() -> Any:
    """The user that the person at the terminal is. Raises NotAllowed."""
    from django.conf import settings
    from django.contrib.auth import get_user_model

    name, model = os_user(), get_user_model()
    users = model._default_manager
    found = users.filter(**{model.USERNAME_FIELD: name}).first()
    if found is None and settings.DRYDOCK.private_database:
        fresh = {"is_staff": True, "is_superuser": True, "password": "!"}
        found, _ = users.get_or_create(**{model.USERNAME_FIELD: name}, defaults=fresh)
    if found is None or not found.is_active:
        raise NotAllowed(
            f"{name!r} is not a user of this installation.",
            hint="Its operator adds you: `drydock users add NAME`, or `drydock migrate --operator NAME`. "
            "DRYDOCK_USER says who you are.",
        )
    return found
