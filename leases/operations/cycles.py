"""Blueprints that need one another, directly or not: none of them could ever be built."""

from __future__ import annotations

from collections.abc import Mapping

from blueprints import registry
from blueprints.models import Blueprint
from blueprints.specs import Problem
from drydock.core.errors import DrydockError
from leases.engine.core import specs


def problems(found: Blueprint) -> list[Problem]:
    """What is wrong when this blueprint serves together with all that are enabled; nothing, or one fatal problem."""
    there = [found, *Blueprint.objects.filter(enabled=True).exclude(pk=found.pk)]
    needs = {one.name: _needed(one) for one in there}
    gives = {one.name: one.resource_type for one in there}
    circle = cycle(found.name, needs, gives)
    if not circle:
        return []
    if len(circle) == 2:
        return [Problem(message=f"{found.name} needs a {found.resource_type!r}, which it gives itself.")]
    return [Problem(message=f"Blueprints that need one another cannot serve together: {' -> '.join(circle)}.")]


def cycle(start: str, needs: Mapping[str, frozenset[str]], gives: Mapping[str, str]) -> list[str]:
    """The shortest way from a blueprint by what it needs back to itself, as names; empty when there is none.

    `needs`: name -> types of resource; `gives`: name -> the type it gives.
    """
    ways, seen = [[start]], set[str]()
    while ways:
        way = ways.pop(0)
        for name in sorted(name for name, given in gives.items() if given in needs[way[-1]]):
            if name == start:
                return [*way, start]
            if name not in seen:
                seen.add(name)
                ways.append([*way, name])
    return []


def _needed(blueprint: Blueprint) -> frozenset[str]:
    """The types that a blueprint may lease; none where its kind or config cannot be read: it serves nobody."""
    try:
        return registry.kind(blueprint.kind).needed_types(specs.config(blueprint.kind, blueprint.config))
    except DrydockError:
        return frozenset()
