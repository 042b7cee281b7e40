"""Send declared operations to a server as requests."""

from __future__ import annotations

import dataclasses
import typing
import uuid
from collections.abc import Mapping
from typing import Any

import urllib3

from drydock_client.http.connection import Connection
from drydock_client.operations import Operation, Operations
from drydock_client.values import from_json, to_json

ALL = 1 << 30
_PAGE = 1000
"""The largest number of results that a server sends at once."""


class HttpOperations(Operations):
    """Send a declared operation to the server, and read its result from the answer."""

    http: Connection
    owner: str | None

    def carry_out(self, operation: Operation, arguments: Mapping[str, Any]) -> Any:
        """Send an operation to the server, with arguments in path, query and body. Return the operation's result."""
        path, given = operation.path.format(**arguments), _fields(operation, arguments)
        query = {"owner": self.owner} if operation.owned and self.owner is not None else {}
        if operation.method not in ("GET", "DELETE"):
            key = (given.pop(operation.key, None) or uuid.uuid4().hex) if operation.key else ""
            return _read(operation, self.http.send(operation.method, path, given or None, query=query, key=key))
        given |= query
        if operation.method == "DELETE":
            return _read(operation, self.http.send("DELETE", path, query=given))
        if operation.headers:
            answer = self.http.ask("GET", path, query=given)
            return _part(operation, answer, self.http.content(answer, given["limit"]))
        if operation.listed:
            (of,) = typing.get_args(operation.result)
            return [from_json(of, one) for one in pages(self.http, path, given, given.get("limit", ALL))]
        return _read(operation, self.http.get(path, given))


def _fields(operation: Operation, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Return the fields of the query or body. Fields from `spread` whose value is None are left out."""
    names = {operation.cursor: "cursor", **operation.names}
    rest = {name: value for name, value in arguments.items() if name not in operation.variables}
    rest = {name: value for name, value in rest.items() if value or name not in operation.optional}
    items = rest.pop(operation.spread, {})
    found = {names.get(name, name): value for name, value in rest.items()}
    found |= {flag: True for name, flag in operation.flags.items() if rest[name] is not None and not rest[name]}
    if dataclasses.is_dataclass(items):
        changed = {field.name: getattr(items, field.name) for field in dataclasses.fields(items)}
        items = {name: value for name, value in changed.items() if value is not None}
    return typing.cast("dict[str, Any]", to_json(found | dict(items)))


def _read(operation: Operation, answer: Any) -> Any:
    if operation.result is None:
        return None
    if operation.inside:
        return answer[operation.inside.split(".")[1]]
    if operation.listed:
        (of,) = typing.get_args(operation.result)
        return [from_json(of, one) for one in answer["results"]]
    return from_json(operation.result, answer)


def _part(operation: Operation, answer: urllib3.BaseHTTPResponse, content: bytes) -> Any:
    """Return the result of an operation that was sent as bytes, with the other fields in headers."""
    hints = typing.get_type_hints(operation.result)
    rest = {name: hints[name](int(answer.headers[header])) for name, header in operation.headers.items()}
    return operation.result(content=content, **rest)


def pages(server: Connection, path: str, query: Mapping[str, Any], limit: int) -> list[Any]:
    """Fetch the pages of a list, and return at most `limit` of its items."""
    found: list[Any] = []
    cursor = query.get("cursor")
    size = {"limit": max(1, min(limit, _PAGE))} if "limit" in query else {}
    while True:
        page = server.get(path, {**query, **size, "cursor": cursor})
        found += page["results"]
        cursor = page["next"]
        if cursor is None or len(found) >= limit:
            return found[:limit]
