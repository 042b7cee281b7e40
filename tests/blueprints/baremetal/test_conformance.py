"""The kind bare_metal keeps the contract, with a scripted BMC, real SSH servers as guests, and real accounts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any, ClassVar

import pytest

from blueprints.accounts import access
from blueprints.amounts import Amounts
from blueprints.answers import Json
from blueprints.baremetal.kind import BareMetal
from blueprints.specs import Draft, LeaseView, ResourceView
from blueprints.testing.conformance import KindConformance, Outside
from interfaces.contract import Interface
from interfaces.ssh.pool import POOL
from tests.blueprints import host_peers as peers
from tests.blueprints.baremetal.scripted import PASSWORD, Machine, changed, machine, scripted
from tests.blueprints.host_peers import WORKER, Server
from tests.blueprints.test_ssh_host import expired, shared_left, use

__all__ = ["scripted"]

# Waiting for others who use the accounts of this machine does not count.
pytestmark = [pytest.mark.timeout(240, func_only=True), pytest.mark.usefixtures("scripted")]
BMC = "bmc-1.test"


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    peers.needs_root()
    peers.require("useradd", "userdel")
    with peers.server(f"127.9.3.{WORKER + 1}") as running:
        yield running


@pytest.fixture(scope="module")
def account() -> Iterator[str]:
    with peers.account() as name:
        yield name


class Hooks(KindConformance):
    """How to look at accounts, and at the machine behind the BMC."""

    more: ClassVar[Json] = {}
    server: Server
    bmc: Machine
    made: set[str]

    def config(self) -> Json:
        return {
            "credential": "control", "bmc_credential": "bmc", "min_free_mib": 1, "compare": "report",
            "inspect_interval": 0, "connect_timeout": 2, **self.more,
        }  # fmt: skip

    def credentials(self) -> dict[str, dict[str, str]]:
        login = {"username": "admin", "password": PASSWORD}
        return {"control": {"private_key": self.server.control.private}, "bmc": login}

    def requirements(self) -> Json:
        return {"region": "lab", "vendor": ["Contoso"]}

    def amounts(self) -> Amounts:
        return Amounts(slots=1, cpu_millicores=100)

    def registration(self) -> Json:
        more = {"attributes": {"region": "lab"}, "cpu_millicores": 4000, "serial": "SN1"}
        return {**self.server.registration(), **more, "bmc": {"driver": "scripted", "address": BMC}}

    def resource(self, draft: Draft | None = None, *, generation: int = 1) -> ResourceView:
        given = self.kind.Registration.model_validate(self.registration())
        stored = given.model_dump(mode="json", exclude_unset=True)
        made = replace(super().resource(draft, generation=generation), registration=stored)
        self.made.add(access.prefix(made))
        return made

    def act_arguments(self, act: str) -> Json:
        return {"boot-device": {"device": "network"}, "validate": {"only": ["privileges"]}}.get(act, {})

    def seen_of_act(self, resource: ResourceView, act: str) -> Json:
        now = self.bmc.override
        return {"boot": now.device.value if now else "", "power": self.bmc.state.value}

    def power_of(self, resource: ResourceView) -> str:
        return self.bmc.state.value

    def outside(self) -> Sequence[Outside]:
        return [Outside(name=name) for name in peers.accounts() if name[:13] in self.made]

    def kill(self, resource: ResourceView) -> None:
        self.bmc.silent = True

    def destroyed(self, resource: ResourceView) -> None:
        self.bmc.silent = False
        super().destroyed(resource)

    def degrade(self, resource: ResourceView) -> bool:
        changed(self.bmc, health="degraded")
        return True

    @contextmanager
    def cut_off(self, resource: ResourceView) -> Iterator[None]:
        POOL.close_idle(0)
        self.server.stop()
        self.bmc.silent = True
        try:
            yield
        finally:
            self.bmc.silent = False
            self.server.again()

    def access_of(self, lease: LeaseView) -> Sequence[str]:
        user = access.user_of(lease)
        found = [name for name in peers.accounts(user) if not expired(name)]
        return found + [one.name() for one in peers.marked(f"DRYDOCK_LEASE={lease.key}")]

    def use(self, interface: Interface) -> None:
        use(interface)

    @pytest.fixture(autouse=True)
    def _machine(self, server: Server, scripted: Any) -> Iterator[None]:
        self.server, self.made = server, set()
        with machine(BMC, server) as self.bmc:
            yield
            assert self.bmc.most_open <= 1
        assert not self.outside()
        assert not [path for path in Path("/home").iterdir() if path.name[:13] in self.made]


class TestShared(Hooks):
    """The control account itself, on a host that is switched off while it is idle."""

    kind = BareMetal()
    more: ClassVar[Json] = {"accounts": "shared", "idle_power": "off"}

    @pytest.fixture(autouse=True)
    def _home(self, account: str) -> None:
        self.home = Path(f"~{account}").expanduser()

    def registration(self) -> Json:
        return super().registration() | {"user": peers.peer_account()}

    def outside(self) -> Sequence[Outside]:
        found = shared_left(self.home)
        return [Outside(name=name) for name in found if any(prefix in name for prefix in self.made)]

    def access_of(self, lease: LeaseView) -> Sequence[str]:
        mark = access.user_of(lease)
        found = [name for name in shared_left(self.home) if mark in name]
        return sorted(set(found)) + [one.name() for one in peers.marked(f"DRYDOCK_LEASE={lease.key}")]
