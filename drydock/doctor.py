"""The checks of `drydock doctor`. Each returns ok, warn or fail, a sentence, and how to fix the problem."""

from __future__ import annotations

import dataclasses
import datetime as dt
import enum
import os
import stat
from collections.abc import Callable, Iterator

from celery import current_app
from django.apps import apps
from django.conf import settings
from django.db import connection
from django.db.migrations.executor import MigrationExecutor

from drydock.core import clock, crypto, rotation, semaphores

LARGEST_SKEW = 2.0


class Verdict(enum.StrEnum):
    """The result of a check."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Finding:
    """The finding of one check."""

    check: str
    verdict: Verdict
    message: str
    mend: str = ""


Answer = tuple[Verdict, str, str]


def ok(message: str) -> Answer:
    """Return an answer that reports no problem."""
    return Verdict.OK, message, ""


def warn(message: str, mend: str) -> Answer:
    """Return an answer for something that works but needs attention."""
    return Verdict.WARN, message, mend


def fail(message: str, mend: str) -> Answer:
    """Return an answer for something that does not work."""
    return Verdict.FAIL, message, mend


def state_folder() -> Answer:
    """Check that only the owner can write to the state folder and read the keys."""
    state = settings.DRYDOCK.state
    if not state.exists():
        return ok(f"{state} will be created at first use.")
    open_ones = [path for path in (state, *(state / "keys").glob("*")) if _too_open(path)]
    if open_ones:
        return fail(f"Other users can read or write {open_ones[0]}.", f"chmod go-rw {open_ones[0]}")
    if state.stat().st_uid != os.geteuid():
        return fail(f"{state} belongs to another user.", "Run as that user, or set DRYDOCK_STATE.")
    return ok(f"Only you can access {state}.")


def keys() -> Answer:
    """Check that the keys are set, and that a secret can be encrypted and decrypted."""
    if not settings.SECRET_KEY or not settings.DRYDOCK_OWNERSHIP_KEY:
        return fail("A key is empty.", "python -m drydock.keys prints new keys for the environment.")
    crypto.decrypt(crypto.encrypt("doctor"))
    return ok(f"Secret key, ownership key and {len(settings.DRYDOCK_ENCRYPTION_KEYS)} encryption key(s) are in use.")


def database() -> Answer:
    """Check that PostgreSQL answers, and report its version."""
    connection.ensure_connection()
    found = ".".join(str(part) for part in connection.get_database_version())
    whose = "private" if settings.DRYDOCK.private_database else "yours"
    return ok(f"PostgreSQL {found} answers ({whose}).")


def clock_skew() -> Answer:
    """Check that this machine's clock and the database's agree."""
    with connection.cursor() as cursor:
        before = clock.now()
        cursor.execute("SELECT clock_timestamp()")
        theirs = cursor.fetchone()[0]
    skew = abs((theirs - before).total_seconds())
    if skew > LARGEST_SKEW:
        return warn(
            f"This machine's clock and the database's differ by {skew:.1f} s.", "Synchronize both clocks with NTP."
        )
    return ok(f"The clocks agree within {LARGEST_SKEW:g} s.")


def migrations() -> Answer:
    """Check that all migrations of this version are applied."""
    executor = MigrationExecutor(connection)
    missing = executor.migration_plan(executor.loader.graph.leaf_nodes())
    if missing:
        return fail(f"{len(missing)} migrations are not applied.", "python manage.py migrate")
    return ok("All migrations are applied.")


def secrets() -> Answer:
    """Check that stored secrets of each model can be decrypted."""
    outdated = False
    for model, names in rotation.encrypted_models().items():
        # The oldest too: a key that is missing shows there.
        for order in ("-pk", "pk"):
            for row in model._base_manager.only("pk", *names).order_by(order)[:20]:
                for name in names:
                    sealed = row.__dict__[name]
                    outdated = outdated or (sealed is not None and not crypto.is_current(sealed))
                    getattr(row, name)
    if outdated:
        return warn("Some stored secrets are encrypted with an older key.", "drydock secrets rotate")
    return ok("Stored secrets can be decrypted.")


def broker() -> Answer:
    """Check that Redis or Valkey answers."""
    with current_app.connection_for_write() as link:
        link.default_channel.client.ping()  # type: ignore[attr-defined]
    return ok(f"The broker answers ({'private' if settings.DRYDOCK.private_broker else 'yours'}).")


def worker_processes() -> Answer:
    """Check that this machine can start worker processes."""
    if problem := semaphores.problem():
        return fail(problem, "mount -t tmpfs -o mode=1777 tmpfs /dev/shm")
    return ok("Worker processes can share semaphores.")


def workers() -> Answer:
    """Check that a worker was seen recently if one is needed, and that all queues are served."""
    if not apps.is_installed("leases"):
        return warn("The app leases is not installed.", "Add it to INSTALLED_APPS.")
    from leases.reports import condition

    if missing := next((one for one in condition.troubles() if one.what == "no_worker"), None):
        lasting = "make up, or celery -A drydock worker -Q claims,steps,periodic --beat"
        return fail(missing.message, f"{missing.mend}. To keep workers running: {lasting}")
    worker = apps.get_model("leases", "Worker")
    since = clock.now() - dt.timedelta(seconds=settings.DRYDOCK.lost_worker_seconds)
    if alive := worker._default_manager.filter(seen_at__gt=since).count():
        return ok(f"{alive} worker(s) seen in the last {settings.DRYDOCK.lost_worker_seconds:g} s.")
    return ok("No worker is running, and none is needed now. Commands that wait start a worker of their own.")


def installation() -> Answer:
    """Check that the database, the ownership key and the environment belong together."""
    from leases.engine.core.installation import current

    here = current()
    if here.problem:
        return fail(
            f"Suspended: {here.problem}",
            "drydock installation lists the deferred actions; drydock confirm-installation resumes work.",
        )
    return ok(f"Epoch {here.epoch} of installation {here.short}; database and ownership key are the confirmed ones.")


def disk() -> Answer:
    """Check that the disk of the state folder has free space."""
    from leases.reports import condition

    for trouble in condition.disk():
        since = "" if trouble.since is None else f" Since {trouble.since:%Y-%m-%d %H:%M} UTC."
        return (fail if trouble.what == "disk_full" else warn)(trouble.message + since, trouble.mend)
    left = condition.disk_left()
    return ok(
        "The state folder does not exist."
        if left is None
        else f"{left // 1024} GiB are left in {settings.DRYDOCK.state}."
    )


def sweep() -> Answer:
    """Check that the sweep, which runs the periodic checks, is on time."""
    from leases.reports import condition

    for trouble in condition.troubles():
        if trouble.what == "sweep_late":
            return fail(trouble.message, trouble.mend)
    return ok("The sweep is on time, or nothing is due.")


def reachability() -> Answer:
    """Check that enabled blueprints can work and that their resources answer."""
    from leases.operations import installation

    if failing := installation.failing_blueprints():
        said = "; ".join(f"{name}: {message}" for name, message in failing.items())
        return fail(f"Blueprints that cannot work: {said}", f"drydock blueprints check {next(iter(failing))}")
    if silent := installation.failing_resources():
        return warn(f"Resources that did not answer: {', '.join(silent)}", "drydock attention")
    return ok("Enabled blueprints and their resources answer.")


CHECKS: tuple[Callable[[], Answer], ...] = (
    disk,
    database,
    installation,
    workers,
    sweep,
    broker,
    worker_processes,
    state_folder,
    keys,
    clock_skew,
    migrations,
    secrets,
    reachability,
)
"""All checks, in the order in which they run. Checks on which others depend come first, because their problems make the
others fail."""
MEND = {
    "keys": "Set DRYDOCK_ENCRYPTION_KEYS to Fernet keys; python -m drydock.keys prints one.",
    "database": "Check DATABASE_URL and that the server is running; with private engines check the logs named above.",
    "secrets": "Apply the migrations; add missing keys to the end of DRYDOCK_ENCRYPTION_KEYS.",
    "broker": "Check BROKER_URL and that the broker is running. Meanwhile the sweep serves leases.",
}


def examine() -> Iterator[Finding]:
    """Run every check in order, and yield each finding as soon as it is known. Never raises."""
    for check in CHECKS:
        yield _examined(check)


def _examined(check: Callable[[], Answer]) -> Finding:
    try:
        verdict, message, mend = check()
    except Exception as error:  # whatever is broken, the other checks go on
        verdict, message = Verdict.FAIL, f"{type(error).__name__}: {str(error).strip()}"
        mend = MEND.get(check.__name__, "Fix the problems reported above first.")
    return Finding(check=check.__name__, verdict=verdict, message=message, mend=mend)


def _too_open(path: os.PathLike[str]) -> bool:
    mode = os.stat(path).st_mode
    allowed = stat.S_IXGRP | stat.S_IXOTH if stat.S_ISDIR(mode) else 0
    return bool(stat.S_IMODE(mode) & 0o077 & ~allowed)
