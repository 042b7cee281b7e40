"""What every address of the API does: who asks, what is asked, what is answered.

A view says with `operation` what it takes and gives, and is otherwise one call of a client. The same declaration
reads requests, writes answers and makes the schema.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from functools import partial, wraps
from typing import Any, cast

from django.conf import settings
from django.http import HttpResponse, StreamingHttpResponse
from pydantic import BaseModel, ConfigDict
from rest_framework.exceptions import MethodNotAllowed, NotAuthenticated
from rest_framework.request import Request
from rest_framework.views import APIView

from drydock.core.errors import NotAllowed
from leases import hostcalls
from leases.client.values import to_json
from leases.local import LocalClient
from leases.rest import parsing, problems
from leases.rest.authentication import TokenAuthentication, caller
from leases.rest.models import Scope, Token
from leases.rest.queries import For
from leases.rest.schema import Schema
from leases.rest.throttling import TokenThrottle


class Nothing(BaseModel):
    """No parameters."""

    model_config = ConfigDict(extra="forbid")


@dataclass(frozen=True, kw_only=True)
class Operation:
    """What one method of one address takes and gives; `gives` is a type of `leases.client`, or a media type."""

    summary: str
    gives: Any = None
    or_gives: str = ""
    """Another media type in which the same is given, where that is asked for."""
    status: int = 200
    scope: str = Scope.READ
    query: type[BaseModel] = Nothing
    body: type[BaseModel] | str | None = None
    headers: dict[str, str] = field(default_factory=dict)
    also: dict[int, str] = field(default_factory=dict)
    request_headers: dict[str, str] = field(default_factory=dict)
    asks: Callable[[int], str] | None = None
    """Names the host that is called, from the `id` of the address, where the method waits for the answer of one."""


@dataclass(frozen=True, kw_only=True)
class Page:
    """A part of a list; `next` is the cursor of the part that follows."""

    results: list[Any]
    next: str | None = None


class Asked:
    """One request, read: the client that speaks for its token, the query, the body."""

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
        """A header of the request; empty when it is not there."""
        return str(self.request.headers.get(name, ""))


View = Callable[..., Any]


def operation(summary: str, **about: Any) -> Callable[[View], View]:
    """Say what a method takes and gives. The method is given what was `Asked` and the variables of its path."""
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
    """A place and a deadline for what calls a host."""
    if declared.asks is None:
        return nullcontext()
    return hostcalls.calling(asked.token.user_id, partial(declared.asks, path["id"]))


def respond(found: Any, declared: Operation) -> HttpResponse | StreamingHttpResponse:
    """The answer that something found is: a response as it is, else JSON, else nothing."""
    if isinstance(found, HttpResponse | StreamingHttpResponse):
        return found
    return HttpResponse(status=204) if declared.gives is None else json_response(found, status=declared.status)


def json_response(found: Any, *, status: int = 200, headers: dict[str, str] | None = None) -> HttpResponse:
    """Values as JSON."""
    text = json.dumps(to_json(found), ensure_ascii=False, allow_nan=False)
    # A byte of a file's name that is no UTF-8 is half a character, which JSON can only escape.
    content = text.encode("utf-8", "backslashreplace")
    return HttpResponse(content, status=status, content_type="application/json", headers=headers or {})


class Endpoint(APIView):
    """An address. Tokens only; errors are problems; nothing is negotiated."""

    authentication_classes = [TokenAuthentication]
    permission_classes = []
    throttle_classes = [TokenThrottle]
    parser_classes = [parsing.StrictJSON]
    metadata_class = None
    schema = Schema()
    takes_chunks = False
    """Whether a body may come without its length."""
    http_method_names = ["get", "head", "post", "put", "patch", "delete"]

    def initial(self, request: Request, *args: Any, **kwargs: Any) -> None:
        """Before anything is read: who asks, how often, and how much is about to come."""
        self.perform_authentication(request)
        if request.auth is None:
            raise NotAuthenticated("Show a token: `Authorization: Bearer ddk_...`.")
        self.check_throttles(request)
        parsing.check_length(request.META, self.largest(request), chunks=self.takes_chunks)

    def largest(self, request: Request) -> int:
        """Bytes of a body that are taken here."""
        return int(settings.DRYDOCK.body_limit_bytes)

    def permit(self, request: Request, declared: Operation) -> None:
        """Raises NotAllowed where the token's scope does not reach."""
        token = cast(Token, request.auth)
        if not token.allows(declared.scope):
            raise NotAllowed(
                f"This token has the scope {token.scope!r}, and this needs {str(declared.scope)!r}.",
                hint="Make another one: drydock tokens create --scope.",
            )

    def handle_exception(self, exc: Exception) -> Any:
        """Errors as problems."""
        if isinstance(exc, NotAuthenticated) or getattr(exc, "status_code", 0) == 401:
            exc.auth_header = self.get_authenticate_header(self.request)  # type: ignore[attr-defined]
        said = problems.answer(exc)
        if isinstance(exc, MethodNotAllowed):
            said.headers["Allow"] = ", ".join(self.allowed_methods)
        return said

    def finalize_response(self, request: Request, response: Any, *args: Any, **kwargs: Any) -> Any:
        """Answers are for whoever asked, and for nobody's cache."""
        response.headers.setdefault("Cache-Control", "no-store")
        response.headers.setdefault("X-Content-Type-Options", "nosniff")
        return response
