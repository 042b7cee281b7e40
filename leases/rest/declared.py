"""Views generated from declared operations. Each calls the operation with values from the path, the query and the
body."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from pydantic import BaseModel, StrictBool, StrictInt, create_model

import drydock_client.protocol  # noqa: F401  (declares the operations)
from drydock_client.operations import OPERATIONS, Operation
from leases import hostcalls
from leases.rest import bodies, operating, queries, values
from leases.rest.endpoint import Asked, Endpoint, Nothing, Page, json_response, operation
from leases.rest.models import Scope

_VARIABLES = {"{id}": "<id:id>", "{name}": "<word:name>", "{blueprint}": "<word:name>", "{user}": "<user:user>"}
_HOSTS = {"lease": hostcalls.of_lease, "job": hostcalls.of_job, "resource": hostcalls.of_resource}


def views(by_hand: Mapping[str, type[Endpoint]]) -> dict[str, type[Endpoint]]:
    """Return the view for each address: those written by hand, plus the declared operations that they do not
    implement."""
    found: dict[str, dict[str, Any]] = {}
    for declared in OPERATIONS.values():
        for path, act, summary, body in _addresses(declared):
            found.setdefault(path, {})[declared.method.lower()] = _method(declared, act, summary, body)
    return {**by_hand, **{path: _view(by_hand.get(path, Endpoint), methods) for path, methods in found.items()}}


def _view(base: type[Endpoint], methods: Mapping[str, Any]) -> type[Endpoint]:
    return type(base.__name__, (base,), {name: one for name, one in methods.items() if not hasattr(base, name)})


def _addresses(declared: Operation) -> Iterator[tuple[str, str, str, str]]:
    """Yield each address of an operation with its action, its summary and the name of its body model."""
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
        arguments = named | _arguments(declared, asked)
        found = asked.client.carry_out(declared, arguments)
        return _answer(declared, found)

    method.__doc__ = declared.description
    return operation(
        summary, gives=_gives(declared), status=declared.status, scope=Scope(declared.scope),
        asks=_HOSTS.get(declared.host), query=_model(declared.query) or Nothing,
        body=_model(body) or _made_body(declared),
        headers={"Location": "Its address."} if declared.location else {},
    )(method)  # fmt: skip


def _arguments(declared: Operation, asked: Asked) -> dict[str, Any]:
    """Return the arguments from the query and the body. Fields missing from the body keep the function's defaults."""
    body: dict[str, Any] = {} if asked.body is None else asked.body.model_dump(exclude_unset=bool(declared.acts))
    query: dict[str, Any] = asked.query.model_dump()
    return query | ({declared.spread: body} if declared.spread else body)


def _gives(declared: Operation) -> Any:
    return getattr(values, declared.inside.split(".")[0]) if declared.inside else declared.result


def _answer(declared: Operation, found: Any) -> Any:
    if declared.inside:
        model, field = declared.inside.split(".")
        return getattr(values, model)(**{field: found})
    if typing.get_origin(declared.result) is list:
        return Page(results=found)
    if declared.location:
        address = f"/api/v1/{declared.location.format(found)}"
        return json_response(found, status=declared.status, headers={"Location": address})
    return found


def _made_body(declared: Operation) -> type[BaseModel] | None:
    """Create a body model for an operation that names none, from the parameters that are not in its path."""
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
    """Return the model of a body or query by name, or None for an empty name."""
    if not name:
        return None
    for module in (bodies, operating, queries):
        found = getattr(module, name, None)
        if inspect.isclass(found) and issubclass(found, BaseModel):
            return found
    raise LookupError(f"no model {name}")
