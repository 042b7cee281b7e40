"""Offers: what a provider would give, where and at what price; and what is looked for among them. Frozen values.

Prices are per hour in US dollars, sizes in MiB or GiB as named.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from blueprints.amounts import Amounts


@dataclass(frozen=True, kw_only=True)
class Account:
    """A stored credential as the kind sees it that reads with it."""

    name: str
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, kw_only=True)
class Place:
    """A location of a provider, such as a region: what is read in one go."""

    name: str
    zones: tuple[str, ...] = ()
    country: str = ""
    available: bool = True


@dataclass(frozen=True, kw_only=True)
class Offer:
    """One type of instance in one zone and market."""

    location: str
    type: str
    zone: str = ""
    market: str = "on_demand"
    price: float | None = None
    price_source: str = ""
    vcpus: int = 0
    ram_mib: int = 0
    arch: str = "x86_64"
    gpu_maker: str = ""
    gpu_model: str = ""
    gpu_count: int = 0
    gpu_memory_mib: int = 0
    """Of each."""
    local_disk_gib: int = 0
    network: str = ""
    confidential: tuple[str, ...] = ()
    family: str = ""
    """What allowances it is counted by, besides those of all offers; several are separated by spaces."""
    country: str = ""
    boot_seconds: float | None = None
    """Until a machine of it could be used: as seen, else as the provider says."""
    available: bool = True

    @property
    def place(self) -> str:
        """Zone or location, unique over an account: some providers number the zones of each location."""
        if not self.zone:
            return self.location
        return self.zone if self.zone.startswith(self.location) else f"{self.location}-{self.zone}"

    @property
    def name(self) -> str:
        """Stable and unique over an account: what is remembered when it fails."""
        return f"{self.place}/{self.type}/{self.market}"

    @property
    def counted(self) -> str:
        """What quotas count it by: location, family and market."""
        return f"{self.location}/{self.family}/{self.market}"


def type_in(name: str) -> str:
    """The type in an offer's name."""
    return name.partition("/")[2].rpartition("/")[0]


def counts(key: str, counted: str) -> bool:
    """Whether a key rules out what is counted so (`Offer.counted`): each of its parts that is not empty fits."""
    parts = (*key.split("/"), "", "")
    return bool(counted) and all(part in ("", there) for part, there in zip(parts, counted.split("/"), strict=False))


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """What an account may have of something at once, and has, whoever made it: a provider's quota."""

    name: str
    """As the provider calls it."""
    limit: float
    used: float
    location: str = ""
    """Empty: over all locations."""
    family: str = ""
    """Of offers (`Offer.family`); empty: of all."""
    market: str = ""
    """Empty: of all markets."""
    unit: str = "vcpus"
    """What is counted: one of `UNITS`."""

    def takes(self, offer: Offer, *, addresses: int) -> float:
        """What a machine of an offer, with so many public addresses, takes of it; 0 where it does not count that."""
        counted = {"vcpus": offer.vcpus, "gpus": offer.gpu_count, "instances": 1, "addresses": addresses}
        applies = (
            self.location in ("", offer.location)
            and self.market in ("", offer.market)
            and (not self.family or self.family in offer.family.split())
        )
        return float(counted.get(self.unit, 0)) if applies else 0.0


UNITS = ("vcpus", "gpus", "instances", "addresses")


@dataclass(frozen=True, kw_only=True)
class Sought:
    """What is looked for among an account's offers. What is empty is not asked."""

    account: str
    locations: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    countries: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    """Names, or patterns with `*`."""
    names: tuple[str, ...] = ()
    """One of these types, which must fit `types` too."""
    markets: tuple[str, ...] = ("on_demand",)
    arch: str = ""
    amounts: Amounts = field(default_factory=Amounts)
    """Processors and memory at least."""
    gpu_maker: str = ""
    gpu_model: str = ""
    gpu_count: int = 0
    gpu_memory_mib: int = 0
    confidential: tuple[str, ...] = ()
    """All of these."""
    addresses: int = 0
    """Public addresses that a machine of it will have; nothing is looked for by them, but allowances count them."""
    max_price: float | None = None
