"""The contract of network drivers: attach a port to a network, detach it, and read back what it is in."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

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


class NetworkDriver(ABC):
    """Switches the networks of ports. Stateless.

    A driver is found by its entry point in the group `drydock.networks`, and needs only this package. Every method ends
    within the deadline of `access`, whatever the switch does, and raises NetworkError.
    """

    name: ClassVar[str]
    switches: ClassVar[bool] = True
    """Whether it changes anything. If False, machines stay in the networks in which somebody else has put them."""
    Settings: ClassVar[type[Fields]] = Fields
    """How the switches are reached, and which network is which on them. Part of a blueprint's config."""
    Credential: ClassVar[type[Fields] | None] = None
    """The secrets for the switches; None if there are none."""

    def ids(self, settings: Any) -> Mapping[str, str] | None:
        """Return the identifier of each network on the switches, such as its VLAN ID, by the name of the network.

        None if the switches know the networks by their names. Makes no call.
        """
        return None

    @abstractmethod
    def attach(self, access: Access, port: Port, network: str) -> None:
        """Attach a port to a network. Succeeds if it is attached already.

        Called only for a port that `check` has reported in no other network.
        """

    @abstractmethod
    def detach(self, access: Access, port: Port, network: str) -> None:
        """Detach a port from a network, so that nothing gets from one to the other. Succeeds if it is in another one.

        If the port is in another network than this one, it stays there.
        """

    @abstractmethod
    def check(self, access: Access, port: Port) -> frozenset[str]:
        """Read from the switch which networks a port is in. Empty if it is in none.

        A network that has no name here is returned under a name that says what it is, such as `VLAN 77`.
        """
