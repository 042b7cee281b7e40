"""The values that network drivers receive."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any

from pydantic import AfterValidator, Field

from blueprints.contract import Fields
from interfaces.deadline import Deadline

NetworkName = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$")]
"""The name of a network in a blueprint."""
_Word = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/@,+-]{0,99}$")]


class Port(Fields):
    """A port of a machine: the port of the switch that it is connected to."""

    switch: _Word = Field(description="Name or address of the switch, such as leaf-3.")
    port: _Word = Field(description="Port of the switch, as the switch names it, such as Ethernet1/12.")
    mac: Annotated[str, AfterValidator(str.lower)] = Field(
        default="",
        pattern=r"^([0-9A-Fa-f]{2}(:[0-9A-Fa-f]{2}){5})?$",
        description="MAC address of the machine's port, for drivers that need it.",
    )

    @property
    def name(self) -> str:
        """Return the name by which the port is unique, regardless of upper and lower case."""
        return f"{self.switch}/{self.port}".lower()

    def __str__(self) -> str:
        return f"port {self.port} of switch {self.switch}"


@dataclass(frozen=True, kw_only=True)
class Access:
    """The context of a driver's call: how the switches are reached, and how long the call may take."""

    settings: Any
    """An instance of the driver's Settings."""
    credential: Mapping[str, str] = field(default_factory=dict, repr=False)
    """The fields of the driver's Credential."""
    deadline: Deadline
