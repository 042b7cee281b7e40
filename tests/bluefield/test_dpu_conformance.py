"""The kind bluefield keeps the contract, with a BMC that really fetches images, and real SSH servers as DPUs.

The BMC fetches by HTTPS, which leaves most behind: a certificate that it trusts.
"""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from blueprints.answers import Json, Maintenance, NeededLease
from blueprints.dpu.bluefield.kind import Bluefield
from blueprints.specs import LeaseView, ResourceView
from blueprints.testing.conformance import KindConformance, Outside
from interfaces.ssh.pool import POOL
from tests.bluefield.dpus import Webroot, card_lease, config, publish, resources, web
from tests.blueprints.host_peers import marked
from tests.bmc.bluefield import bluefield
from tests.bmc.flashing import flashing
from tests.peers import require

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may make accounts for leases"),
    pytest.mark.timeout(600, func_only=True),
]
DECIDED = ("public_key", "host_keys")


@pytest.fixture(autouse=True)
def _database() -> None:
    """No database is needed."""


class TestBluefield(KindConformance):
    """A DPU on one card, again and again."""

    kind = Bluefield()
    pace = 0.02
    protocol = "HTTPS"

    @pytest.fixture(autouse=True)
    def _card(self, tmp_path: Path) -> Iterator[None]:
        require("sshd")
        require("sudo")
        self.reboots, self.again = 0, set[str]()
        with (
            bluefield(resources()) as self.bmc, flashing(self.bmc) as self.card,
            web(tmp_path / "images") as self.images, web(tmp_path / "site", tls=True) as site,
        ):  # fmt: skip
            publish(self.images)
            self.webroot = Webroot(site)
            yield
            POOL.close_idle(0)
            assert not self.outside()
            assert self.card.trust.changes % 2 == 0, "each certificate is added once and removed once"
            assert not self.card.interrupted
            assert not self.bmc.sessions
            assert not self.bmc.locked

    def config(self) -> Json:
        return config(self.card, self.images, webroot={"tls": True})

    def requirements(self) -> Json:
        return {"model": "BlueField3"}

    def impossible(self) -> Json:
        return {"doca": "0.0.1"}

    def supply(self, needed: NeededLease) -> LeaseView:
        if needed.type == "webroot":
            assert (needed.lifetime, needed.requirements) == ("phase", {"tls": True})
            return self.webroot.lease()
        lease = card_lease(self.bmc)
        return replace(lease, resource=replace(lease.resource, facts={"card": {"protocols": ["SCP", "HTTPS"]}}))

    def maintain(self, maintenance: Maintenance) -> None:
        self.reboots += maintenance.action == "power_cycle"

    def begun_again(self, resource: ResourceView, built: ResourceView) -> ResourceView:
        self.again.add(resource.key)
        decided = {name: built.facts[name] for name in DECIDED}
        return replace(resource, facts={**resource.facts, **decided}, secrets=built.secrets)

    def outside(self) -> Sequence[Outside]:
        found = [Outside(name=name) for name in self.card.running]
        found += [Outside(name=f"file {one.name}") for one in self.webroot.files]
        found += [Outside(name=f"certificate {one}") for one in self.card.trust.kept]
        return [*found, *([Outside(name="rshim of the BMC")] if self.card.rshim else [])]

    def destroyed(self, resource: ResourceView) -> None:
        imaged = self.card.imaged.count(resource.key)
        assert imaged <= 1 + (resource.key in self.again), "whatever died, the card is imaged once"
        super().destroyed(resource)
        # The lease of the web root ends with the build, and its files with it.
        for one in self.webroot.files:
            one.unlink()

    def kill(self, resource: ResourceView) -> None:
        self.card.machines.kill(resource.key)

    @contextmanager
    def cut_off(self, resource: ResourceView) -> Iterator[None]:
        with self.card.machines.silent(resource.key):
            yield

    def access_of(self, lease: LeaseView) -> Sequence[str]:
        accounts = [one.pw_name for one in pwd.getpwall() if one.pw_name == lease.facts.get("user")]
        return [*accounts, *(f"process {one.pid}" for one in marked(lease.key))]

    def test_a_build_images_the_card_once_and_restarts_its_host_once(self) -> None:
        resource = self.built()
        assert self.card.imaged == [resource.key]
        assert self.reboots == 1
        assert not self.webroot.files
        assert not self.card.trust.kept
        assert {task.body["TransferProtocol"] for task in self.card.tasks.values()} == {self.protocol}
        assert resource.attributes["image"].endswith("/bf.bfb")
        self.destroyed(resource)
        assert self.card.power == "Off"
