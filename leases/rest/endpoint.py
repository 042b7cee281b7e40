"""The base class of API views: authentication, request parsing and responses.

A view declares its input and output with `operation`; its body is usually a single client call. The same declaration is
used to parse requests, write responses and generate the schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import wraps
from typing import Any, cast

from django.conf import settings
from django.http import HttpResponse, StreamingHttpResponse
from pydantic import BaseModel, ConfigDict
from rest_framework.exceptions import MethodNotAllowed, NotAuthenticated
from rest_framework.request import Request
from rest_framework.views import APIView

from drydock.core.errors import NotAllowed
from drydock_client.values import to_json
from leases import hostcalls
from leases.local import LocalClient
from leases.rest import parsing, problems
from leases.rest.authentication import TokenAuthentication, caller
from leases.rest.models import Scope, Token
from leases.rest.queries import For
from leases.rest.schema import Schema
from leases.rest.throttling import TokenThrottle


class Nothing(BaseModel):
    """A query without parameters."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True, kw_only=True)
class Operation:
    """The declaration of one method of an endpoint. `gives` is a type of `drydock_client.values` or a media type."""

    summary: str
    gives: Any = None
    or_gives: str = ""
    """An alternative media type for the response, used if the client asks for it."""
    status: int = 200
    scope: str = Scope.READ
    query: type[BaseModel] = Nothing
    body: type[BaseModel] | str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    also: dict[int, str] = field(default_factory=dict)
    request_headers: dict[str, str] = field(default_factory=dict)
    host: str = ""
    """If the method calls a host: the key in `HOSTS` of the function that names the host."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """One page of a list. `next` is the cursor of the next page, or None on the last page."""

    results: list[Any]
    next: str | None = None


class Asked:
    """A parsed request: the client that acts for the user of its token, the query and the body."""

    def __init__(self, request: Request, operation: Operation) -> None:
        self.request = request
        self.token = cast(Token, request.auth)
        self.query: Any = parsing.query(operation.query, request.META.get("QUERY_STRING", ""))
        body = operation.body
        keyed = bool(self.header("Idempotency-Key"))
        self.body: Any = parsing.body(body, request.data, keyed=keyed) if isinstance(body, type) else None
        owner = self.query.owner if isinstance(self.query, For) else None
        self.client = LocalClient(caller(self.token), owner=owner)

    def header(self, name: str) -> str:
        """Return a header of the request, or an empty string if it is missing."""
        return str(self.request.headers.get(name, ""))


View = Callable[..., Any]


def operation(summary: str, **about: Any) -> Callable[[View], View]:
    """Declare the input and output of a method. The method is called with an `Asked` and the path variables."""
    declared = Operation(summary=summary, **about)

    def declare(view: View) -> View:
        @wraps(view)
        def act(self: Endpoint, request: Request, **path: Any) -> HttpResponse | StreamingHttpResponse:
            self.permit(request, declared)
            asked = Asked(request, declared)
            with _place(asked, declared, path):
                return respond(view(self, asked, **path), declared)

        act.operation = declared  # type: ignore[attr-defined]
        return act

    return declare


def _place(asked: Asked, declared: Operation, path: dict[str, Any]) -> AbstractContextManager[None]:
    """Limit the number and the duration of operations that call a host. Other operations are not limited."""
    if not declared.host:
        return nullcontext()
    return hostcalls.calling(asked.token.holder, lambda: HOSTS[declared.host](asked, path))


HOSTS: Mapping[str, Callable[[Asked, Mapping[str, Any]], str]] = {
    "lease": lambda asked, path: hostcalls.of_lease(path["id"]),
    "job": lambda asked, path: hostcalls.of_job(path["id"]),
    "resource": lambda asked, path: hostcalls.of_resource(path["id"]),
    "address": lambda asked, path: f"{asked.body.address} port {asked.body.port}",
}
"""The functions that name the host for which a request waits."""


def respond(found: Any, declared: Operation) -> HttpResponse | StreamingHttpResponse:
    """Return the HTTP response for the result of an operation.

    A response is returned unchanged, and any other value is serialized as JSON. If nothing is declared, the status
    is 204.
    """
    if isinstance(found, HttpResponse | StreamingHttpResponse):
        return found
    return HttpResponse(status=204) if declared.gives is None else json_response(found, status=declared.status)


def json_response(found: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> HttpResponse:
    """Return values as a JSON response."""
    text = json.dumps(to_json(found), ensure_ascii=False, allow_nan=False)
    # A byte of a file's name that is no UTF-8 is half a character, which JSON can only escape.
    content = text.encode("utf-8", "backslashreplace")
    return HttpResponse(content, status=status, content_type="application/json", headers=headers or {})


class Endpoint(APIView):
    """The base class of API views.

    It accepts only tokens, reports errors as problem documents, and does no content negotiation.
    """

    authentication_classes = [TokenAuthentication]
    permission_classes = []
    throttle_classes = [TokenThrottle]
    parser_classes = [parsing.StrictJSON]
    metadata_class = None
    schema = Schema()
    takes_chunks = False
    """True if a body may be sent without a Content-Length."""
    http_method_names = ["get", "head", "post", "put", "patch", "delete"]

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Authenticate and throttle the request, and check the length of its body before it is read."""
        self.perform_authentication(request)
        if request.auth is None:
            raise NotAuthenticated("Send a bearer token: `Authorization: Bearer ddk_...`.")
        self.check_throttles(request)
        parsing.check_length(request.META, self.largest(request), chunks=self.takes_chunks)

    def largest(self, request: Request) -> int:
        """Return the maximum size of a body in bytes."""
        return int(settings.DRYDOCK.body_limit_bytes)

    def permit(self, request: Request, declared: Operation) -> None:
        """Check that the token's scope allows the operation. Raises NotAllowed if it does not."""
        token = cast(Token, request.auth)
        if not token.allows(declared.scope):
            raise NotAllowed(
                f"This token has scope {token.scope!r}, but this request needs {str(declared.scope)!r}.",
                hint="Create another token: drydock tokens create --scope.",
            )

    def handle_exception(self, exc: Exception) -> Any:
        """Convert an exception to a problem document."""
        if isinstance(exc, NotAuthenticated) or getattr(exc, "status_code", 0) == 401:
            exc.auth_header = self.get_authenticate_header(self.request)  # type: ignore[attr-defined]
        said = problems.answer(exc)
        if isinstance(exc, MethodNotAllowed):
            said.headers["Allow"] = ", ".join(self.allowed_methods)
        return said

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Forbid caching and content sniffing of the response, which is only for this caller."""
        response.headers.setdefault("Cache-Control", "no-store")
        response.headers.setdefault("X-Content-Type-Options", "nosniff")
        return response
