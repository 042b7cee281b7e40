"""What a blueprint of kind ssh_host may say, and what is said of a host when it is registered."""

from __future__ import annotations

from typing import Annotated, Any, Literal, Self

from pydantic import AfterValidator, BeforeValidator, Field, NonNegativeInt, model_validator

from blueprints.contract import Fields
from blueprints.hosts import HostAttributes
from drydock.core.errors import InvalidRequest
from interfaces.endpoints import SshEndpoint
from interfaces.keys import PublicKey


def _known(lines: tuple[str, ...]) -> tuple[str, ...]:
    try:
        return tuple(PublicKey.parse(line).line for line in lines)
    except InvalidRequest as error:
        raise ValueError(f"{error.message} A pinned key is a whole line such as ssh-ed25519 AAAA...") from None


def _lines(given: Any) -> Any:
    """A text of lines, as a shell has it, is a list of them."""
    return [line for line in given.splitlines() if line.strip()] if isinstance(given, str) else given


HostKeys = Annotated[tuple[str, ...], BeforeValidator(_lines), AfterValidator(_known)]
PINNED = "The host's public key lines, as in its /etc/ssh/ssh_host_*_key.pub: no other is ever accepted."


class _Place(Fields):
    address: str = Field(description="Name or address.")
    port: int = Field(default=22, ge=1, le=65535)
    user: str = Field(default="root", description="The control account: root, or one with sudo without a password.")
    host_keys: HostKeys = Field(min_length=1, description=PINNED)

    @model_validator(mode="after")
    def _is_a_place(self) -> Self:
        try:
            self.endpoint()
        except InvalidRequest as error:
            raise ValueError(str(error)) from None
        return self

    def endpoint(self, bastion: SshEndpoint | None = None, connect_timeout: float = 10) -> SshEndpoint:
        """The control account as an endpoint."""
        return SshEndpoint(
            host=self.address,
            port=self.port,
            user=self.user,
            host_keys=self.host_keys,
            bastion=bastion,
            connect_timeout=connect_timeout,
        )


class Bastion(_Place):
    """A host that is passed through on the way."""


class Config(Fields):
    """Config of a blueprint of kind ssh_host."""

    credential: str = Field(min_length=1, description='Name of the credential with {"private_key": OpenSSH text}.')
    accounts: Literal["per_lease", "shared"] = Field(
        default="per_lease",
        description="per_lease: an account is made for every lease. shared: leases use the control account itself, "
        "one at a time.",
    )
    lease_sudo: bool = Field(default=False, description="Leases may become root; then only one lease at a time.")
    trusted: bool = Field(
        default=False,
        description="Leases trust one another: hosts may be shared and reused after leases that could become root "
        "or used the control account.",
    )
    end_account: bool = Field(
        default=False,
        description="shared: the control account is Drydock's alone, so at a lease's end everything that it runs is "
        "ended. Without it only what bears the lease's mark or works in its folder.",
    )
    homes: str = Field(default="/home", pattern=r"^/[A-Za-z0-9._/-]+$", description="Where homes are made.")
    bastion: Bastion | None = Field(default=None, description="The host to pass through.")
    bastion_credential: str = Field(default="", description="Empty: the same credential as for the hosts.")
    connect_timeout: float = Field(default=10, gt=0, le=60, description="Seconds for a connection to stand.")
    min_free_mib: NonNegativeInt = Field(default=256, description="With less free disk a host is unhealthy.")
    health_command: str = Field(
        default="", description="A line for the host's shell, run by the control account; it fails: unhealthy."
    )

    @model_validator(mode="after")
    def _makes_sense(self) -> Self:
        if self.lease_sudo and self.accounts == "shared":
            raise ValueError("lease_sudo is for accounts per lease")
        if self.end_account and self.accounts != "shared":
            raise ValueError("end_account is for the shared account")
        if ".." in self.homes.split("/"):
            raise ValueError("homes must not hold '..'")
        return self

    @property
    def marks_host(self) -> bool:
        """Whether a lease can change the host itself, or what the next lease's account is."""
        return self.accounts == "shared" or self.lease_sudo


class Registration(_Place):
    """A host as an operator registers it."""

    name: str = Field(default="", description="The address when empty.")
    slots: int | None = Field(default=None, ge=1, description="Leases at the same time. Empty: 8, or 1 where leases "
                              "must be alone.")  # fmt: skip
    cpu_millicores: NonNegativeInt | None = Field(default=None, description="Empty: what the host has.")
    ram_mib: NonNegativeInt | None = Field(default=None, description="Empty: what the host has.")
    disk_mib: NonNegativeInt | None = Field(default=None, description="Empty: what its disk for homes holds.")
    attributes: HostAttributes = Field(default=HostAttributes(), description="What it is, as far as not found there.")
    traits: tuple[str, ...] = ()
