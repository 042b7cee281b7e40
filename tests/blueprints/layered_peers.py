"""A host without an engine: leases on folders of this machine, with an account of their own where we are root."""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil
import pytest

from blueprints.amounts import Amounts
from blueprints.answers import NeededLease
from blueprints.contract import Fields
from blueprints.layered.within import Within
from blueprints.specs import Asked, BlueprintView, Control, LeaseView, ResourceView
from blueprints.testing.conformance import KindConformance
from interfaces.contract import Interface
from interfaces.endpoints import Environment, LocalEndpoint, SshEndpoint
from interfaces.filesystem.contract import UsageCheck
from interfaces.registry import REGISTRY
from interfaces.transport import Transport
from interfaces.transports import transport_to
from tests.blueprints import host_peers as peers
from tests.blueprints.host_peers import Server

AS_ROOT = os.geteuid() == 0
UID = 734_000 + os.getpid() % 20_000


def always() -> None:
    """A lease that never ends."""


def view(
    type: str, *, facts: Any, parents: Any = (), opener: Any = None, control: Control | None = None, **attributes: Any
) -> LeaseView:
    """A lease on a resource of this type, as the engine would hand it to whoever asked for it."""
    name = f"{type}-{uuid.uuid4().hex[:8]}"
    blueprint = BlueprintView(id=1, name=name, kind=f"tiny_{type}", generation=1, config=Fields())
    resource = ResourceView(
        id=7, key=name, name=name, type=type, origin="built", blueprint=blueprint, attributes=attributes,
        capacity=Amounts(), parents=dict(parents), facts=facts,
    )  # fmt: skip
    return LeaseView(
        id=8, key=f"{name}-lease", owner="", asked=Asked(type=type, requirements=Fields(), amounts=Amounts()),
        resource=resource, facts=facts, opener=opener, controlled=lambda _: control,
    )  # fmt: skip


@dataclass
class Machine:
    """This machine as hosts: every lease has a home, and as root the account `uid`."""

    folder: Path
    own_account: bool
    homes: list[Path] = field(default_factory=list)
    transports: list[Transport] = field(default_factory=list)
    environment: Environment = ()
    usage_check: UsageCheck | None = None

    @property
    def uid(self) -> int:
        return UID if self.own_account else os.geteuid()

    @property
    def gid(self) -> int:
        return UID if self.own_account else os.getegid()

    def lease(self) -> LeaseView:
        """A lease on a host."""
        home = self.folder / f"home{len(self.homes)}"
        home.mkdir(mode=0o700)
        os.chown(home, self.uid, self.gid)
        self.homes.append(home)
        isolation = "uid" if self.own_account else "none"
        key = f"home{len(self.homes)}-{uuid.uuid4().hex[:8]}"
        transport = self.way(str(home), (*self.environment, ("DRYDOCK_LEASE", key)))
        self.transports.append(transport)
        facts = {"home": str(home), "isolation": isolation}
        made = view("host", facts=facts, opener=_opener(transport), control=self.control(str(home)))
        object.__setattr__(made, "key", key)
        return made

    def way(self, home: str, environment: Environment) -> Transport:
        """The way to the account."""
        return transport_to(LocalEndpoint(uid=self.uid, gid=self.gid, home=home, environment=environment))

    def control(self, home: str) -> Control | None:
        """The way past the account, where the lease has one of its own."""
        if not self.own_account:
            return None
        return Control(transport=self.root(), uid=self.uid, gid=self.gid, home=home)

    def root(self) -> Transport:
        """The way to root."""
        return transport_to(LocalEndpoint(uid=0, gid=0, home="/", environment=self.environment))

    def storage(self) -> LeaseView:
        """A lease on a folder, as a kind of storage gives it: commands and files in it."""
        host = self.lease()
        transport = Within(host.interface("command").transport, f"{host.facts['home']}/folder")
        Path(transport.folder).mkdir(mode=0o700)
        os.chown(transport.folder, self.uid, -1)

        def opener(lease: LeaseView, name: str) -> Interface:
            options = {"usage_check": self.usage_check} if name == "filesystem" else {}
            return REGISTRY.open(name, transport, still_mine=always, options=options)

        account = "own" if self.own_account else "shared"
        facts = {"folder": transport.folder, "account": account}
        return view("storage", facts=facts, parents={"host": host}, opener=opener)

    def processes(self) -> list[str]:
        """Command lines of what runs in the homes, or with the account, but for our own ways there."""
        return [" ".join(p.info["cmdline"] or [p.info["name"]]) for p in self._running()]

    def end(self) -> None:
        """End everything and remove every home."""
        for transport in self.transports:
            transport.close()
        for process in self._running():
            process.kill()
            process.wait(10)
        for home in self.homes:
            for line in Path("/proc/self/mountinfo").read_text().splitlines():
                if (point := line.split()[4]).startswith(f"{home}/"):
                    os.system(f"umount -l {point}")
        shutil.rmtree(self.folder)

    def _running(self) -> list[psutil.Process]:
        found = []
        for process in psutil.process_iter(["cmdline", "name", "uids", "cwd", "status", "environ"]):
            if process.info["status"] == psutil.STATUS_ZOMBIE or _is_way(process):
                continue
            if process.pid != os.getpid() and self._is_ours(process):
                found.append(process)
        return found

    def _is_ours(self, process: psutil.Process) -> bool:
        if self.own_account:
            return bool(process.info["uids"] and process.info["uids"].real == self.uid)
        home = (process.info["environ"] or {}).get("HOME", "")
        places = (process.info["cwd"] or "", home, *(process.info["cmdline"] or ()))
        return any(str(self.folder) in place for place in places)


def _is_way(process: psutil.Process) -> bool:
    return "interfaces.local.agent" in str(process.info["cmdline"]) or process.info["name"].startswith("sshd")


def _opener(transport: Transport) -> Callable[[LeaseView, str], Interface]:
    return lambda lease, name: REGISTRY.open(name, transport, still_mine=always, options={})


@dataclass
class SshMachine(Machine):
    """The same over SSH, with an account that has a name."""

    server: Server | None = None
    name: str = ""

    @property
    def uid(self) -> int:
        return pwd.getpwnam(self.name).pw_uid

    @property
    def gid(self) -> int:
        return pwd.getpwnam(self.name).pw_gid

    def way(self, home: str, environment: Environment) -> Transport:
        assert self.server is not None
        endpoint = SshEndpoint(
            host=self.server.address, port=self.server.port, user=self.name, host_keys=(self.server.host.public,),
            home=home, environment=environment,
        )  # fmt: skip
        return transport_to(endpoint, private_key=self.server.control.private)

    def root(self) -> Transport:
        assert self.server is not None
        endpoint = SshEndpoint(
            host=self.server.address, port=self.server.port, user="root", host_keys=(self.server.host.public,)
        )
        return transport_to(endpoint, private_key=self.server.control.private)


def _machines(*accounts: str) -> Any:
    @pytest.fixture(params=accounts)
    def machine(request: pytest.FixtureRequest) -> Iterator[Machine]:
        if request.param == "uid" and not AS_ROOT:
            pytest.skip("only root gives accounts")
        yield from lent(Machine(new_folder(), own_account=request.param == "uid"))

    return machine


def new_folder() -> Path:
    """A place for homes that accounts may pass through."""
    folder = Path(tempfile.mkdtemp(prefix="drydock-layered-"))
    folder.chmod(0o711)
    return folder


def lent(made: Machine) -> Iterator[Machine]:
    """The machine, until its end, after which nothing is left."""
    yield made
    made.end()
    assert not made.processes()
    assert not made.folder.exists()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    """An SSH server of this machine."""
    with peers.server(f"127.9.1.{peers.WORKER + 51}") as running:
        yield running


@pytest.fixture(scope="module")
def account() -> Iterator[str]:
    """An account with a name: as root one made for this, else our own."""
    with peers.account() as name:
        yield name


@pytest.fixture
def machine_over_ssh(server: Server, account: str) -> Iterator[Machine]:
    """This machine, over SSH."""
    yield from lent(SshMachine(new_folder(), own_account=AS_ROOT, server=server, name=account))


machine = _machines("uid" if AS_ROOT else "self")
"""This machine: as root with an account for the host lease, else with our own."""

any_machine = _machines(*(("uid", "self") if AS_ROOT else ("self",)))
"""The same, as root with our own account too."""


class OnMachine(KindConformance):
    """A bench whose kind stands on one host lease: the same one however often it is asked for, as the engine has it."""

    pace = 0.05

    @pytest.fixture(autouse=True)
    def _machine(self, machine: Machine) -> Iterator[None]:
        self.machine = machine
        self.leased: dict[str, LeaseView] = {}
        yield
        self.machine = machine

    def supply(self, needed: NeededLease) -> LeaseView:
        if needed.name not in self.leased:
            self.leased[needed.name] = {"host": self.machine.lease, "storage": self.machine.storage}[needed.type]()
        return self.leased[needed.name]

    @property
    def home(self) -> Path:
        return self.machine.homes[0]
