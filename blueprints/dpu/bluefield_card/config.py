"""Config and registration of cards that are reached by their BMC, or by rshim from their host."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Literal, Self

from pydantic import AfterValidator, Field, SecretStr, field_validator, model_validator

from blueprints.bluefield import MATCHES as OF_CARDS
from blueprints.bluefield import CardAttributes, CardRequirements
from blueprints.bluefield.logins import LONGEST, SHORTEST
from blueprints.bmc.redfish import Access
from blueprints.contract import Fields
from blueprints.matching import Match
from drydock_agent.identity import identity


class Config(Fields):
    """Config of a blueprint of kind bluefield_card."""

    bmc_credential: str = Field(
        default="",
        description='Name of the credential for the BMCs, such as {"username": ..., "password": ...}. A card\'s own '
        "credential takes precedence. Empty: the factory login of BlueField-3.",
    )
    return_credential: str = Field(
        default="",
        description='Name of the credential with the {"password": ...} that a BMC gets when its card is removed, in '
        "place of the generated one. Empty: the password that it had before or, if a BMC does not accept that any "
        "more, an operator is asked.",
    )
    hosts: Mapping[str, str] = Field(
        default={},
        description="Serial number of a card -> name or serial number of the host that it is in. A registration can "
        "name the host, too.",
    )
    memory_gib: Mapping[str, int] = Field(
        default={},
        description="Generation or part number -> memory of such cards in GiB, where it is not the usual one.",
    )
    ports: int = Field(default=2, ge=1, le=4, description="Network ports of a card.")
    bmc_timeout: float = Field(
        default=10, gt=0, le=11, description="Time within which a BMC must answer during checks, in seconds."
    )


def _serial(text: str) -> str:
    plain = text.strip().upper()
    if not identity(plain):
        raise ValueError("enter the serial number that is printed on the card; placeholders are refused")
    return plain


class Registration(Fields):
    """A card as an operator registers it."""

    name: str = Field(default="", max_length=255, description="Name of the card. Empty: its serial number.")
    serial: Annotated[str, AfterValidator(_serial)] = Field(
        min_length=1, max_length=100, description="Serial number of the card, which its BMC must report."
    )
    bmc: Access | None = Field(
        default=None,
        description='How the BMC is reached: {"address": ...}, by Redfish over TLS. Empty: the card has none, and is '
        "installed by rshim from its host.",
    )
    host: str = Field(
        default="", max_length=255,
        description="Name or serial number of the host that the card is in. A card without a BMC needs it.",
    )  # fmt: skip
    model: Literal["BlueField2", "BlueField3", "BlueField4", ""] = Field(
        default="", description="Generation of a card without a BMC, which nobody else reports."
    )

    @field_validator("bmc")
    @classmethod
    def _is_encrypted(cls, given: Access | None) -> Access | None:
        if given is not None and given.tls == "off":
            raise ValueError("TLS must be on: the BMC gets passwords")
        return given

    @model_validator(mode="after")
    def _model_is_needed(self) -> Self:
        if self.bmc is not None and self.model:
            raise ValueError("model is for cards without a BMC; leave it out, as the BMC reports it")
        return self


class OwnCredential(Fields):
    """The login of one card's BMC. Drydock stores the password that it generates here."""

    username: str | None = Field(default=None, max_length=255, description="Name of the account. Empty: root.")
    password: SecretStr | None = Field(
        default=None, max_length=1024, description=f"Its password; {SHORTEST} to {LONGEST} characters at a BlueField."
    )


class Attributes(CardAttributes):
    """Attributes of a card that is reached by its BMC or its host."""

    mode: str | None = Field(default=None, description="Mode of the card: dpu or nic.")
    bmc_version: str | None = Field(default=None, description="Version of the BMC's firmware.")


class Requirements(CardRequirements):
    """Requirements that a lease may set for a card."""

    mode: str | None = Field(default=None, description="Mode of the card: dpu or nic.")


MATCHES = (*OF_CARDS, Match("mode", "=", "mode"))
