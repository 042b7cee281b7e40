"""What an instance is asked for by, in a cloud's own words, and the lease that this is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict, ValidationError

from drydock.core.errors import InvalidRequest
from leases.fields import Key, Mib, Moment, PublicKey, Span, Text, Word
from leases.requests import invalid

Words = Annotated[tuple[Word, ...], Field(max_length=100)]
_MARKETS = {"on_demand": ["on_demand"], "spot": ["spot"], "any": ["on_demand", "spot"]}


class InstanceRequest(BaseModel):
    """One cloud machine, alone. What is left out is decided by what is offered: the cheapest that fits comes first."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    instance_type: Annotated[Words, Field(description="One of these types, as the cloud calls them.")] = ()
    location: Annotated[Words, Field(description="In one of these regions.")] = ()
    zone: Annotated[Words, Field(description="In one of these zones.")] = ()
    continent: Annotated[Words, Field(description="On one of: AF, AS, EU, NA, OC, SA.")] = ()
    market: Annotated[
        Literal["on_demand", "spot", "any"], Field(description="Spot is cheaper, and taken back when it is needed.")
    ] = "on_demand"
    max_price: Annotated[float | None, Field(gt=0, lt=1e9, description="US dollars an hour at most.")] = None
    image: Annotated[Text, Field(description="This image, by the cloud's id; empty: as the blueprint says.")] = ""
    arch: Annotated[Text, Field(description="x86_64 or arm64.")] = ""
    vcpus: Annotated[int, Strict(), Field(ge=0, le=100_000, description="Minimum number of vCPUs.")] = 0
    ram_mib: Annotated[Mib, Field(description='Minimum memory in MiB, or such as "64GiB".')] = 0
    disk_gib: Annotated[int, Strict(), Field(ge=0, le=1 << 20, description="Size of the boot disk.")] = 0
    gpu: Annotated[Text, Field(description="With GPUs of this model, such as a100.")] = ""
    gpus: Annotated[int, Strict(), Field(ge=0, le=1 << 20, description="Minimum number of GPUs.")] = 0
    confidential: Annotated[Words, Field(description="With these technologies: tdx, sev_snp, sev.")] = ()
    user_data: Annotated[
        dict[str, Any] | Annotated[str, Field(max_length=16_384)],
        Field(description="A cloud-config, as YAML text or JSON; no place for secrets."),
    ] = ""
    ports: Annotated[
        tuple[Annotated[int, Strict(), Field(ge=1, le=65535)], ...],
        Field(max_length=20, description="TCP ports that are open from outside."),
    ] = ()
    public_keys: Annotated[tuple[PublicKey, ...], Field(max_length=100)] = ()
    blueprints: Annotated[Words, Field(description="Only these backends, by name.")] = ()
    choose: Annotated[Literal["", "order", "price", "fastest"], Field(description="Which backend comes first.")] = ""
    name: Text = ""
    tags: Annotated[dict[Word, Text], Field(max_length=100, description="Kept as labels of the lease.")] = {}
    ttl: Annotated[Span, Field(description="It ends so long after it runs.")] = None
    until: Annotated[Moment, Field(description="It ends then at the latest.")] = None
    wait_limit: Annotated[Span, Field(description="Give up if not granted within this time.")] = None
    idempotency_key: Key | None = None

    def lease(self) -> dict[str, Any]:
        """The lease that it is: exclusive, and of a market, which only cloud machines have."""
        wanted: dict[str, Any] = {
            "market": _MARKETS[self.market], "instance_type": self.instance_type, "region": self.location,
            "zone": self.zone, "continent": self.continent, "max_price": self.max_price, "image": self.image,
            "arch": self.arch, "min_vcpus": self.vcpus, "min_ram_mib": self.ram_mib, "gpu": self.gpu,
            "min_gpus": self.gpus, "ports": self.ports, "user_data": self.user_data,
        }  # fmt: skip
        given: dict[str, Any] = {
            "disk_mib": self.disk_gib * 1024, "traits": self.confidential, "public_keys": self.public_keys,
            "allowed_blueprints": self.blueprints, "choose": self.choose, "name": self.name, "labels": self.tags,
            "ttl": self.ttl, "until": self.until, "wait_limit": self.wait_limit,
            "idempotency_key": self.idempotency_key,
        }  # fmt: skip
        return {
            "type": "host", "exclusive": True, "requirements": _said(wanted), **_said(given),
        }  # fmt: skip


def _said(given: Mapping[str, Any]) -> dict[str, Any]:
    """Without what was left out."""
    return {name: list(one) if isinstance(one, tuple) else one for name, one in given.items() if one}


def read(given: Mapping[str, Any] | InstanceRequest) -> InstanceRequest:
    """The request, checked. Raises InvalidRequest with the field."""
    if isinstance(given, InstanceRequest):
        return given
    if not isinstance(given, Mapping):
        raise InvalidRequest("An instance is asked for by a mapping of names to values.")
    try:
        return InstanceRequest.model_validate(dict(given))
    except ValidationError as error:
        raise invalid(error) from None
