"""Which class gives an interface of a name: ours, and those of other packages.

Another package names its class under the entry point group `drydock.interfaces`, or calls `register`.
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
    """Names to classes. Entry points are looked up at the first use, and loaded when asked for."""

    def __init__(self, group: str = GROUP) -> None:
        self._group = group
        self._classes: dict[str, type[Interface]] = {}
        self._looked = False

    def register(self, interface: type[Interface]) -> type[Interface]:
        """Add a class under its `name`; works as a decorator. Raises Conflict when the name is taken by
        another, InvalidRequest when it is no interface."""
        if not (isinstance(interface, type) and issubclass(interface, Interface) and interface.name):
            raise InvalidRequest(f"{interface!r} is not a subclass of Interface with a name.")
        known = self._classes.setdefault(interface.name, interface)
        if known is not interface:
            raise Conflict(f"The interface {interface.name!r} is already given by {known.__module__}.")
        return interface

    def get(self, name: str) -> type[Interface]:
        """The class of that name. Raises NotFound."""
        self._look()
        try:
            return self._classes[name]
        except KeyError:
            raise NotFound(f"No interface {name!r}; there are {', '.join(self.names())}.") from None

    def names(self) -> list[str]:
        """All names, sorted."""
        self._look()
        return sorted(self._classes)

    def open(self, name: str, transport: Transport, *, still_mine: StillMine, options: Mapping[str, Any]) -> Interface:
        """An interface ready to use. Raises NotFound, and InvalidRequest for options it does not know."""
        interface = self.get(name)
        try:
            return interface.open(transport, still_mine=still_mine, options=options)
        except TypeError as error:
            raise InvalidRequest(f"The interface {name!r} cannot be opened so: {error}.") from error

    def _look(self) -> None:
        if self._looked:
            return
        self._looked = True
        for found in _own():
            self.register(found)
        for point in entry_points(group=self._group):
            loaded = point.load()
            if getattr(loaded, "name", "") != point.name:
                raise InvalidRequest(f"The entry point {point.name!r} gives an interface of another name.")
            self.register(loaded)


def _own() -> list[type[Interface]]:
    from interfaces.command import ShellCommand
    from interfaces.filesystem import RootedFilesystem
    from interfaces.httpd import NginxHttpd

    return [ShellCommand, RootedFilesystem, NginxHttpd]


REGISTRY = Registry()
"""The one of this process."""
