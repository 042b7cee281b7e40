"""As root this machine is used with the uid of the lease, and with nothing of root's."""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

import psutil
import pytest

from drydock.core.errors import InvalidRequest
from interfaces.endpoints import LocalEndpoint
from interfaces.errors import ConnectionLost, NotStarted
from interfaces.transports import transport_to
from tests.interfaces.conftest import AS_ROOT, Peer

pytestmark = pytest.mark.skipif(not AS_ROOT, reason="only root works as another account")


@pytest.mark.parametrize("peer", ["uid"], indirect=True)
def test_a_command_has_nothing_of_roots(peer: Peer) -> None:
    lines = peer.command.check(["cat", "/proc/self/status"]).text.splitlines()
    status = dict(line.split(":\t", 1) for line in lines if ":\t" in line)
    assert set(status["Uid"].split()) == set(status["Gid"].split()) == {str(peer.uid)}
    assert status["Groups"].strip() == ""
    for name in ("CapPrm", "CapEff", "CapInh", "CapAmb"):
        assert int(status[name], 16) == 0
    assert not peer.command.run(["cat", "/etc/shadow"]).ok
    opened = peer.command.check("ls /proc/$$/fd").text.split()
    assert set(opened) <= {"0", "1", "2", "3"}


@pytest.mark.parametrize("peer", ["uid"], indirect=True)
def test_a_folder_of_roots_is_not_entered_through_a_link(peer: Peer, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.mkdir(mode=0o700)
    (peer.home / "link").symlink_to(secret)
    with pytest.raises(NotStarted):
        peer.command.run("pwd", cwd="link")
    assert not peer.command.run(f"touch {secret}/hit").ok


@pytest.mark.parametrize("peer", ["uid"], indirect=True)
def test_the_file_agent_has_nothing_of_roots_and_may_be_killed(peer: Peer) -> None:
    files = peer.files
    files.write_bytes("a", b"x")
    agents = [
        process
        for process in psutil.Process().children()
        if "interfaces.local.agent" in process.cmdline() and process.uids().real == peer.uid
    ]
    (agent,) = agents
    status = dict(
        line.split(":\t", 1) for line in Path(f"/proc/{agent.pid}/status").read_text().splitlines() if ":\t" in line
    )
    assert set(status["Uid"].split()) == set(status["Gid"].split()) == {str(peer.uid)}
    assert (status["Groups"].strip(), int(status["CapPrm"], 16)) == ("", 0)
    parts = files.read_parts("a")
    agent.kill()
    # Found dead by the call, or just before it: then the call has started another.
    with contextlib.suppress(ConnectionLost):
        files.list()
    assert files.read_bytes("a") == b"x"
    assert list(parts) == [b"x"]
    peer.transport.close()
    assert not [each for each in psutil.Process().children() if "interfaces.local.agent" in each.cmdline()]


@pytest.mark.parametrize("peer", ["uid"], indirect=True)
def test_a_forked_child_gets_an_agent_of_its_own(peer: Peer) -> None:
    files = peer.files
    files.write_bytes("a", b"x")
    child = os.fork()
    if child == 0:
        code = 1
        try:
            files.write_bytes("b", b"child")
            files.transport.close()
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert files.read_bytes("b") == b"child"
    assert files.read_bytes("a") == b"x"


def test_another_account_needs_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1234)
    with pytest.raises(InvalidRequest):
        transport_to(LocalEndpoint(uid=4321, gid=4321, home="/"))
