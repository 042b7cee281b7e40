"""Errors as RFC 9457 `application/problem+json`: what is wrong, which field it concerns, and how to fix it."""

from __future__ import annotations

import errno
import json
import logging
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from django.core.exceptions import PermissionDenied, RequestDataTooBig
from django.db import InterfaceError as DatabaseGone
from django.db import OperationalError
from django.http import Http404, HttpRequest, HttpResponse
from django.views.decorators.csrf import csrf_exempt
from rest_framework import exceptions

from drydock.core import errors
from drydock.core.errors import Problem
from drydock_client.errors import LeaseFailed, NoWorker
from drydock_client.trees import TooMuch
from drydock_client.values import Verdict, to_json
from interfaces import errors as of_interfaces
from leases.engine.core import database
from leases.hostcalls import HostSilent
from leases.places import NoPlace

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"


@dataclass(frozen=True, kw_only=True)
class ProblemDetails:
    """An RFC 9457 problem document: `code` is for programs, `detail` and `hint` are for people."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    field: str
    """The invalid field of the request, or an empty string if the error concerns no field."""
    hint: str
    is_a: tuple[str, ...] = ()
    """More general codes that also apply to the error."""
    errors: tuple[Problem, ...] = ()
    """Every mistake in the request. The first one is also in `field` and `detail`."""
    verdicts: tuple[Verdict, ...] = ()
    capability: str = ""
    """The unsupported capability, such as `reboot` or `change-type`; empty for other errors."""


class BodyTooLarge(errors.DrydockError):
    """The request body is larger than this endpoint accepts. Nothing was changed."""

    code = "body_too_large"


class NoLength(errors.DrydockError):
    """This endpoint requires a Content-Length for a body."""

    code = "length_required"


# The first class that fits gives the status.
STATUS: tuple[tuple[type[errors.DrydockError], int], ...] = (
    (BodyTooLarge, 413),
    (NoLength, 411),
    (of_interfaces.TooLarge, 413),
    (TooMuch, 413),
    (of_interfaces.LeaseEnded, 409),
    (of_interfaces.QuotaExceeded, 507),
    (of_interfaces.Unreachable, 502),
    (of_interfaces.ConnectionLost, 502),
    (errors.InvalidRequest, 400),
    (errors.NotFound, 404),
    (errors.NotAllowed, 403),
    (errors.Conflict, 409),
    (errors.NotSupported, 409),
    (errors.TimedOut, 504),
    (errors.Busy, 503),
    (LeaseFailed, 409),
    (NoWorker, 503),
    (of_interfaces.PathEscape, 400),
    (errors.DrydockError, 409),
)
TITLES = {
    400: "Bad request", 401: "Not authenticated", 403: "Not allowed", 404: "Not found", 405: "Method not allowed",
    409: "Conflict", 411: "Length required", 413: "Too large", 415: "Unsupported media type",
    429: "Too many requests", 500: "Failure", 502: "Host unreachable", 503: "Not available", 504: "Timed out",
    507: "No space",
}  # fmt: skip


def problem(
    status: int, code: str, detail: str, *, field: str = "", hint: str = "", headers: dict[str, str] | None = None,
    is_a: Sequence[str] = (), mistakes: Sequence[Problem] = (), verdicts: Sequence[Verdict] = (), capability: str = "",
) -> HttpResponse:  # fmt: skip
    """Return an HTTP response with a problem document."""
    said = ProblemDetails(
        type=f"urn:drydock:problem:{code}", title=TITLES.get(status, "Error"), status=status, detail=detail,
        code=code, field=field, hint=hint, is_a=tuple(is_a), errors=tuple(mistakes), verdicts=tuple(verdicts),
        capability=capability,
    )  # fmt: skip
    content = json.dumps(to_json(said)).encode()
    return HttpResponse(content, status=status, content_type=MEDIA_TYPE, headers=headers or {})


def status_of(error: errors.DrydockError) -> int:
    """Return the HTTP status for an error of Drydock."""
    return next(status for known, status in STATUS if isinstance(error, known))


def answer(error: Exception, context: Any = None) -> HttpResponse:
    """Return the problem response for an exception.

    Unexpected exceptions are logged, and their details are not sent.
    """
    if isinstance(error, errors.DrydockError):
        said = problem(
            status_of(error), error.code, error.message, field=error.field, hint=error.hint, is_a=_general(error),
            mistakes=getattr(error, "problems", ()), verdicts=getattr(error, "verdicts", ()),
            capability=getattr(error, "capability", ""),
            headers=_again(error),
        )  # fmt: skip
        said._has_been_logged = True  # type: ignore[attr-defined]  # Django would log each 5xx, as often as a caller likes
        return said
    if isinstance(error, exceptions.APIException):
        return _of_framework(error)
    if isinstance(error, Http404):
        return problem(404, "not_found", "This endpoint does not exist.")
    if isinstance(error, PermissionDenied):
        return problem(403, "not_allowed", "You do not have permission to do this.")
    if isinstance(error, RequestDataTooBig):
        return problem(413, BodyTooLarge.code, BodyTooLarge().message)
    if isinstance(error, OSError) and error.errno == errno.ENOSPC:
        return problem(507, "no_space", "The temporary folder of the web process is full.")
    lost = database.is_lost(error)
    if lost or isinstance(error, OperationalError | DatabaseGone):
        if not lost:
            log.warning("The database is busy: %s", error)
        return unavailable(error)
    log.error("A request failed.", exc_info=error)
    return problem(500, "error", "An internal error occurred in Drydock; see its log.")


def unavailable(error: BaseException) -> HttpResponse:
    """Return a 503 response after the database connection was lost. Logs the loss at most once a second."""
    database.report(error)
    said = problem(503, errors.Busy.code, "The database is not reachable.", headers={"Retry-After": "1"})
    said._has_been_logged = True  # type: ignore[attr-defined]
    return said


def _again(error: errors.DrydockError) -> dict[str, str]:
    """Return a Retry-After header if it may help to repeat the request. Otherwise return no headers."""
    if isinstance(error, NoPlace):
        return {"Retry-After": str(error.after)}
    if isinstance(error, HostSilent):
        return {"Retry-After": "5"}
    return {"Retry-After": "1"} if isinstance(error, errors.Busy) else {}


def _general(error: errors.DrydockError) -> list[str]:
    """Return the codes of the error's base classes, starting with the most specific."""
    codes = [known.code for known in type(error).__mro__ if issubclass(known, errors.DrydockError)]
    return [code for code in dict.fromkeys(codes) if code != error.code]


_CODES = {
    "not_authenticated": "not_authenticated", "authentication_failed": "not_authenticated",
    "permission_denied": "not_allowed", "unsupported_media_type": "unsupported_media_type",
    "method_not_allowed": "method_not_allowed", "throttled": "throttled", "parse_error": "invalid",
}  # fmt: skip


def _of_framework(error: exceptions.APIException) -> HttpResponse:
    given = error.get_codes()
    code = _CODES.get(given, "error") if isinstance(given, str) else "error"
    headers = {}
    if scheme := getattr(error, "auth_header", None):
        headers["WWW-Authenticate"] = scheme
    if wait := getattr(error, "wait", None):
        headers["Retry-After"] = str(max(1, round(wait)))
    return problem(error.status_code, code, str(error.detail), headers=headers)


@csrf_exempt
def nothing_here(request: HttpRequest, *_: Any, **__: Any) -> HttpResponse:
    """Return a 404 response for paths under `/api/` that do not exist."""
    return problem(404, "not_found", "This endpoint does not exist.", hint="See /api/docs/.")
