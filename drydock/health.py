"""`/healthz`, `/readyz`: whether this process lives, and whether it can do its work. Each look has a deadline."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass

from celery import current_app
from django.conf import settings
from django.db import connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.http import HttpRequest, HttpResponse, JsonResponse

from drydock.core import clock
from leases.engine.core.database import is_lost, report

log = logging.getLogger(__name__)

OK = "ok"


@dataclass(frozen=True, kw_only=True)
class Look:
    """One thing to look at: `see` answers what is wrong, or nothing. Without a `needed` one the process is not ready;
    what is not needed is only said."""

    name: str
    see: Callable[[], str]
    needed: bool = True


def database() -> str:
    """PostgreSQL answers."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return ""


_wanted: set[tuple[str, str]] = set()


def migrations() -> str:
    """The database has what this version needs; it may have more."""
    if not _wanted:
        _wanted.update(MigrationLoader(None, ignore_no_migrations=True).graph.leaf_nodes())
    missing = _wanted - set(MigrationRecorder(connection).applied_migrations())
    return "not applied" if missing else ""


def broker() -> str:
    """The broker answers. Without it the sweep in beat still serves everybody, only slower."""
    with current_app.connection_for_write() as link:
        link.default_channel.client.ping()  # type: ignore[attr-defined]
    return ""


def disk() -> str:
    """There is room for the database to write. That it is nearly full, `attention` and `doctor` say."""
    from leases.reports import condition

    return next(("full" for trouble in condition.disk() if trouble.what == "disk_full"), "")


LOOKS = (Look(name="database", see=database), Look(name="migrations", see=migrations),
         Look(name="disk", see=disk), Look(name="broker", see=broker, needed=False))  # fmt: skip


class Watch:
    """Looks in threads of their own, so that what hangs costs no more than its deadline and one thread."""

    def __init__(self, looks: tuple[Look, ...] = LOOKS) -> None:
        self.looks = looks
        self._tries: dict[str, _Try] = {}
        self._guard = threading.Lock()

    def see(self, seconds: float) -> dict[str, str]:
        """Look name -> `ok`, or what is wrong with it. All within `seconds`."""
        until = clock.monotonic() + seconds
        tries = [self._begin(look) for look in self.looks]
        for one in tries:
            one.join(max(0.0, until - clock.monotonic()))
        return {one.look.name: one.said or f"no answer within {seconds:g} s" for one in tries}

    def _begin(self, look: Look) -> _Try:
        """A look of its own, or the one that is still under way."""
        with self._guard:
            before = self._tries.get(look.name)
            if before is not None and before.is_alive():
                return before
            fresh = self._tries[look.name] = _Try(look)
            fresh.start()
            return fresh


class _Try(threading.Thread):
    def __init__(self, look: Look) -> None:
        super().__init__(daemon=True)
        self.look, self.said = look, ""

    def run(self) -> None:
        try:
            self.said = self.look.see() or OK
        except Exception as error:
            # The answer is public: the reason is for the log.
            if is_lost(error):
                report(error)
            else:
                log.warning("%s does not answer: %s", self.look.name, error)
            self.said = "does not answer"
        finally:
            connection.close()


_watch = Watch()


def healthz(request: HttpRequest) -> HttpResponse:
    """The process lives: it answers, and asks nobody."""
    return HttpResponse("ok\n", content_type="text/plain")


def readyz(request: HttpRequest) -> HttpResponse:
    """200 when requests can be served, 503 when not; what was looked at, as JSON."""
    seen = _watch.see(settings.DRYDOCK.readiness_seconds)
    ready = all(seen[look.name] == OK for look in _watch.looks if look.needed)
    return JsonResponse({"ready": ready, **seen}, status=200 if ready else 503)
