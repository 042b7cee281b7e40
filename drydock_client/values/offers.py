"""Offers of providers, where they are, and how the readings are that they rest on."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class OfferInfo:
    """An instance type in one zone and market of an account, as last read. Prices are US dollars an hour."""

    id: int
    kind: str
    account: str
    location: str
    zone: str
    country: str
    type: str
    market: str
    price: float | None
    price_source: str
    """`provider`, or `bundled` with the date of the table that comes with us."""
    vcpus: int
    ram_mib: int
    arch: str
    gpu_maker: str
    gpu_model: str
    gpu_count: int
    gpu_memory_mib: int
    """Of each."""
    local_disk_gib: int
    network: str
    confidential: tuple[str, ...]
    family: str
    boot_seconds: float | None
    """Until a machine of it could be used: as seen, else as the provider says."""
    available: bool
    changed_at: dt.datetime
    seen_at: dt.datetime | None
    """When its location was last read."""


@dataclass(frozen=True, kw_only=True)
class PriceInfo:
    """What an instance type costs an hour in one zone (empty: in all) and market; None where that is not known."""

    zone: str
    market: str
    price: float | None
    source: str
    available: bool


@dataclass(frozen=True, kw_only=True)
class InstanceTypeInfo:
    """An instance type in one location of an account, with its prices by market and zone."""

    id: int
    kind: str
    account: str
    location: str
    country: str
    type: str
    vcpus: int
    ram_mib: int
    arch: str
    gpu_maker: str
    gpu_model: str
    gpu_count: int
    gpu_memory_mib: int
    local_disk_gib: int
    network: str
    confidential: tuple[str, ...]
    family: str
    boot_seconds: float | None
    available: bool
    prices: tuple[PriceInfo, ...]


@dataclass(frozen=True, kw_only=True)
class LocationInfo:
    """A place that an account is read in. `name` is empty for one that tells of all its places in one reading, until
    it has. `message`, for operators: why the last reading failed."""

    kind: str
    account: str
    name: str
    country: str
    zones: tuple[str, ...]
    offers: int
    seen_at: dt.datetime | None
    message: str


@dataclass(frozen=True, kw_only=True)
class ReadingInfo:
    """What is read of one place of an account: `places`, `inventory` or `status`. `age`: since it last succeeded."""

    kind: str
    what: str
    place: str
    seen_at: dt.datetime | None
    age: dt.timedelta | None
    due_at: dt.datetime
    found: int
    message: str
    """Why the last one failed; empty: it did not."""


@dataclass(frozen=True, kw_only=True)
class ReaderInfo:
    """A kind that reads with a credential. `capabilities`: what its cloud can do; None where that was not asked for
    or the kind is no cloud's. `problem`: why it cannot be told."""

    kind: str
    capabilities: tuple[str, ...] | None = None
    problem: str = ""
