"""Hypothesis strategies for matching: JSON that a row can hold, declarations, and cases that often fit."""

from __future__ import annotations

from typing import Any, TypeAlias, get_args

from hypothesis import strategies as st

from blueprints.matching import Match, Operator

Case: TypeAlias = tuple[tuple[Match, ...], dict[str, Any], dict[str, Any]]
"""Matches, the attributes of a resource, what is asked."""

# Beyond 2^53 a float and the decimal text that JSON writes for it are different numbers, and who is right
# depends on who reads; no attribute needs such numbers.
_EXACT = 2**53
NAMES = ("alpha", "beta")
OPERATORS: tuple[Operator, ...] = get_args(Operator)

# A row's text has no NUL and no half of a surrogate pair.
texts = st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=6)
numbers = st.integers(-_EXACT, _EXACT) | st.floats(-_EXACT, _EXACT, allow_nan=False, allow_infinity=False)
scalars = st.none() | st.booleans() | numbers | texts
json_values = st.recursive(
    scalars,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(texts, inner, max_size=3),
    max_leaves=6,
)

# Few values, so that two draws are often the same, or the same but for their type.
_few = st.sampled_from([True, False, 0, 1, 1.0, 2, "", "1", "a", "b", "true"])
few_values = _few | st.lists(_few, max_size=3)

matches = st.builds(
    Match, st.sampled_from(NAMES), st.sampled_from(OPERATORS), st.sampled_from([f"want_{n}" for n in NAMES])
)


def cases(values: st.SearchStrategy[Any] = json_values | few_values) -> st.SearchStrategy[Case]:
    """Any declaration over any attributes and any request."""
    attributes = st.fixed_dictionaries({}, optional=dict.fromkeys(NAMES, values))
    asked = st.fixed_dictionaries({}, optional={f"want_{name}": values for name in NAMES})
    return st.tuples(st.lists(matches, min_size=1, max_size=4).map(tuple), attributes, asked)


def likely_cases() -> st.SearchStrategy[Case]:
    """Cases of few values, many of which fit."""
    return cases(few_values)
