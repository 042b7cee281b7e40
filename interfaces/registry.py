"""The registry of interfaces, which maps names to classes, including those from other packages.

Another package declares its class under the entry point group `drydock.interfaces`, or calls `register`.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.metadata import entry_points
from typing import Any

from drydock.core.errors import Conflict, InvalidRequest, NotFound
from interfaces.contract import Interface, StillMine
from interfaces.transport import Transport

GROUP = "drydock.interfaces"


class Registry:
    """Maps names to classes. Entry points are loaded at first use."""

    def __init__(self, group: str = GROUP) -> None:
        self._group = group
        self._classes: dict[str, type[Interface]] = {}
        self._looked = False

    def register(self, interface: type[Interface]) -> type[Interface]:
        """Add a class under its `name`. Can be used as a decorator.

        Raises Conflict if another class has the name, and InvalidRequest if it is not an interface.
        """
        if not (isinstance(interface, type) and issubclass(interface, Interface) and interface.name):
            raise InvalidRequest(f"{interface!r} is not a subclass of Interface with a name.")
        known = self._classes.setdefault(interface.name, interface)
        if known is not interface:
            raise Conflict(f"The interface {interface.name!r} is already provided by {known.__module__}.")
        return interface

    def get(self, name: str) -> type[Interface]:
        """Return the class for a name. Raises NotFound."""
        self._look()
        try:
            return self._classes[name]
        except KeyError:
            raise NotFound(f"Interface {name!r} does not exist. Choose one of: {', '.join(self.names())}.") from None

    def names(self) -> list[str]:
        """Return all names, sorted."""
        self._look()
        return sorted(self._classes)

    def open(self, name: str, transport: Transport, *, still_mine: StillMine, options: Mapping[str, Any]) -> Interface:
        """Return an interface that is ready to use. Raises NotFound, and InvalidRequest for unknown options."""
        interface = self.get(name)
        try:
            return interface.open(transport, still_mine=still_mine, options=options)
        except TypeError as error:
            raise InvalidRequest(f"The interface {interface.name!r} was given invalid options: {error}.") from error

    def _look(self) -> None:
        if self._looked:
            return
        self._looked = True
        for found in _own():
            self.register(found)
        for point in entry_points(group=self._group):
            loaded = point.load()
            if getattr(loaded, "name", "") != point.name:
                raise InvalidRequest(f"The entry point {point.name!r} must provide an interface of the same name.")
            self.register(loaded)


def _own() -> list[type[Interface]]:
    from interfaces.command import ShellCommand
    from interfaces.console import Console
    from interfaces.dpu_services import DpuServices
    from interfaces.filesystem import RootedFilesystem
    from interfaces.httpd import NginxHttpd

    return [ShellCommand, RootedFilesystem, NginxHttpd, Console, DpuServices]


REGISTRY = Registry()
"""The registry of this process."""
