"""Quotes are fetched from guests by their real command interface: locally, as another account, over SSH and by sudo."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from blueprints.attestation import tsm
from drydock.core.errors import Conflict, NotSupported
from interfaces.command import ShellCommand
from interfaces.endpoints import LocalEndpoint, SshEndpoint
from interfaces.transports import transport_to
from leases.attestation.guest import GuestQuote, fetch
from tests.blueprints import host_peers as peers
from tests.interfaces.conftest import Peer, always, home, peer, sshd
from tests.interfaces.tsm_double import Double, double

__all__ = ["home", "peer", "sshd"]
ASKED = bytes(range(64))


@pytest.fixture(autouse=True)
def _database() -> None:
    """No database is used."""


@pytest.fixture
def tdx() -> Iterator[Double]:
    """The kernel of a TDX guest, whose quotes are two letters and the report data."""
    with double(lambda asked: b"q:" + asked) as found:
        yield found


@pytest.fixture
def here(home) -> Iterator[ShellCommand]:
    """Our own account on this machine."""
    transport = transport_to(LocalEndpoint(uid=os.geteuid(), gid=os.getegid(), home=str(home)))
    yield ShellCommand(transport, still_mine=always)
    transport.close()


def test_the_report_data_arrives_and_the_quote_comes_back(peer: Peer, tdx) -> None:
    found = fetch(peer.command, ASKED, folder=str(tdx.folder))
    assert found == GuestQuote(provider="tdx_guest", quote=b"q:" + ASKED)
    assert tdx.asked == [ASKED]
    assert fetch(peer.command, ASKED, folder=str(tdx.folder)) == found
    assert len(set(tdx.names)) == 2, "each request has a report of its own"


def test_a_large_quote_comes_whole(here, tdx):
    tdx.answer = lambda _: os.urandom(1) * 32_768
    assert len(fetch(here, ASKED, folder=str(tdx.folder)).quote) == 32_768
    tdx.answer = lambda _: bytes(32_769)
    with pytest.raises(Conflict, match="has 32769 bytes; at most 32768 are read"):
        fetch(here, ASKED, folder=str(tdx.folder))


def test_another_kind_of_confidential_machine_is_named(here, tdx):
    tdx.provider = "sev_guest\x1b[2J"
    with pytest.raises(NotSupported, match=r"come from sev_guest.*; only TDX") as caught:
        fetch(here, ASKED, folder=str(tdx.folder))
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize(
    ("folder", "said"),
    [
        ("/nonexistent/tsm", "has no /nonexistent/tsm: it is not a TDX guest, its kernel is older than 6.7"),
        ("/proc/self", r"refused to make a report: mkdir|lets only root"),
    ],
)
def test_a_guest_without_tdx_says_what_is_missing(here, folder, said):
    with pytest.raises(NotSupported, match=said) as caught:
        fetch(here, ASKED, folder=folder)
    assert caught.value.capability == "attestation"
    assert caught.value.hint


def test_a_guest_that_makes_no_quote_is_given_up(here, tdx, monkeypatch):
    tdx.answer = lambda _: None
    monkeypatch.setattr(tsm, "SCRIPT", tsm.SCRIPT.replace("-lt 25", "-lt 2"))
    with pytest.raises(NotSupported, match="made no quote in time"):
        fetch(here, ASKED, folder=str(tdx.folder))


def test_an_answer_that_is_no_quote_is_refused(here, tdx, monkeypatch):
    for script, said in (("echo tdx_guest; echo §§", "something else than a quote"),
                         ("echo tdx_guest", "has 0 bytes"),
                         ("echo tdx_guest; head -c 200000 /dev/zero | tr '\\0' a", "returned more than 65536"),
                         ("yes | head -c 1000", "come from y; only TDX")):  # fmt: skip
        monkeypatch.setattr(tsm, "SCRIPT", script)
        with pytest.raises((Conflict, NotSupported), match=said):
            fetch(here, ASKED)
    monkeypatch.setattr(tsm, "SCRIPT", "echo broken >&2; exit 9")
    with pytest.raises(NotSupported, match="could not run the script that makes a quote: broken"):
        fetch(here, ASKED)


def test_an_account_needs_root_or_sudo(tdx):
    peers.needs_root()
    tdx.folder.chmod(0o755)
    with peers.server(f"127.9.3.{peers.WORKER + 1}") as server, peers.account() as name:
        there = SshEndpoint(host=server.address, port=server.port, user=name, host_keys=(server.host.public,), home="")
        transport = transport_to(there, private_key=server.control.private)
        command = ShellCommand(transport, still_mine=always)
        try:
            with pytest.raises(NotSupported, match="lets only root make quotes"):
                fetch(command, ASKED, folder=str(tdx.folder))
            assert not tdx.asked
            with peers.sudoer(name):
                assert fetch(command, ASKED, folder=str(tdx.folder)).quote == b"q:" + ASKED
        finally:
            transport.close()
