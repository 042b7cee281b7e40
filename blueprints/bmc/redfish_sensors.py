"""The sensors of a machine in the tree of its Redfish service, and which of them measures the power of the whole."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from blueprints.bmc import redfish_readings
from blueprints.bmc.inspection import paths
from blueprints.bmc.redfish_client import Json
from blueprints.bmc.redfish_tree import Tree, links
from blueprints.bmc.values import Sensor


def read(tree: Tree) -> list[Sensor]:
    """Read all sensors, or, from a BMC that has none as resources, what Thermal and Power list.

    The power that the machine draws is added from EnvironmentMetrics or Power if no sensor measures it.
    """
    chassis = tree.chassis(tree.system(), [])
    machine = outermost(chassis)
    found = [
        redfish_readings.sensor(one, of_machine=place in machine)
        for place in chassis
        for one in tree.read(place, "Sensors", [])
    ]
    there = [one for one in found if one is not None] or _old_sensors(tree, chassis, machine)
    wholes = sum(one.whole for one in there)
    if wholes == 1:
        return there
    if wholes:
        there = [replace(one, whole=False) for one in there]
    return [*there, *_draw(tree, machine)]


def outermost(chassis: Sequence[Json]) -> list[Json]:
    """Return the chassis that are the whole of one machine: inside none of the others, and of no other system."""
    known = {one.get("@odata.id") for one in chassis}
    return [
        one
        for one in chassis
        if known.isdisjoint(paths(links(one).get("ContainedBy"))) and len(paths(links(one).get("ComputerSystems"))) <= 1
    ]


def _old_sensors(tree: Tree, chassis: Sequence[Json], machine: Sequence[Json]) -> list[Sensor]:
    return [
        one
        for place in chassis
        for key in ("Thermal", "Power")
        for each in tree.resources(paths(place.get(key)), [])
        for one in redfish_readings.old_sensors(each, of_machine=place in machine)
    ]


def _draw(tree: Tree, machine: Sequence[Json]) -> list[Sensor]:
    """Read the power that the machine draws. Empty unless exactly one chassis reports it."""
    found = [draw for place in machine if (draw := _draw_of(tree, place)) is not None]
    return found if len(found) == 1 else []


def _draw_of(tree: Tree, place: Json) -> Sensor | None:
    for key in ("EnvironmentMetrics", "Power"):
        for one in tree.resources(paths(place.get(key)), []):
            if (draw := redfish_readings.draw(one)) is not None:
                return draw
    return None
