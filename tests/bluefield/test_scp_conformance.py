"""The kind bluefield keeps the contract on a card whose BMC fetches images by SCP only, from a real SSH server."""

from __future__ import annotations

import pwd
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from blueprints.answers import Json, NeededLease
from blueprints.dpu.bluefield import scp
from blueprints.hosts import HOST
from blueprints.specs import LeaseView, ResourceView
from blueprints.testing.conformance import Outside
from interfaces.ssh.pool import POOL
from tests.bluefield import test_dpu_conformance as over_https
from tests.bluefield.accounts import clear, lease_in
from tests.bluefield.dpus import Webroot, card_lease, config, publish, web
from tests.blueprints import host_peers as peers
from tests.bmc.bluefield import bluefield
from tests.bmc.flashing import flashing
from tests.peers import require

pytestmark = over_https.pytestmark


@pytest.fixture(autouse=True)
def _database() -> None:
    """No database is needed."""


class TestBluefieldByScp(over_https.TestBluefield):
    """A DPU on one card, again and again, with an account of a host in place of the web root."""

    protocol = "SCP"

    @pytest.fixture(autouse=True)
    def _card(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
        require("sshd")
        require("sudo")
        peers.require("scp")
        self.reboots, self.again = 0, set[str]()
        with (
            bluefield() as self.bmc, flashing(self.bmc) as self.card, web(tmp_path / "images") as self.images,
            web(tmp_path / "site") as site, peers.server(f"127.9.5.{peers.WORKER + 231}") as self.server,
            peers.account() as self.account,
        ):  # fmt: skip
            monkeypatch.setattr(scp, "PORT", self.server.port)
            self.card.scp.ports[self.server.address] = self.server.port
            publish(self.images)
            self.webroot = Webroot(site)
            yield
            POOL.close_idle(0)
            assert not self.outside()
            assert not self.card.interrupted
            assert not self.bmc.sessions
            assert not self.bmc.locked

    def config(self) -> Json:
        return {**config(self.card, self.images), "scp": {"hostname": "images"}, "rshim": ""}

    def supply(self, needed: NeededLease) -> LeaseView:
        if needed.type == HOST:
            assert (needed.lifetime, needed.requirements) == ("phase", {"hostname": "images"})
            return lease_in(self.server, self.account)
        lease = card_lease(self.bmc)
        return replace(lease, resource=replace(lease.resource, facts={"card": {"protocols": ["SCP"]}}))

    def outside(self) -> Sequence[Outside]:
        return [*super().outside(), *(Outside(name=f"file {one.name}") for one in self.left())]

    def left(self) -> list[Path]:
        home = Path(pwd.getpwnam(self.account).pw_dir)
        return [*home.rglob("*.bfb"), *home.rglob("authorized_keys")]

    def destroyed(self, resource: ResourceView) -> None:
        super().destroyed(resource)
        if "restart" in resource.facts:
            assert self.left() == [], "a build that has ended leaves neither the image nor the key of the BMC"
        # The account of the lease ends with the build, whatever was left there.
        clear(self.account)
