"""`drydock ssh` and `drydock port-forward`: the system's ssh against real SSH servers, and a shell on this machine."""

from __future__ import annotations

import contextlib
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import threading
import time
import urllib.request
from collections.abc import Iterator
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from types import SimpleNamespace

import pytest

from drydock.cli.ssh.connection import PREFIX, endpoint_of
from drydock.core.errors import InvalidRequest
from drydock_client.values import AccessInfo, Bastion, HostKey
from interfaces.endpoints import SshEndpoint
from interfaces.keys import new_key_pair
from interfaces.ssh import openssh
from tests.blueprints import host_peers as peers
from tests.blueprints.host_peers import WORKER
from tests.cli.conftest import ROOT, Cli

pytestmark = pytest.mark.timeout(300, func_only=True)
BASE = ("min_free_mib=1",)


@pytest.fixture(scope="module")
def lab(cli):
    """Blueprints of one host each: one reached at once, one by a bastion."""
    peers.needs_root()
    peers.require("ssh")
    one, two, door = (f"127.9.{number}.{WORKER + 1}" for number in (6, 7, 8))
    with peers.alone(), peers.server(one) as near, peers.server(two) as far, peers.server(door) as bastion:
        for name, server in (("near", near), ("far", far), ("door", bastion)):
            cli("credentials", "add", f"key-{name}", "private_key=-", stdin=server.control.private)
        way = json.dumps({name: bastion.registration()[name] for name in ("address", "port", "user", "host_keys")})
        more = {"near": (), "far": (f"bastion={way}", "bastion_credential=key-door")}
        for name, server in (("near", near), ("far", far)):
            cli("blueprints", "add", name, "ssh_host", f"credential=key-{name}", *BASE, *more[name])
            place = [f"{field}={value}" for field, value in server.registration().items() if field != "host_keys"]
            keys = f"host_keys={server.host.public}\n"
            cli("resources", "register", name, f"name={name}", "slots=4", *place, keys)
        cli("sweep")
        yield SimpleNamespace(near=near, far=far, bastion=bastion)
        for name in ("near", "far"):
            cli("resources", "remove", name)
        cli("sweep")
        for name in ("near", "far"):
            cli("blueprints", "remove", name)
        for name in ("near", "far", "door"):
            cli("credentials", "remove", f"key-{name}")


@contextlib.contextmanager
def leased(cli, blueprint, *options) -> Iterator[dict]:
    """A kept lease."""
    lease = cli.json("lease", "host", "--blueprint", blueprint, "--keep", *options)["leases"][0]
    try:
        yield lease
    finally:
        cli("release", str(lease["id"]))
        cli("sweep")


@pytest.fixture(scope="module")
def lease(cli, lab):
    """A lease named `mine` on the host that is reached at once."""
    with leased(cli, "near", "--name", "mine") as found:
        yield found


@pytest.fixture
def place(tmp_path_factory):
    """A folder for temporary files, empty again at the end."""
    folder = tmp_path_factory.mktemp("t")
    yield folder
    assert list(folder.iterdir()) == []


def user_of(cli, lease) -> str:
    return cli.json("access", str(lease["id"]))["user"]


def test_a_command_runs_there_by_the_leases_name_and_its_exit_code_is_ours(cli, lease, place):
    here = cli.also(TMPDIR=str(place), HOME=str(place))
    done = here("ssh", "mine", "id -un; cat; echo err >&2; exit 7", code=7, stdin="given\n")
    assert (done.stdout, "err\n" in done.stderr) == (f"{user_of(cli, lease)}\ngiven\n", True)
    assert here("ssh", str(lease["id"]), "--", "ls", "-d", "/").stdout == "/\n"
    assert cli("events", "--lease", "mine", "--json").stdout.count('"lease.key_shown"') >= 2


def test_the_key_is_in_no_file_and_nothing_stays_when_the_command_is_killed(cli, lease, place):
    key = cli("key", "mine").stdout.splitlines()[1]
    here = cli.also(TMPDIR=str(place), HOME=str(place))
    running = here.start("ssh", "mine", "echo begun; sleep 300")
    assert running.stdout.readline() == "begun\n"
    (folder,) = place.glob(f"{PREFIX}*")
    assert folder.stat().st_mode & 0o077 == 0
    written = [file for file in folder.iterdir() if file.is_file()]
    assert {file.name for file in written} == {"config", "known_hosts", "lock"}
    assert not any(key in file.read_text() for file in written)
    children = subprocess.run(["pgrep", "-P", str(running.pid)], capture_output=True, text=True).stdout.split()
    running.send_signal(signal.SIGKILL)
    running.communicate()
    peers.eventually(lambda: not any(Path(f"/proc/{pid}/exe").exists() for pid in children))
    assert [file.name for file in place.iterdir()] == [folder.name]
    old = time.time() - 3600
    os.utime(folder, (old, old))
    here("ssh", "mine", "true")


def test_a_signal_ends_the_command_and_leaves_nothing(cli, lease, place):
    running = cli.also(TMPDIR=str(place), HOME=str(place)).start("ssh", "mine", "echo begun; sleep 300")
    assert running.stdout.readline() == "begun\n"
    running.send_signal(signal.SIGTERM)
    running.communicate(timeout=30)
    assert running.returncode == 143


def test_another_host_key_is_refused(cli, lab, place):
    other = new_key_pair("other").public
    wrong = SshEndpoint(host=lab.near.address, port=lab.near.port, user="root", host_keys=(other,))
    known = place / "known"
    known.write_text(openssh.known_hosts_of("here", wrong))
    identity = openssh.Identity(files=(lab.near.folder / "host",))
    (place / "config").write_text(openssh.entry(["here"], wrong, known_hosts=known, identity=identity))
    done = subprocess.run(["ssh", "-F", place / "config", "here", "true"], capture_output=True, text=True)
    assert done.returncode == 255
    assert "Host key verification failed" in done.stderr
    for file in place.iterdir():
        file.unlink()


class Page(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"through")

    def log_message(self, *_):
        pass


def test_a_port_is_forwarded_until_the_end(cli, lease, place):
    with HTTPServer(("127.0.0.1", 0), Page) as server, socket.socket() as probe:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        probe.bind(("127.0.0.1", 0))
        free = probe.getsockname()[1]
        probe.close()
        here = cli.also(TMPDIR=str(place), HOME=str(place))
        running = here.start("port-forward", "mine", f"{free}:{server.server_port}")
        assert f"127.0.0.1:{free} is port {server.server_port}" in running.stderr.readline()
        assert urllib.request.urlopen(f"http://127.0.0.1:{free}", timeout=20).read() == b"through"
        taken = here("port-forward", "mine", f"{free}:{server.server_port}", code=1)
        assert "in use" in taken.stderr
        running.send_signal(signal.SIGINT)
        running.communicate(timeout=30)
        assert running.returncode == 130
        server.shutdown()
    with socket.socket() as probe:
        assert probe.connect_ex(("127.0.0.1", free)) != 0
    assert "is not LOCAL:REMOTE" in cli("port-forward", "mine", "80", code=2).stderr
    assert "from 1 to 65535" in cli("port-forward", "mine", "0:99999", code=2).stderr


def test_the_way_leads_by_a_bastion_which_knows_our_own_key(cli, lab, place, tmp_path):
    with leased(cli, "far") as lease:
        number, key = str(lease["id"]), tmp_path / "door"
        key.write_text(lab.bastion.control.private)
        key.chmod(0o600)
        here = cli.also(TMPDIR=str(place), HOME=str(place), SSH_AUTH_SOCK="")
        access = cli.json("access", number)
        assert access["bastion"]["port"] == lab.bastion.port
        done = here("ssh", "-i", str(key), number, "id -un; echo $SSH_CONNECTION")
        assert done.stdout.splitlines()[0] == access["user"]
        assert here("ssh", number, "true", code=255).stdout == ""
        assert "File /nowhere does not exist" in here("ssh", "-i", "/nowhere", number, "true", code=2).stderr


def test_an_own_key_is_used_where_the_lease_was_given_one(cli, lab, place, tmp_path):
    pair = new_key_pair("own")
    (tmp_path / "own").write_text(pair.private)
    (tmp_path / "own").chmod(0o600)
    (tmp_path / "own.pub").write_text(pair.public)
    here = cli.also(TMPDIR=str(place), HOME=str(place), SSH_AUTH_SOCK="")
    with leased(cli, "near", "--public-key", str(tmp_path / "own.pub")) as lease:
        number = str(lease["id"])
        assert here("ssh", "-i", str(tmp_path / "own"), number, "echo in").stdout == "in\n"
        assert "lease.key_shown" not in cli("events", "--lease", number, "--json").stdout


def test_an_ended_lease_and_a_kind_without_ssh_say_so(cli, lab, fakes):
    lease = cli.json("lease", "fake", "--blueprint", fakes(), "--keep")["leases"][0]
    number = str(lease["id"])
    for words in (("ssh", number, "true"), ("port-forward", number, "8080:80")):
        told = cli(*words, code=2).stderr
        assert "cannot be reached by SSH" in told
        assert "drydock run" in told
    cli("release", number)
    assert "has ended" in cli("ssh", number, "true", code=4).stderr
    assert "has ended" in cli("port-forward", number, "8080:80", code=4).stderr
    assert "does not exist or is not yours" in cli("ssh", "999999", code=3).stderr


def test_the_session_ends_with_the_lease(cli, lab, place):
    with leased(cli, "near") as lease:
        number = str(lease["id"])
        running = cli.also(TMPDIR=str(place), HOME=str(place)).start("ssh", number, "echo begun; sleep 300")
        assert running.stdout.readline() == "begun\n"
        cli("release", number)
        cli("sweep")
        _, told = running.communicate(timeout=120)
        assert (running.returncode, f"lease {number} has ended" in told) == (4, True)


class Terminal:
    """A `drydock` process on a terminal of ours."""

    def __init__(self, cli: Cli, *words: str) -> None:
        self.ours, theirs = pty.openpty()
        self.process = subprocess.Popen(
            cli._command(words), env=cli.environment, cwd=ROOT, stdin=theirs, stdout=theirs, stderr=theirs,
            start_new_session=True,
        )  # fmt: skip
        self.terminal = os.ttyname(theirs)
        os.close(theirs)
        self.said = ""

    def type(self, line: str) -> None:
        os.write(self.ours, line.encode())

    def until(self, pattern: str) -> re.Match[str]:
        end = time.monotonic() + 60
        while not (found := re.search(pattern, self.said)):
            ready, _, _ = select.select([self.ours], [], [], max(0.0, end - time.monotonic()))
            assert ready, self.said
            try:
                self.said += os.read(self.ours, 1 << 16).decode()
            except OSError:
                raise AssertionError(f"{self.process.wait()}: {self.said!r}") from None
        return found

    def close(self) -> int:
        code = self.process.wait(60)
        os.close(self.ours)
        return code


def test_a_local_host_gives_a_shell_with_a_terminal_of_its_own(cli, host):
    with leased(cli, "this", "--name", "desk") as lease:
        uid = cli("run", "desk", "--", "id", "-u").stdout.strip()
        shell = Terminal(cli, "ssh", "desk")
        shell.until(r"[$#] ")
        shell.type("echo uid=$(id -u) home=$PWD tty=$(tty); test -t 0 && echo is-$((40 + 2))\r")
        assert shell.until(r"uid=(\d+) home=\S+ tty=(/\S+)")[1] == uid
        assert shell.until(r"tty=(/\S+)")[1] != shell.terminal
        shell.until("is-42")
        shell.type("echo go-$((1 + 1)); sleep 300\r")
        shell.until("go-2")
        peers.eventually(lambda: peers.named("sleep", int(uid)))
        shell.type("\x03")
        shell.until(r"\^C[^^]*[$#] ")
        shell.type("echo back-$((1 + 1)); exit 9\r")
        shell.until("back-2")
        assert shell.close() == 9
        done = cli("ssh", "desk", "id -u; cat; exit 3", stdin="given", code=3)
        assert done.stdout == f"{uid}\ngiven"
        assert cli("ssh", "desk", stdin="echo by script; exit 4\n", code=4).stdout == "by script\n"
        assert "on this machine" in cli("port-forward", "desk", "8080:80", code=2).stderr
    assert "has ended" in cli("ssh", str(lease["id"]), code=4).stderr


def test_a_local_shell_ends_with_the_lease(cli, host):
    with leased(cli, "this") as lease:
        shell = Terminal(cli, "ssh", str(lease["id"]))
        shell.until(r"[$#] ")
        shell.type("echo up-$((1 + 1))\r")
        shell.until("up-2")
        cli("release", str(lease["id"]))
        cli("sweep")
        assert shell.close() != 0


KEY = HostKey(key=new_key_pair("x").public, fingerprint="")
INFO = AccessInfo(lease=1, host="10.0.0.7", port=22, user="dd1", host_keys=(KEY,), valid_until=None)


@pytest.mark.parametrize(
    "wrong",
    [
        {"host": "-oProxyCommand=touch /x"}, {"host": "a b"}, {"host": "a\nProxyCommand x"}, {"host": ""},
        {"user": "-l"}, {"user": "a b"}, {"user": "a\nb"}, {"port": 0}, {"host_keys": ()},
        {"host_keys": (replace(KEY, key=f"{KEY.key}\n* ssh-ed25519 AAAA"),)},
    ],
)  # fmt: skip
def test_what_a_server_says_becomes_no_option_and_no_line(wrong):
    assert endpoint_of(INFO).host == "10.0.0.7"
    with pytest.raises(InvalidRequest):
        endpoint_of(replace(INFO, **wrong))
    jump = Bastion(**{"host": "b", "port": 22, "user": "u", "host_keys": (KEY,), **wrong})
    with pytest.raises(InvalidRequest):
        endpoint_of(replace(INFO, bastion=jump))


def test_values_of_a_configuration_are_taken_literally():
    there = endpoint_of(replace(INFO, host="fe80::1%eth0"))
    text = openssh.entry(
        ["here"], there, known_hosts=Path("/a b/100%"), identity=openssh.Identity(), proxy_command="x %h"
    )
    assert "    HostName fe80::1%%eth0\n" in text
    assert '    UserKnownHostsFile "/a b/100%%"\n' in text
    assert "    ProxyCommand x %%h\n" in text
    found = subprocess.run(["ssh", "-G", "-F", "/dev/stdin", "here"], input=text, capture_output=True, text=True)
    assert "hostname fe80::1%eth0\n" in found.stdout, found.stderr
    for wrong in ("/a\nb", '/a"b', "/${HOME}"):
        with pytest.raises(InvalidRequest):
            openssh.path(Path(wrong))
