"""The console drivers: those of this package, and those of other packages by entry point."""

from __future__ import annotations

from functools import cache

from blueprints.consoles.command import CommandConsole
from blueprints.consoles.contract import ConsoleDriver
from blueprints.consoles.ssh import SshConsole
from drydock.core.plugins import Plugins, load_plugins

GROUP = "drydock.consoles"
OWN: dict[str, type[ConsoleDriver]] = {one.name: one for one in (CommandConsole, SshConsole)}


@cache
def installed() -> Plugins:
    """Load the drivers of other packages. A broken one is a problem in the result, and does not affect the others."""
    return load_plugins(GROUP)


def driver(name: str) -> ConsoleDriver:
    """Return the driver with this name. Raises NotFound."""
    found: ConsoleDriver = installed().find(name, "console driver", OWN)()
    return found
