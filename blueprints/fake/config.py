"""Config of blueprints of kind fake, attributes of its resources, and requirements of leases."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, JsonValue, SecretStr, model_validator

from blueprints.contract import Acts, Consoles, Fields, Powers, Reboots, Resizes, Retypes, Tags
from blueprints.dpuservices import (
    ChainConfig,
    ChartConfig,
    Ranges,
    VolumeConfig,
    VpcConfig,
    networks_need_chains,
)
from blueprints.fake.capacity import Capacity
from blueprints.fake.faults import Fault, LeaseFields
from blueprints.matching import Match

ABILITIES: Mapping[str, type] = {
    one.__name__.lower(): one for one in (Powers, Reboots, Resizes, Retypes, Tags, Consoles, Acts)
}
"""Abilities that a config may remove, by name."""


class Attributes(Fields):
    """Attributes of a fake resource."""

    color: str | None = Field(default=None, description="Any text.")
    size: int | None = Field(default=None, description="Any number.")
    zone: str | None = Field(default=None, description="Zone of the resource.")
    labels: tuple[str, ...] | None = Field(default=None, description="Any texts.")


class Requirements(Fields):
    """Requirements that a lease may set for its fake resource."""

    color: str | None = Field(default=None, description="Required color.")
    size: int | None = Field(default=None, description="Minimum size.")
    zones: tuple[str, ...] | None = Field(default=None, description="Allowed zones.")
    labels: tuple[str, ...] | None = Field(default=None, description="Required labels.")


MATCHES = (
    Match("color", "=", "color"),
    Match("size", ">=", "size"),
    Match("zone", "in", "zones"),
    Match("labels", "contains_all", "labels"),
)


class Offer(Fields):
    """One offer from the provider: an instance type in a zone at a price."""

    offer: str
    zone: str = ""
    price: float | None = Field(default=None, ge=0)
    capacity: Capacity | None = Field(default=None, description="The capacity; by default that of the blueprint.")
    attributes: Attributes = Field(default=Attributes(), description="Attributes that override those of the blueprint.")


class Parts(Fields):
    """Named parts that every resource has, such as GPUs."""

    part_class: str
    count: int = Field(default=1, ge=1, le=64)
    attributes: Mapping[str, JsonValue] = {}


class Config(Fields):
    """Config of a blueprint of kind fake. By default, every step succeeds at once."""

    provider: str = Field(default="default", pattern=r"^[a-z0-9][a-z0-9_-]{0,62}$")
    capacity: Capacity = Capacity()
    attributes: Attributes = Attributes()
    traits: tuple[str, ...] = ()
    identities: Mapping[str, str] = Field(default={}, description="Identities that the last step of a build reports.")
    parts: tuple[Parts, ...] = ()
    offers: tuple[Offer, ...] = Field(default=(), description="Offers, in the order in which they are tried.")
    catalogue: Literal["fresh", "stale"] = Field(default="fresh", description="stale: drafts raise CatalogueStale.")
    flash_polls: int = Field(
        default=0, ge=0, description="Number of polls in the step flash, which cannot be interrupted."
    )
    boot_polls: int = Field(default=0, ge=0, description="Number of polls in the step boot, with a rising percentage.")
    destroy_polls: int = Field(default=0, ge=0, description="Number of polls until a deletion is done.")
    clean_apart: bool = Field(default=False, description="Clean resources apart from their leases (fake_activated).")
    clean_polls: int = Field(default=0, ge=0, description="Number of polls in the step wipe, with a rising percentage.")
    disks: int = Field(default=0, ge=0, le=64, description="Number of disks whose erasure the step wipe reports.")
    poll_seconds: float = Field(default=0.1, ge=0, description="Seconds between two polls.")
    watch: bool = Field(default=False, description="Watch the provider, and poll less often meanwhile.")
    watch_health: bool = Field(default=False, description="Check after changes, and seldom otherwise, during a watch.")
    bulk_checks: bool = Field(default=False, description="Check idle resources together.")
    watched_seconds: float = Field(default=30.0, ge=0, description="Seconds between two polls during a watch.")
    lacks: tuple[Literal["powers", "reboots", "resizes", "retypes", "tags", "consoles", "acts"], ...] = Field(
        default=(), description="Capabilities that these machines lack."
    )
    page_size: int = Field(default=100, ge=1, description="Number of planted objects on one page of a report.")
    agents: tuple[str, ...] = Field(default=(), description="Places in which an agent must run.")
    places: tuple[str, ...] = Field(default=(), description="Places in which agents may report; empty: any.")
    carrier: LeaseFields | None = Field(
        default=None, description="Lease of the resource on which each one is built; it is exclusive and for life."
    )
    credential: str = Field(default="", description="Credential with the `password` of all instances.")
    secrets: bool = Field(default=False, description="A build generates a password, which is stored as a secret.")
    charts: tuple[ChartConfig, ...] = Field(
        default=(), description="Charts that owners may install as services (fake_activated)."
    )
    chains: ChainConfig | None = Field(
        default=None, description="Whether owners may connect chains, and what (fake_activated); by default not."
    )
    networks: Ranges = Field(
        default=(), description="Ranges of addresses that owners may use for networks (fake_activated)."
    )
    volumes: VolumeConfig | None = Field(
        default=None, description="Whether owners may have volumes, and which (fake_activated); by default not."
    )
    vpcs: VpcConfig | None = Field(
        default=None, description="Whether owners may create VPCs, and which (fake_activated); by default not."
    )
    faults: tuple[Fault, ...] = ()

    @model_validator(mode="after")
    def _networks_are_of_use(self) -> Self:
        networks_need_chains(self.networks, self.chains)
        return self


FLASHED = (
    "attributes", "capacity", "carrier", "disks", "identities", "lacks", "offers", "parts", "provider", "secrets",
)  # fmt: skip
"""Fields for which an instance is flashed and restarted if they change. Nothing of leases is left on it then."""


class Registration(Fields):
    """Registration of a fake resource by hand."""

    name: str = Field(min_length=1)
    identity: str = Field(default="", description="Identity, stable and unique in the blueprint. Empty: the name.")
    identities: Mapping[str, str] = Field(default={}, description="Serial numbers and the like, by namespace.")
    capacity: Capacity | None = Field(default=None, description="The capacity; by default that of the blueprint.")
    attributes: Attributes = Field(default=Attributes(), description="Attributes that override those of the blueprint.")


class OwnCredential(Fields):
    """The credential of one fake resource."""

    user: str = ""
    password: SecretStr


def merged(*layers: Attributes) -> dict[str, Any]:
    """Return the attributes that are set, as JSON; later layers override earlier ones."""
    found: dict[str, Any] = {}
    for layer in layers:
        found |= layer.model_dump(mode="json", exclude_none=True)
    return found
