"""Config of blueprints of kind ssh_host, and the registration of a host."""

from __future__ import annotations

from pydantic import Field, NonNegativeInt

from blueprints.accounts.config import Accounts
from blueprints.accounts.control import ControlAccount
from blueprints.hosts import HostAttributes


class Config(Accounts):
    """Config of a blueprint of kind ssh_host."""

    credential: str = Field(min_length=1, description='Name of the credential with {"private_key": OpenSSH text}.')
    bastion_credential: str = Field(
        default="", description="Name of the bastion's credential. Empty: the hosts' credential."
    )

    @property
    def control_credential(self) -> str:
        """Return the one credential that opens all of the blueprint's hosts."""
        return self.credential


class Registration(ControlAccount):
    """A host as an operator registers it."""

    name: str = Field(default="", description="Name of the host. Empty: the address.")
    slots: int | None = Field(
        default=None,
        ge=1,
        description="Number of leases at the same time. Empty: 8, or 1 if a lease must be alone on the host.",
    )
    cpu_millicores: NonNegativeInt | None = Field(
        default=None, description="Number of vCPUs. Empty: those of the host."
    )
    ram_mib: NonNegativeInt | None = Field(default=None, description="Memory. Empty: that of the host.")
    disk_mib: NonNegativeInt | None = Field(
        default=None, description="Disk space. Empty: that of the disk with the homes."
    )
    attributes: HostAttributes = Field(
        default=HostAttributes(), description="Additional attributes that cannot be found on the host."
    )
    traits: tuple[str, ...] = ()
