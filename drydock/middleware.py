"""Middleware: an id for each request, and the content security policy for our pages."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable

from django.http import HttpRequest, HttpResponse, HttpResponseBase

from drydock.core.logging import about

REQUEST_ID_HEADER = "X-Request-ID"

_GIVEN = re.compile(r"[A-Za-z0-9._-]{8,64}")


class RequestIdMiddleware:
    """Takes the request id from a proxy or client if it is a plain word, or generates one."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """Return the response with the request id."""
        given = request.headers.get(REQUEST_ID_HEADER, "")
        name = given if _GIVEN.fullmatch(given) else uuid.uuid4().hex
        with about(request=name):
            answer = self.get_response(request)
        answer.headers[REQUEST_ID_HEADER] = name
        return answer


POLICY_HEADER = "Content-Security-Policy"

POLICY = "; ".join(
    (
        "default-src 'none'", "script-src 'self'", "style-src 'self'", "img-src 'self' data:", "font-src 'self'",
        "connect-src 'self'", "form-action 'self'", "base-uri 'none'", "frame-ancestors 'none'",
    )
)  # fmt: skip


class ContentPolicyMiddleware:
    """Sets our content security policy on pages that have none."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponse]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponse:
        """Return the response, with the policy if it is an HTML page."""
        response = self.get_response(request)
        if response.headers.get("Content-Type", "").startswith("text/html"):
            response.headers.setdefault(POLICY_HEADER, POLICY)
        return response
