"""What a hardware driver is, and how drivers are found."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import logging
from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from drydock_agent.facts import Device, Host, ScanWarning
from drydock_agent.tree import Tree

GROUP = "drydock.hardware_drivers"
"""The group of entry points. The name of an entry point is the name of its driver."""

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Findings:
    """What a driver found in a tree."""

    devices: tuple[Device, ...] = ()
    """Facts on devices. Several drivers can report on one id; set only what you know."""
    host: Host | None = None


@runtime_checkable
class Driver(Protocol):
    """A pure function from a tree to facts. It opens no file, starts no program and keeps nothing."""

    @property
    def name(self) -> str:
        """The name of the driver, which is that of its entry point."""
        ...

    @property
    def classes(self) -> tuple[str, ...]:
        """The device classes that it reports, such as `gpu`."""
        ...

    @property
    def paths(self) -> tuple[str, ...]:
        """Shell patterns of the files, links and folders that it reads, without a leading slash."""
        ...

    @property
    def tools(self) -> Mapping[str, tuple[str, ...]]:
        """Programs whose output it reads with `tree.tool(name)`, if they are installed: name to argument list."""
        ...

    def read(self, tree: Tree) -> Findings:
        """Return what the tree says. Whatever is missing or malformed is left out, with `tree.warn`."""
        ...


@dataclasses.dataclass(frozen=True, kw_only=True)
class Drivers:
    """The drivers of this installation, `pci` first, and those that could not be loaded."""

    drivers: tuple[Driver, ...]
    warnings: tuple[ScanWarning, ...] = ()

    @property
    def paths(self) -> tuple[str, ...]:
        """Return the patterns of all drivers, sorted."""
        return tuple(sorted({path for one in self.drivers for path in one.paths}))

    @property
    def tools(self) -> dict[str, tuple[str, ...]]:
        """Return the programs of all drivers."""
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
