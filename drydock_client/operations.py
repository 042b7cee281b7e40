"""The registry of operations. Each is declared once, as a client method with its URL path.

    class Leases(Operations):
        @operation("POST", "leases/{id}/extend", "Extend a lease", scope="lease", body="Extension")
        def extend(self, id: int, *, ttl: str | None = None, until: dt.datetime | None = None) -> LeaseInfo:
            "Extend a lease to `until`, or to `ttl` from now. Never shortens it."

The methods of the HTTP and local clients, the URL path, its view and its entry in the OpenAPI document follow from this
declaration. Callers and type checkers see the signature; the decorator supplies the body.
"""

from __future__ import annotations

import functools
import inspect
import string
import typing
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar, cast

Method = Literal["GET", "POST", "PUT", "PATCH", "DELETE"]
Scope = Literal["read", "lease", "operate"]
Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, kw_only=True)
class Operation:
    """A declared operation. Names its models by strings, because the classes exist only on the server."""

    name: str
    subject: str
    """The module that declares the operation. The engine implements it in a module of the same name."""
    method: Method
    path: str
    """Path below `/api/v1/`, with `{id}`, `{name}`, `{blueprint}` or `{user}`; `{act}` stands for each of `acts`."""
    summary: str
    description: str
    result: Any = None
    """The type of the result: a value, or a list of values, which is sent in pages."""
    status: int = 200
    scope: Scope = "read"
    parameters: Mapping[str, inspect.Parameter] = field(default_factory=dict)
    """The parameters of the method that declares the operation."""
    body: str = ""
    """The model of the request's body. If empty, the parameters are the fields of the body, or there is no body."""
    query: str = ""
    """The model of the URL's query."""
    acts: Mapping[str, tuple[str, str]] = field(default_factory=dict)
    """Maps each value of `{act}` to the summary and the model of the body of that action."""
    inside: str = ""
    """`Model.field` if the result is not the whole response body but a field of it."""
    spread: str = ""
    """The name of a mapping parameter whose items become fields of the body or query."""
    names: Mapping[str, str] = field(default_factory=dict)
    """Maps parameters to the names of their fields in the body or query, where these differ."""
    optional: tuple[str, ...] = ()
    """Parameters that are left out of the request if they are empty, because older servers do not know them."""
    flags: Mapping[str, str] = field(default_factory=dict)
    """Maps parameters to the query flag that represents an empty collection, which differs from None."""
    cursor: str = ""
    """The argument that sets where a page begins, if the result is sent in pages."""
    key: str = ""
    """The argument, or the item of `spread`, that the header `Idempotency-Key` carries."""
    waits: str = ""
    """The operation that returns the result of a REST request with `wait`, called once the wait is over."""
    tagged: bool = False
    """Whether the result, a lease, is sent with an `ETag`."""
    location: str = ""
    """The URL path of the created object, if it differs from the path of the request. `{0.id}` is a field of the
    result."""
    host: str = ""
    """The argument that identifies the host on which the request waits: `lease`, `job`, `resource` or `address`. Empty
    if the request does not wait for a host."""
    owned: bool = False
    """Whether operators may call the operation on behalf of another owner."""

    @property
    def variables(self) -> tuple[str, ...]:
        """The names of the variables in the URL path."""
        return tuple(name for _, name, _, _ in string.Formatter().parse(self.path) if name)

    @property
    def listed(self) -> bool:
        """Whether the result is a list."""
        return typing.get_origin(self.result) is list

    @property
    def headers(self) -> Mapping[str, str]:
        """The response header for each field except `content`, if the result is sent as bytes; otherwise empty."""
        names = list(getattr(self.result, "__dataclass_fields__", ()))
        if "content" not in names:
            return {}
        return {name: f"Drydock-{name.replace('_', '-').title()}" for name in names if name != "content"}


OPERATIONS: dict[str, Operation] = {}
"""Every declared operation, by name."""


class Operations(ABC):
    """A client that carries out declared operations."""

    @abstractmethod
    def carry_out(self, operation: Operation, arguments: Mapping[str, Any]) -> Any:
        """Carry out an operation and return its result. `arguments` contains all arguments by name."""


def operation(method: Method, path: str, summary: str, **about: Any) -> Callable[[Function], Function]:
    """Declare an operation. `about` contains further fields of `Operation`."""

    def declare(function: Function) -> Function:
        signature = inspect.signature(function)
        declared = Operation(
            name=function.__name__, subject=function.__module__.rpartition(".")[2],
            parameters=_parameters(function, signature), method=method, path=path, summary=summary,
            description=inspect.getdoc(function) or "", result=_result(function), **about,
        )  # fmt: skip
        if declared.name in OPERATIONS:
            raise ValueError(f"{declared.name} is declared twice")
        OPERATIONS[declared.name] = declared

        @functools.wraps(function)
        def call(self: Operations, *args: Any, **kwargs: Any) -> Any:
            bound = signature.bind(self, *args, **kwargs)
            bound.apply_defaults()
            arguments = dict(bound.arguments)
            del arguments["self"]
            return self.carry_out(declared, arguments | arguments.pop("given", {}))

        return cast(Function, call)

    return declare


def _parameters(function: Callable[..., Any], signature: inspect.Signature) -> dict[str, inspect.Parameter]:
    """Return the parameters of a method with their annotations evaluated."""
    hints = typing.get_type_hints(function)
    return {name: one.replace(annotation=hints[name]) for name, one in signature.parameters.items() if name in hints}


def _result(function: Callable[..., Any]) -> Any:
    found = typing.get_type_hints(function)["return"]
    return None if found is type(None) else found
