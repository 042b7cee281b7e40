"""What a body may hold, beside `leases.requests.LeaseRequest`."""

from __future__ import annotations

import base64
from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StrictBool, WithJsonSchema

from drydock_client.working import LONGEST_STDIN
from leases.fields import SPAN_TEXT, Moment
from leases.requests import LeaseRequest

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
    """A JSON object; what is not named in it is refused."""

    model_config = ConfigDict(extra="forbid")


class Message(Body):
    """Why, for whoever wonders."""

    message: Text = ""


class DryRun(Body):
    """Only say what would be done."""

    dry_run: StrictBool = False


class Extension(Body):
    """Either of them: so long from now, or until then."""

    ttl: Span | None = None
    until: Moment = None


class Hold(Body):
    """How long the resource is kept as it is; a day when nothing is said."""

    ttl: Span | None = None
    reason: Text = ""


class Group(Body):
    """Leases that are granted all together or not at all."""

    leases: Annotated[list[LeaseRequest], Field(min_length=1, max_length=100)]
    same: Annotated[Literal["", "resource", "parent"], Field(description="What they must share.")] = ""
    different: Annotated[Literal["", "resource", "parent"], Field(description="What each has its own of.")] = ""


class Job(Body):
    """A command: exact arguments, or one line for a shell."""

    command: Annotated[list[str], Field(min_length=1, max_length=1000)] | Annotated[str, Field(min_length=1)]
    env: Annotated[dict[str, str], Field(max_length=1000)] = {}
    cwd: Annotated[str, Field(max_length=4096)] = ""
    stdin: Annotated[Octets, Field(description=f"What it reads, in base64; at most {LONGEST_STDIN} bytes.")] = b""
    apart: Annotated[StrictBool, Field(description="Keep its standard error by itself.")] = False
    ends_lease: Annotated[StrictBool, Field(description="Release the lease when it is over.")] = False


class ServerAct(Body):
    """What to do with the web server; `test` only reads its configuration."""

    act: Literal["start", "stop", "restart", "reload", "test"]


class Reason(Body):
    """Why."""

    reason: Text = ""


class NeededMessage(Body):
    """Why; it is needed."""

    message: Annotated[str, Field(min_length=1, max_length=2000)]


class NeededReason(Body):
    """Why; it is needed."""

    reason: Annotated[str, Field(min_length=1, max_length=2000)]


class Empty(Body):
    """Nothing is to be said."""


class AskAuthorization(Body):
    """Which blueprint, and why."""

    blueprint: Name
    message: Text = ""


class NewToken(Body):
    """A token to make: `read`, `lease`, or `operate` for operators; never more than the token that asks for it."""

    name: Name
    scope: Literal["read", "lease", "operate"] = "lease"
    ttl: Annotated[Span | None, Field(description="90 days, or as long as it can be, when nothing is said.")] = None
    user: Annotated[Holder | None, Field(description="Operators: for this user.")] = None
