"""Config of blueprints of kind dpf_card, and a card as an operator registers it."""

from __future__ import annotations

import re
from collections.abc import Mapping
from ipaddress import IPv4Address
from typing import Annotated

from pydantic import AfterValidator, BeforeValidator, Field

from blueprints.bluefield import CardAttributes, CardRequirements
from blueprints.contract import Fields
from blueprints.dpf import bmc

_PCI = re.compile(r"([0-9a-f]{4})[:-]([0-9a-f]{2})[:-]([0-9a-f]{2})(\.[0-7])?\Z")


class Config(bmc.WithBmcs):
    """Config of a blueprint of kind dpf_card."""

    hosts: Mapping[str, str] = Field(
        default={}, description="Node -> name of the host that it is, where their names differ."
    )
    nodes: Mapping[str, str] = Field(
        default={}, description="Labels that a Node must have, on servers whose cards are labels of Nodes. Empty: none."
    )
    memory_gib: Mapping[str, int] = Field(
        default={},
        description="Generation or part number -> memory of such cards in GiB, where it is not the usual one.",
    )
    ports: int = Field(default=2, ge=1, le=4, description="Network ports of a card.")


def _serial(text: str) -> str:
    plain = text.strip()
    if not plain:
        raise ValueError("enter the serial number that is printed on the card")
    return plain


def _address(text: object) -> object:
    """Return a PCI address as DPF writes it, such as 0000-2b-00, also if it is given as 0000:2b:00.0."""
    found = _PCI.match(text.strip().lower()) if isinstance(text, str) else None
    if text and found is None:
        raise ValueError("enter a PCI address such as 0000:2b:00.0 or 0000-2b-00")
    return "-".join(found.group(1, 2, 3)) if found else text


class Registration(Fields):
    """A card as an operator registers it, so that Drydock creates its DPUDevice and its DPUNode."""

    serial: Annotated[str, AfterValidator(_serial)] = Field(
        min_length=1, max_length=100, pattern=r"^[A-Za-z0-9 ._-]+$", description="Serial number of the card."
    )
    node: str = Field(
        pattern=r"^[a-z0-9]([a-z0-9-]{0,46}[a-z0-9])?$",
        description="Name of the DPUNode, the host that the card is in. It is created if it does not exist.",
    )
    pci: Annotated[str, BeforeValidator(_address)] = Field(
        default="", max_length=10,
        description="PCI address of the card in its host, such as 0000:2b:00.0. Empty: DPF finds it out.",
    )  # fmt: skip
    bmc: IPv4Address | None = Field(
        default=None, description="Address of the card's BMC, for installations by Redfish. Empty: it is not used."
    )
    bmc_port: int = Field(default=443, ge=1, le=65535, description="Port of the BMC.")
    name: str = Field(default="", max_length=255, description="Name of the card. Empty: its serial number.")


class Attributes(CardAttributes):
    """Attributes of a card that DPF manages."""

    parks: list[str] | None = Field(
        default=None, description="Ways in which the card can be parked: leave, reimage, power_off, wipe."
    )


class Requirements(CardRequirements):
    """Requirements that a lease may set for a card."""

    parks: str | None = Field(default=None, description="A way in which the card must be possible to park.")
