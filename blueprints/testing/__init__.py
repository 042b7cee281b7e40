"""Tools that test kinds, including third-party ones: a conformance suite and a driver that carries out plans.

They need only pytest.
"""

import pytest

_SUITES = ("declared", "drafting", "hooks", "leasing", "leftovers", "making", "phases", "watching")

# Only so do the suite's bare asserts say what they compared.
pytest.register_assert_rewrite(*(f"{__name__}.{suite}" for suite in _SUITES))
