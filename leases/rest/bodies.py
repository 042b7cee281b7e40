"""Request bodies, except for `leases.validation.requests.LeaseRequest`."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, WithJsonSchema

from drydock_client.work import LONGEST_STDIN
from leases.validation.fields import SPAN_TEXT, Moment
from leases.validation.requests import LeaseRequest

_BASE64 = "^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/]{2}==|[A-Za-z0-9+/]{3}=)?$"


def _octets(given: Any) -> Any:
    if isinstance(given, str):
        try:
            return base64.b64decode(given.encode("ascii"), validate=True)
        except ValueError:
            raise ValueError("it is not valid base64") from None
    raise ValueError("it is not a text")


Text = Annotated[str, Field(max_length=2000)]
Name = Annotated[str, Field(min_length=1, max_length=63)]
Holder = Annotated[str, Field(max_length=150)]
Span = Annotated[
    str, WithJsonSchema(SPAN_TEXT | {"description": 'Such as "90s", "2h" or "1h30m".'}), Field(max_length=63)
]
_OCTETS = {"type": "string", "contentEncoding": "base64", "pattern": _BASE64, "maxLength": LONGEST_STDIN * 4 // 3 + 4}
Octets = Annotated[bytes, BeforeValidator(_octets), WithJsonSchema(_OCTETS)]


class Body(BaseModel):
    """A JSON object. Unknown fields are refused."""

    model_config = ConfigDict(extra="forbid")


class Message(Body):
    """An optional message that explains the request."""

    message: Text = ""


class DryRun(Body):
    """With `dry_run`, only report what would be done."""

    dry_run: StrictBool = False


class Extension(Body):
    """Extend a lease either by `ttl`, counted from now, or `until` a time."""

    ttl: Span | None = None
    until: Moment = None


class Hold(Body):
    """The time for which to keep the resource as it is: one day by default."""

    ttl: Span | None = None
    reason: Text = ""


class Group(Body):
    """A request for leases that are granted all together or not at all."""

    leases: Annotated[list[LeaseRequest], Field(min_length=1, max_length=100)]
    same: Annotated[Literal["", "resource", "parent"], Field(description="What the leases must share.")] = ""
    different: Annotated[
        Literal["", "resource", "parent"], Field(description="What each lease must have to itself.")
    ] = ""


class Job(Body):
    """A command to run: a list of exact arguments, or one line for a shell."""

    command: Annotated[list[str], Field(min_length=1, max_length=1000)] | Annotated[str, Field(min_length=1)]
    env: Annotated[dict[str, str], Field(max_length=1000)] = {}
    cwd: Annotated[str, Field(max_length=4096)] = ""
    stdin: Annotated[Octets, Field(description=f"Its standard input, in base64; at most {LONGEST_STDIN} bytes.")] = b""
    apart: Annotated[StrictBool, Field(description="Keep its standard error by itself.")] = False
    ends_lease: Annotated[StrictBool, Field(description="Release the lease when it is over.")] = False


class ServerAct(Body):
    """An action on the web server; `test` only checks its configuration."""

    act: Literal["start", "stop", "restart", "reload", "test"]


class Reason(Body):
    """An optional reason for the request."""

    reason: Text = ""


class NeededMessage(Body):
    """A required message that explains the request."""

    message: Annotated[str, Field(min_length=1, max_length=2000)]


class NeededReason(Body):
    """A required reason for the request."""

    reason: Annotated[str, Field(min_length=1, max_length=2000)]


class Empty(Body):
    """An empty object."""


class AskAuthorization(Body):
    """A request for permission to use a blueprint, with an optional message for the operators."""

    blueprint: Name
    message: Text = ""


class NewToken(Body):
    """A token to create. Its scope (`read`, `lease`, or `operate` for operators) cannot exceed that of the token used
    to create it."""

    name: Name
    scope: Literal["read", "lease", "operate"] = "lease"
    ttl: Annotated[Span | None, Field(description="90 days, or as long as it can be, when nothing is said.")] = None
    user: Annotated[Holder | None, Field(description="Operators: for this user.")] = None
