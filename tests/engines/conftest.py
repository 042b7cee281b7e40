"""State folders for engines that tests start and kill."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drydock.engines import Config, leave, wait_until_stopped
from tests.engines.users import running


@pytest.fixture
def folders() -> Iterator[Callable[..., Path]]:
    """Makes folders with short paths that the engines' account can pass through."""
    made = []

    def make(mode: int = 0o711 if os.geteuid() == 0 else 0o700) -> Path:
        made.append(Path(tempfile.mkdtemp(prefix="dd-", dir="/tmp")))
        made[-1].chmod(mode)
        return made[-1]

    yield make
    for folder in made:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture
def config(folders: Callable[..., Path]) -> Iterator[Config]:
    """Engines of their own for one test, down at its end."""
    config = Config(state=folders() / "state", linger=0.1, deadline=60, durable=False)
    yield config
    leave(config.state)
    assert wait_until_stopped(config, 90)
    assert running(config) == []
