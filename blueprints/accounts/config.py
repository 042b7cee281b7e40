"""Blueprint settings for lease accounts, shared by all kinds of hosts."""

from __future__ import annotations

from typing import Literal, Self

from pydantic import Field, NonNegativeInt, model_validator

from blueprints.accounts.control import Bastion
from blueprints.contract import Fields
from blueprints.hosts import Isolation


class Accounts(Fields):
    """The part of a config that defines how leases use a host."""

    accounts: Literal["per_lease", "shared"] = Field(
        default="per_lease",
        description="per_lease: an account is made for every lease. shared: leases use the control account itself, "
        "one at a time.",
    )
    lease_sudo: bool = Field(
        default=False, description="Leases may become root. A host then has only one lease at a time."
    )
    trusted: bool = Field(
        default=False,
        description="Leases trust one another: hosts may be shared and reused after leases that could become root "
        "or used the control account.",
    )
    end_account: bool = Field(
        default=False,
        description="With accounts: shared, end all processes of the control account when a lease ends, because only "
        "Drydock uses the account. Otherwise only the processes that have the lease's mark or work in its folder "
        "are ended.",
    )
    homes: str = Field(default="/home", pattern=r"^/[A-Za-z0-9._/-]+$", description="Folder for homes.")
    bastion: Bastion | None = Field(default=None, description="Jump host for connections.")
    bastion_credential: str = Field(
        default="", description='Name of the bastion\'s credential with {"private_key": OpenSSH text}.'
    )
    connect_timeout: float = Field(default=10, gt=0, le=60, description="Timeout for connecting, in seconds.")
    min_free_mib: NonNegativeInt = Field(
        default=256, description="Free disk space below which a host counts as unhealthy."
    )
    health_command: str = Field(
        default="", description="Health check: a line for the host's shell, run by the control account."
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.lease_sudo and self.accounts == "shared":
            raise ValueError("lease_sudo requires accounts: per_lease")
        if self.end_account and self.accounts != "shared":
            raise ValueError("end_account requires accounts: shared")
        if ".." in self.homes.split("/"):
            raise ValueError("homes must not contain '..'")
        if self.bastion and not (self.bastion_credential or self.control_credential):
            raise ValueError("bastion requires bastion_credential")
        return self

    @property
    def control_credential(self) -> str:
        """Name of the credential whose private key opens the control accounts of hosts.

        Empty if every host has a key pair of its own.
        """
        return ""

    @property
    def marks_host(self) -> bool:
        """Return whether a lease can change the host itself or the account that the next lease will use."""
        return self.accounts == "shared" or self.lease_sudo

    @property
    def one_at_a_time(self) -> bool:
        """Return whether a host can have only one lease at a time."""
        return self.accounts == "shared" or (self.lease_sudo and not self.trusted)

    @property
    def isolation(self) -> Isolation:
        """Return the kind of isolation between two leases."""
        if self.marks_host and not self.one_at_a_time:
            return "none"
        return "machine" if self.marks_host else "uid"
