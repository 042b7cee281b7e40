"""The endpoints `/healthz`, `/readyz` and `/metrics`.

Each health check has a deadline. Metrics are read from the database at every scrape, so all web processes report the
same values, and only one needs to be scraped.
"""

from __future__ import annotations

import hmac
import logging
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from importlib.metadata import version

from celery import current_app
from django.conf import settings
from django.db import Error, connection
from django.db.migrations.loader import MigrationLoader
from django.db.migrations.recorder import MigrationRecorder
from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseNotAllowed, JsonResponse
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from drydock import DISTRIBUTION
from drydock.core import clock
from leases.engine.core.database import is_lost, report
from leases.reports import figures

OK = "ok"


@dataclass(frozen=True, kw_only=True)
class HealthCheck:
    """A health check. `see` returns a description of the problem, or an empty string.

    If a `needed` check fails, the process is not ready. Failures of other checks are only reported.
    """

    name: str
    see: Callable[[], str]
    needed: bool = True


def database() -> str:
    """Check that PostgreSQL answers."""
    with connection.cursor() as cursor:
        cursor.execute("SELECT 1")
    return ""


_wanted: set[tuple[str, str]] = set()


def migrations() -> str:
    """Check that the migrations of this version are applied. The database may have later ones as well."""
    if not _wanted:
        _wanted.update(MigrationLoader(None, ignore_no_migrations=True).graph.leaf_nodes())
    missing = _wanted - set(MigrationRecorder(connection).applied_migrations())
    return "not applied" if missing else ""


def broker() -> str:
    """Check that the broker answers. Without it, the sweep still serves all leases, only more slowly."""
    with current_app.connection_for_write() as link:
        link.default_channel.client.ping()  # type: ignore[attr-defined]
    return ""


def disk() -> str:
    """Check that the disk is not full. `attention` and `doctor` report a disk that is nearly full."""
    from leases.reports import condition

    return next(("full" for trouble in condition.disk() if trouble.what == "disk_full"), "")


CHECKS = (HealthCheck(name="database", see=database), HealthCheck(name="migrations", see=migrations),
         HealthCheck(name="disk", see=disk), HealthCheck(name="broker", see=broker, needed=False))  # fmt: skip


class HealthMonitor:
    """Runs each check in its own thread, so that a hanging check delays the answer only until its deadline."""

    def __init__(self, looks: tuple[HealthCheck, ...] = CHECKS) -> None:
        self.looks = looks
        self._tries: dict[str, _CheckThread] = {}
        self._guard = threading.Lock()

    def see(self, seconds: float) -> dict[str, str]:
        """Return, for each check by name, `ok` or a description of the problem. Takes at most `seconds`."""
        until = clock.monotonic() + seconds
        tries = [self._begin(look) for look in self.looks]
        for one in tries:
            one.join(max(0.0, until - clock.monotonic()))
        return {one.look.name: one.said or f"no answer within {seconds:g} s" for one in tries}

    def _begin(self, look: HealthCheck) -> _CheckThread:
        """Start a check in a new thread, or return the thread in which it is still running."""
        with self._guard:
            before = self._tries.get(look.name)
            if before is not None and before.is_alive():
                return before
            fresh = self._tries[look.name] = _CheckThread(look)
            fresh.start()
            return fresh


class _CheckThread(threading.Thread):
    def __init__(self, look: HealthCheck) -> None:
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


_watch = HealthMonitor()


def healthz(request: HttpRequest) -> HttpResponse:
    """Answer that the process is alive, without checking anything else."""
    return HttpResponse("ok\n", content_type="text/plain")


def readyz(request: HttpRequest) -> HttpResponse:
    """Return the results of the checks as JSON: with status 200 if requests can be served, else 503."""
    seen = _watch.see(settings.DRYDOCK.readiness_seconds)
    ready = all(seen[look.name] == OK for look in _watch.looks if look.needed)
    return JsonResponse({"ready": ready, **seen}, status=200 if ready else 503)


log = logging.getLogger(__name__)

PREFIX = "drydock_"

_REFUSED = """Forbidden. Send the header `Authorization: Bearer TOKEN`. TOKEN is DRYDOCK_METRICS_TOKEN or, if that is
not set, the content of keys/metrics_token in the state folder.
"""

UP, SPENT, BUILD = "database_up", "scrape_seconds", "build"

OWN_METRICS = {
    UP: "1 if the database answered this scrape; otherwise there are no other metrics.",
    SPENT: "Time to read the metrics, in seconds.",
    BUILD: "Version of Drydock (`drydock_build_info`).",
}

"""Maps the metrics about this scrape and process, which are added to those of the installation, to their
descriptions."""


class FigureCollector:
    """A collector that queries the database at each scrape."""

    def collect(self) -> Iterator[Metric]:
        """Yield all metric families, in a fixed order."""
        began = clock.monotonic()
        try:
            measured = figures.measure(settings.DRYDOCK.metrics_seconds)
        except Error as error:
            if is_lost(error):
                report(error)
            else:
                log.warning("The metrics could not be read: %s", error)
            measured = []
        yield InfoMetricFamily(PREFIX + BUILD, OWN_METRICS[BUILD], value={"version": version(DISTRIBUTION)})
        yield GaugeMetricFamily(PREFIX + UP, OWN_METRICS[UP], value=int(bool(measured)))
        yield GaugeMetricFamily(PREFIX + SPENT, OWN_METRICS[SPENT], value=clock.monotonic() - began)
        for figure, rows in measured:
            family = GaugeMetricFamily(PREFIX + figure.name, figure.says, labels=figure.labels)
            for *labels, number in rows:
                family.add_metric([str(label) for label in labels], float(number))
            yield family


def _registry() -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(FigureCollector())
    return registry


_REGISTRY = _registry()


def metrics(request: HttpRequest) -> HttpResponse:
    """Return the metrics if the caller has the token.

    The token is required because tenants' programs may run on the same machine.
    """
    given = request.headers.get("Authorization", "")
    if not hmac.compare_digest(given.encode(), f"Bearer {settings.DRYDOCK_METRICS_TOKEN}".encode()):
        return HttpResponse(_REFUSED, status=403, content_type="text/plain")
    return HttpResponse(generate_latest(_REGISTRY), content_type=CONTENT_TYPE_LATEST)


PROBES: dict[str, Callable[[HttpRequest], HttpResponse]] = {
    "/healthz": healthz,
    "/readyz": readyz,
    "/metrics": metrics,
}


class ProbesMiddleware:
    """Answers requests to the paths in `PROBES`, and passes on all others."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Return the probe's response, or that of the next middleware."""
        probe = PROBES.get(request.path_info)
        if probe is None:
            return self.get_response(request)
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        answer = probe(request)
        answer.headers["Cache-Control"] = "no-store"
        return answer
