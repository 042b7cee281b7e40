"""The query for usage records, with the same fields in Python, in REST and on the command line."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from leases.validation.fields import Moment, Text
from leases.validation.scalars import Whole

By = Literal["owner", "group", "lease", "blueprint", "kind", "resource", "place", "type", "market"]

Id = Annotated[Whole | None, Field(ge=1, lt=1 << 63)]


class UsageFilter(BaseModel):
    """Conditions on usage records. A field that is left out is not a condition."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    since: Annotated[Moment, Field(description="Start of the span; 30 days before `until` if left out.")] = None
    until: Annotated[Moment, Field(description="End of the span; now if left out.")] = None
    owner: Annotated[Text, Field(description="Only of this user.")] = ""
    group: Annotated[Text, Field(description="Only what was charged to this group.")] = ""
    lease: Annotated[Id, Field(description="Only of this lease.")] = None
    blueprint: Annotated[Text, Field(description="Only of this blueprint.")] = ""
    kind: Annotated[Text, Field(description="Only of this kind, such as ec2.")] = ""
    place: Annotated[Text, Field(description="Only in this place, such as us-east-1.")] = ""
    type: Annotated[Text, Field(description="Only of this instance type.")] = ""
    market: Annotated[Text, Field(description="Only of this market, such as spot.")] = ""
