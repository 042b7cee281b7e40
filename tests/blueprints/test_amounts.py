"""Amounts fit where no class is short."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given, settings
from hypothesis import strategies as st

from blueprints.amounts import CLASSES, Amounts

_counts = st.integers(0, 5)
_extra = st.dictionaries(st.sampled_from(["gpu", "vf"]), _counts)
_amounts = st.builds(Amounts, **{name: _counts for name in CLASSES}, extra=_extra)


def test_a_shortage_names_every_class_that_is_short() -> None:
    asked = Amounts(slots=2, ram_mib=10, extra={"gpu": 1, "vf": 0})
    assert asked.shortage(Amounts(slots=1, ram_mib=10)) == {"slots": (2, 1), "gpu": (1, 0)}


def test_a_lease_takes_one_slot_unless_it_says_otherwise() -> None:
    assert Amounts().fits_in(Amounts(slots=1))
    assert not Amounts().fits_in(Amounts(slots=0))


@settings(deadline=None)
@given(_amounts, _amounts)
def test_it_fits_exactly_when_every_class_does(asked: Amounts, total: Amounts) -> None:
    plain = all(getattr(asked, name) <= getattr(total, name) for name in CLASSES)
    extra = all(count <= total.extra.get(name, 0) for name, count in asked.extra.items())
    assert asked.fits_in(total) == (plain and extra)


@settings(deadline=None)
@given(_amounts)
def test_everything_fits_in_itself_and_in_more(asked: Amounts) -> None:
    assert asked.fits_in(asked)
    assert asked.fits_in(replace(asked, slots=asked.slots + 1, extra={**asked.extra, "disk": 1}))
