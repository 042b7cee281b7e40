"""Frozen values for the offers of a provider (instance types, places and prices), and for queries.

Prices are in US dollars per hour. Names ending in `_mib` and `_gib` give sizes in MiB and GiB.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from blueprints.amounts import Amounts


@dataclass(frozen=True, kw_only=True)
class Account:
    """A stored credential, as it is passed to the kind that polls with it."""

    name: str
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False)


@dataclass(frozen=True, kw_only=True)
class Place:
    """A location of a provider, such as a region, that one poll covers."""

    name: str
    zones: tuple[str, ...] = ()
    country: str = ""
    available: bool = True


@dataclass(frozen=True, kw_only=True)
class Offer:
    """An instance type in one zone and market, at a price."""

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
    """Memory of each GPU."""
    local_disk_gib: int = 0
    network: str = ""
    confidential: tuple[str, ...] = ()
    family: str = ""
    """Names of the quotas that count the offer, besides those for all offers, separated by spaces."""
    country: str = ""
    boot_seconds: float | None = None
    """Seconds until such a machine is usable: as measured or, if unknown, as stated by the provider."""
    available: bool = True

    @property
    def place(self) -> str:
        """The zone or, without a zone, the location. The name is unique within an account.

        The name includes the location, because some providers number the zones of each location.
        """
        if not self.zone:
            return self.location
        return self.zone if self.zone.startswith(self.location) else f"{self.location}-{self.zone}"

    @property
    def name(self) -> str:
        """The name of the offer, stable and unique within an account. Remembered errors refer to it."""
        return f"{self.place}/{self.type}/{self.market}"

    @property
    def counted(self) -> str:
        """The location, family and market of the offer, by which provider quotas count it."""
        return f"{self.location}/{self.family}/{self.market}"


def type_in(name: str) -> str:
    """Return the instance type that an offer's name contains."""
    return name.partition("/")[2].rpartition("/")[0]


def counts(key: str, counted: str) -> bool:
    """Return whether the provider quota `key` applies to an offer that counts against `counted` (see `Offer.counted`).

    An empty part of `key` applies to any value.
    """
    parts = (*key.split("/"), "", "")
    return bool(counted) and all(part in ("", there) for part, there in zip(parts, counted.split("/"), strict=False))


@dataclass(frozen=True, kw_only=True)
class Allowance:
    """A provider quota: the limit and the amount that the account uses, including use outside Drydock."""

    name: str
    """The provider's name for the quota."""
    limit: float
    used: float
    location: str = ""
    """The location that the quota covers; empty for all locations."""
    family: str = ""
    """The family of offers that the quota counts (`Offer.family`); empty for all."""
    market: str = ""
    """The market that the quota covers; empty for all markets."""
    unit: str = "vcpus"
    """The unit that is counted: one of `UNITS`."""

    def takes(self, offer: Offer, *, addresses: int) -> float:
        """Return how much of the provider quota one machine of this offer with `addresses` public addresses uses.

        Returns 0 if the provider quota does not count the offer.
        """
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
    """A query for offers of an account. A field that is empty does not restrict the query."""

    account: str
    locations: tuple[str, ...] = ()
    zones: tuple[str, ...] = ()
    countries: tuple[str, ...] = ()
    types: tuple[str, ...] = ()
    """Names of types, or patterns with `*`."""
    names: tuple[str, ...] = ()
    """Exact names of types, which must also match `types`."""
    markets: tuple[str, ...] = ("on_demand",)
    arch: str = ""
    amounts: Amounts = field(default_factory=Amounts)
    """Minimum processors and memory."""
    gpu_maker: str = ""
    gpu_model: str = ""
    gpu_count: int = 0
    gpu_memory_mib: int = 0
    confidential: tuple[str, ...] = ()
    """Confidential technologies; an offer must have all of them."""
    addresses: int = 0
    """Number of public addresses of the machine. It does not restrict the query, but counts against quotas."""
    max_price: float | None = None
