"""Frozen values of the provider contract: places, types of instances with their prices, images, instances.

Sizes are in MiB or GiB as named, prices per hour in US dollars, times in seconds.
"""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

OWNER = ("drydock-installation", "drydock-resource")
"""Tags that say for which resource of which installation a thing was made, and that never change; others (the
blueprint's name, the operator's own) may."""
_OURS = "drydock-"


def same_owner(found: Mapping[str, str], wanted: Mapping[str, str]) -> bool:
    """Whether a thing bears the wanted tags that say whose it is."""
    owner = {name: value for name, value in wanted.items() if name in OWNER} or wanted
    return all(found.get(name) == value for name, value in owner.items())


def lost_tags(found: Mapping[str, str]) -> bool:
    """Whether a thing bears no tag of any Drydock: of one that is known to be ours, somebody removed them."""
    return not any(name.lower().startswith(_OURS) for name in found)


class Lifecycle(StrEnum):
    """Where an instance stands, in one vocabulary for all providers."""

    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    SUSPENDING = "suspending"
    SUSPENDED = "suspended"
    TERMINATING = "terminating"
    TERMINATED = "terminated"
    FAILED = "failed"
    """The provider gave up on it; it may still exist and cost, and is to be terminated."""


class Market(StrEnum):
    """How an instance is paid for."""

    ON_DEMAND = "on_demand"
    SPOT = "spot"
    """Cheaper, and taken away when the provider wants it back."""


class Confidential(StrEnum):
    """Technologies that keep a guest's memory from its host."""

    SEV = "sev"
    SEV_SNP = "sev_snp"
    TDX = "tdx"


@dataclass(frozen=True, kw_only=True)
class Location:
    """A region, with the zones that this account may use."""

    name: str
    description: str = ""
    zones: tuple[str, ...] = ()
    """Empty where the region has no zones."""
    available: bool = True
    country: str = ""
    """ISO 3166 alpha-2, where the provider's name of the region tells."""


@dataclass(frozen=True, kw_only=True)
class Gpu:
    """The accelerators of an instance type: `count` of one model."""

    maker: str
    """`nvidia`, `amd`, `intel`, `aws`, `google`."""
    model: str
    """In small letters without the maker: `a100`, `t4`, `h100`."""
    count: int = 1
    memory_mib: int = 0
    """Of each."""


@dataclass(frozen=True, kw_only=True)
class Price:
    """Per hour in one zone and market."""

    market: Market
    per_hour: float
    zone: str = ""
    """Empty: in every zone of the location."""
    source: str = ""
    """Where it is from: `provider`, or `bundled 2026-11-01` for the table that ships with us."""


@dataclass(frozen=True, kw_only=True)
class InstanceType:
    """What can be had in one location. `name` is the provider's, and with the location it is stable: see `id`."""

    name: str
    location: str
    zones: tuple[str, ...] = ()
    vcpus: int = 0
    ram_mib: int = 0
    arch: str = "x86_64"
    gpus: tuple[Gpu, ...] = ()
    local_disk_gib: int = 0
    """Disks that come with it and end with it."""
    network: str = ""
    """As the provider says it, such as `Up to 10 Gigabit`."""
    confidential: frozenset[Confidential] = frozenset()
    family: str = ""
    """What quota is counted by."""
    families: tuple[str, ...] = ()
    """Further names that quota is counted by, as that of its GPUs."""
    available: bool = True
    stoppable: bool = True
    boot_seconds: float | None = None
    """Until it usually runs, where the provider says so."""
    prices: tuple[Price, ...] = ()

    @property
    def id(self) -> str:
        """Stable and unique over all locations of a provider."""
        return f"{self.location}/{self.name}"


@dataclass(frozen=True, kw_only=True)
class Quota:
    """What an account may have at once, and has, whoever made it."""

    name: str
    location: str
    limit: float
    used: float
    unit: str = "vcpus"
    """`vcpus`, `gpus`, `instances` or `addresses` (public ones)."""
    family: str = ""
    """Of instance types; empty: of all."""
    market: Market | None = None
    """None: of both markets."""


@dataclass(frozen=True, kw_only=True)
class Image:
    """What an instance boots."""

    id: str
    name: str = ""
    arch: str = ""
    created_at: dt.datetime | None = None
    disk_gib: int = 0
    """The smallest disk that it fits on."""


@dataclass(frozen=True, kw_only=True)
class Order:
    """One attempt to create an instance: everything that identifies it. Another zone, type, market or image is
    another attempt, with another `token`."""

    key: str
    """The name outside: deterministic, unique to the installation, safe in DNS."""
    token: str
    """Idempotency token of this attempt."""
    location: str
    zone: str = ""
    type: str = ""
    market: Market = Market.ON_DEMAND
    image: str = ""
    arch: str = "x86_64"
    disk_gib: int | None = None
    """None: as large as the image says."""
    disk_type: str = ""
    network: str = ""
    """The provider's network (subnet, virtual network) to stand in; empty: its default or one of ours."""
    public_address: bool = True
    ssh_port: int = 22
    ssh_from: tuple[str, ...] = ()
    """Networks (CIDR) that may reach `ssh_port`; everything else inbound is closed."""
    user: str = ""
    public_key: str = ""
    """One OpenSSH line for `user`, for images whose own agent makes the account."""
    user_data: str = field(default="", repr=False)
    """May hold secrets (the host key's private half)."""
    confidential: Confidential | None = None
    max_price: float | None = None
    """US dollars an hour that a spot machine may cost at most, where the provider heeds it; None: as on demand."""
    options: Mapping[str, str] = field(default_factory=dict)
    """Further words of the kind's own about the machine."""
    ends_after: float | None = None
    """Seconds after which the provider ends it, where it can."""
    tags: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Instance:
    """A machine at a provider."""

    id: str
    key: str
    """The name it was made under, from where a copy of it would not have it (its name, its client token). Empty: it
    bears our tags, but is not provably ours."""
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
    """Why it is stopped, terminated or failed, in the provider's words."""
    preempted: bool = False
    """The provider took it back."""
    leaving: str = ""
    """The provider has announced that it takes it back soon: how it says so."""
    parts: tuple[str, ...] = ()
    """Ids of its disks and network cards, where the provider gives them names of its own."""


@dataclass(frozen=True, kw_only=True)
class Remnant:
    """A thing beside the machines: a disk, a network card, an address, a firewall."""

    what: str
    """`volume`, `network card`, `address`, `firewall rule`, ..."""
    id: str
    """As its provider's own tools call it."""
    key: str
    """The name it was made under; see `named`."""
    location: str = ""
    """Empty where it belongs to no location."""
    zone: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    created_at: dt.datetime | None = None
    named: bool = True
    """False: the key is from a tag, which a copy of the thing would bear too."""


@dataclass(frozen=True, kw_only=True)
class Underway:
    """The provider works on it: ask again with `handle` (an operation's name) after `after` seconds."""

    handle: Mapping[str, str]
    after: float = 2.0
    percent: int | None = None
    sentence: str = ""


@dataclass(frozen=True, kw_only=True)
class Rule:
    """One opening in the inbound firewall."""

    port: int
    protocol: str = "tcp"
    source: str = "0.0.0.0/0"
