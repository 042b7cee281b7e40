"""Attributes and requirements of cards, the same for all kinds of cards, and the lock that a build takes on a card."""

from __future__ import annotations

import re

from pydantic import Field

from blueprints.answers import Need, NeededLock
from blueprints.contract import Fields
from blueprints.matching import Match
from blueprints.specs import ResourceView, Spec

DPF, BMC, RSHIM = "dpf", "bmc", "rshim"
"""How a card is reached: the values of the attribute `via`."""
SCOPE = "BlueField card"
"""The scope of the slot locks on cards. Their values are serial numbers."""
_GENERATIONS = {"BlueField2": 16, "BlueField3": 32, "BlueField4": 128}
_NAMED = re.compile(r"blue\s*field[\s-]*([2-9])", re.IGNORECASE)
_PART_NUMBERS = (("900-9D2", "BlueField2"), ("MBF2", "BlueField2"), ("900-9D3", "BlueField3"), ("MBF3", "BlueField3"))
"""Beginnings of NVIDIA's ordering numbers, such as 900-9D3B6-00CV-AA0 of the captured BlueField-3."""


class CardAttributes(Fields):
    """Attributes of a card."""

    model: str | None = Field(default=None, description="Generation: BlueField2, BlueField3 or BlueField4.")
    memory_gib: int | None = Field(default=None, description="Memory in GiB.")
    ports: int | None = Field(default=None, description="Number of network ports.")
    host: str | None = Field(default=None, description="Name of the host that it is in.")
    serial: str | None = Field(default=None, description="Serial number.")
    part_number: str | None = Field(default=None, description="Part number (OPN).")
    via: str | None = Field(default=None, description="How it is reached: dpf, bmc or rshim.")


class CardRequirements(Fields):
    """Requirements that a lease may set for a card."""

    model: str | None = Field(default=None, description="Generation, such as BlueField3.")
    memory_gib: int | None = Field(default=None, ge=1, description="Least memory in GiB.")
    ports: int | None = Field(default=None, ge=1, description="Least number of network ports.")
    host: str | None = Field(default=None, description="Name of the host that it is in.")
    serial: str | None = Field(default=None, description="Serial number.")
    part_number: str | None = Field(default=None, description="Part number (OPN).")
    via: str | None = Field(default=None, description="How it is reached: dpf, bmc or rshim.")


MATCHES = (
    *(Match(name, "=", name) for name in ("model", "host", "serial", "part_number", "via")),
    Match("memory_gib", ">=", "memory_gib"),
    Match("ports", ">=", "ports"),
)


def usual_memory_gib(generation: str) -> int | None:
    """Return the usual memory of a generation in GiB, where nothing says how much a card has; None if unknown."""
    return _GENERATIONS.get(generation)


def generation_of(product: str, part_number: str) -> str:
    """Return the generation in a product name such as "Bluefield 3 SmartNIC Main Card", or that of a part number."""
    if found := _NAMED.search(product):
        return f"BlueField{found[1]}"
    return next((made for begin, made in _PART_NUMBERS if part_number.upper().startswith(begin)), "")


def hold_card(spec: Spec, serial: str, card: ResourceView | None = None) -> Need | None:
    """Return what a build still needs for being the only one on a card: the lock on its serial number, or None.

    Every build that writes to a card takes it, whatever its blueprint, kind or discovery is: the enrolment of a card by
    its BMC, and the installation of a DPU. `card` is the leased card of a DPU, which may hold the lock already; the
    lease on it is exclusive then. Case does not count, as people type serial numbers.
    """
    value = serial.strip().upper()
    name = f"card {value}"[:63]
    if name in spec.locks or (card is not None and value in card.locks.values()):
        return None
    return Need(locks=(NeededLock(name=name, scope=SCOPE, candidates=(value,)),))
