"""The address of a control account and the host keys that identify its host."""

from __future__ import annotations

from typing import Annotated, Any, Self

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from blueprints.contract import Fields
from drydock.core.errors import InvalidRequest
from interfaces.endpoints import SshEndpoint
from interfaces.keys import PublicKey


def _known(lines: tuple[str, ...]) -> tuple[str, ...]:
    if not lines:
        raise ValueError("enter at least one public key line")
    try:
        return tuple(PublicKey.parse(line).line for line in lines)
    except InvalidRequest as error:
        raise ValueError(f"{error.message} Give a pinned key as a whole line such as ssh-ed25519 AAAA...") from None


def _lines(given: Any) -> Any:
    """Split a text into its non-blank lines; return anything else unchanged."""
    return [line for line in given.splitlines() if line.strip()] if isinstance(given, str) else given


HostKeys = Annotated[tuple[str, ...], BeforeValidator(_lines), AfterValidator(_known)]
OptionalHostKeys = Annotated[
    tuple[str, ...], BeforeValidator(_lines), AfterValidator(lambda lines: _known(lines) if lines else ())
]
PINNED = "The host's public key lines, as in its /etc/ssh/ssh_host_*_key.pub. No other key is accepted."


class ControlAccount(Fields):
    """The account on a host that Drydock itself uses."""

    address: str = Field(description="Host name or address.")
    port: int = Field(default=22, ge=1, le=65535)
    user: str = Field(default="root", description="The control account: root, or an account with passwordless sudo.")
    host_keys: HostKeys = Field(min_length=1, description=PINNED)

    @model_validator(mode="after")
    def _is_a_place(self) -> Self:
        try:
            self.endpoint()
        except InvalidRequest as error:
            raise ValueError(str(error)) from None
        return self

    def endpoint(self, bastion: SshEndpoint | None = None, connect_timeout: float = 10) -> SshEndpoint:
        """Return an endpoint for the control account."""
        return SshEndpoint(
            host=self.address,
            port=self.port,
            user=self.user,
            host_keys=self.host_keys,
            bastion=bastion,
            connect_timeout=connect_timeout,
        )


class Bastion(ControlAccount):
    """A jump host on the way to the host."""
