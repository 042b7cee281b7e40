"""The order of the drafts in one report, however its sender has nested them."""

from __future__ import annotations

from blueprints.reports import in_order
from blueprints.specs import Draft


def draft(identity: str, part_of: str = "") -> Draft:
    return Draft(name=identity, identity=identity, part_of=part_of)


def test_a_chain_of_20_000_parts_is_sorted_from_the_whole_downwards():
    chain = [draft(f"d{n}", part_of=f"d{n - 1}" if n else "") for n in range(20_000)]
    found, rejected = in_order(reversed(chain))
    assert [one.identity for one in found] == [one.identity for one in chain]
    assert not rejected


def test_a_circle_and_what_is_below_it_are_rejected_and_the_rest_is_kept():
    circle = [draft("a", "c"), draft("b", "a"), draft("c", "b"), draft("below", "b"), draft("self", "self")]
    found, rejected = in_order([*circle, draft("part", "whole"), draft("whole"), draft("far", "elsewhere")])
    assert [one.identity for one in found] == ["whole", "far", "part"]
    assert sorted(one.identity for one in rejected) == ["a", "b", "below", "c", "self"]
    assert {one.message for one in rejected} == {"It is part of itself."}
