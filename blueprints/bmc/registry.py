"""The installed BMC drivers, found by entry point."""

from __future__ import annotations

from functools import cache

from blueprints.bmc.contract import BmcDriver
from drydock.core.plugins import Plugins, load_plugins

GROUP = "drydock.bmc_drivers"


@cache
def installed() -> Plugins:
    """Load all drivers. A broken one is a problem in the result, and does not affect the others."""
    return load_plugins(GROUP)


def driver(name: str) -> BmcDriver:
    """Return the driver with this name. Raises NotFound."""
    found: BmcDriver = installed().find(name, "BMC driver")()
    return found
