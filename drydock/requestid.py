"""Every request has an id: in the answer's header, and on each log line that it causes."""

from __future__ import annotations

import re
import uuid
from collections.abc import Callable

from django.http import HttpRequest, HttpResponseBase

from drydock.core.logging import about

HEADER = "X-Request-ID"
_GIVEN = re.compile(r"[A-Za-z0-9._-]{8,64}")


class RequestIdMiddleware:
    """Takes the id that a proxy or a client gave, where it is a plain word, or makes one."""

    def __init__(self, get_response: Callable[[HttpRequest], HttpResponseBase]) -> None:
        self.get_response = get_response

    def __call__(self, request: HttpRequest) -> HttpResponseBase:
        """The answer, with the id."""
        given = request.headers.get(HEADER, "")
        name = given if _GIVEN.fullmatch(given) else uuid.uuid4().hex
        with about(request=name):
            answer = self.get_response(request)
        answer.headers[HEADER] = name
        return answer
