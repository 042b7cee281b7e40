"""The kind bare_metal with a ramdisk keeps the contract: also when processes die between any two calls."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from blueprints.bmc.values import PowerState
from interfaces.ssh.pool import POOL
from tests.blueprints import host_peers as peers
from tests.blueprints.baremetal.ramdisk_bench import BMC, RamdiskHooks, media_server
from tests.blueprints.baremetal.scripted import machine, scripted
from tests.blueprints.host_peers import WORKER
from tests.bmc.guests import guests

__all__ = ["scripted"]

# Each call boots a system, so all of it takes minutes.
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900, func_only=True), pytest.mark.usefixtures("scripted")]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    peers.needs_root()
    with media_server(tmp_path_factory.mktemp("image")) as running:
        yield running


class TestRamdisk(RamdiskHooks):
    """A host that is erased when it is enrolled, deployed for its lease, and erased after it."""

    @pytest.fixture(autouse=True)
    def _machine(self, server: Any, tmp_path: Path, scripted: Any) -> Iterator[None]:
        tmp_path.chmod(0o755)
        self.server, self.given, self.ramdisk = server, {}, {}
        with guests(tmp_path / "guest", f"127.9.10.{WORKER + 1}") as self.guest:
            drives = {"CD1": "", "USB": ""}
            with machine(BMC, self.guest, state=PowerState.OFF, drives=drives) as self.bmc:
                self.guest.machine = self.bmc  # type: ignore[assignment]
                yield
                assert self.bmc.most_open <= 1
                assert not self.inserted(), "a medium was left inserted"
            POOL.close_idle(0)
        assert not self.guest.problems
