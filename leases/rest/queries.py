"""Query parameters. Unknown parameters are refused, so that a misspelled filter does not list everything."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, ConfigDict, Field, PlainValidator, WithJsonSchema, field_validator

from leases.validation.fields import Moment
from leases.validation.offer_query import PLACE, OfferFilter, OfferSearch
from leases.validation.scalars import Flag, Number, Whole
from leases.validation.usage_query import By, UsageFilter

Id = Annotated[Whole, Field(ge=1, lt=1 << 63)]
Word = Annotated[str, Field(max_length=255)]
Limit = Annotated[Whole, Field(ge=1, le=1000, description="Maximum number of results.")]
Cursor = Annotated[
    str, Field(pattern=r"^[0-9]{1,18}$", description="The value of `next` on the previous page."), AfterValidator(int)
]
"""The id of the last row of the previous page. It is a string, because the cursors of other lists are not numbers."""
LONGEST_PATH = 4096


def _path(value: Any) -> str:
    """Validate a path.

    Pydantic's own string validation refuses the lone surrogates that stand for bytes that are not UTF-8.
    """
    if not isinstance(value, str) or len(value) > LONGEST_PATH:
        raise ValueError(f"a path must be a string of at most {LONGEST_PATH} characters")
    return value


Where = Annotated[
    str, PlainValidator(_path),
    WithJsonSchema(
        {
            "type": "string", "maxLength": LONGEST_PATH,
            "description": "Path in the lease; it cannot lead outside. Bytes that are not UTF-8 are percent-encoded "
            "unchanged; in answers they appear as `\\udc80` to `\\udcff`.",
        }
    ),
]  # fmt: skip
Offset = Annotated[Whole, Field(ge=0, lt=1 << 62, description="Offset of the first byte.")]
Bytes = Annotated[Whole, Field(ge=1, le=16 << 20, description="Maximum number of bytes.")]
State = Literal["pending", "acquired", "active", "released", "destroyed", "broken"]


class Query(BaseModel):
    """The base class of query parameters. Unknown parameters are refused."""

    model_config = ConfigDict(extra="forbid")


class For(Query):
    """Let an operator act for another user."""

    owner: Annotated[str | None, Field(max_length=150, description="For operators: act for this user.")] = None


class LeaseFilter(For):
    """Filters for leases."""

    state: Annotated[
        list[State] | None, Field(description="Only leases in these states. Default: leases that have not ended.")
    ] = None
    all: Annotated[Flag, Field(description="Include leases that have ended.")] = False
    type: Word = ""
    label: Annotated[Word, Field(description="`key` or `key=value`.")] = ""
    name: Word = ""
    resource: Id | None = None
    group: Id | None = None
    held: Annotated[Flag, Field(description="Include leases that other leases and resources hold.")] = False
    search: Annotated[Word, Field(description="Beginning of a name, or words from a note.")] = ""
    limit: Limit = 200
    cursor: Cursor | None = None


class Wait(Query):
    """The maximum time to wait for a lease."""

    wait: Annotated[
        Number,
        Field(
            ge=0, le=3600,
            description="Answer as soon as the lease is active or has ended (with `If-None-Match`: has changed), or "
                "after this number of seconds, up to the server's limit.",
        ),
    ] = 0.0  # fmt: skip


class Instances(For):
    """Filters for instances."""

    state: Annotated[
        list[
            Literal[
                "pending",
                "running",
                "stopping",
                "stopped",
                "terminating",
                "released",
                "terminated",
                "reassigned",
                "failed",
            ]
        ]
        | None,
        Field(description="Only instances in these states. Default: instances that have not ended."),
    ] = None
    all: Annotated[Flag, Field(description="Include instances that have ended.")] = False
    location: Annotated[Word, Field(description="Only instances in this region.")] = ""
    instance_type: Word = ""
    tag: Annotated[Word, Field(description="`key` or `key=value`.")] = ""
    name: Word = ""
    limit: Limit = 200
    cursor: Cursor | None = None


class NewInstance(For, Wait):
    """The user to request an instance for, and the maximum time to wait until it is running."""


class Place(Query):
    """A path in the lease; the root by default."""

    path: Where = ""


class File(Query):
    """A required path in the lease."""

    path: Where

    @field_validator("path")
    @classmethod
    def _named(cls, path: str) -> str:
        if not path:
            raise ValueError("a path is required")
        return path


class Removal(Query):
    """The file or folder to remove."""

    path: Where
    recursive: Annotated[Flag, Field(description="Also remove the contents of a folder.")] = False


class Part(Query):
    """The part of an output to read."""

    offset: Offset = 0
    limit: Bytes = 1 << 20


class ConsoleRead(Query):
    """The part of a console's output to read, and how long to wait for it."""

    offset: Offset = 0
    limit: Annotated[Whole, Field(ge=1, le=256 << 10, description="Maximum number of bytes.")] = 64 << 10
    session: Annotated[str, Field(max_length=36, description="A session that attaching has returned.")] = ""
    revision: Annotated[
        Whole, Field(ge=-1, lt=1 << 63, description="Answer at once if this is no longer the revision.")
    ] = -1
    wait: Annotated[
        Number,
        Field(ge=0, le=60, description="Wait for output for up to this number of seconds, and the server's limit."),
    ] = 0.0


class Output(Part):
    """The part of a job's output to read, and from which stream."""

    stream: Annotated[
        Literal["stdout", "stderr"], Field(description="`stderr` requires a job that keeps standard error separately.")
    ] = "stdout"


class Log(Part):
    """The part of a log to read."""

    kind: Literal["access", "error"] = "access"


class OfLease(Query):
    """Filter by lease."""

    lease: Id | None = None


class ResourceFilter(Query):
    """Filters for resources."""

    type: Word = ""
    blueprint: Word = ""
    name: Word = ""
    state: Literal["", "pending", "active", "released", "destroyed", "broken"] = ""
    gone: Annotated[Flag, Field(description="Include resources that no longer exist.")] = False
    limit: Limit = 200
    cursor: Cursor | None = None


class ErasureFilter(Query):
    """Filters for erasure records."""

    resource: Id | None = None
    name: Annotated[Word, Field(description="Name of the machine at the time.")] = ""
    lease: Id | None = None
    serial: Annotated[Word, Field(description="Serial number or WWN of a disk.")] = ""
    since: Annotated[Moment, Field(description="Only records that were written at this time or later.")] = None
    verified: Annotated[
        Flag | None, Field(description="true: only proven erasures. false: only disks that are not proven erased.")
    ] = None
    limit: Limit = 200
    cursor: Cursor | None = None


class SensorFilter(Query):
    """Filters for what the sensors of a resource measured."""

    since: Annotated[
        Moment, Field(description="What was measured at this time or later. Omit it for what was measured last.")
    ] = None
    limit: Limit = 200
    cursor: Cursor | None = None


class Offers(OfferSearch):
    """Filters and sort order for offers."""

    limit: Limit = 200
    cursor: Annotated[
        str | None, Field(pattern=PLACE, max_length=120, description="The value of `next` on the previous page.")
    ] = None


class InstanceTypes(OfferFilter):
    """Filters for the offers that instance types are built from."""

    limit: Limit = 200
    cursor: Cursor | None = None


class OfType(Query):
    """Filter by type."""

    type: Word = ""


class Reading(Query):
    """The amount of detail to return about credentials."""

    capabilities: Annotated[
        Flag, Field(description="Include the capabilities of the clouds. This loads the clouds' clients.")
    ] = False


class AuthorizationFilter(Query):
    """Filters for authorizations."""

    blueprint: Word = ""
    state: Literal["", "requested", "authorized", "declined"] = ""


class AgentFilter(Query):
    """Filters for agents."""

    blueprint: Word | None = None
    all: Annotated[Flag, Field(description="Include agents that were revoked.")] = False


class HardwareFilter(Query):
    """Filters for the hardware of hosts."""

    host: Annotated[Word, Field(description="The name or the id of a host.")] = ""
    blueprint: Word = ""
    limit: Limit = 200
    cursor: Cursor | None = None


class OfUser(Query):
    """Filter by user."""

    user: Annotated[str | None, Field(max_length=150, description="For operators: only results for this user.")] = None


class TokenFilter(OfUser):
    """Filters for tokens."""

    limit: Limit = 200
    cursor: Cursor | None = None


class Holder(Query):
    """A user or a group."""

    user: Annotated[str, Field(max_length=150)] = ""
    group: Annotated[str, Field(max_length=150)] = ""


class _AsTable(UsageFilter):
    """Filters for usage records, and the output format."""

    as_: Annotated[
        Literal["", "json", "csv"], Field(alias="as", description="`csv` returns a table for spreadsheets.")
    ] = ""


class UsageReport(_AsTable):
    """Filters for usage records, and how to group them."""

    by: By = "owner"


class UsageRecords(_AsTable):
    """Filters for usage records."""

    limit: Limit = 200
    cursor: Cursor | None = None


class Spender(Query):
    """A user, a group or a blueprint."""

    user: Annotated[str, Field(max_length=150)] = ""
    group: Annotated[str, Field(max_length=150)] = ""
    blueprint: Annotated[str, Field(max_length=63)] = ""


class LeaseEvents(Query):
    """Filters for a lease's events, in order of id."""

    kind: Annotated[Word, Field(description="Beginning of the kind, such as `lease.`.")] = ""
    after: Annotated[Whole, Field(ge=0, lt=1 << 63, description="Only events after this id.")] = 0
    limit: Limit = 200
    newest: Annotated[Flag, Field(description="The last events instead of the first.")] = False


class EventFilter(LeaseEvents):
    """Filters for events, in order of id."""

    lease: Id | None = None
    resource: Id | None = None
    blueprint: Word = ""
