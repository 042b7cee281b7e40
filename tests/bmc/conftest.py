from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.bmc.double import RedfishDouble, redfish_double


@pytest.fixture(autouse=True)
def _database():
    """BMCs need no database."""


@pytest.fixture
def double() -> Iterator[RedfishDouble]:
    """A BMC with one machine, which is off."""
    with redfish_double() as running:
        yield running
