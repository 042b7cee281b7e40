"""Send declared operations to a server as requests."""

from __future__ import annotations

import typing
from collections.abc import Mapping
from typing import Any

from drydock_client.http.connection import Connection
from drydock_client.operations import Operation, Operations
from drydock_client.values import from_json, to_json

ALL = 1 << 30


class HttpOperations(Operations):
    """Sends a declared operation to the server and reads the answer."""

    http: Connection
    owner: str | None

    def carry_out(self, operation: Operation, arguments: Mapping[str, Any]) -> Any:
        """Send an operation's arguments in the path and in the query or body, and return its result."""
        path = operation.path.format(**arguments)
        rest = {name: value for name, value in arguments.items() if name not in operation.variables}
        rest |= dict(rest.pop(operation.spread, ()))
        given, query = to_json(rest), self.for_owner() if operation.owned else {}
        if _is_list(operation.result) and operation.method == "GET":
            (of,) = typing.get_args(operation.result)
            return [from_json(of, one) for one in pages(self.http, path, {**given, **query}, given.get("limit", ALL))]
        if operation.method == "GET":
            return _read(operation, self.http.get(path, {**given, **query}))
        if operation.method == "DELETE":
            return _read(operation, self.http.send("DELETE", path, query={**given, **query}))
        return _read(operation, self.http.send(operation.method, path, given or None, query=query))

    def for_owner(self) -> dict[str, str]:
        """Return the query parameter that names the owner an operator acts for; empty if there is none."""
        return {} if self.owner is None else {"owner": self.owner}


def _is_list(result: Any) -> bool:
    return typing.get_origin(result) is list


def _read(operation: Operation, answer: Any) -> Any:
    if operation.result is None:
        return None
    if operation.inside:
        return answer[operation.inside.split(".")[1]]
    return from_json(operation.result, answer)


def pages(server: Connection, path: str, query: Mapping[str, Any], limit: int) -> list[Any]:
    """Fetch a paginated list, and return at most `limit` of its items."""
    found: list[Any] = []
    cursor: str | None = None
    while len(found) < limit:
        page = server.get(path, {**query, "cursor": cursor})
        found += page["results"]
        cursor = page["next"]
        if cursor is None:
            break
    return found[:limit]
