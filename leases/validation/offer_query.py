"""The query for offers, with the same fields in Python, in REST and on the command line."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field

from leases.validation.fields import BIGGEST, Mib, Text
from leases.validation.scalars import Flag, Number, Whole

_NUMBER = r"-?[0-9]{1,20}(\.[0-9]{1,25})?(e[-+]?[0-9]{1,3})?"

PLACE = rf"^(({_NUMBER})?_){{0,2}}[0-9]{{1,18}}$"

"""A position in an ordered list: the values by which the list is ordered, if they are known, and an id."""

Texts = Annotated[list[Text] | None, Field(max_length=100)]


class OfferFilter(BaseModel):
    """Conditions on offers. A field that is omitted is not a condition."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    kind: Annotated[Text, Field(description="Kind, such as ec2.")] = ""
    credential: Annotated[Text, Field(description="Name of the account.")] = ""
    region: Annotated[Texts, Field(description="Allowed locations.")] = None
    continent: Annotated[
        list[Literal["AF", "AS", "EU", "NA", "OC", "SA"]] | None, Field(description="Allowed continents.")
    ] = None
    zone: Annotated[Texts, Field(description="Allowed zones.")] = None
    type: Annotated[Texts, Field(description="Allowed types; `*` matches any text.")] = None
    market: Annotated[Literal["", "on_demand", "spot"], Field(description="Market.")] = ""
    arch: Annotated[Text, Field(description="Architecture: x86_64 or arm64.")] = ""
    vcpus: Annotated[Whole, Field(ge=0, le=BIGGEST // 1000, description="Minimum number of vCPUs.")] = 0
    ram_mib: Annotated[Mib, Field(description='Minimum memory in MiB, or with a unit such as "64GiB".')] = 0
    gpu: Annotated[Text, Field(description="GPU model, such as a100.")] = ""
    gpu_maker: Annotated[Text, Field(description="GPU vendor: nvidia, amd, ...")] = ""
    gpus: Annotated[Whole, Field(ge=0, le=1 << 20, description="Minimum number of GPUs.")] = 0
    gpu_memory_mib: Annotated[Mib, Field(description="Minimum memory of each GPU.")] = 0
    confidential: Annotated[
        list[Literal["sev", "sev_snp", "tdx"]] | None, Field(description="Required technologies.")
    ] = None
    max_price: Annotated[Number | None, Field(gt=0, lt=1e9, description="Maximum price in US dollars per hour.")] = None
    max_boot: Annotated[
        Number | None, Field(gt=0, lt=1e9, description="Maximum number of seconds until a machine can be used.")
    ] = None
    all: Annotated[Flag, Field(description="Include offers that were not available at the last poll.")] = False


class OfferSearch(OfferFilter):
    """Conditions on offers, and the order of the result."""

    sort: Annotated[
        Literal["price", "fastest", "vcpus", "ram"],
        Field(description="Sort order: cheapest first, ready soonest first, or most vCPUs or memory first."),
    ] = "price"
