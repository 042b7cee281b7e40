from __future__ import annotations

import shutil

import pytest

from drydock_agent import Drivers, load_drivers
from drydock_agent.names import PciNames
from tests.agent import captured


@pytest.fixture(autouse=True)
def _database():
    """Hardware needs no database."""


@pytest.fixture(scope="package")
def capture(tmp_path_factory: pytest.TempPathFactory):
    """Return the root of a capture by its name."""
    folder = tmp_path_factory.mktemp("captures")
    yield lambda name: captured.unpacked(name, folder)
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def drivers() -> Drivers:
    return load_drivers()


@pytest.fixture
def no_names() -> PciNames:
    return PciNames("")
