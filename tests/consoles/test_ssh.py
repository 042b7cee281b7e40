"""The driver `ssh` against a real sshd, whose command is the console."""

from __future__ import annotations

import getpass
import grp
import os
import pty
from collections.abc import Iterator

import psutil
import pytest
from pydantic import ValidationError

from blueprints.consoles.registry import driver
from blueprints.consoles.ssh import Access, SshConsole
from interfaces.console import Line
from interfaces.deadline import Deadline
from interfaces.errors import AuthenticationRefused, ConnectionLost, ConsoleClosed, HostKeyMismatch, Unreachable
from interfaces.keys import new_key_pair
from tests.consoles.lines import exchanged, read_to_the_end
from tests.interfaces.sshd import Sshd, free_port, own_address, start_sshd
from tests.peers import require

RAW = "stty -echo raw; echo ready; exec cat"


def _opens_terminals() -> bool:
    """Whether an sshd of ours can: it gives terminals to the group tty, which they must have already without root."""
    ours, theirs = pty.openpty()
    try:
        return os.geteuid() == 0 or os.fstat(theirs).st_gid == grp.getgrnam("tty").gr_gid
    finally:
        os.close(ours)
        os.close(theirs)


@pytest.fixture(scope="module")
def server() -> Iterator[Sshd]:
    require("sshd")
    if not _opens_terminals():
        pytest.skip("/dev/pts is mounted without the group tty, so the SSH server of an ordinary user has no terminals")
    running = start_sshd(own_address(41))
    yield running
    running.stop()


def connect(server: Sshd, command: str, *, key: str = "", take: bool = False, **access: object) -> Line:
    given = {
        "address": server.address, "port": server.port, "user": getpass.getuser(), "host_keys": [server.host.public],
        "command": command, **access,
    }  # fmt: skip
    credential = {"private_key": key or server.user.private}
    return driver("ssh").connect(Access.model_validate(given), credential, deadline=Deadline(20), take=take)


def test_every_byte_comes_back_as_it_was_typed(server: Sshd) -> None:
    line = connect(server, RAW)
    try:
        exchanged(line, expect=b"ready")
        line.read(0.2)
        content = bytes(range(256)) * 40
        assert exchanged(line, content, expect=len(content)) == content
    finally:
        line.close()


def test_a_shell_on_a_terminal_is_a_console(server: Sshd) -> None:
    line = connect(server, "PS1='ready> ' exec /bin/sh -i")
    try:
        exchanged(line, b"tty; echo $((6 * 7))\r", expect=b"42\r\nready> ")
        # A shell that has not prompted again may still drop what is typed, together with the interrupted line.
        assert b"^C" in exchanged(line, b"half a line\x03", expect=b"ready> ")
        exchanged(line, b"exit 3\r", expect=b"exit 3")
        with pytest.raises(ConsoleClosed, match="exit code 3"):
            read_to_the_end(line)
    finally:
        line.close()


def test_a_flood_waits_until_it_is_read_and_its_program_ends_with_the_line(server: Sshd) -> None:
    line = connect(server, "exec yes drydock-console-flood")
    assert len(exchanged(line, expect=200_000)) < 400_000
    running = [one for one in server.sessions() if one.name() == "yes"]
    assert len(running) == 1
    line.close()
    assert not psutil.wait_procs(running, timeout=20)[1]


def test_an_unknown_host_key_a_wrong_login_and_a_closed_port_say_so(server: Sshd) -> None:
    with pytest.raises(HostKeyMismatch):
        connect(server, RAW, host_keys=[new_key_pair().public])
    with pytest.raises(AuthenticationRefused):
        connect(server, RAW, key=new_key_pair().private)
    with pytest.raises(Unreachable, match="refused"):
        connect(server, RAW, port=free_port(server.address))


def test_a_server_that_dies_is_noticed(server: Sshd) -> None:
    other = start_sshd(own_address(42))
    try:
        line = connect(other, RAW)
        exchanged(line, expect=b"ready")
    finally:
        other.stop()
    with pytest.raises((ConnectionLost, ConsoleClosed)):
        read_to_the_end(line, b"x")
    line.close()


@pytest.mark.parametrize("wrong", [{"command": "a\nb"}, {"host_keys": []}, {"address": "a b"}, {"user": "", "x": 1}])
def test_a_registration_that_makes_no_sense_is_refused(server: Sshd, wrong: dict[str, object]) -> None:
    given = {"address": "192.0.2.1", "user": "console", "host_keys": [server.host.public], **wrong}
    with pytest.raises(ValidationError):
        SshConsole.Access.model_validate(given)
