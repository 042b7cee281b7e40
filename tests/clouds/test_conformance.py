"""The kinds of cloud hosts keep the contract of kinds: emulated clouds, with real SSH servers as machines."""

from __future__ import annotations

import os
import pwd
import subprocess
import threading
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, ClassVar

import pytest

from blueprints.accounts import access
from blueprints.amounts import Amounts
from blueprints.answers import Json
from blueprints.azure.kind import AzureHost
from blueprints.cloud import operations
from blueprints.cloud.kind import CloudHost
from blueprints.ec2.kind import Ec2Host
from blueprints.gce.kind import GceHost
from blueprints.offers import Offer
from blueprints.specs import LeaseView, ResourceView
from blueprints.testing.conformance import KindConformance, Outside
from interfaces.ssh.pool import POOL
from tests.blueprints.host_peers import marked
from tests.clouds.ec2.conftest import no_aws_of_ours  # noqa: F401
from tests.clouds.machines import USER
from tests.clouds.outside import LOOKS, Seen
from tests.clouds.validation.emulated import Emulated, cloud
from tests.peers import require

pytestmark = [
    pytest.mark.skipif(os.geteuid() != 0, reason="only root may make accounts for leases"),
    pytest.mark.timeout(600),
]
PORT = 8080
"""What leases want open."""
DECIDED = ("attempt", "public_key", "host_keys", "user", "port", "ends_at")
"""Facts of the first step of a build, which are kept before anything is made."""


class CloudHooks(KindConformance):
    """How to look at a cloud's double, and at this machine, which all of its machines are."""

    pace = 0.05
    more: ClassVar[Json] = {}
    """Further fields of the credential."""
    wrong: ClassVar[Json]
    """Fields of one that is not let in."""
    there: Emulated
    _offers: Sequence[Offer] = ()

    @pytest.fixture(autouse=True)
    def _cloud(self, no_aws_of_ours: None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:  # noqa: F811
        require("sshd")
        require("sudo")
        # All machines have the boot id of this one, so a reboot is known by that time alone.
        monkeypatch.setattr(operations, "_SETTLE", 0.2)
        assert isinstance(self.kind, CloudHost)
        with cloud(self.kind.name) as self.there:
            client: Any = self.kind.client(self.credentials()["account"])
            client.find_after = 0.5
            yield
            client.close()
            POOL.close_idle(0)
            assert not self.outside()

    def config(self) -> Json:
        asked, machines = self.there.asked, self.there.machines
        return {
            "credential": "account", "regions": [asked["location"]], "types": [asked["type"]], "image": asked["image"],
            "ready_by": "ssh", "user": USER, "ssh_port": machines.port, "homes": str(machines.homes), "min_free_mib": 0,
        }  # fmt: skip

    def credentials(self) -> Mapping[str, Mapping[str, Any]]:
        return {"account": {**self.there.secrets, **self.more}}

    def wrong_secrets(self) -> Sequence[Mapping[str, Any]]:
        return [{**self.credentials()["account"], **self.wrong}, {"nonsense": "1"}]

    def requirements(self) -> Json:
        return {"region": [self.there.asked["location"]], "ports": [PORT]}

    def amounts(self) -> Amounts:
        return Amounts(cpu_millicores=1000, ram_mib=512)

    def offers(self) -> Sequence[Offer]:
        """Read once a test: the doubles are slow to tell of all."""
        self._offers = self._offers or super().offers()
        return self._offers

    def begun_again(self, resource: ResourceView, built: ResourceView) -> ResourceView:
        """With its keys, and the token of the attempt."""
        decided = {name: built.facts[name] for name in DECIDED}
        return replace(resource, facts={**resource.facts, **decided}, secrets=built.secrets)

    def outside(self) -> Sequence[Outside]:
        return sorted(LOOKS[self.kind.name].things(self.there.double), key=lambda one: one.name)

    def kill(self, resource: ResourceView) -> None:
        self.there.machines.kill(resource.key)

    @contextmanager
    def cut_off(self, resource: ResourceView) -> Iterator[None]:
        with self.there.machines.silent(resource.key):
            yield

    def power_of(self, resource: ResourceView) -> str:
        return self._seen(resource).power

    def disk_of(self, resource: ResourceView) -> int:
        return self.there.place.disk_gib(resource.key)

    def types(self) -> tuple[str, str]:
        return self.there.asked["type"], self.there.asked["other_type"]

    def type_of(self, resource: ResourceView) -> str:
        return self._seen(resource).type

    def tags_of(self, resource: ResourceView) -> Mapping[str, str]:
        return self._seen(resource).tags

    def write_console(self, resource: ResourceView, text: str) -> None:
        self.there.console(resource.key, text)

    def access_of(self, lease: LeaseView) -> Sequence[str]:
        """The account, unless nobody can log in to it; processes; ports that the firewall lets in."""
        user = access.user_of(lease)
        accounts = [one.pw_name for one in pwd.getpwall() if one.pw_name == user and not _expired(user)]
        opened = self.there.place.opened(lease.resource.key) - {self.there.machines.port}
        return [*accounts, *(one.name() for one in marked(f"DRYDOCK_LEASE={lease.key}")), *map(str, sorted(opened))]

    def _seen(self, resource: ResourceView) -> Seen:
        return LOOKS[self.kind.name].machine(self.there.double, resource.key)


def _expired(user: str) -> bool:
    """Whether nobody can log in as the account."""
    return subprocess.run(["getent", "shadow", user], capture_output=True, text=True).stdout.split(":")[7] == "1"


class TestEc2(CloudHooks):
    """Amazon's."""

    kind = Ec2Host()
    more = {"regions": ["us-east-1", "eu-central-1"]}
    wrong = {"access_key_id": "AKIAWRONG"}

    def disk_sizes(self) -> Sequence[int]:
        """Amazon lets a disk change once in six hours."""
        return (200,)


class TestGce(CloudHooks):
    """Google's."""

    kind = GceHost()
    wrong = {"project": "another-project"}

    def secrets_of(self, credential: Mapping[str, Any]) -> Iterable[str]:
        """Of a service account's file the key alone: the project and the addresses in it are no secrets."""
        return [credential["service_account"]["private_key"]]


class TestAzure(CloudHooks):
    """Microsoft's."""

    kind = AzureHost()
    wrong = {"token": "another"}

    @pytest.fixture(autouse=True)
    def _time_passes(self, _cloud: None) -> Iterator[None]:
        """Also while nobody asks: at the double it passes with the calls."""
        over, ground = threading.Event(), self.there.double.ground

        def tick() -> None:
            while not over.wait(0.05):
                with ground.lock:
                    ground.settle()

        ticking = threading.Thread(target=tick)
        ticking.start()
        yield
        over.set()
        ticking.join()
