"""`/metrics`: the figures of the whole installation as Prometheus reads them.

They come from the database at each scrape, so every web process tells the same, and none need be scraped twice.
"""

from __future__ import annotations

import hmac
import ipaddress
import logging
from collections.abc import Iterator
from importlib.metadata import version

from django.conf import settings
from django.db import Error
from django.http import HttpRequest, HttpResponse
from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily, InfoMetricFamily, Metric
from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest

from drydock.core import clock
from leases.engine import figures

log = logging.getLogger(__name__)

PREFIX = "drydock_"
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
            log.warning("No figures: %s", error)
            measured = []
        yield InfoMetricFamily(PREFIX + BUILD, OWN[BUILD], value={"version": version("drydock")})
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
    """The figures, for who may see them: who knows the token or, where there is none, this machine alone."""
    if not _allowed(request):
        return HttpResponse("Forbidden.\n", status=403, content_type="text/plain")
    return HttpResponse(generate_latest(_REGISTRY), content_type=CONTENT_TYPE_LATEST)


def _allowed(request: HttpRequest) -> bool:
    token = settings.DRYDOCK.metrics_token.get_secret_value()
    if token:
        given = request.headers.get("Authorization", "")
        return hmac.compare_digest(given.encode(), f"Bearer {token}".encode())
    # Behind a proxy on this machine everybody comes from this machine.
    return not _forwarded(request) and _loopback(request.META.get("REMOTE_ADDR", ""))


def _forwarded(request: HttpRequest) -> bool:
    return any(name in request.headers for name in ("Forwarded", "X-Forwarded-For", "X-Forwarded-Proto", "Via"))


def _loopback(address: str) -> bool:
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return False
