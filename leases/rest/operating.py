"""Request bodies that only operators send."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict, StrictBool, StrictInt

from leases.rest.bodies import Body, Holder, Name, Span, Text

Seconds = Annotated[float, Strict(), Field(gt=0, le=315_360_000)]
Json = dict[str, Any]
Count = Annotated[StrictInt, Field(ge=0, lt=1 << 31)]
Order = Annotated[StrictInt, Field(ge=-(1 << 31), lt=1 << 31)]


class Power(Body):
    """The power action for a resource."""

    wanted: Literal["on", "off", "cycle"]


class HostAddress(Body):
    """The address and SSH port of a host."""

    address: Annotated[str, Field(min_length=1, max_length=255)]
    port: Annotated[StrictInt, Field(ge=1, le=65535)] = 22


class BlueprintChange(Body):
    """Changes to a blueprint. Fields that are null or missing are left unchanged; `clear` names the fields to empty."""

    kind: Name | None = None
    config: Json | None = None
    order: Order | None = None
    audience: Literal["everyone", "authorized"] | None = None
    max_resources: Count | None = None
    min_ready: Count | None = None
    max_builds: Count | None = None
    max_outdated: Count | None = None
    idle_timeout: Span | Seconds | None = None
    max_lifetime: Span | Seconds | None = None
    check_interval: Span | Seconds | None = None
    default_ttl: Annotated[Span | Seconds | None, Field(description="How long a lease lasts that names no end.")] = None
    max_ttl: Annotated[
        Span | Seconds | None, Field(description="The longest that a lease may last, unless an operator lets it.")
    ] = None
    note: Text | None = None
    clear: Annotated[list[Name], Field(max_length=20)] = []


class NewBlueprint(BlueprintChange):
    """A blueprint to add."""

    name: Name
    kind: Name
    config: Json = {}
    enabled: StrictBool = True


class Decision(Body):
    """Authorize a user or a group to use a blueprint, or decline it. Give either `user` or `group`."""

    blueprint: Name
    allow: Annotated[StrictBool, Field(description="False declines, or takes it back.")] = True
    user: Holder = ""
    group: Holder = ""
    message: Text = ""


class Quota(Body):
    """Limits for a user or a group. Null removes a limit; limits that are left out are unchanged."""

    user: Holder = ""
    group: Holder = ""
    max_leases: Count | None = None
    max_slots: Count | None = None
    max_cpu_millicores: Count | None = None
    max_ram_mib: Count | None = None
    max_disk_mib: Count | None = None
    default_ttl: Annotated[Span | Seconds | None, Field(description="How long a lease lasts that names no end.")] = None
    max_ttl: Annotated[
        Span | Seconds | None, Field(description="The longest that a lease may last, unless an operator lets it.")
    ] = None


class Budget(Body):
    """The maximum hourly cost for a user, for a group, or for everything that a blueprint has built."""

    user: Holder = ""
    group: Holder = ""
    blueprint: Annotated[str, Field(max_length=63)] = ""
    max_hourly: Annotated[float, Strict(), Field(ge=0, le=1e9, description="US dollars an hour.")]


class NewCredential(Body):
    """Secrets to store under a name. They can never be read back."""

    name: Name
    secrets: Json
    note: Text = ""


class CredentialChange(Body):
    """Secrets that replace all stored ones, or a new note."""

    secrets: Json | None = None
    note: Text | None = None


class Chosen(Body):
    """Restrict the action to a type or a blueprint."""

    type: Annotated[str, Field(max_length=63)] = ""
    blueprint: Annotated[str, Field(max_length=63)] = ""


class OfBlueprint(Body):
    """Restrict the action to a blueprint."""

    blueprint: Annotated[str, Field(max_length=63)] = ""


class Registration(BaseModel):
    """The registration fields defined by the blueprint's kind. `kinds` returns their schema."""

    model_config = ConfigDict(extra="allow")


UserName = Annotated[str, Field(min_length=1, max_length=150)]
GroupNames = Annotated[list[UserName], Field(max_length=100)]
Password = Annotated[
    str | None, Field(max_length=1000, description="Null: a new one is made up, and answered with, only this once.")
]


class NewUser(Body):
    """A user to add. An operator can see and change everything, and administers users."""

    user: UserName
    operator: StrictBool = False
    groups: GroupNames = []
    password: Password = None


class NewPassword(Body):
    """A new password for a user."""

    password: Password = None


class GroupChange(Body):
    """Groups to join and to leave. Missing groups to join are created."""

    add: GroupNames = []
    remove: GroupNames = []
