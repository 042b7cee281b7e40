"""The query for usage records, with the same fields in Python, in REST and on the command line."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from leases.validation.fields import Moment, Text
from leases.validation.scalars import Whole

By = Literal["owner", "group", "lease", "blueprint", "kind", "resource", "place", "type", "market"]

Id = Annotated[Whole | None, Field(ge=1, lt=1 << 63)]


class UsageFilter(BaseModel):
    """Conditions on usage records. A field that is omitted is not a condition."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    since: Annotated[Moment, Field(description="Start of the time span. Default: 30 days before `until`.")] = None
    until: Annotated[Moment, Field(description="End of the time span. Default: now.")] = None
    owner: Annotated[Text, Field(description="Name of the user.")] = ""
    group: Annotated[Text, Field(description="Name of the group that was charged.")] = ""
    lease: Annotated[Id, Field(description="Id of the lease.")] = None
    blueprint: Annotated[Text, Field(description="Name of the blueprint.")] = ""
    kind: Annotated[Text, Field(description="Kind, such as ec2.")] = ""
    place: Annotated[Text, Field(description="Place, such as us-east-1.")] = ""
    type: Annotated[Text, Field(description="Instance type.")] = ""
    market: Annotated[Text, Field(description="Market, such as spot.")] = ""
