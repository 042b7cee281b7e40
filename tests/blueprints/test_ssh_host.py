"""The kind ssh_host keeps the contract, against real SSH servers and real accounts."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import ClassVar

import pytest

from blueprints.accounts import access
from blueprints.accounts.removal import SHARED_FOLDER
from blueprints.amounts import Amounts
from blueprints.answers import Json
from blueprints.specs import Draft, LeaseView, ResourceView
from blueprints.sshhost.kind import SshHost
from blueprints.testing.conformance import KindConformance, Outside
from interfaces.command.contract import Command
from interfaces.contract import Interface
from interfaces.filesystem.contract import Filesystem
from tests.blueprints import host_peers as peers
from tests.blueprints.host_peers import WORKER, Server

# Waiting for others who use the accounts of this machine does not count.
pytestmark = pytest.mark.timeout(120, func_only=True)


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    with peers.alone():
        yield


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with peers.server(f"127.9.1.{WORKER + 1}") as running:
        yield running


@pytest.fixture(scope="module")
def account() -> Iterator[str]:
    with peers.account() as name:
        yield name


class SshHooks(KindConformance):
    """How to look at accounts."""

    more: ClassVar[Json] = {}
    server: Server
    made: set[str]

    def config(self) -> Json:
        healthy = f"test ! -e {self.server.folder}/sick"
        return {"credential": "control", "health_command": healthy, "min_free_mib": 1, **self.more}

    def credentials(self) -> dict[str, dict[str, str]]:
        return {"control": {"private_key": self.server.control.private}}

    def requirements(self) -> Json:
        return {"region": "lab"}

    def amounts(self) -> Amounts:
        return Amounts(slots=1, cpu_millicores=100)

    def registration(self) -> Json:
        said = {"attributes": {"region": "lab"}, "cpu_millicores": 4000, "traits": ["quiet"]}
        return self.server.registration() | said

    def resource(self, draft: Draft | None = None, *, generation: int = 1) -> ResourceView:
        made = super().resource(draft, generation=generation)
        self.made.add(access.prefix(made))
        return made

    def outside(self) -> Sequence[Outside]:
        return [Outside(name=name) for name in peers.accounts() if name[:13] in self.made]

    def kill(self, resource: ResourceView) -> None:
        (self.server.folder / "sick").touch()

    @contextmanager
    def cut_off(self, resource: ResourceView) -> Iterator[None]:
        self.server.stop()
        yield
        self.server.again()

    def access_of(self, lease: LeaseView) -> Sequence[str]:
        user = access.user_of(lease)
        found = [name for name in peers.accounts(user) if not expired(name)]
        return found + [one.name() for one in peers.marked(f"DRYDOCK_LEASE={lease.key}")]

    def use(self, interface: Interface) -> None:
        use(interface)

    @pytest.fixture(autouse=True)
    def _server(self, server: Server) -> Iterator[None]:
        self.server, self.made = server, set()
        yield
        (server.folder / "sick").unlink(missing_ok=True)
        assert not self.outside()
        assert not [path for path in Path("/home").iterdir() if path.name[:13] in self.made]


class TestPerLease(SshHooks):
    """An account for every lease."""

    kind = SshHost()

    @pytest.fixture(autouse=True)
    def _root(self) -> None:
        peers.needs_root()
        peers.require("useradd", "userdel")


class TestPerLeaseBySudo(TestPerLease):
    """The same where the control account is not root, and has sudo."""

    kind = SshHost()

    @pytest.fixture(autouse=True)
    def _sudo(self, _root: None, account: str) -> Iterator[None]:
        with peers.sudoer(account):
            yield

    def registration(self) -> Json:
        return super().registration() | {"user": peers.peer_account()}


class TestShared(SshHooks):
    """The control account itself: one made for this, or without root that of the tests."""

    kind = SshHost()
    more: ClassVar[Json] = {"accounts": "shared"}

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


def shared_left(home: Path) -> list[str]:
    """What leases have in an account: folders, and the comments of keys."""
    keys, folder = home / ".ssh" / "authorized_keys", home / SHARED_FOLDER
    lines = keys.read_text().splitlines() if keys.exists() else []
    comments = [line.split()[2] for line in lines if len(line.split()) > 2]
    found = [path.name for path in folder.iterdir()] if folder.exists() else []
    return sorted(found + [comment for comment in comments if comment.startswith("drydock:")])


def expired(user: str) -> bool:
    """Whether nobody can log in as the account."""
    return subprocess.run(["getent", "shadow", user], capture_output=True, text=True).stdout.split(":")[7] == "1"


def use(interface: Interface) -> None:
    """Something small with either interface."""
    if isinstance(interface, Command):
        assert interface.check(["pwd"]).text.strip()
    if isinstance(interface, Filesystem):
        interface.write_text("a", "b")
        assert interface.read_text("a") == "b"
