"""Offers of providers, their locations, and the polls that read them."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class OfferInfo:
    """An instance type in one zone and market of an account, as of the last poll. Prices are in US dollars per hour."""

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
    """`provider`, or `bundled` with the date of the bundled table."""
    vcpus: int
    ram_mib: int
    arch: str
    gpu_maker: str
    gpu_model: str
    gpu_count: int
    gpu_memory_mib: int
    """Memory of each GPU."""
    local_disk_gib: int
    network: str
    confidential: tuple[str, ...]
    family: str
    boot_seconds: float | None
    """Seconds until such a machine is usable: as observed or, if that is unknown, as stated by the provider."""
    available: bool
    changed_at: dt.datetime
    seen_at: dt.datetime | None
    """The time at which the location of the offer was last polled."""


@dataclass(frozen=True, kw_only=True)
class PriceInfo:
    """The hourly price of an instance type in a market and zone, or None if unknown. An empty zone means all zones."""

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
    """A location in which an account is polled.

    If one poll covers all locations of an account, `name` is empty before the first poll. `message` says why the last
    poll failed, and is empty unless the caller is an operator.
    """

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
    """A poll of one location of an account.

    `what` is `places`, `inventory` or `status`. `age` is the time since the last successful poll.
    """

    kind: str
    what: str
    place: str
    seen_at: dt.datetime | None
    age: dt.timedelta | None
    due_at: dt.datetime
    found: int
    message: str
    """The reason why the last poll failed; empty if it succeeded."""


@dataclass(frozen=True, kw_only=True)
class WatchInfo:
    """A watch of a place at a provider, by which steps are called soon after a change. Without it, they are polled."""

    kind: str
    place: str
    worker: str
    """The worker that watches; empty if there is none."""
    since: dt.datetime | None
    """Since when the worker has watched."""
    event_at: dt.datetime | None
    """When a change was last reported."""
    listed_at: dt.datetime | None
    """When a listing last ended."""
    failing_since: dt.datetime | None
    message: str
    """The reason why the watch fails; empty if it works."""


@dataclass(frozen=True, kw_only=True)
class ReaderInfo:
    """A kind that polls providers with a credential.

    `capabilities` are those of the kind's cloud, or None if they were not requested or the kind is not a cloud.
    `problem` says why the capabilities cannot be determined.
    """

    kind: str
    capabilities: tuple[str, ...] | None = None
    problem: str = ""
