"""SSH when things go wrong: keys, silence, loss, hanging, forks; and connections that are reused."""

from __future__ import annotations

import contextlib
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from drydock.core.errors import InvalidRequest
from interfaces.command import JobSpec, JobState, ShellCommand
from interfaces.deadline import Deadline
from interfaces.endpoints import SshEndpoint
from interfaces.errors import (
    AuthenticationRefused,
    ConnectionLost,
    DeadlineExceeded,
    HostKeyMismatch,
    InterfaceError,
    Unreachable,
)
from interfaces.filesystem import RootedFilesystem
from interfaces.keys import new_key_pair
from interfaces.ssh.pool import MOST_SESSIONS, POOL, Pool
from interfaces.transports import transport_to
from tests.interfaces.conftest import always
from tests.interfaces.sshd import Sshd, free_port, start_sshd
from tests.peers import require


@pytest.fixture
def server() -> Iterator[Sshd]:
    """A server of the test's own, to be mistreated."""
    require("sshd")
    started = start_sshd("127.9.0.2")
    yield started
    started.thaw()
    for connection in POOL._take(lambda each: each.endpoint.host == started.address):
        connection.close()
    started.stop()


def command_on(endpoint: SshEndpoint, key: str, bastion_key: str = "") -> ShellCommand:
    transport = transport_to(endpoint, private_key=key, bastion_key=bastion_key)
    return ShellCommand(transport, still_mine=always)


def test_only_the_pinned_host_key_is_accepted(server: Sshd, home: Path) -> None:
    other = server.endpoint(home, host_keys=(new_key_pair().public,))
    with pytest.raises(HostKeyMismatch):
        command_on(other, server.user.private).run("touch hit")
    files = RootedFilesystem(transport_to(other, private_key=server.user.private), still_mine=always)
    with pytest.raises(HostKeyMismatch):
        files.list()
    assert list(home.iterdir()) == []


def test_a_host_without_pinned_keys_cannot_even_be_named() -> None:
    with pytest.raises(InvalidRequest):
        SshEndpoint(host="127.0.0.1", user="root", host_keys=())


def test_another_user_key_is_refused(server: Sshd, home: Path) -> None:
    with pytest.raises(AuthenticationRefused):
        command_on(server.endpoint(home), new_key_pair().private).run("true")


def test_nothing_of_ours_is_used(server: Sshd, home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (home / ".ssh").mkdir()
    (home / ".ssh/id_ed25519").write_text(server.user.private)
    (home / ".ssh/id_ed25519").chmod(0o600)
    (home / ".ssh/config").write_text("Host *\n  Port 1\n  ProxyCommand touch " + str(home / "hit") + "\n")
    monkeypatch.setenv("HOME", str(home))
    with pytest.raises(AuthenticationRefused):
        command_on(server.endpoint(home), new_key_pair().private).run("true")
    assert command_on(server.endpoint(home), server.user.private).run("true").ok
    assert not (home / "hit").exists()


@pytest.mark.parametrize("key", ["", "nonsense", "-----BEGIN OPENSSH PRIVATE KEY-----\nxx\n"])
def test_what_is_no_private_key_is_refused_unseen(server: Sshd, home: Path, key: str) -> None:
    with pytest.raises(InvalidRequest) as caught:
        command_on(server.endpoint(home), key)
    assert key not in str(caught.value) or not key


@pytest.mark.timeout(30)
def test_a_host_that_ignores_connections_is_given_up_in_less_than_a_second() -> None:
    key = new_key_pair()
    with contextlib.ExitStack() as open_ones:
        listener = open_ones.enter_context(socket.socket())
        listener.bind(("127.0.0.1", 0))
        listener.listen(0)
        for _ in range(3):  # further connections are ignored once the queue is full
            filling = open_ones.enter_context(socket.socket())
            filling.setblocking(False)
            filling.connect_ex(listener.getsockname())
        port = listener.getsockname()[1]
        endpoint = SshEndpoint(host="127.0.0.1", port=port, user="nobody", host_keys=(key.public,))
        transport = transport_to(endpoint, private_key=key.private)
        with pytest.raises((Unreachable, DeadlineExceeded)):
            ShellCommand(transport, still_mine=always).run(["true"], timeout=0.5)
        transport.close()


def test_nobody_there(home: Path) -> None:
    endpoint = SshEndpoint(
        host="127.9.0.2", port=free_port("127.9.0.2"), user="root", host_keys=(new_key_pair().public,)
    )
    with pytest.raises(Unreachable):
        command_on(endpoint, new_key_pair().private).run("true")


@pytest.mark.parametrize("greeting", [b"", b"SSH-2.0-x\r\n", b"HTTP/1.1 400 no\r\n" * 200])
def test_a_server_that_never_speaks_ssh(greeting: bytes) -> None:
    with socket.create_server(("127.9.0.2", 0)) as listener:
        taken: list[socket.socket] = []

        def accept() -> None:
            with contextlib.suppress(OSError):
                while True:
                    taken.append(listener.accept()[0])
                    taken[-1].sendall(greeting)

        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        endpoint = SshEndpoint(
            host="127.9.0.2",
            port=listener.getsockname()[1],
            user="root",
            host_keys=(new_key_pair().public,),
            connect_timeout=1,
        )
        before = time.monotonic()
        with pytest.raises(Unreachable):
            command_on(endpoint, new_key_pair().private).run("true")
        with pytest.raises((Unreachable, DeadlineExceeded)):
            command_on(endpoint, new_key_pair().private).run("true", timeout=0.3)
        assert time.monotonic() - before < 30
        listener.shutdown(socket.SHUT_RDWR)
        thread.join()
        for each in taken:
            each.close()


def test_a_lost_connection_is_no_exit_code(server: Sshd, home: Path) -> None:
    command = command_on(server.endpoint(home), server.user.private)

    def kill(_: object) -> None:
        for process in server.sessions():
            if "sshd" in process.name():
                process.kill()

    with pytest.raises(ConnectionLost) as caught:
        command.run("echo begun; exec sleep 3", on_output=kill)
    assert caught.value.may_have_run
    # The next one connects again by itself.
    assert command.run("echo again").stdout == b"again\n"


def test_a_job_survives_the_connection(server: Sshd, home: Path) -> None:
    command = command_on(server.endpoint(home), server.user.private)
    command.jobs.start(JobSpec(id="tough", words="until [ -e go ]; do sleep 0.05; done; exit 5"))
    for process in server.sessions():
        if "sshd" in process.name():
            process.kill()
    assert command.jobs.status("tough").state is JobState.RUNNING
    (home / "go").touch()
    assert command.jobs.wait("tough", timeout=60, every=0.05).exit_code == 5


def test_files_after_a_lost_connection(server: Sshd, home: Path) -> None:
    files = RootedFilesystem(transport_to(server.endpoint(home), private_key=server.user.private), still_mine=always)
    files.write_bytes("a", b"x")
    for process in server.sessions():
        process.kill()
    until = time.monotonic() + 30
    while True:
        try:
            assert files.read_bytes("a") == b"x"
            break
        except ConnectionLost:
            assert time.monotonic() < until
    files.transport.close()


def test_a_host_that_hangs_is_given_up_in_time(server: Sshd, home: Path) -> None:
    command = command_on(server.endpoint(home), server.user.private)
    assert command.run("true").ok
    server.freeze()
    before = time.monotonic()
    with pytest.raises((DeadlineExceeded, ConnectionLost)):
        command.run("touch hit", timeout=2)
    assert time.monotonic() - before < 40
    server.thaw()
    # Nobody is asked twice over the connection that hung.
    assert command.run("true", timeout=60).ok


def test_a_host_that_hangs_between_channel_and_command(server: Sshd, home: Path) -> None:
    transport = transport_to(server.endpoint(home), private_key=server.user.private)
    connection, channel = transport.session(Deadline(30))  # type: ignore[attr-defined]
    server.freeze()
    before = time.monotonic()
    with pytest.raises((DeadlineExceeded, ConnectionLost)):
        connection.request(channel, "true", Deadline(1))
    assert time.monotonic() - before < 30
    POOL.give_back(connection)
    server.thaw()


def test_connections_are_reused_and_shared(server: Sshd, home: Path) -> None:
    endpoint = server.endpoint(home)
    for _ in range(3):
        command_on(endpoint, server.user.private).run("true")
    assert _open_to(server) == 1
    threads = [
        threading.Thread(target=command_on(endpoint, server.user.private).run, args=("sleep 1",))
        for _ in range(MOST_SESSIONS * 2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert _open_to(server) <= 3
    POOL.close_idle(0)
    assert _open_to(server) == 0


def _open_to(server: Sshd) -> int:
    found = [each for some in POOL._connections.values() for each in some]
    return len([each for each in found if each.endpoint.host == server.address])


def test_a_server_that_allows_one_session_is_worked_with(home: Path) -> None:
    require("sshd")
    server = start_sshd("127.9.0.3", "MaxSessions 1")
    try:
        command = command_on(server.endpoint(home), server.user.private)
        stream = command.stream("echo a; sleep 1")
        next(iter(stream))
        assert command.run("echo b").stdout == b"b\n"
        list(stream)
        command.transport.close()
    finally:
        server.stop()


def test_idle_connections_close_by_themselves(server: Sshd, home: Path) -> None:
    pool = Pool(idle=0.2)
    connection = pool.borrow(server.endpoint(home), server.user.private, "", Deadline(30))
    pool.give_back(connection)
    until = time.monotonic() + 30
    while connection.alive:
        assert time.monotonic() < until
        time.sleep(0.05)


def test_a_forked_child_starts_anew_and_leaves_the_parents_connection_alone(server: Sshd, home: Path) -> None:
    command = command_on(server.endpoint(home), server.user.private)
    assert command.run("true").ok
    child = os.fork()
    if child == 0:
        code = 1
        with contextlib.suppress(BaseException):
            assert _open_to(server) == 0
            code = 0 if command.run("echo child >child").ok else 1
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert (home / "child").read_text() == "child\n"
    assert _open_to(server) == 1
    assert command.run("echo parent").stdout == b"parent\n"
    assert _open_to(server) == 1


def test_through_a_bastion(server: Sshd, sshd: Sshd, home: Path) -> None:
    endpoint = server.endpoint(home, bastion=sshd.endpoint())
    command = command_on(endpoint, server.user.private, sshd.user.private)
    assert command.run("echo far").stdout == b"far\n"
    command.transport.files("").mkdir("made")
    assert (home / "made").is_dir()
    command.transport.close()
    wrong = server.endpoint(home, bastion=sshd.endpoint(host_keys=(new_key_pair().public,)))
    with pytest.raises(HostKeyMismatch):
        command_on(wrong, server.user.private, sshd.user.private).run("true")
    far = server.endpoint(home, bastion=sshd.endpoint(), host_keys=(new_key_pair().public,))
    with pytest.raises(HostKeyMismatch):
        command_on(far, server.user.private, sshd.user.private).run("true")
    gone = server.endpoint(home, bastion=sshd.endpoint(), port=free_port("127.9.0.2"))
    with pytest.raises(Unreachable):
        command_on(gone, server.user.private, sshd.user.private).run("true")


def test_a_shell_that_says_things_first(home: Path) -> None:
    require("sshd")
    # As a login shell's own start-up file might.
    server = start_sshd("127.9.0.3", 'ForceCommand echo welcome; echo beware >&2; eval "$SSH_ORIGINAL_COMMAND"')
    try:
        command = command_on(server.endpoint(home), server.user.private)
        result = command.run("echo out; echo err >&2")
        assert (result.stdout, result.stderr) == (b"out\n", b"err\n")
        command.transport.close()
    finally:
        server.stop()


def test_a_host_that_starts_no_shell(home: Path) -> None:
    require("sshd")
    server = start_sshd("127.9.0.3", "ForceCommand echo this account is closed; exit 1")
    try:
        command = command_on(server.endpoint(home), server.user.private)
        with pytest.raises(InterfaceError, match="this account is closed"):
            command.run("true")
        command.transport.close()
    finally:
        server.stop()
