"""The interface of hardware drivers, and the loader of drivers from entry points."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import logging
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from drydock_agent.facts import Device, Host, ScanWarning
from drydock_agent.tree import Tree

GROUP = "drydock.hardware_drivers"
"""The entry point group of drivers. The name of an entry point is the name of its driver."""

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Findings:
    """The devices, and facts about the host, that a driver found in a tree."""

    devices: tuple[Device, ...] = ()
    """Facts about devices. Several drivers can report on one device, so each sets only the fields that it knows."""
    host: Host | None = None


@runtime_checkable
class Driver(Protocol):
    """Reads facts about hardware from a tree. Opens no files, starts no programs and keeps no state."""

    @property
    def name(self) -> str:
        """The name of the driver, the same as that of its entry point."""
        ...

    @property
    def classes(self) -> tuple[str, ...]:
        """The device classes that the driver reports, such as `gpu`."""
        ...

    @property
    def paths(self) -> tuple[str, ...]:
        """Shell patterns of the files, links and folders that the driver reads, without a leading slash."""
        ...

    @property
    def tools(self) -> Mapping[str, tuple[str, ...]]:
        """Maps tool names to commands, run if installed, whose output the driver reads with `tree.tool(name)`."""
        ...

    def read(self, tree: Tree) -> Findings:
        """Return the facts in the tree. Skips missing or malformed data, and reports it with `tree.warn`."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drivers:
    """The drivers of this installation, `pci` first, and a warning for each one that could not be loaded."""

    drivers: tuple[Driver, ...]
    warnings: tuple[ScanWarning, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """The path patterns of all drivers, sorted."""
        return tuple(sorted({path for one in self.drivers for path in one.paths}))

    @property
    def tools(self) -> dict[str, tuple[str, ...]]:
        """The commands of all drivers, by name of the tool."""
        found = {name: tuple(argv) for one in self.drivers for name, argv in one.tools.items()}
        return dict(sorted(found.items()))


class NotInstalled(RuntimeError):
    """The drivers that ship with this package are not registered."""


def load_drivers() -> Drivers:
    """Load all drivers by their entry points. A driver that cannot be loaded becomes a warning.

    Raises NotInstalled if the package's own drivers are not registered.
    """
    found: dict[str, Driver] = {}
    warnings = []
    # Both distributions that contain this package register its drivers.
    points = {(point.name, point.value): point for point in importlib.metadata.entry_points(group=GROUP)}
    for (name, value), point in sorted(points.items()):
        try:
            if name in found:
                raise LookupError("another package provides a driver of this name")
            found[name] = _checked(name, point.load())
        except Exception as error:  # a stranger's module may raise anything while it is imported
            logger.warning("hardware driver %s (%s) was not loaded: %s", name, value, error)
            message = f"The driver was not loaded: {type(error).__name__}: {error}"
            warnings.append(ScanWarning(subject=f"driver {name}", message=message))
    if "pci" not in found:
        raise NotInstalled("The drivers of drydock_agent are not registered. Install the package again: make install")
    # The drivers of vendors know better than `pci`, and a later driver wins.
    ordered = sorted(found.values(), key=lambda one: (one.name != "pci", one.name))
    return Drivers(drivers=tuple(ordered), warnings=tuple(warnings))


def _checked(name: str, loaded: object) -> Driver:
    made = loaded() if isinstance(loaded, type) else loaded
    if not isinstance(made, Driver):
        raise TypeError("it is not a driver: it needs name, classes, paths, tools and read(tree)")
    if made.name != name:
        raise ValueError(f"its name is {made.name!r}")
    return made
