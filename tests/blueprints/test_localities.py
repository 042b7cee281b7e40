"""Localities: how near resources of one tree are to one another."""

from __future__ import annotations

import pytest

from blueprints.localities import LEVELS, contradictions, distance, problem

SWITCH = ("node 0", "port 1", "switch 1")
BESIDE = ("node 0", "port 1", "switch 2")
PORT = ("node 0", "port 2", "switch 3")
NODE = ("node 1", "port 3", "switch 4")


@pytest.mark.parametrize(
    ("localities", "place", "levels"),
    [
        ([SWITCH, SWITCH], "switch 1", 0),
        ([SWITCH, BESIDE, SWITCH], "port 1", 1),
        ([SWITCH, BESIDE, PORT], "node 0", 2),
        ([SWITCH, NODE], "", 3),
        ([SWITCH, ("node 0",)], "node 0", 2),
        ([("", "port 1"), SWITCH], "port 1", 1),
        ([("", "", "x"), ("", "", "y")], "", 3),
        ([SWITCH, ()], "", 3),
        ([SWITCH], "switch 1", 0),
        ([()], "", 0),
        ([], "", 0),
    ],
)
def test_the_distance_is_that_to_the_narrowest_place_that_all_share(localities, place, levels):
    found = distance(localities)
    assert (found.place, found.levels) == (place, levels)
    assert distance(reversed(localities)) == found


def test_distances_are_in_order_whatever_levels_are_known():
    sets = [[SWITCH, SWITCH], [SWITCH, BESIDE], [("", "port 1"), SWITCH], [("node 0",), ("node 0",)], [SWITCH, NODE]]
    found = [distance(one) for one in sets]
    assert found == sorted(found)
    assert found[-1].farness == LEVELS


def test_a_distance_is_shown_as_the_place_that_all_share():
    shown = [str(distance(one)) for one in ([SWITCH, SWITCH], [SWITCH, BESIDE], [SWITCH, PORT], [SWITCH, NODE])]
    assert shown == ["all at switch 1", "all at port 1, 1 level up", "all at node 0, 2 levels up", "no place in common"]


@pytest.mark.parametrize(
    ("locality", "says"),
    [(SWITCH, ""), ((), ""), (("", "port"), ""), (("node", ""), "ends with"), (("x" * 101,), "longer"),
     (("a\0b",), "NUL"), (("x",) * 9, "levels")],
)  # fmt: skip
def test_malformed_localities_are_refused(locality, says):
    assert says in problem(locality)
    assert bool(problem(locality)) == bool(says)


def test_a_place_in_two_wider_places_is_a_contradiction():
    assert contradictions([SWITCH, BESIDE, PORT, NODE, ("", "port 1"), ()]) == []
    (said,) = contradictions([SWITCH, ("node 1", "port 1")])
    assert said == "port 1 is inside several places of one level: node 0, node 1."
