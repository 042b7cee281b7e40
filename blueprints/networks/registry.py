"""The network drivers: those of this package, and those of other packages by entry point."""

from __future__ import annotations

from functools import cache

from blueprints.networks.command import CommandNetworks
from blueprints.networks.contract import NetworkDriver
from blueprints.networks.fake import FakeNetworks
from blueprints.networks.none import NoNetworks
from drydock.core.plugins import Plugins, load_plugins

GROUP = "drydock.networks"
OWN: dict[str, type[NetworkDriver]] = {one.name: one for one in (CommandNetworks, FakeNetworks, NoNetworks)}


@cache
def installed() -> Plugins:
    """Load the drivers of other packages. A broken one is a problem in the result, and does not affect the others."""
    return load_plugins(GROUP)


def driver(name: str) -> NetworkDriver:
    """Return the driver with this name. Raises NotFound."""
    found: NetworkDriver = installed().find(name, "network driver", OWN)()
    return found
