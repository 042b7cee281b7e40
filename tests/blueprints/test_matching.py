"""Matching, read in Python, says for every JSON what the table of operators says."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import example, given, settings

from blueprints import registry
from blueprints.local.kind import LocalHost
from blueprints.matching import Match, Operator, misses
from tests.blueprints.strategies import Case, cases, likely_cases

_TABLE: list[tuple[Any, Operator, Any, bool]] = [
    ("red", "=", "red", True),
    ("red", "=", "Red", False),
    (1, "=", 1.0, True),
    (True, "=", 1, False),
    (1, "=", True, False),
    (0, "=", False, False),
    ([1], "=", [1], True),
    ({"a": 1}, "=", {"a": 1}, True),
    (4, ">=", 4, True),
    (4, ">=", 4.5, False),
    (4.5, ">=", 4, True),
    (True, ">=", 0, False),
    ("4", ">=", 3, False),
    (4, "<=", 4, True),
    (5, "<=", 4, False),
    ("a", "in", ["a", "b"], True),
    ("c", "in", ["a", "b"], False),
    ("a", "in", [], False),
    (1, "in", [True], False),
    (["a"], "in", [["a"]], True),
    (["a", "b"], "contains", "a", True),
    (["a"], "contains", "b", False),
    ("abc", "contains", "a", False),
    ([1], "contains", True, False),
    (["a", "b", "c"], "contains_all", ["c", "a"], True),
    (["a"], "contains_all", ["a", "b"], False),
    (["a"], "contains_all", [], True),
    ("ab", "contains_all", ["a"], False),
    (None, "=", "red", False),
    (None, "contains_all", [], False),
]


@pytest.mark.parametrize(("has", "operator", "asked", "fits"), _TABLE)
def test_the_table(has: Any, operator: Operator, asked: Any, fits: bool) -> None:
    found = misses((Match("has", operator, "asked"),), {"has": has}, {"asked": asked})
    assert (not found) == fits


def test_an_absent_attribute_fits_nothing() -> None:
    assert misses((Match("has", "contains_all", "asked"),), {}, {"asked": []})


def test_what_is_not_asked_is_not_looked_at() -> None:
    match = Match("has", "=", "asked")
    assert misses((match,), {}, {}) == []
    assert misses((match,), {}, {"asked": None}) == []


def test_a_miss_says_what_is_asked_and_what_there_is() -> None:
    (sentence,) = misses((Match("size", ">=", "min_size"),), {"size": 3}, {"min_size": 5})
    assert sentence == "min_size >= 5 is required, but the value is 3"


_ALPHA: Case = ((Match("alpha", "in", "want_alpha"),), {"alpha": True}, {"want_alpha": True})
_NESTED: Case = ((Match("alpha", "=", "want_alpha"),), {"alpha": [True]}, {"want_alpha": [1]})


@settings(deadline=None)
@given(cases())
@example(_ALPHA)
def test_it_has_an_answer_for_every_json(case: Case) -> None:
    assert bool(misses(*case)) is not _fits(case)


@settings(deadline=None)
@given(likely_cases())
@example(_NESTED)
def test_it_follows_the_operators(case: Case) -> None:
    assert bool(misses(*case)) is not _fits(case)


def _fits(case: Case) -> bool:
    """The same in other words."""
    matches, attributes, asked = case
    return all(
        _meets(attributes.get(match.attribute), match.operator, asked[match.requirement])
        for match in matches
        if asked.get(match.requirement) is not None
    )


def _meets(has: Any, operator: Operator, asked: Any) -> bool:
    if has is None:
        return False
    lists = {"has": isinstance(has, list), "asked": isinstance(asked, list)}
    numbers = type(has) in (int, float) and type(asked) in (int, float)
    match operator:
        case "=":
            return bool(_typed(has) == _typed(asked))
        case ">=":
            return numbers and bool(has >= asked)
        case "<=":
            return numbers and bool(has <= asked)
        case "in":
            return lists["asked"] and _typed(has) in [_typed(one) for one in asked]
        case "contains":
            return lists["has"] and _typed(asked) in [_typed(one) for one in has]
        case "contains_all":
            return lists["has"] and lists["asked"] and all(_typed(x) in [_typed(y) for y in has] for x in asked)


def _typed(value: Any) -> Any:
    """The value with its JSON type beside it, all the way down."""
    if isinstance(value, bool):
        return ("boolean", value)
    if isinstance(value, list):
        return ("list", [_typed(one) for one in value])
    if isinstance(value, dict):
        return ("object", {name: _typed(one) for name, one in value.items()})
    return ("value", value)


def test_a_match_refuses_arguments_in_the_wrong_order(monkeypatch):
    with pytest.raises(ValueError, match=r"'min_vcpus' is not an operator. Write Match\(attribute, operator, req"):
        Match("vcpus", "min_vcpus", ">=")  # type: ignore[arg-type]
    monkeypatch.setattr(LocalHost, "matches", (Match("min_vcpus", ">=", "vcpus"),))
    registry.forget()
    with pytest.raises(registry.KindBroken, match="attribute and requirement swapped"):
        registry.kind("local_host")
    monkeypatch.undo()
    registry.forget()
    assert registry.kind("local_host").matches
