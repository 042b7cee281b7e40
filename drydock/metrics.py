"""`/metrics`: the figures of the whole installation as Prometheus reads them.

They come from the database at each scrape, so every web process tells the same, and none need be scraped twice.
"""

from __future__ import annotations

import hmac
import logging
from collections.abc import Iterator
from importlib.metadata import version

from django.conf import settings
from django.db import Error
from django.http import HttpRequest, HttpResponse
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from drydock import DISTRIBUTION
from drydock.core import clock
from leases.engine.core.database import is_lost, report
from leases.reports import figures

log = logging.getLogger(__name__)

PREFIX = "drydock_"
_REFUSED = """Forbidden. Show the token: `Authorization: Bearer TOKEN`. It is DRYDOCK_METRICS_TOKEN or, where that is
not set, in keys/metrics_token of the state folder.
"""
UP, SPENT, BUILD = "database_up", "scrape_seconds", "build"
OWN = {
    UP: "1 when the database answered this scrape; else there are no other figures.",
    SPENT: "Seconds that reading the figures took.",
    BUILD: "Version of Drydock (`drydock_build_info`).",
}
"""What is told beside the figures of the installation."""


class Figures:
    """A collector that asks the database when it is scraped."""

    def collect(self) -> Iterator[Metric]:
        """All families, in a fixed order."""
        began = clock.monotonic()
        try:
            measured = figures.measure(settings.DRYDOCK.metrics_seconds)
        except Error as error:
            if is_lost(error):
                report(error)
            else:
                log.warning("No figures: %s", error)
            measured = []
        yield InfoMetricFamily(PREFIX + BUILD, OWN[BUILD], value={"version": version(DISTRIBUTION)})
        yield GaugeMetricFamily(PREFIX + UP, OWN[UP], value=int(bool(measured)))
        yield GaugeMetricFamily(PREFIX + SPENT, OWN[SPENT], value=clock.monotonic() - began)
        for figure, rows in measured:
            family = GaugeMetricFamily(PREFIX + figure.name, figure.says, labels=figure.labels)
            for *labels, number in rows:
                family.add_metric([str(label) for label in labels], float(number))
            yield family


def _registry() -> CollectorRegistry:
    registry = CollectorRegistry(auto_describe=False)
    registry.register(Figures())
    return registry


_REGISTRY = _registry()


def metrics(request: HttpRequest) -> HttpResponse:
    """The figures, for who knows the token: tenants' programs run on machines of ours, too."""
    given = request.headers.get("Authorization", "")
    if not hmac.compare_digest(given.encode(), f"Bearer {settings.DRYDOCK_METRICS_TOKEN}".encode()):
        return HttpResponse(_REFUSED, status=403, content_type="text/plain")
    return HttpResponse(generate_latest(_REGISTRY), content_type=CONTENT_TYPE_LATEST)
