"""The kind bare_metal keeps the contract with an account for every lease."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from blueprints.baremetal.kind import BareMetal
from tests.blueprints import host_peers as peers
from tests.blueprints.baremetal.scripted import scripted
from tests.blueprints.baremetal.test_conformance import Hooks, server

__all__ = ["scripted", "server"]

# Waiting for others who use the accounts of this machine does not count.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(240, func_only=True), pytest.mark.usefixtures("scripted")]


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    with peers.alone():
        yield


class TestPerLease(Hooks):
    """An account for every lease, on a host that stays on."""

    kind = BareMetal()
