"""Views that are generated from declared operations.

Each view calls its operation with values from the path, the query and the body of the request.
"""

from __future__ import annotations

import dataclasses
import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from django.http import HttpResponse
from pydantic import BaseModel, StrictBool, StrictInt, create_model

import drydock_client.protocol  # noqa: F401  (declares the operations)
from drydock.core.errors import InvalidRequest
from drydock_client.operations import OPERATIONS, Operation
from leases.operations import instances
from leases.rest import bodies, parsing, polling, queries, values
from leases.rest.endpoint import Asked, Endpoint, Nothing, Page, json_response, operation
from leases.rest.models import Scope
from leases.rest.schema import BYTES
from leases.validation import requests

_VARIABLES = {"{id}": "<id:id>", "{name}": "<word:name>", "{blueprint}": "<word:name>", "{user}": "<user:user>"}
_KEYED = {
    "Idempotency-Key": (
        "A repeated request with the same key returns the same answer; a different request with that key returns 409."
    )
}
_TAGGED = {"ETag": "Changes when state, reason or message change."}
_PART = {
    "next_offset": "The offset of the next part.", "over": "`1` if the job has ended and this part is the last.",
    "truncated": "`1` if there was more output than is stored.",
}  # fmt: skip


def views(by_hand: Mapping[str, type[Endpoint]]) -> dict[str, type[Endpoint]]:
    """Return the view for each path.

    Views written by hand are used as they are. Declared operations that they do not implement are added.
    """
    found: dict[str, dict[str, Any]] = {}
    for declared in OPERATIONS.values():
        for path, act, summary, body in _addresses(declared):
            found.setdefault(path, {})[declared.method.lower()] = _method(declared, act, summary, body)
    return {**by_hand, **{path: _view(by_hand.get(path, Endpoint), methods) for path, methods in found.items()}}


def _view(base: type[Endpoint], methods: Mapping[str, Any]) -> type[Endpoint]:
    return type(base.__name__, (base,), {name: one for name, one in methods.items() if not hasattr(base, name)})


def _addresses(declared: Operation) -> Iterator[tuple[str, str, str, str]]:
    """Yield each path of an operation, with the action, the summary and the name of the body model for that path."""
    path = declared.path
    for variable, converted in _VARIABLES.items():
        path = path.replace(variable, converted)
    for act, (summary, body) in declared.acts.items():
        yield path.replace("{act}", act), act, summary, body
    if not declared.acts:
        yield path, "", declared.summary, declared.body


def _method(declared: Operation, act: str, summary: str, body: str) -> Callable[..., Any]:
    def method(self: Endpoint, asked: Asked, **path: Any) -> Any:
        named = dict(zip(declared.variables, (*path.values(), act), strict=False))
        found = asked.client.carry_out(declared, named | _arguments(declared, asked))
        if declared.waits and asked.query.wait:
            known = asked.header("If-None-Match") if declared.tagged else ""
            polling.lease(asked.client, found.id, seconds=asked.query.wait, known=known)
            found = asked.client.carry_out(OPERATIONS[declared.waits], {"id": found.id})
        return _answer(declared, asked, found)

    method.__doc__ = declared.description
    known = {"If-None-Match": "A known ETag; 304 if nothing has changed."}
    reads = declared.tagged and declared.method == "GET"
    return operation(
        summary, gives=_gives(declared), status=declared.status, scope=Scope(declared.scope), host=declared.host,
        query=_model(declared.query) or Nothing, body=_model(body) or _made_body(declared),
        headers={
            **({"Location": "The URL of the new object."} if declared.location else {}),
            **(_TAGGED if declared.tagged else {}),
            **{header: _PART[field] for field, header in declared.headers.items()},
        },
        request_headers={**(_KEYED if declared.key else {}), **(known if reads else {})},
        also={304: "Nothing has changed since the given ETag."} if reads else {},
    )(method)  # fmt: skip


def _arguments(declared: Operation, asked: Asked) -> dict[str, Any]:
    """Return the arguments of an operation from the query, the body and the Idempotency-Key header.

    If fields of actions or of `spread` are missing from the body, the defaults of the function are used.
    """
    given = asked.query if asked.body is None else asked.body
    found = _named(declared, {**dict(asked.query), **dict(given)})
    if declared.acts:
        found = {name: value for name, value in found.items() if name in given.model_fields_set}
    if declared.spread:
        own = {name: found.pop(name) for name in _own(declared) if name in found}
        sent = {name: value for name, value in found.items() if name in given.model_fields_set}
        found = own | {declared.spread: _spread(declared, given, sent)}
    return _keyed(declared, asked, found) if declared.key else found


def _named(declared: Operation, fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields under the names of the arguments, without the fields that this module uses itself."""
    if declared.owned:
        fields.pop("owner", None)
    if declared.waits:
        fields.pop("wait", None)
    if declared.cursor:
        cursor = fields.pop("cursor")
        fields |= {} if cursor is None else {declared.cursor: cursor}
    for name, field in declared.names.items():
        value = fields.pop(field)
        fields |= {} if value is None else {name: value}
    for name, flag in declared.flags.items():
        empty = () if fields.pop(flag) else None
        fields.setdefault(name, empty)
    return fields


def _own(declared: Operation) -> tuple[str, ...]:
    """Return the names of the arguments other than `spread`."""
    paged = ("limit", declared.cursor) if declared.cursor else ()
    return (*(name for name in declared.parameters if name != declared.spread), *paged)


def _spread(declared: Operation, given: BaseModel, sent: dict[str, Any]) -> Any:
    """Return the argument `spread`: the model if the engine knows its class, or else a value of the declared type."""
    if not isinstance(given, bodies.Body | queries.Query):
        return given
    of = declared.parameters[declared.spread].annotation
    return sent if not dataclasses.is_dataclass(of) else typing.cast(Any, of)(**sent)


def _keyed(declared: Operation, asked: Asked, arguments: dict[str, Any]) -> dict[str, Any]:
    """Return the arguments with the idempotency key from the header added.

    Raises InvalidRequest if the body contains a different key.
    """
    key = parsing.key(asked.header("Idempotency-Key"))
    if not declared.spread:
        return {**arguments, declared.key: key}
    request = arguments[declared.spread]
    if key is None:
        return arguments
    if getattr(request, declared.key) not in (None, key):
        raise InvalidRequest("The Idempotency-Key header differs from the key in the body.", field=declared.key)
    return {**arguments, declared.spread: request.model_copy(update={declared.key: key})}


def _gives(declared: Operation) -> Any:
    if declared.headers:
        return BYTES
    return getattr(values, declared.inside.split(".")[0]) if declared.inside else declared.result


def _answer(declared: Operation, asked: Asked, found: Any) -> Any:
    if declared.inside:
        model, field = declared.inside.split(".")
        return getattr(values, model)(**{field: found})
    if declared.headers:
        return octets(found.content, {name: str(int(getattr(found, f))) for f, name in declared.headers.items()})
    if declared.listed:
        return Page(results=found, next=_next(declared, asked, found))
    headers = {"Location": f"/api/v1/{declared.location.format(found)}"} if declared.location else {}
    if declared.tagged:
        headers["ETag"] = polling.tag(found)
        if declared.method == "GET" and asked.header("If-None-Match") == headers["ETag"]:
            return HttpResponse(status=304, headers=headers)
    return json_response(found, status=declared.status, headers=headers) if headers else found


def _next(declared: Operation, asked: Asked, found: list[Any]) -> str | None:
    """Return the cursor of the next page: the list's own, or else the last id if the page is full."""
    if not declared.cursor or hasattr(found, "next"):
        return getattr(found, "next", None)
    return str(found[-1].id) if len(found) == asked.query.limit else None


def octets(content: bytes, headers: dict[str, str]) -> HttpResponse:
    """Return a response with raw bytes that browsers download and do not display."""
    return HttpResponse(content, content_type=BYTES, headers={"Content-Disposition": "attachment", **headers})


def _made_body(declared: Operation) -> type[BaseModel] | None:
    """Return a body model for an operation that names none, made from the parameters that are not in its path."""
    named = {name: one for name, one in declared.parameters.items() if name not in declared.variables}
    if declared.acts or declared.method in ("GET", "DELETE") or not named:
        return None
    fields = {
        name: (_STRICT.get(one.annotation, one.annotation), ... if one.default is one.empty else one.default)
        for name, one in named.items()
    }
    title = declared.name.title().replace("_", "")
    return create_model(title, __base__=bodies.Body, __doc__=f"{declared.summary}.", **fields)  # type: ignore[call-overload,no-any-return]


_STRICT: dict[Any, Any] = {str: bodies.Text, bool: StrictBool, int: StrictInt}


def _model(name: str) -> type[BaseModel] | None:
    """Return the model of a body or query by its name, or None for an empty name."""
    if not name:
        return None
    for module in (bodies, queries, requests, instances):
        found = getattr(module, name, None)
        if inspect.isclass(found) and issubclass(found, BaseModel):
            return found
    raise LookupError(f"no model {name}")
