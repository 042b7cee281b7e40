"""The requests that a connection sends to an API server, and the errors that its answers mean."""

from __future__ import annotations

import datetime as dt
import email.utils
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from blueprints.kube.errors import (
    AnswerInvalid,
    ApiUnavailable,
    CredentialRefused,
    FieldOwner,
    KubeError,
    ManagerConflict,
    ObjectAbsent,
    ObjectChanged,
    ObjectExists,
    ObjectRefused,
    RequestForbidden,
    VersionExpired,
)
from blueprints.kube.objects import Json
from drydock.core import clock
from drydock.core.errors import Problem

MOST_SAID = 500
"""Characters of what a server said that appear in a message."""
_MOST_CAUSES = 50
_MANAGER = re.compile(r'conflicts? with "([^"]{1,200})"')


@dataclass(frozen=True)
class Reply:
    """An answer: status, headers and body."""

    status: int
    headers: Mapping[str, str] = field(repr=False)
    body: bytes = field(repr=False)


class Lines(Protocol):
    """An answer that is read line by line."""

    status: int
    headers: Mapping[str, str]

    def lines(self, most: int) -> Iterator[bytes]:
        """Return the lines until the answer ends."""

    def body(self, *, deadline: float, most: int) -> bytes:
        """Read the rest as a whole."""

    def close(self) -> None:
        """End the answer."""


class Transport(Protocol):
    """A connection to one API server. `client.Connection` is one, with the official client."""

    @property
    def where(self) -> str:
        """Host and port, for messages."""

    @property
    def namespace(self) -> str:
        """The namespace that the credential names."""

    def hidden(self, text: str) -> str:
        """Return a text without secrets."""

    def call(
        self, method: str, path: str, *, query: Sequence[tuple[str, str]] = (), body: Any = None,
        content_type: str = "application/json", deadline: float, most: int,
    ) -> Reply:  # fmt: skip
        """Send a request and return the answer."""

    def stream(self, path: str, *, query: Sequence[tuple[str, str]], deadline: float, idle: float) -> Lines:
        """Open an answer that is read line by line."""

    def close(self) -> None:
        """Close the connection."""


@dataclass(frozen=True, kw_only=True)
class Request:
    """The verb and the resource of a request, for messages."""

    verb: str
    """As in roles: get, list, watch, create, patch, delete."""
    resource: str
    name: str = ""
    namespace: str = ""
    where: str = ""
    secret: bool = False
    """Whether the server may quote a secret in its answer, which is then left out."""

    def __str__(self) -> str:
        what = f"{self.verb} {self.resource}" + (f" {self.name}" if self.name else "")
        return what + (f" in namespace {self.namespace}" if self.namespace else "")


def parsed(content: bytes, where: str) -> Json:
    """Return a JSON object. Raises AnswerInvalid."""
    try:
        found = json.loads(content)
    except (ValueError, RecursionError):
        start = " ".join(content[:60].decode("utf-8", "replace").split())
        raise AnswerInvalid(f"The API server at {where} did not answer with JSON: {start!r}.") from None
    if not isinstance(found, dict):
        raise AnswerInvalid(f"The API server at {where} did not answer with an object.")
    return found


def failure(reply: Reply, request: Request, said: str = "") -> KubeError:
    """Return the error for an answer with a status of 400 or more, or for a redirect."""
    status = _status(reply)
    return failed(reply.status, status, request, retry_after(reply.headers), said)


def failed(code: int, status: Json, request: Request, after: float | None = None, said: str = "") -> KubeError:
    """Return the error for a Status object of the API, as an answer or as an ERROR event of a watch."""
    given = status.get("reason")
    reason = given if isinstance(given, str) else ""
    text = "" if request.secret else (said or _message(status))
    because = f": {text}" if text else ""
    where = f"The API server at {request.where}"
    if code == 401:
        return CredentialRefused(
            f"{where} does not accept the credential.", hint="It is wrong or has expired; replace it."
        )
    if code == 403:
        return RequestForbidden(
            f"The account may not {request}.", verb=request.verb, resource=request.resource, namespace=request.namespace
        )
    if code == 404:
        return ObjectAbsent(f"{where} has nothing to {request}{because}.")
    if code == 409:
        return _conflict(status, reason, request, because)
    if code == 410:
        return VersionExpired(f"{where} no longer has this resourceVersion of {request.resource}.")
    if code in (408, 429) or code >= 500:
        asked = f" and asks to wait {after:.3g} s" if after is not None else ""
        return ApiUnavailable(
            f"{where} is not available (HTTP {code}){asked}{because}.", retry_after=after, sent=code >= 500
        )
    if 300 <= code < 400:
        return AnswerInvalid(f"{where} redirects to another address, which is not followed.")
    return ObjectRefused(
        f"{where} refused to {request}{because or f' (HTTP {code})'}.",
        problems=_problems(status, request),
        reason=reason,
    )


def _conflict(status: Json, reason: str, request: Request, because: str) -> KubeError:
    owners: dict[str, list[str]] = {}
    for cause in _causes(status):
        if cause.get("reason") == "FieldManagerConflict":
            found = _MANAGER.search(str(cause.get("message", "")))
            owners.setdefault(found[1] if found else "another manager", []).append(str(cause.get("field", ""))[:200])
    if owners:
        listed = "; ".join(f"{name} owns {', '.join(fields[:10])}" for name, fields in owners.items())
        return ManagerConflict(
            f"Could not {request}, because other field managers own fields of it: {listed}.",
            owners=[FieldOwner(name=name, fields=tuple(fields)) for name, fields in owners.items()],
        )
    if reason == "AlreadyExists":
        return ObjectExists(f"Could not {request}, because an object of this name exists.")
    return ObjectChanged(f"Could not {request}, because it was changed meanwhile{because}.")


def _problems(status: Json, request: Request) -> list[Problem]:
    return [
        Problem(
            field=str(cause.get("field", ""))[:200],
            message="" if request.secret else str(cause.get("message", ""))[:MOST_SAID],
        )
        for cause in _causes(status)
    ]


def _causes(status: Json) -> list[Json]:
    details = status.get("details")
    found = details.get("causes") if isinstance(details, dict) else None
    return [one for one in found[:_MOST_CAUSES] if isinstance(one, dict)] if isinstance(found, list) else []


def _status(reply: Reply) -> Json:
    try:
        found = json.loads(reply.body)
    except (ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}


def _message(status: Json) -> str:
    found = status.get("message")
    return " ".join(found[: MOST_SAID * 2].split())[:MOST_SAID].rstrip(".") if isinstance(found, str) else ""


def retry_after(headers: Mapping[str, str]) -> float | None:
    """Return the seconds of a header Retry-After, which has a number or a date."""
    text = next((value for key, value in headers.items() if key.lower() == "retry-after"), "").strip()
    if re.fullmatch(r"[0-9]{1,9}", text):
        return float(text)
    try:
        return max(0.0, (email.utils.parsedate_to_datetime(text) - clock.now()) / dt.timedelta(seconds=1))
    except (TypeError, ValueError, OverflowError):
        return None
