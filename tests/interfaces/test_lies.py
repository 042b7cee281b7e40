"""What a host says is input: lengths, counts and words that cannot be right cost neither memory nor a 500."""

from __future__ import annotations

import os
import shlex
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from interfaces.command import termination
from interfaces.endpoints import LocalEndpoint
from interfaces.errors import ConnectionLost, InterfaceError
from interfaces.files import Files
from interfaces.httpd import nginx
from interfaces.httpd.nginx import NginxHttpd
from interfaces.httpd.site import Site
from interfaces.local.agent import LENGTHS
from interfaces.local.files import LocalFiles
from interfaces.ssh.pool import POOL
from interfaces.transports import transport_to
from tests.interfaces import hostile_sftp
from tests.interfaces.conftest import always
from tests.interfaces.sshd import own_address, start_sshd
from tests.peers import require

MIB = 1 << 20
MOST = 24 * MIB
"""What reading one answer may take, a bound far below what each of these answers promises."""


@pytest.fixture(scope="module")
def liar(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Files]]:
    """Files of a host whose SFTP server lies in the way that is named."""
    require("sshd")
    mode = tmp_path_factory.mktemp("liar") / "mode"
    server = start_sshd(own_address(9), f"ForceCommand {sys.executable} -S {hostile_sftp.__file__} {mode}")

    def files(way: str) -> Files:
        Path(mode).write_text(way)
        return transport_to(server.endpoint(Path("/")), private_key=server.user.private).files("")

    yield files
    POOL.close_idle(0)
    server.stop()


@pytest.mark.parametrize(
    "way",
    [
        "count", "count-with-one", "extended", "extended-in-list", "name-length", "long-names", "long-answer", "strays",
        "empty-answer", "handle", "hangs-up",
    ],
)  # fmt: skip
def test_an_sftp_server_that_lies_costs_no_memory_and_is_a_clear_error(liar: Callable[[str], Files], way: str) -> None:
    files = liar(way)
    tracemalloc.start()
    try:
        with pytest.raises(ConnectionLost):
            files.list("one")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        files.close()
    assert peak < MOST, f"{peak / MIB:.0f} MiB"


LIES = ["", "{}", "running", "running x y", "running 9999999999999999999 1.2.b", "stopped " + "x" * 9, "failing"]


@pytest.mark.parametrize("said", LIES)
def test_a_web_servers_state_that_is_none_is_a_clear_error(said: str, home: Path, monkeypatch: Any) -> None:
    transport = transport_to(LocalEndpoint(uid=os.geteuid(), gid=os.getegid(), home=str(home)))
    httpd = NginxHttpd(transport, still_mine=always, folder="", site=Site(address="127.0.0.1", port=1))
    monkeypatch.setattr(nginx, "_LOOK", f"printf %s {shlex.quote(said)}")
    with pytest.raises(InterfaceError):
        httpd.status()
    transport.close()


FRAMES = {
    "huge head": LENGTHS.pack(0xFFFFFFFF, 0),
    "huge body": LENGTHS.pack(2, 0xFFFFFFFF) + b"{}",
    "no JSON": LENGTHS.pack(2, 0) + b"{[",
    "deep": LENGTHS.pack(100_000, 0) + b"[" * 100_000,
    "no object": LENGTHS.pack(2, 0) + b"[]",
    "no value": LENGTHS.pack(2, 0) + b"{}",
    "short": b"\0",
}


@pytest.mark.parametrize("name", FRAMES)
def test_a_frame_of_the_file_agent_that_is_none_costs_no_memory(name: str, tmp_path: Path, monkeypatch: Any) -> None:
    frame = tmp_path / "frame"
    frame.write_bytes(FRAMES[name])
    frame.with_name("agent").write_text(f"#!/bin/sh\ncat {frame}; head -c 67108864 /dev/zero\n")
    frame.with_name("agent").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(frame.with_name("agent")))
    other = LocalEndpoint(uid=os.geteuid() + 1, gid=os.getegid(), home=str(tmp_path))
    files = LocalFiles(str(tmp_path), other)
    tracemalloc.start()
    try:
        with pytest.raises(ConnectionLost):
            files.list("")
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        files.close()
    assert peak < MOST, f"{peak / MIB:.0f} MiB"


def test_a_count_of_processes_without_end_is_not_kept(home: Path, monkeypatch: Any) -> None:
    transport = transport_to(LocalEndpoint(uid=os.geteuid(), gid=os.getegid(), home=str(home)))
    monkeypatch.setattr(termination, "END", "head -c 67108864 /dev/zero | tr '\\0' 7")
    tracemalloc.start()
    try:
        assert termination.end(transport, leader="", token="", grace=0) is None
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
        transport.close()
    assert peak < MOST, f"{peak / MIB:.0f} MiB"


def test_an_answer_without_entries_ends_a_listing(liar: Callable[[str], Files]) -> None:
    files = liar("no-entries")
    assert files.list("") == []
    files.close()
