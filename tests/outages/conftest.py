"""Installations whose servers a test stops, and state folders for them."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from drydock.engines import BROKER, POSTGRESQL
from tests.outages.servers import OwnServers, PrivateEngines
from tests.outages.site import Site


@contextmanager
def state() -> Iterator[Path]:
    """A state folder that the engines' account can pass through."""
    folder = Path(tempfile.mkdtemp(prefix="dd-out-", dir="/tmp"))
    folder.chmod(0o711 if os.geteuid() == 0 else 0o700)
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="module", params=[OwnServers, PrivateEngines], ids=["own servers", "private engines"])
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    """An installation without load, on servers of each kind."""
    with state() as folder:
        servers = request.param(folder)
        try:
            for name in (POSTGRESQL, BROKER):
                servers.start(name)
            with Site(servers) as made:
                yield made
        finally:
            servers.close()


@pytest.fixture
def engines() -> Iterator[PrivateEngines]:
    """Private engines that are used by no program yet."""
    with state() as folder:
        made = PrivateEngines(folder)
        made.start(POSTGRESQL)
        try:
            yield made
        finally:
            made.close()
