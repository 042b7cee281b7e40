"""Problems of the installation as a whole: suspended, no worker, sweep late, broker unavailable, disk full.

Every user interface shows these first, because they are more urgent than anything else that needs attention.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import os
import shutil
import threading
from collections.abc import Callable
from dataclasses import dataclass

from celery import current_app
from django.conf import settings

from drydock.core import clock
from drydock.core.units import in_words
from leases.engine.core.database import rows
from leases.engine.core.installation import current

_KEPT = 5.0
"""Time in seconds for which a process caches whether the broker answered."""
_PATIENCE = 0.5
_FEW = 10
"""Number of intervals without a sweep after which the sweep is late, unless workers may be silent for longer."""


@dataclass(frozen=True, kw_only=True)
class Trouble:
    """A problem of the installation, and since when it exists."""

    what: str
    """One of `suspended`, `no_worker`, `sweep_late`, `broker_away`, `disk_full` and `disk_nearly_full`."""
    since: dt.datetime | None
    message: str
    mend: str


_FACTS = """
    SELECT clock_timestamp(), coalesce(i.swept_at, i.created_at), (SELECT max(seen_at) FROM leases_worker),
        (SELECT min(since) FROM leases_lease WHERE state IN ('pending', 'acquired', 'released') AND NOT held),
        EXISTS (SELECT FROM leases_run),
        (SELECT e.at FROM leases_event e WHERE e.kind = 'installation.suspended' AND i.problem <> ''
            AND e.at >= coalesce(i.confirmed_at, i.created_at) ORDER BY e.id DESC LIMIT 1)
    FROM (SELECT 1) one LEFT JOIN leases_installation i ON i.id = 1"""


def troubles(problem: str | None = None) -> list[Trouble]:
    """Return the problems of the installation, most urgent first. Reads the database once.

    `problem` is the reason for a suspension, if the caller already knows it.
    """
    if problem is None:
        problem = current().problem
    now, swept, seen, waiting, working, suspended = rows(_FACTS)[0]
    found = [] if not problem else [_suspended(problem, suspended)]
    wanted = not settings.DRYDOCK.private_database or waiting is not None or working
    if wanted and (seen is None or now - seen > _lost()):
        found.append(_without_workers(seen or waiting))
    if wanted and swept is not None and now - swept > _late():
        found.append(_late_sweep(swept, now))
    return [*found, *broker(), *disk()]


def _lost() -> dt.timedelta:
    return dt.timedelta(seconds=settings.DRYDOCK.lost_worker_seconds)


def _late() -> dt.timedelta:
    """Return the time since the last sweep after which the next sweep is late."""
    return max(_lost(), dt.timedelta(seconds=_FEW * settings.DRYDOCK.sweep_interval_seconds))


def _suspended(problem: str, since: dt.datetime | None) -> Trouble:
    return Trouble(
        what="suspended", since=since,
        message="The installation is suspended, and nothing is built or destroyed until an operator confirms the "
        f"installation: {problem}",
        mend="`drydock installation` lists the deferred actions. `drydock confirm-installation` resumes work.",
    )  # fmt: skip


def _without_workers(since: dt.datetime | None) -> Trouble:
    return Trouble(
        what="no_worker", since=since, message="No worker is alive, so nothing is built, cleaned or ended.",
        mend="drydock sweep" if settings.DRYDOCK.private_database else "drydock worker",
    )  # fmt: skip


def _late_sweep(swept: dt.datetime, now: dt.datetime) -> Trouble:
    return Trouble(
        what="sweep_late", since=swept,
        message=f"The last sweep was {in_words(now - swept)} ago, although a sweep is due every "
            f"{settings.DRYDOCK.sweep_interval_seconds:g} s. Work that is due is delayed.",
        mend="Check that beat runs and that a worker serves the queue periodic. Meanwhile: drydock sweep",
    )  # fmt: skip


_guard = threading.Lock()
_known: tuple[float, bool] = (-1e9, True)
_seen: dict[str, dt.datetime] = {}
"""The time when this process first saw each problem. Used if that time cannot be stored in a file."""


def broker(answers: Callable[[], bool] | None = None) -> list[Trouble]:
    """Return a problem if the broker does not answer within half a second.

    The answer is cached for some seconds.
    """
    global _known
    with _guard:
        if answers is not None or clock.monotonic() - _known[0] > _KEPT:
            _known = (clock.monotonic(), (answers or _answers)())
        there = _known[1]
    since = _first_seen("broker_away", not there)
    if there:
        return []
    return [
        Trouble(
            what="broker_away", since=since,
            message="The broker does not answer. Leases are served only by the sweep, more slowly.",
            mend="Check BROKER_URL, and check that the broker is running.",
        )
    ]  # fmt: skip


def _answers() -> bool:
    """Return whether the broker answers a ping.

    The ping runs in a thread of its own, so that a connection that hangs does not delay the caller.
    """
    found: list[bool] = []
    thread = threading.Thread(target=lambda: found.append(_ping()), daemon=True)
    thread.start()
    thread.join(_PATIENCE)
    # A private broker is started by the first connection, which takes some time.
    return found[0] if found else settings.DRYDOCK.private_broker


def _ping() -> bool:
    try:
        with current_app.connection_for_write() as link:
            link.default_channel.client.ping()  # type: ignore[attr-defined]
    except Exception:  # whatever the reason, the broker does not answer
        return False
    return True


def _first_seen(what: str, wrong: bool) -> dt.datetime | None:
    """Return the time when a problem that no row records was first seen, or None if it no longer exists.

    All processes read this time from the modification time of an empty file in the state folder, which needs no
    space on a full disk. If no file can be written, each process remembers the time itself.
    """
    file = settings.DRYDOCK.state / f"{what}.since"
    if not wrong:
        _seen.pop(what, None)
        with contextlib.suppress(OSError):
            file.unlink(missing_ok=True)
        return None
    now = _seen.get(what, clock.now())
    try:
        with contextlib.suppress(FileExistsError):
            made = os.open(file, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o644)
            try:
                os.utime(made, (now.timestamp(), now.timestamp()))
            finally:
                os.close(made)
        return dt.datetime.fromtimestamp(file.stat().st_mtime, dt.UTC)
    except OSError:
        return _seen.setdefault(what, now)


def disk() -> list[Trouble]:
    """Return a problem if the state folder has little disk space left. Private engines keep their data there."""
    left = disk_left()
    low = left is not None and left < settings.DRYDOCK.disk_low_mib
    full = low and left is not None and left < settings.DRYDOCK.disk_full_mib
    since = {what: _first_seen(what, wrong) for what, wrong in (("disk_nearly_full", low), ("disk_full", full))}
    if not low:
        return []
    what, said = ("disk_full", "is full") if full else ("disk_nearly_full", "is nearly full")
    return [
        Trouble(
            what=what, since=since[what],
            message=f"The disk of {settings.DRYDOCK.state} {said}: {left} MiB are left."
            + (" The database may refuse to write." if full else ""),
            mend=f"Free some space: df -h {settings.DRYDOCK.state}",
        )
    ]  # fmt: skip


def disk_left() -> int | None:
    """Return the free disk space of the state folder in MiB, or None if there is no state folder."""
    try:
        return shutil.disk_usage(settings.DRYDOCK.state).free // (1 << 20)
    except OSError:
        return None
