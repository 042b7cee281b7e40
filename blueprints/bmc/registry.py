"""The installed BMC drivers, found by entry point."""

from __future__ import annotations

from functools import cache

from blueprints.bmc.contract import BmcDriver
from drydock.core.errors import NotFound
from drydock.core.plugins import Plugins, load_plugins

GROUP = "drydock.bmc_drivers"


@cache
def installed() -> Plugins:
    """Load all drivers. A broken one is a problem in the result, and does not affect the others."""
    return load_plugins(GROUP)


def driver(name: str) -> BmcDriver:
    """Return the driver with this name. Raises NotFound."""
    found = installed()
    made = found.objects.get(name)
    if made is None:
        problem = next((one.message for one in found.problems if one.name == name), "")
        raise NotFound(
            f"There is no BMC driver {name!r}" + (f": {problem}" if problem else "."),
            hint=f"Installed are: {', '.join(sorted(found.objects)) or 'none'}.",
        )
    ready: BmcDriver = made()
    return ready
