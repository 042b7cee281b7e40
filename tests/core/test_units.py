"""Durations as people write them."""

from __future__ import annotations

import pytest

from drydock.core.errors import InvalidRequest
from drydock.core.units import duration


@pytest.mark.parametrize("seconds", [-86_399_999_913_601.0, -1e300, float("-inf"), -(10**400), 1e300, float("nan"), 0])
def test_a_number_that_no_duration_can_hold_is_refused(seconds):
    with pytest.raises(InvalidRequest, match="more than 0"):
        duration(seconds)
