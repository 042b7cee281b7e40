"""Config of blueprints of kind ssh_host, and the registration of a host."""

from __future__ import annotations

from pydantic import Field

from blueprints.accounts.config import Accounts
from blueprints.accounts.registration import HostRegistration


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


class Registration(HostRegistration):
    """A host as an operator registers it."""
