"""Ports of workloads in firewalls: nftables and iptables for real, in a network namespace of its own.

`tests.metal.test_units` has firewalld and ufw, which need a machine of their own.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from blueprints.units import Port, Unit, firewall
from blueprints.units.firewall import CLOSE, OPEN, REFUSED
from tests.blueprints.host_peers import AS_ROOT
from tests.peers import require

pytestmark = pytest.mark.skipif(not AS_ROOT, reason="only root has a firewall")
PORTS = (Port(number=18_080), Port(number=15_353, protocol="udp"))
REFUSING = """
table inet f {
    chain input {
        type filter hook input priority 0; policy drop;
        ct state established accept
    }
}
"""
TALK = """
import socket, sys, threading
server = socket.create_server(("127.0.0.1", int(sys.argv[1])))
server.settimeout(1)
try:
    with socket.create_connection(server.getsockname(), timeout=0.3) as one:
        print("open")
except TimeoutError:
    print("closed")
"""


class Namespace:
    """A network of its own, with nothing but a loopback."""

    def __init__(self, holder: int, folder: Path) -> None:
        self.holder, self.folder = holder, folder

    def run(self, *words: str, path: str = os.environ["PATH"], check: bool = True) -> subprocess.CompletedProcess[str]:
        command = ["nsenter", "--net", "-t", str(self.holder), *words]
        return subprocess.run(
            command, capture_output=True, text=True, timeout=30, check=check, env={"PATH": f"{path}:/usr/sbin:/sbin"}
        )

    def script(self, script: str, *arguments: str, **given) -> subprocess.CompletedProcess[str]:
        return self.run("/bin/sh", "-c", script, "sh", *arguments, **given)

    def opened(self, unit: Unit) -> None:
        self.script(OPEN, str(self.folder), *firewall.opening(unit)[1:])

    def closed(self, unit: Unit) -> str:
        return self.script(CLOSE, str(self.folder), unit.comment).stdout

    def rules(self) -> str:
        return self.run("nft", "list", "ruleset").stdout

    def answers(self, port: int) -> bool:
        return self.run(sys.executable, "-c", TALK, str(port)).stdout == "open\n"


@pytest.fixture
def namespace(tmp_path) -> Iterator[Namespace]:
    for name in ("nft", "iptables", "nsenter"):
        require(name)
    holder = subprocess.Popen(["unshare", "--net", "sleep", "600"], stdin=subprocess.DEVNULL)
    try:
        own = os.readlink("/proc/self/ns/net")
        while os.readlink(f"/proc/{holder.pid}/ns/net") == own:
            assert holder.poll() is None
        found = Namespace(holder.pid, tmp_path)
        found.run("ip", "link", "set", "lo", "up")
        yield found
    finally:
        holder.kill()
        holder.wait()


def unit(key: str, *ports: Port) -> Unit:
    return Unit(key=key, account="a", ports=ports)


def test_a_port_is_open_from_its_unit_to_its_end_and_no_other_is(namespace) -> None:
    namespace.run("nft", REFUSING)
    before = namespace.rules()
    assert not namespace.answers(18_080)
    ours = unit("dd-x-1-l5", *PORTS)
    namespace.opened(ours)
    assert namespace.answers(18_080)
    assert not namespace.answers(18_081)
    assert 'udp dport 15353 accept comment "drydock dd-x-1-l5"' in namespace.rules()
    assert namespace.closed(ours) == ""
    assert namespace.rules() == before
    assert not namespace.answers(18_080)
    assert namespace.closed(ours) == "", "it may be closed again"


def test_a_port_is_opened_once_however_often_that_is_asked_for(namespace) -> None:
    namespace.run("nft", REFUSING)
    ours = unit("dd-x-1-l5", *PORTS)
    namespace.opened(ours)
    once = namespace.rules()
    namespace.opened(ours)
    assert namespace.rules() == once


def test_the_rules_of_other_leases_and_of_the_operator_stay(namespace, tmp_path) -> None:
    namespace.run("nft", REFUSING)
    namespace.run("nft", 'add rule inet f input tcp dport 18080 accept comment "drydock dd-x-1-l55"')
    before = namespace.rules()
    ours = unit("dd-x-1-l5", PORTS[0])
    namespace.opened(ours)
    assert namespace.closed(ours) == ""
    assert namespace.rules() == before


def test_every_chain_that_could_drop_lets_the_port_in(namespace) -> None:
    namespace.run("nft", REFUSING)
    namespace.run("nft", REFUSING.replace("inet f", "ip other").replace("priority 0", "priority 10"))
    namespace.run("nft", "table inet n {\nchain input {\ntype nat hook input priority 0\n}\nchain more {\n}\n}\n")
    ours = unit("dd-x-1-l5", PORTS[0])
    namespace.opened(ours)
    assert namespace.answers(18_080)
    assert namespace.rules().count("drydock dd-x-1-l5") == 2
    assert namespace.closed(ours) == ""
    assert "drydock" not in namespace.rules()


def test_the_chain_of_iptables_is_changed_by_iptables_and_stays_readable_to_it(namespace) -> None:
    namespace.run("iptables", "-P", "INPUT", "DROP")
    namespace.run("iptables", "-A", "INPUT", "-m", "state", "--state", "ESTABLISHED", "-j", "ACCEPT")
    before = namespace.run("iptables", "-S").stdout
    ours = unit("dd-x-1-l5", *PORTS)
    namespace.opened(ours)
    assert '--comment "drydock dd-x-1-l5"' in namespace.run("iptables", "-S").stdout
    assert namespace.answers(18_080)
    assert namespace.closed(ours) == ""
    assert namespace.run("iptables", "-S").stdout == before
    assert not namespace.answers(18_080)


def test_a_rule_that_cannot_be_deleted_is_reported(namespace) -> None:
    namespace.run("nft", REFUSING)
    ours = unit("dd-x-1-l5", PORTS[0])
    namespace.opened(ours)
    broken = namespace.folder / "bin"
    broken.mkdir()
    (broken / "nft").write_text('#!/bin/sh\n[ "$1" != delete ] && exec /usr/sbin/nft "$@"\nexit 1\n')
    (broken / "nft").chmod(0o755)
    said = namespace.script(CLOSE, str(namespace.folder), ours.comment, path=f"{broken}:{os.environ['PATH']}").stdout
    assert "drydock dd-x-1-l5" in said
    assert namespace.closed(ours) == ""


def test_a_host_without_a_firewall_program_says_so(namespace) -> None:
    none = namespace.folder / "none"
    none.mkdir()
    for name in ("grep", "sh"):
        (none / name).symlink_to(f"/bin/{name}")
    done = subprocess.run(
        ["/bin/sh", "-c", OPEN, "sh", str(namespace.folder), "drydock l", "tcp", "18080"], capture_output=True,
        text=True, timeout=30, check=False, env={"PATH": str(none)},
    )  # fmt: skip
    assert done.returncode == REFUSED
    assert "neither firewalld, ufw nor nft" in done.stderr
    assert not (namespace.folder / "ports").exists()


def test_without_ports_no_firewall_is_needed(tmp_path) -> None:
    done = subprocess.run(
        ["/bin/sh", "-c", OPEN, "sh", *firewall.opening(unit("l"))], capture_output=True, timeout=30, check=True,
        env={"PATH": ""},
    )  # fmt: skip
    assert not done.stdout
