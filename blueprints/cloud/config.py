"""The config shared by all cloud blueprints, and the requirements that a lease may have of a cloud host."""

from __future__ import annotations

import ipaddress
from typing import Annotated, Any, ClassVar, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, PositiveInt, model_validator

from blueprints.accounts.config import Accounts
from blueprints.cloud.userdata import cloud_config, user_data
from blueprints.contract import Fields
from blueprints.hosts import MATCHES as OF_HOSTS
from blueprints.hosts import Architecture, HostAttributes, HostRequirements, Words
from blueprints.matching import Match
from drydock.core.errors import InvalidRequest
from drydock.core.units import duration
from interfaces.keys import new_key_pair


def _network(text: str) -> str:
    try:
        return str(ipaddress.ip_network(text, strict=False))
    except ValueError as error:
        raise ValueError(f"{error}. A network looks like 203.0.113.0/24.") from None


def _cloud_config(given: Any) -> Any:
    return cloud_config(given) if isinstance(given, str) else given


def _possible(given: dict[str, Any]) -> dict[str, Any]:
    trouble = user_data_trouble(given)
    if trouble:
        raise ValueError(trouble)
    return given


Network = Annotated[str, AfterValidator(_network)]
CloudInit = Annotated[dict[str, Any], BeforeValidator(_cloud_config), AfterValidator(_possible)]
Market = Literal["on_demand", "spot"]


class ImageWords(Fields):
    """Base of a kind's image selectors."""

    def wanted(self) -> dict[str, str]:
        """Return the non-empty selectors, in the form that `Client.image` takes."""
        return {name: str(value) for name, value in self.model_dump().items() if value}


class CloudConfig(Accounts):
    """Config of a blueprint of cloud hosts. Each kind defines the selectors of its `image`."""

    interruption: ClassVar[str] = ""
    """Reader by which a spot machine learns that its cloud takes it back (see `interruption`); empty if it cannot."""
    agent_status: ClassVar[str] = ""
    """Script for the guest that prints how far its cloud's agent is: done, running, absent, or error with the reason.

    Empty if the cloud has no such agent.
    """
    image: ImageWords

    credential: str = Field(min_length=1, description="Name of the credential: the account that pays.")
    regions: tuple[str, ...] = Field(default=(), description="Only in these regions. Empty: in all of the account.")
    zones: tuple[str, ...] = Field(default=(), description="Only in these zones.")
    types: tuple[str, ...] = Field(default=(), description="Only these instance types; * stands for any text.")
    arch: Architecture = Field(default="x86_64", description="Of machines, unless the lease requires another.")
    markets: tuple[Market, ...] = Field(
        default=("on_demand",), min_length=1, description="on_demand, spot, or both: the cheapest first."
    )
    max_price: float | None = Field(default=None, gt=0, description="Maximum price in US dollars an hour.")
    slots: PositiveInt = Field(default=1, description="Leases on one machine at the same time.")
    lease_sudo: bool = Field(default=True, description="Leases may become root: then one a machine, and no reuse.")
    disk_gib: PositiveInt | None = Field(default=None, description="Size of the boot disk. Empty: as the image says.")
    disk_type: str = Field(default="", description="The provider's type of disk. Empty: its general purpose SSD.")
    network: str = Field(default="", description="The provider's subnet or network. Empty: its default, or ours.")
    public_address: bool = Field(default=True, description="Machines are reached at a public address.")
    ssh_port: int = Field(default=22, ge=1, le=65535)
    ssh_from: tuple[Network, ...] = Field(
        default=("0.0.0.0/0",), description="Networks that may reach the SSH port; everything else inbound is closed."
    )
    user: str = Field(
        default="drydock", pattern=r"^[a-z_][a-z0-9_-]{0,30}$", description="The control account made at first boot."
    )
    ready_by: Literal["cloud-init", "agent", "ssh"] = Field(
        default="cloud-init",
        description="What says that the first boot is over: agent is the cloud's own, for images without cloud-init; "
        "ssh: nothing, as soon as it lets us in.",
    )
    host_key: Literal["injected", "console", "guest_attributes", "run_command"] = Field(
        default="injected",
        description="How its host key is known: made by us and given to it by cloud-init, or made by the guest and "
        "read before the first connection: from its console, from guest attributes (gce), by a command (azure).",
    )
    user_data: CloudInit = Field(default_factory=dict, description="Further cloud-config, laid over ours.")
    tags: dict[str, str] = Field(default_factory=dict, description="Further tags on everything that is made.")
    longest: str = Field(
        default="",
        description="The provider (or the machine itself) ends a machine after this, whatever becomes of us: 30d. "
        "No lease reaches beyond it. Empty: nothing ends it but Drydock.",
    )

    stopped_grace: str = Field(
        default="15m",
        description="A machine that somebody else stopped is kept this long before it is terminated. 0: not at all.",
    )
    start_stopped: bool = Field(
        default=False, description="A machine that somebody else stopped is started again at once."
    )

    @model_validator(mode="after")
    def _is_possible(self) -> Self:
        if self.slots > 1 and self.one_at_a_time:
            raise ValueError("several slots need leases without lease_sudo, in accounts of their own")
        if self.longest and not 60 <= self.longest_seconds <= 120 * 86_400:
            raise ValueError("longest is from one minute to 120 days")
        if not 0 <= self.stopped_seconds <= 30 * 86_400:
            raise ValueError("stopped_grace is at most 30 days")
        return self

    def options(self) -> dict[str, str]:
        """Return the options that the kind's own fields give a machine, for `Order.options`."""
        return {}

    def user_data_for(self, asked: dict[str, Any] | None) -> dict[str, Any] | None:
        """Return the part of a lease's cloud-config that is added to a machine.

        None if the lease may not become root, if nothing in the image would read it, or if it conflicts with the
        operator's own.
        """
        read = self.ready_by == "cloud-init" or self.host_key == "injected"
        allowed = self.marks_host and read
        return asked if asked and allowed and not user_data_trouble(self.user_data, asked) else None

    @property
    def longest_seconds(self) -> float:
        """`longest` in seconds; 0 if it is empty."""
        return _seconds("longest", self.longest)

    @property
    def stopped_seconds(self) -> float:
        """`stopped_grace` in seconds."""
        return _seconds("stopped_grace", self.stopped_grace)


def _seconds(name: str, text: str) -> float:
    try:
        return duration(text).total_seconds() if text not in ("", "0") else 0.0
    except InvalidRequest as error:
        raise ValueError(f"{name}: {error.message}") from None


def user_data_trouble(also: dict[str, Any], asked: dict[str, Any] | None = None) -> str:
    """Return why an operator's and a lease's additions do not make valid user data; empty if they do."""
    try:
        pair = new_key_pair()
        user_data(user="drydock", public_key=pair.public, host_key=pair, also=also, asked=asked)
    except InvalidRequest as error:
        return str(error)
    return ""


class CloudAttributes(HostAttributes):
    """Attributes of a cloud host."""

    instance_type: str | None = Field(default=None, description="The provider's name of its type.")
    market: Market | None = Field(default=None, description="on_demand or spot.")
    price: float | None = Field(default=None, description="US dollars an hour.")
    continent: str | None = Field(default=None, description="AF, AS, EU, NA, OC or SA.")
    gpu: str | None = Field(default=None, description="Model of its GPUs, such as a100.")
    gpu_maker: str | None = Field(default=None, description="nvidia, amd, ...")
    gpu_count: int | None = Field(default=None, ge=0)
    gpu_memory_mib: int | None = Field(default=None, ge=0, description="Of each GPU.")
    image: str | None = Field(default=None, description="The provider's name of its image.")
    user_data: dict[str, Any] | None = Field(default=None, description="What its lease had cloud-init do besides.")


class CloudRequirements(HostRequirements):
    """What a lease may require of a cloud host, besides amounts of its capacity.

    TDX, SEV-SNP and SEV are traits (`tdx`, `sev_snp`, `sev`) that can be required, preferred or forbidden like any
    other.
    """

    instance_type: Words | None = Field(default=None, description="One of these types.")
    market: Words | None = Field(default=None, description="on_demand, spot, or both.")
    max_price: float | None = Field(default=None, gt=0, description="Maximum price in US dollars an hour.")
    continent: Words | None = Field(default=None, description="On one of: AF, AS, EU, NA, OC, SA.")
    gpu: str | None = Field(default=None, description="Model of its GPUs, such as a100.")
    gpu_maker: str | None = Field(default=None, description="nvidia, amd, ...")
    min_gpus: int | None = Field(default=None, ge=1, description="Minimum number of GPUs.")
    min_gpu_memory_mib: int | None = Field(default=None, ge=0, description="Minimum memory of each GPU.")
    image: str | None = Field(default=None, description="Exactly this image of the provider's, by its id.")
    user_data: CloudInit | None = Field(
        default=None,
        description="A cloud-config (YAML text or JSON) for a machine made for it alone; where leases may become root. "
        "No place for secrets: the machine's processes and whoever sees the resource can read it.",
    )
    ports: tuple[Annotated[int, Field(ge=1, le=65535)], ...] | None = Field(
        default=None, max_length=20, description="TCP ports that are open from outside while the lease lasts."
    )


MATCHES = (
    *OF_HOSTS,
    Match("instance_type", "in", "instance_type"),
    Match("market", "in", "market"),
    Match("price", "<=", "max_price"),
    Match("continent", "in", "continent"),
    Match("gpu", "=", "gpu"),
    Match("gpu_maker", "=", "gpu_maker"),
    Match("gpu_count", ">=", "min_gpus"),
    Match("gpu_memory_mib", ">=", "min_gpu_memory_mib"),
    Match("image", "=", "image"),
    Match("user_data", "=", "user_data"),
)
