"""Frozen values of the provider contract: locations, instance types with their prices, images and instances.

Names ending in `_mib` and `_gib` give sizes in MiB and GiB; prices are in US dollars per hour, and times in seconds.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

OWNER = ("drydock-installation", "drydock-resource")
"""Tags that identify the installation and the resource for which an object was created.

They never change, unlike the blueprint's name or the operator's own tags.
"""
_OURS = "drydock-"


def same_owner(found: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Return whether the tags `found` name the same owner as the tags `wanted`."""
    owner = {name: value for name, value in wanted.items() if name in OWNER} or wanted
    return all(found.get(name) == value for name, value in owner.items())


def lost_tags(found: Mapping[str, str]) -> bool:
    """Return whether an object has no Drydock tags. If it is known to be ours, somebody removed the tags."""
    return not any(name.lower().startswith(_OURS) for name in found)


class Lifecycle(StrEnum):
    """The state of an instance, in one vocabulary for all providers."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    SUSPENDING = "suspending"
    SUSPENDED = "suspended"
    TERMINATING = "terminating"
    TERMINATED = "terminated"
    FAILED = "failed"
    """The provider reports a failure. The instance may still exist and cost money, and must be terminated."""


class Market(StrEnum):
    """The market on which an instance is bought."""

    ON_DEMAND = "on_demand"
    SPOT = "spot"
    """Cheaper, but the provider may reclaim the instance at any time."""


class Confidential(StrEnum):
    """Technologies that protect the memory of a virtual machine from its host."""

    SEV = "sev"
    SEV_SNP = "sev_snp"
    TDX = "tdx"


@dataclass(frozen=True, kw_only=True)
class Location:
    """A region, with the zones that this account may use."""

    name: str
    description: str = ""
    zones: tuple[str, ...] = ()
    """The names of the zones that the account may use; empty if the region has no zones."""
    available: bool = True
    country: str = ""
    """ISO 3166 alpha-2 code; empty if the provider's name for the region does not imply a country."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """The accelerators of an instance type: `count` GPUs of one model."""

    maker: str
    """`nvidia`, `amd`, `intel`, `aws`, `google`."""
    model: str
    """The model in lower case, without the vendor: `a100`, `t4`, `h100`."""
    count: int = 1
    memory_mib: int = 0
    """Memory of each GPU in MiB."""


@dataclass(frozen=True, kw_only=True)
class Price:
    """The price per hour in one zone and market."""

    market: Market
    per_hour: float
    zone: str = ""
    """The zone to which the price applies; empty for every zone of the location."""
    source: str = ""
    """Source of the price: `provider`, or `bundled 2026-11-01` for the bundled table."""


@dataclass(frozen=True, kw_only=True)
class InstanceType:
    """An instance type in one location.

    `name` is the provider's name; `id` is a name that is unique over all locations.
    """

    name: str
    location: str
    zones: tuple[str, ...] = ()
    vcpus: int = 0
    ram_mib: int = 0
    arch: str = "x86_64"
    gpus: tuple[Gpu, ...] = ()
    local_disk_gib: int = 0
    """Size of the local disks in GiB, which are deleted with the instance."""
    network: str = ""
    """Network bandwidth in the provider's words, such as `Up to 10 Gigabit`."""
    confidential: frozenset[Confidential] = frozenset()
    family: str = ""
    """The name of the family under which quotas count the type."""
    families: tuple[str, ...] = ()
    """Further names under which quotas count the type, such as that of its GPUs."""
    available: bool = True
    stoppable: bool = True
    boot_seconds: float | None = None
    """Seconds until an instance is usually running, if the provider says so."""
    prices: tuple[Price, ...] = ()

    @property
    def id(self) -> str:
        """The id of the instance type, stable and unique over all locations of a provider."""
        return f"{self.location}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class Quota:
    """A provider quota, with the account's total usage, including use outside Drydock."""

    name: str
    location: str
    limit: float
    used: float
    unit: str = "vcpus"
    """`vcpus`, `gpus`, `instances` or `addresses` (public ones)."""
    family: str = ""
    """The family of instance types that the quota covers; empty for all."""
    market: Market | None = None
    """The market that the quota covers; None for both."""


@dataclass(frozen=True, kw_only=True)
class Image:
    """An image to boot an instance from."""

    id: str
    name: str = ""
    arch: str = ""
    created_at: dt.datetime | None = None
    disk_gib: int = 0
    """Size of the smallest disk on which the image fits."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """One attempt to create an instance, with everything that identifies the attempt.

    An order with another zone, instance type, market or image is another attempt, and has another `token`.
    """

    key: str
    """The name at the provider: deterministic, unique to the installation, valid in DNS."""
    token: str
    """Idempotency token of this attempt."""
    location: str
    zone: str = ""
    type: str = ""
    market: Market = Market.ON_DEMAND
    image: str = ""
    arch: str = "x86_64"
    disk_gib: int | None = None
    """Size of the boot disk; None for the size of the image."""
    disk_type: str = ""
    network: str = ""
    """The provider's network (subnet, virtual network) for the machine; empty for its default or one of ours."""
    public_address: bool = True
    ssh_port: int = 22
    ssh_from: tuple[str, ...] = ()
    """Networks (CIDR) that may reach `ssh_port`; everything else inbound is closed."""
    user: str = ""
    public_key: str = ""
    """An OpenSSH line for `user`, for images whose own agent creates the account."""
    user_data: str = field(default="", repr=False)
    """User data for the guest, which may contain secrets such as the private half of the host key."""
    confidential: Confidential | None = None
    max_price: float | None = None
    """Maximum price of a spot machine in US dollars per hour, if supported; None for the on-demand price."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Further options of the kind for the machine."""
    ends_after: float | None = None
    """Seconds after which the provider ends the machine, if it supports that."""
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Instance:
    """A machine at a provider."""

    id: str
    key: str
    """The name under which the instance was created.

    It is taken from something that a copy would not have, such as the instance's own name or client token. Empty if the
    instance has our tags but is not provably ours.
    """
    state: Lifecycle
    location: str
    zone: str = ""
    type: str = ""
    market: Market = Market.ON_DEMAND
    image: str = ""
    public_address: str = ""
    private_address: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    created_at: dt.datetime | None = None
    reason: str = ""
    """The provider's reason why the instance is stopped, terminated or failed."""
    preempted: bool = False
    """Whether the provider reclaimed the instance."""
    leaving: str = ""
    """The provider's announcement that it will take the machine back soon; empty if there is none."""
    parts: tuple[str, ...] = ()
    """Ids of the instance's disks and network cards, if the provider chooses their names."""


@dataclass(frozen=True, kw_only=True)
class Remnant:
    """An object other than a machine: a disk, a network card, an address, a firewall."""

    what: str
    """`volume`, `network card`, `address`, `firewall rule`, ..."""
    id: str
    """The id that the provider's own tools show."""
    key: str
    """The name under which the object was created; see `named`."""
    location: str = ""
    """The location of the object; empty if the object has no location."""
    zone: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    created_at: dt.datetime | None = None
    named: bool = True
    """False if the key is from a tag, which a copy of the object would also have."""


@dataclass(frozen=True, kw_only=True)
class Underway:
    """An operation that the provider is still carrying out. Poll with `handle` after `after` seconds."""

    handle: Mapping[str, str]
    after: float = 2.0
    percent: int | None = None
    sentence: str = ""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """A rule of the inbound firewall."""

    port: int
    protocol: str = "tcp"
    source: str = "0.0.0.0/0"


CONTINENTS: dict[str, str] = {
    **dict.fromkeys(("US", "CA", "MX"), "NA"),
    **dict.fromkeys(("BR", "CL", "CO", "AR", "PE"), "SA"),
    **dict.fromkeys(
        ("IE", "GB", "FR", "DE", "SE", "IT", "ES", "CH", "NL", "BE", "FI", "PL", "NO", "AT", "DK", "GR", "PT", "CZ"),
        "EU",
    ),
    **dict.fromkeys(
        ("IN", "JP", "KR", "SG", "HK", "TW", "ID", "MY", "TH", "CN", "AE", "BH", "IL", "QA", "SA", "KW", "TR"), "AS"
    ),
    **dict.fromkeys(("AU", "NZ"), "OC"),
    **dict.fromkeys(("ZA", "KE", "EG", "NG"), "AF"),
}
"""Maps ISO 3166 alpha-2 codes to AF, AS, EU, NA, OC or SA (M49 of the UN; Turkey and the Gulf count as Asia)."""


def countries_of(continents: tuple[str, ...]) -> tuple[str, ...]:
    """Return the countries of these continents."""
    return tuple(country for country, continent in CONTINENTS.items() if continent in continents)
