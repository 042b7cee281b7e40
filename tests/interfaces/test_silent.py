"""Hosts whose tenants stop what we start there: calls end in time, and leave nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from drydock.core import clock
from interfaces.command import JobSpec
from interfaces.deadline import Deadline, answering_within
from interfaces.errors import CommandTimedOut, DeadlineExceeded, InterfaceError
from tests.interfaces.conftest import AS_ROOT, Peer

STOPPER = """
import os, signal, sys
os.setgid(int(sys.argv[1])), os.setuid(int(sys.argv[1]))
print("ready", flush=True)
while True:
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if int(pid) != os.getpid() and os.stat(f"/proc/{pid}").st_uid == os.getuid():
                os.kill(int(pid), signal.SIGSTOP)
        except OSError:
            pass
"""


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interfaces.command.termination._SPARE", 0.5)


@pytest.fixture
def stopper(peer: Peer):
    """A tenant's process that stops every other one of its account."""
    found = subprocess.Popen([sys.executable, "-c", STOPPER, str(peer.uid)], stdout=subprocess.PIPE)
    assert found.stdout is not None
    found.stdout.readline()
    yield found
    found.kill()
    found.communicate()


def of_account(uid: int) -> set[int]:
    """The processes of an account that are no zombies."""
    found = set()
    for folder in Path("/proc").glob("[0-9]*"):
        try:
            if folder.stat().st_uid == uid and (folder / "cmdline").read_bytes():
                found.add(int(folder.name))
        except OSError:
            continue
    return found


def test_no_deadline_is_later_than_the_bound_around_it() -> None:
    with answering_within(5), answering_within(60):
        assert Deadline(3).remaining <= 3
        assert Deadline(600).remaining <= 5
        assert 5 < Deadline(600, spare=4).remaining <= 9
        assert Deadline(1, spare=4).remaining <= 1
    assert Deadline(600).remaining > 500


@pytest.mark.skipif(not AS_ROOT, reason="only root works as another account")
@pytest.mark.parametrize("peer", ["uid"], indirect=True)
def test_a_tenant_that_stops_our_processes_holds_up_nobody_and_keeps_none(peer: Peer, stopper) -> None:
    began, silent = clock.monotonic(), 0
    for ask in (
        lambda: peer.command.jobs.status("any"),
        lambda: peer.command.jobs.start(JobSpec(id="any", words=["true"], stdin=bytes(300_000))),
        lambda: peer.files.list(""),
    ):
        try:
            with answering_within(0.5):
                ask()
        except InterfaceError as error:  # it may be too quick for the stopper
            silent += isinstance(error, DeadlineExceeded)
    assert silent
    assert clock.monotonic() - began < 40, "without the bound it is minutes"
    peer.transport.close()
    assert of_account(peer.uid) == {stopper.pid}, "what was stopped is killed, not left"


@pytest.mark.skipif(not AS_ROOT, reason="only root works as another account")
@pytest.mark.parametrize("peer", ["uid"], indirect=True)
def test_a_file_agent_that_was_stopped_is_given_up_and_another_one_works(peer: Peer) -> None:
    files = peer.files
    files.write_bytes("file", b"before")
    for act in (lambda: files.list(""), lambda: files.append("file", bytes(900_000))):
        files.list("")
        (agent,) = of_account(peer.uid)
        os.kill(agent, signal.SIGSTOP)
        with answering_within(0.3), pytest.raises(DeadlineExceeded):
            act()
        assert not of_account(peer.uid)
    assert files.read_bytes("file") == b"before"


@pytest.mark.parametrize("peer", ["self"], indirect=True)
def test_a_shell_that_never_reads_its_long_script_is_given_up(peer: Peer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("interfaces.launch.BOOTSTRAP", "kill -STOP $$")
    with answering_within(0.5), pytest.raises(CommandTimedOut):
        peer.command.run(["true", *["x" * 10_000] * 50])


@pytest.mark.parametrize("peer", ["ssh"], indirect=True)
def test_an_ssh_session_that_was_stopped_is_given_up(peer: Peer, sshd) -> None:
    files = peer.files
    files.list("")
    sshd.freeze()
    try:
        with answering_within(0.5), pytest.raises(DeadlineExceeded):
            files.list("")
        with answering_within(0.5), pytest.raises(DeadlineExceeded):
            peer.command.jobs.status("any")
    finally:
        sshd.thaw()
