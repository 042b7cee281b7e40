"""Config of blueprints of kind bare_metal, with the attributes and requirements of their hosts."""

from __future__ import annotations

from typing import Literal

from pydantic import Field, SecretStr

from blueprints.accounts.config import Accounts
from blueprints.contract import Fields
from blueprints.hosts import MATCHES as OF_HOSTS
from blueprints.hosts import HostAttributes, HostRequirements, Words
from blueprints.matching import Match


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

    @property
    def control_credential(self) -> str:
        """Return the one credential that opens the control accounts of all hosts."""
        return self.credential


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


class BareMetalRequirements(HostRequirements):
    """Requirements that a lease may set for a bare-metal host, besides amounts of capacity."""

    vendor: Words | None = Field(default=None, description="Allowed vendors of the machine.")
    model: Words | None = Field(default=None, description="Allowed models of the machine.")


MATCHES = (*OF_HOSTS, Match("vendor", "in", "vendor"), Match("model", "in", "model"))
