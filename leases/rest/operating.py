"""What a body of an operator may hold."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict, StrictBool, StrictInt

from leases.rest.bodies import Body, Holder, Name, Span, Text

Seconds = Annotated[float, Strict(), Field(gt=0, le=315_360_000)]
Json = dict[str, Any]
Count = Annotated[StrictInt, Field(ge=0, lt=1 << 31)]
Order = Annotated[StrictInt, Field(ge=-(1 << 31), lt=1 << 31)]


class Power(Body):
    """How it is switched."""

    wanted: Literal["on", "off", "cycle"]


class HostAddress(Body):
    """Where a host is."""

    address: Annotated[str, Field(min_length=1, max_length=255)]
    port: Annotated[StrictInt, Field(ge=1, le=65535)] = 22


class BlueprintChange(Body):
    """What is to be different; null, or nothing, leaves a value, and `clear` names columns to empty."""

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
    """Either a user or a group."""

    blueprint: Name
    allow: Annotated[StrictBool, Field(description="False declines, or takes it back.")] = True
    user: Holder = ""
    group: Holder = ""
    message: Text = ""


class Quota(Body):
    """Limits of either a user or a group; null lifts one, and what is left out stays."""

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
    """What a user, a group, or all that a blueprint has built may cost."""

    user: Holder = ""
    group: Holder = ""
    blueprint: Annotated[str, Field(max_length=63)] = ""
    max_hourly: Annotated[float, Strict(), Field(ge=0, le=1e9, description="US dollars an hour.")]


class NewCredential(Body):
    """Secrets to store under a name: they go in and never come out."""

    name: Name
    secrets: Json
    note: Text = ""


class CredentialChange(Body):
    """Other secrets in place of all that are stored, or another note."""

    secrets: Json | None = None
    note: Text | None = None


class Chosen(Body):
    """Only of these."""

    type: Annotated[str, Field(max_length=63)] = ""
    blueprint: Annotated[str, Field(max_length=63)] = ""


class OfBlueprint(Body):
    """Only of this one."""

    blueprint: Annotated[str, Field(max_length=63)] = ""


class Registration(BaseModel):
    """What the kind of the blueprint asks for; its `kinds` entry has the schema."""

    model_config = ConfigDict(extra="allow")


UserName = Annotated[str, Field(min_length=1, max_length=150)]
GroupNames = Annotated[list[UserName], Field(max_length=100)]
Password = Annotated[
    str | None, Field(max_length=1000, description="Null: a new one is made up, and answered with, only this once.")
]


class NewUser(Body):
    """A user to add; an operator sees and changes everything, and administers users."""

    user: UserName
    operator: StrictBool = False
    groups: GroupNames = []
    password: Password = None


class NewPassword(Body):
    """Another password."""

    password: Password = None


class GroupChange(Body):
    """Groups to join, which are made where they are missing, and groups to leave."""

    add: GroupNames = []
    remove: GroupNames = []
