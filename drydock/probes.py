"""What machines ask of a web process: alive, ready, figures. Before everything else, since a probe comes to the bare
address of a process: it knows no host name, no HTTPS and no session."""

from __future__ import annotations

from collections.abc import Callable

from django.http import HttpRequest, HttpResponse, HttpResponseBase, HttpResponseNotAllowed

from drydock.health import healthz, readyz
from drydock.metrics import metrics

PROBES: dict[str, Callable[[HttpRequest], HttpResponse]] = {
    "/healthz": healthz,
    "/readyz": readyz,
    "/metrics": metrics,
}


class ProbesMiddleware:
    """Answers the addresses of `PROBES`; the rest goes on."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """The probe's answer, or what comes after."""
        probe = PROBES.get(request.path_info)
        if probe is None:
            return self.get_response(request)
        if request.method not in ("GET", "HEAD"):
            return HttpResponseNotAllowed(["GET", "HEAD"])
        answer = probe(request)
        answer.headers["Cache-Control"] = "no-store"
        return answer
