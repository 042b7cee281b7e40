"""The transports that every interface is tried over."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from interfaces.command import ShellCommand
from interfaces.endpoints import LocalEndpoint
from interfaces.filesystem import RootedFilesystem
from interfaces.ssh.pool import POOL
from interfaces.transport import Transport
from interfaces.transports import transport_to
from tests.interfaces.sshd import Sshd, own_address, start_sshd
from tests.peers import require

LEASE_UID = 754_000 + os.getpid() % 20_000
AS_ROOT = os.geteuid() == 0


def always() -> None:
    """A lease that never ends."""


@dataclass
class Peer:
    """A way to an account, and its home as seen from here."""

    kind: str
    transport: Transport
    home: Path
    uid: int

    @property
    def command(self) -> ShellCommand:
        return ShellCommand(self.transport, still_mine=always)

    @property
    def files(self) -> RootedFilesystem:
        return RootedFilesystem(self.transport, still_mine=always)


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tests do not wait long for processes that will not listen."""
    monkeypatch.setattr(ShellCommand, "grace", 0.5)


@pytest.fixture
def home() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="drydock-home-"))
    folder.chmod(0o755)
    yield folder
    shutil.rmtree(folder)


@pytest.fixture(scope="session")
def sshd() -> Iterator[Sshd]:
    require("sshd")
    server = start_sshd(own_address(1))
    yield server
    POOL.close_idle(0)
    server.stop()


@contextlib.contextmanager
def peer_of(kind: str, home: Path, request: pytest.FixtureRequest) -> Iterator[Peer]:
    """A peer of the kind: our own account, another one of this machine, or over SSH."""
    uid = LEASE_UID if kind == "uid" else os.geteuid()
    if kind == "uid" and not AS_ROOT:
        pytest.skip("only root works as another account")
    if kind == "ssh":
        server: Sshd = request.getfixturevalue("sshd")
        transport = transport_to(server.endpoint(home), private_key=server.user.private)
    else:
        gid = uid if kind == "uid" else os.getegid()
        transport = transport_to(LocalEndpoint(uid=uid, gid=gid, home=str(home)))
        if kind == "uid":
            os.chown(home, uid, gid)
    try:
        yield Peer(kind, transport, home, uid)
    finally:
        transport.close()


KINDS = ["self", "uid", "ssh"] if AS_ROOT else ["self", "ssh"]


@pytest.fixture(params=KINDS)
def peer(request: pytest.FixtureRequest, home: Path) -> Iterator[Peer]:
    with peer_of(request.param, home, request) as found:
        yield found
