"""The driver `fake`: switches in the memory of this process, for tests and for trying networks out.

A port can be in several networks, so that a test sees when it is. Other processes do not see what one attaches.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

from pydantic import Field

from blueprints.contract import Fields
from blueprints.networks.contract import Access, NetworkDriver, NetworkName, Port
from blueprints.networks.errors import NetworkError


@dataclass
class Fabric:
    """Switches, and what goes wrong with them."""

    networks: dict[str, set[str]] = field(default_factory=dict)
    """The networks that each port is in, by the name of the port."""
    calls: list[tuple[str, str, str]] = field(default_factory=list)
    """The calls, as action, port and network."""
    errors: dict[str, NetworkError] = field(default_factory=dict)
    """The error that an action raises, by action."""
    ignores: set[Literal["attach", "detach"]] = field(default_factory=set)
    """The actions that are accepted and not carried out."""
    changed: Callable[[], None] = lambda: None
    """Called after each change."""

    def of(self, port: Port) -> set[str]:
        """Return the networks that a port is in."""
        return self.networks.setdefault(port.name, set())

    def call(self, action: str, port: Port, network: str) -> None:
        """Record a call, and raise its error if there is one."""
        self.calls.append((action, port.name, network))
        if error := self.errors.get(action):
            raise error


FABRICS: dict[str, Fabric] = {}
"""The switches of this process, by the name in the settings."""


class Settings(Fields):
    """Which switches are used."""

    fabric: str = Field(default="", max_length=100, description="Name of the switches. Others are independent of them.")
    ids: dict[NetworkName, Annotated[int, Field(ge=1, le=4094)]] = Field(
        default_factory=dict, description="VLAN ID of each network. Empty: the networks have names only."
    )


class FakeNetworks(NetworkDriver):
    """Switches networks in memory."""

    name: ClassVar[str] = "fake"
    Settings = Settings

    def ids(self, settings: Any) -> Mapping[str, str] | None:
        """Return the VLAN IDs of the settings; None if there are none."""
        return {name: str(one) for name, one in settings.ids.items()} or None

    def attach(self, access: Access, port: Port, network: str) -> None:
        """Put the port into the network, in addition to those that it is in."""
        fabric = _fabric(access)
        fabric.call("attach", port, network)
        if "attach" not in fabric.ignores:
            fabric.of(port).add(network)
        fabric.changed()

    def detach(self, access: Access, port: Port, network: str) -> None:
        """Take the port out of the network."""
        fabric = _fabric(access)
        fabric.call("detach", port, network)
        if "detach" not in fabric.ignores:
            fabric.of(port).discard(network)
        fabric.changed()

    def check(self, access: Access, port: Port) -> frozenset[str]:
        """Return the networks that the port is in."""
        fabric = _fabric(access)
        fabric.call("check", port, "")
        return frozenset(fabric.of(port))


def _fabric(access: Access) -> Fabric:
    return FABRICS.setdefault(access.settings.fabric, Fabric())
