"""Config of blueprints of kind bare_metal, with the attributes and requirements of their hosts."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import Field, SecretStr, model_validator

from blueprints.accounts.config import Accounts
from blueprints.attestation import Attestation
from blueprints.baremetal.images import Image, Name, Ramdisk, Url
from blueprints.contract import Fields
from blueprints.hosts import MATCHES as OF_HOSTS
from blueprints.hosts import HostAttributes, HostRequirements, Isolation, Words
from blueprints.matching import Match
from blueprints.networks.config import Networks
from blueprints.networks.contract import NetworkName
from blueprints.userdata import CloudInit


class FirmwareVersion(Fields):
    """The version that a firmware component must have, and where the BMC gets it."""

    component: str = Field(min_length=1, max_length=200, description="Name of the component, as the BMC lists it.")
    version: str = Field(min_length=1, max_length=200, description="Version, exactly as the BMC reports it.")
    url: Url = Field(description="Address of the vendor's image, from which the BMC fetches it.")
    targeted: bool = Field(
        default=False, description="Name the component to the BMC. false: the image says what it is for."
    )
    power_cycle: bool = Field(
        default=False, description="Switch the host off and on after the update, which some components need."
    )


class Baseline(Fields):
    """The firmware and its settings that every host of the blueprint must have."""

    firmware: tuple[FirmwareVersion, ...] = Field(
        default=(), max_length=50, description="Versions of firmware components, updated in this order."
    )
    bios: dict[Annotated[str, Field(min_length=1, max_length=200)], bool | int | str] = Field(
        default_factory=dict, max_length=500, description="BIOS settings by name, as the BMC names them."
    )
    secure_boot: bool | None = Field(default=None, description="Whether Secure Boot is on. Empty: as it is.")
    update_timeout: float = Field(
        default=3600, gt=0, le=14_400, description="Time for one component to get its version, in seconds."
    )

    @model_validator(mode="after")
    def _names_each_component_once(self) -> Self:
        names = [one.component.casefold() for one in self.firmware]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"firmware names {twice[0]} more than once")
        return self


class Config(Accounts):
    """Config of a blueprint of kind bare_metal."""

    credential: str = Field(
        min_length=1, description='Name of the credential with {"private_key": OpenSSH text} of the control accounts.'
    )
    bastion_credential: str = Field(
        default="", description="Name of the bastion's credential. Empty: the hosts' credential."
    )
    bmc_credential: str = Field(
        default="",
        description='Name of the credential for the BMCs, such as {"username": ..., "password": ...}. A host\'s own '
        "credential takes precedence. Empty: every host has a credential of its own.",
    )
    console_credential: str = Field(
        default="",
        description="Name of the credential for consoles with a login of their own. A host's own credential takes "
        "precedence. Empty: that of the BMCs.",
    )
    network_credential: str = Field(
        default="", description="Name of the credential for the switches of `network`. Empty: they need none."
    )
    bmc_timeout: float = Field(
        default=10, gt=0, le=12, description="Time within which a BMC must answer during leases and checks, in seconds."
    )
    idle_power: Literal["on", "off"] = Field(
        default="on", description="off: a host is switched off while no lease is on it, and on for the next lease."
    )
    power_timeout: float = Field(
        default=120, gt=0, le=900, description="Time for the BMC to report a requested power, in seconds."
    )
    boot_timeout: float = Field(
        default=900, gt=0, le=3600, description="Time for a host to accept logins after it was switched on, in seconds."
    )
    shutdown_timeout: float = Field(
        default=120,
        ge=0,
        le=900,
        description="Time for the operating system to shut down before its power is cut, in seconds. 0: at once.",
    )
    start_stopped: bool = Field(
        default=False, description="Switch a host on again if it was switched off outside Drydock, or lost its power."
    )
    compare: Literal["require", "report"] = Field(
        default="require",
        description="require: refuse a host whose own serial number or UUID differs from what its BMC says. report: "
        "only show the differences.",
    )
    inspect_interval: float = Field(
        default=300,
        ge=0,
        description="Time between two inspections of hardware, sensors and event log by health checks, in seconds.",
    )
    idle_inspect_interval: float = Field(
        default=3600,
        ge=0,
        description="The same for a host that is off while it is idle, if the last inspection found no problem.",
    )

    baseline: Baseline | None = Field(
        default=None, description="Firmware versions and settings to which hosts are brought. Empty: as they are."
    )
    attestation: Attestation | None = Field(
        default=None,
        description="Evidence that hosts must give when they are enrolled and before each lease. Empty: none.",
    )

    ramdisk: Ramdisk | None = Field(
        default=None,
        description="The ramdisk with which Drydock inspects, erases and deploys the hosts. Empty: their operating "
        "systems are installed by somebody else, and no disk is erased.",
    )
    images: dict[Name, Image] = Field(
        default_factory=dict, max_length=100, description="The images that can be deployed, by name. Needs a ramdisk."
    )
    default_image: str = Field(
        default="", description="The image for leases that do not name one. Empty: the first of the images."
    )
    user_data: CloudInit = Field(
        default_factory=dict, description="Additional cloud-config for deployed hosts, merged into Drydock's."
    )

    network: Networks | None = Field(
        default=None,
        description="The networks between which Drydock moves the hosts. Empty: the hosts stay in their networks.",
    )

    @model_validator(mode="before")
    @classmethod
    def _rests(cls, given: Any) -> Any:
        """Let hosts with a ramdisk be off while they are idle, unless the config says otherwise."""
        if isinstance(given, dict) and given.get("ramdisk") and "idle_power" not in given:
            return {**given, "idle_power": "off"}
        return given

    @model_validator(mode="after")
    def _is_deployable(self) -> Self:
        if self.ramdisk is None:
            if named := [name for name in ("images", "default_image", "user_data") if getattr(self, name)]:
                raise ValueError(f"{named[0]} requires a ramdisk, which deploys the images")
            return self
        if not self.images:
            raise ValueError("ramdisk requires images: name at least one that can be deployed for leases")
        if self.default_image and self.default_image not in self.images:
            raise ValueError(f"default_image is none of the images {', '.join(self.images)}")
        if self.idle_power == "on":
            raise ValueError("ramdisk requires idle_power: off, because idle hosts have no operating system")
        return self

    @model_validator(mode="after")
    def _has_networks(self) -> Self:
        if self.network is None or not self.switches_networks:
            return self
        for name in ("provisioning", "cleaning"):
            if self.ramdisk is not None and not getattr(self.network, name):
                raise ValueError(f"network requires {name}: name the network for that")
            if self.ramdisk is None and getattr(self.network, name):
                raise ValueError(f"network.{name} requires a ramdisk, which hosts boot in that network")
        return self

    @property
    def switches_networks(self) -> bool:
        """Return whether Drydock moves the hosts between networks."""
        return self.network is not None and self.network.used.switches

    @property
    def control_credential(self) -> str:
        """Return the one credential that opens the control accounts of all hosts."""
        return self.credential

    @property
    def one_at_a_time(self) -> bool:
        """Return whether a host can have only one lease at a time, as one for which an image is deployed.

        A host is in the network of its lease, so it cannot have two.
        """
        return self.ramdisk is not None or self.switches_networks or super().one_at_a_time

    @property
    def isolation(self) -> Isolation:
        """Return the kind of isolation between two leases. Between two that are deployed, the disks are erased."""
        return "machine" if self.ramdisk is not None else super().isolation

    def image(self, name: str | None) -> Image | None:
        """Return the image with this name, or the default one. None if there is none of this name."""
        return self.images.get(name or self.image_name)

    @property
    def image_name(self) -> str:
        """Return the name of the image for leases that do not name one."""
        return self.default_image or next(iter(self.images), "")


class OwnCredential(Fields):
    """The login of one host's BMC. Which fields are needed depends on its driver."""

    username: str | None = Field(default=None, max_length=255, description="Name of the account on the BMC.")
    password: SecretStr | None = Field(default=None, max_length=1024, description="Password of that account.")
    token: SecretStr | None = Field(default=None, max_length=10_000, description="Token, for programs that need one.")
    private_key: SecretStr | None = Field(
        default=None, max_length=20_000, description="OpenSSH private key, for drivers that log in over SSH."
    )


class BareMetalAttributes(HostAttributes):
    """Attributes of a bare-metal host."""

    vendor: str | None = Field(default=None, description="Vendor of the machine, as its BMC names it.")
    model: str | None = Field(default=None, description="Model of the machine, as its BMC names it.")
    serial: str | None = Field(default=None, description="Serial number of the machine.")
    bios_version: str | None = Field(default=None, description="Version of the BIOS.")
    bmc_version: str | None = Field(default=None, description="Version of the BMC's firmware.")
    images: tuple[str, ...] | None = Field(
        default=None, description="Images that can be deployed on the host. Empty: its system is not deployed."
    )
    networks: tuple[str, ...] | None = Field(
        default=None, description="Networks that a lease may choose. Empty: the host stays in its network."
    )
    rack: str | None = Field(default=None, max_length=100, description="Rack in which the machine is.")
    position: str | None = Field(
        default=None, max_length=20, description="Position in the rack, such as 12, the lowest unit that it fills."
    )


class BareMetalRequirements(HostRequirements):
    """Requirements that a lease may set for a bare-metal host, besides amounts of capacity."""

    vendor: Words | None = Field(default=None, description="Allowed vendors of the machine.")
    model: Words | None = Field(default=None, description="Allowed models of the machine.")
    image: str | None = Field(default=None, description="Image to deploy, by its name in the blueprint.")
    network: NetworkName | None = Field(
        default=None, description="Network for the host, by its name in the blueprint. Empty: the blueprint's default."
    )
    user_data: CloudInit | None = Field(
        default=None,
        description="A cloud-config (YAML text or JSON) for the deployed system, if leases may become root. Requires "
        "`image`. Do not put secrets in it.",
    )

    @model_validator(mode="after")
    def _is_deployable(self) -> Self:
        if self.user_data is not None and self.image is None:
            raise ValueError("user_data requires image, because only a deployed system reads it")
        return self


MATCHES = (
    *OF_HOSTS, Match("vendor", "in", "vendor"), Match("model", "in", "model"), Match("images", "contains", "image"),
    Match("networks", "contains", "network"),
)  # fmt: skip
