"""Localities: the positions of resources within their tree, and the distances between them.

A locality is a path of names, from the widest place to the narrowest: for a device on PCI Express, the NUMA node, the
root port and the switch above it, such as `("NUMA node 0", "root port 0000:00:01.0", "switch 0000:02:00.0")`. The
engine compares the names and shows them to people, and attaches no meaning to them.

The names follow three rules, so that localities can be compared:

- All resources of a tree use the same levels. A level that does not apply, or is not known, is an empty string; empty
  strings at the end are left out.
- Different places of one level have different names within the tree, also if they are in different wider places.
- A place is always in the same wider places.

Therefore two resources that share a place also share the wider places, whether or not these are known.

This module depends on no database, queue or provider.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

Locality: TypeAlias = tuple[str, ...]

LEVELS = 8
"""The maximum number of levels."""
LONGEST_NAME = 100
"""The maximum length of the name of a place, in characters."""


@dataclass(frozen=True, kw_only=True, order=True)
class Distance:
    """The distance between the resources of a set, all in one tree. A shorter distance is less than a longer one."""

    farness: int
    """0 if the resources share a place at the narrowest possible level; 1 more for each wider level."""
    levels: int
    """Number of levels from the narrowest place of any of the resources up to the place that they share."""
    place: str
    """The narrowest place that all of the resources share; empty if they share none."""

    def __str__(self) -> str:
        if not self.place:
            return "no place in common"
        up = f", {self.levels} level{'s' if self.levels > 1 else ''} up" if self.levels else ""
        return f"all at {self.place}{up}"


def distance(localities: Iterable[Sequence[str]]) -> Distance:
    """Return the distance between resources of one tree. An unknown locality shares no place with the others."""
    found = list(localities)
    deepest = max((len(one) for one in found), default=0)
    for level in range(min((len(one) for one in found), default=0), 0, -1):
        names = {one[level - 1] for one in found}
        if len(names) == 1 and (name := names.pop()):
            return Distance(farness=LEVELS - level, levels=deepest - level, place=name)
    return Distance(farness=LEVELS, levels=deepest, place="")


def places(locality: Sequence[str]) -> list[tuple[int, str]]:
    """Return the known places of a locality as (level, name), the widest first. The widest level is 1."""
    return [(level, name) for level, name in enumerate(locality, 1) if name]


def problem(locality: Sequence[str]) -> str:
    """Return why a locality is malformed, or an empty string if it is well-formed."""
    if len(locality) > LEVELS:
        return f"Its locality has more than {LEVELS} levels."
    if any(len(name) > LONGEST_NAME or "\0" in name for name in locality):
        return f"A name in its locality is longer than {LONGEST_NAME} characters or contains a NUL character."
    if locality and not locality[-1]:
        return "Its locality ends with an empty name."
    return ""


def contradictions(localities: Iterable[Sequence[str]]) -> list[str]:
    """Return a sentence for each place that is inside several wider places of the same level.

    An example is a root port that is in both NUMA node 0 and NUMA node 1.
    """
    wider: dict[tuple[int, str], set[tuple[int, str]]] = {}
    for locality in localities:
        places = [(level, name) for level, name in enumerate(locality) if name]
        for n, place in enumerate(places):
            wider.setdefault(place, set()).update(places[:n])
    found = []
    for (_, name), around in sorted(wider.items()):
        levels = [level for level, _ in around]
        if len(levels) > len(set(levels)):
            found.append(f"{name} is inside several places of one level: {', '.join(sorted(n for _, n in around))}.")
    return found
