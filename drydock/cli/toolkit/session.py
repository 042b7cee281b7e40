"""Connect to a server (`--server`), or set up Django and the database of this machine's engine.

Commands act as the user of the operating system, or as DRYDOCK_USER. On private engines that user becomes an operator
on first use; on servers of your own, the user must already exist.
"""

from __future__ import annotations

import fcntl
import logging
import os
import pwd
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from drydock.core.errors import DrydockError, InvalidRequest, NotAllowed

if TYPE_CHECKING:
    from drydock_client.http import HttpClient
    from drydock_client.protocol import Client
    from leases.local import LocalClient


SERVER, CA, INSECURE = "DRYDOCK_SERVER", "DRYDOCK_CA", "DRYDOCK_INSECURE"


def server_address() -> str:
    """Return the address of the server, or an empty string for the engine of this machine."""
    return os.environ.get(SERVER, "").strip()


def choose(address: str, ca: str, insecure: bool) -> None:
    """Store the options that precede the command for the rest of this process."""
    for name, value in ((SERVER, address), (CA, ca), (INSECURE, "1" if insecure else "")):
        if value:
            os.environ[name] = value


def client(address: str, owner: str | None = None) -> HttpClient:
    """Return a client for a server, with the token stored for it. Raises NotAllowed, ServerUnreachable."""
    from drydock_client import token_store
    from drydock_client.http import HttpClient

    return HttpClient(address, token_store.token(address), owner=owner)


def connect_to(address: str, owner: str | None = None) -> Client:
    """Return a client for a server, typed as the protocol that commands use."""
    return client(address, owner)


def here_only() -> None:
    """Raise InvalidRequest if a server was named for a command that concerns only this machine."""
    if server_address():
        raise InvalidRequest(
            "This command works only on the installation on this machine.", field="server",
            hint=f"Omit --server, unset {SERVER}, or run the command on the server.",
        )  # fmt: skip


class NotMigrated(DrydockError):
    """The database lacks tables that this version needs."""

    code = "not_migrated"


def connect(owner: str | None = None) -> Client:
    """Return a client for this user, for the named server or else for this machine's engine.

    Raises NotAllowed, NotMigrated, EngineError, OperationalError, ServerUnreachable.
    """
    address = server_address()
    return connect_to(address, owner) if address else connect_here(owner)


def connect_here(owner: str | None = None) -> LocalClient:
    """Return a client for this machine's engine.

    Raises InvalidRequest if a server was named, and what `connect` raises.
    """
    set_up()
    ready_database()
    from leases.local import LocalClient
    from leases.operations.callers import caller

    return LocalClient(caller(user()), owner=owner, attend=_worker_beside())


def set_up() -> None:
    """Set up Django with our settings, and log only warnings. Raises InvalidRequest if a server was named."""
    import django

    here_only()
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "drydock.settings")
    django.setup()
    if not os.environ.get("DRYDOCK_DEBUG"):
        _quiet_logs()


def _quiet_logs() -> None:
    """Write logs to the state folder if it is ours. Errors that people need to see are printed separately."""
    from django.conf import settings

    root, folder = logging.getLogger(), settings.ENGINES.layout.logs
    if settings.DRYDOCK.private_database:
        from drydock.core.logging import RedactingFormatter

        kept = logging.FileHandler(folder / "cli.log", delay=True) if folder.is_dir() else logging.NullHandler()
        kept.setFormatter(RedactingFormatter("{asctime} {levelname:<7} {process} {name}: {message}", style="{"))
        root.handlers = [kept]
    else:
        root.setLevel(logging.CRITICAL)


def _worker_beside() -> Any:
    from django.conf import settings

    from leases.local import Onlooker

    if not (settings.DRYDOCK.private_database and settings.DRYDOCK.private_broker):
        return Onlooker
    from leases.messaging.private_worker import PrivateWorker

    return PrivateWorker


def ready_database() -> None:
    """Apply migrations to a private database.

    Raises NotMigrated if another database, which its operator migrates, lacks some.
    """
    from django.conf import settings
    from django.core.management import call_command

    if not missing_migrations():
        return
    if not settings.DRYDOCK.private_database:
        raise NotMigrated(
            "The database is not ready for this version.", hint="Ask an operator to run `drydock migrate`."
        )
    with _migration_lock():
        if missing_migrations():
            call_command("migrate", verbosity=0, interactive=False)


def missing_migrations() -> set[tuple[str, str]]:
    """Return the migrations on disk that the database has not applied, without importing them."""
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
def _migration_lock() -> Iterator[None]:
    """Lock the migrations of this state folder, so that only one process at a time applies them."""
    from django.conf import settings

    path = settings.DRYDOCK.state / "migrate.lock"
    # Whoever can open it can hold the lock, and leases of this machine may pass through the folder.
    with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600), "w") as lock:
        os.fchmod(lock.fileno(), 0o600)
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def os_user() -> str:
    """Return the user of the operating system, or DRYDOCK_USER."""
    if given := os.environ.get("DRYDOCK_USER"):
        return given
    try:
        return pwd.getpwuid(os.geteuid()).pw_name
    except KeyError:
        return f"uid-{os.geteuid()}"


def make_operator(name: str) -> None:
    """Make the named user an operator, creating the user without a password if missing."""
    from django.contrib.auth import get_user_model

    model = get_user_model()
    chosen = {"is_staff": True, "is_superuser": True}
    model._default_manager.update_or_create(
        **{model.USERNAME_FIELD: name}, defaults=chosen, create_defaults={**chosen, "password": "!"}
    )


def user() -> Any:
    """Return the user at the terminal. Raises NotAllowed."""
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
            hint="An operator can add you: `drydock users add NAME`, or `drydock migrate --operator NAME`. To "
            "act as another user, set DRYDOCK_USER.",
        )
    return found
