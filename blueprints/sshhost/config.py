"""Config of blueprints of kind ssh_host, and the registration of a host."""

from __future__ import annotations

from pydantic import Field, NonNegativeInt

from blueprints.accounts.config import Accounts
from blueprints.accounts.control import ControlAccount
from blueprints.hosts import HostAttributes


class Config(Accounts):
    """Config of a blueprint of kind ssh_host."""

    credential: str = Field(min_length=1, description='Name of the credential with {"private_key": OpenSSH text}.')
    bastion_credential: str = Field(default="", description="Empty: the same credential as for the hosts.")

    @property
    def control_credential(self) -> str:
        """Return the one credential that opens all of the blueprint's hosts."""
        return self.credential


class Registration(ControlAccount):
    """A host as an operator registers it."""

    name: str = Field(default="", description="The address when empty.")
    slots: int | None = Field(default=None, ge=1, description="Leases at the same time. Empty: 8, or 1 where leases "
                              "must be alone.")  # fmt: skip
    cpu_millicores: NonNegativeInt | None = Field(default=None, description="Empty: what the host has.")
    ram_mib: NonNegativeInt | None = Field(default=None, description="Empty: what the host has.")
    disk_mib: NonNegativeInt | None = Field(default=None, description="Empty: what its disk for homes holds.")
    attributes: HostAttributes = Field(default=HostAttributes(), description="What it is, as far as not found there.")
    traits: tuple[str, ...] = ()
