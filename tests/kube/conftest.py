from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.kube.double import Double
from tests.kube.double import double as running_double


@pytest.fixture(autouse=True)
def _database():
    """Clusters need no database."""


@pytest.fixture
def double() -> Iterator[Double]:
    """A server that answers as the test says."""
    with running_double() as running:
        yield running
