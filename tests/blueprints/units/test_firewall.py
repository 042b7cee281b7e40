"""Ports of workloads in firewalls: nftables and iptables for real, in a network namespace of its own.

`tests.metal.test_units` has firewalld and ufw, which need a machine of their own.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from blueprints.units import Port, Unit, firewall
from blueprints.units.firewall import CLOSE, OPEN, REFUSED, RELEASE
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
        (tmp_path / "units/a").mkdir(parents=True)
        found = Namespace(holder.pid, tmp_path / "units/a")
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


def other(namespace: Namespace, name: str, key: str) -> Namespace:
    """Return the same host with the folder of another account, which runs a unit."""
    folder = namespace.folder.parent / name
    folder.mkdir()
    (folder / "unit").write_text(f"drydock-lease-{key}.service\n")
    return Namespace(namespace.holder, folder)


def test_a_port_that_another_unit_has_is_refused_and_stays_open(namespace) -> None:
    namespace.run("nft", REFUSING)
    first, second = unit("dd-x-1-l5", *PORTS), unit("dd-x-1-l6", Port(number=15_353, protocol="tcp"), PORTS[0])
    (namespace.folder / "unit").write_text(f"{first.name}\n")
    namespace.opened(first)
    before = namespace.rules()
    late = other(namespace, "b", "dd-x-1-l6")
    done = late.script(OPEN, str(late.folder), *firewall.opening(second)[1:], check=False)
    assert done.returncode == REFUSED
    assert "The port 18080/tcp of this host belongs to drydock-lease-dd-x-1-l5.service." in done.stderr
    assert late.closed(second) == ""
    late.script(RELEASE, str(late.folder.parent), "b")
    assert namespace.rules() == before, "the first unit needs the port still"
    assert namespace.closed(first) == ""
    namespace.script(RELEASE, str(namespace.folder.parent), "a")
    shutil.rmtree(namespace.folder)
    late.opened(second)
    assert late.answers(18_080)
    late.script(RELEASE, str(late.folder.parent), "b")
    assert not (namespace.folder.parent / ".ports").exists()


def test_of_many_units_that_want_a_port_at_once_one_gets_it(namespace) -> None:
    namespace.run("nft", REFUSING)
    hosts = [other(namespace, f"u{n}", f"l{n}") for n in range(8)]
    with ThreadPoolExecutor(8) as pool:
        asked = [
            pool.submit(one.script, OPEN, str(one.folder), *firewall.opening(unit(f"l{n}", PORTS[0]))[1:], check=False)
            for n, one in enumerate(hosts)
        ]
    assert sorted(one.result().returncode for one in asked) == [0, *[REFUSED] * 7]
    assert namespace.rules().count("dport 18080") == 1


def test_the_ports_of_an_account_that_is_gone_or_of_an_earlier_version_are_known(namespace) -> None:
    namespace.run("nft", REFUSING)
    ours = unit("dd-x-1-l5", PORTS[0])
    (namespace.folder.parent / ".ports").mkdir()
    (namespace.folder.parent / ".ports/tcp-18080").symlink_to("gone")
    namespace.opened(ours)
    assert namespace.answers(18_080)
    (namespace.folder.parent / ".ports/tcp-18080").unlink()  # as if an earlier version had opened it
    (namespace.folder / "unit").write_text(f"{ours.name}\n")
    late = other(namespace, "b", "dd-x-1-l6")
    done = late.script(OPEN, str(late.folder), *firewall.opening(unit("dd-x-1-l6", PORTS[0]))[1:], check=False)
    assert (done.returncode, f"belongs to {ours.name}" in done.stderr) == (REFUSED, True)


def test_a_port_that_cannot_be_claimed_is_not_opened(namespace) -> None:
    namespace.run("nft", REFUSING)
    (namespace.folder.parent / ".ports/tcp-18080/kept").mkdir(parents=True)
    ours, before = unit("dd-x-1-l5", PORTS[0]), namespace.rules()
    done = namespace.script(OPEN, str(namespace.folder), *firewall.opening(ours)[1:], check=False)
    assert (done.returncode, ".ports/tcp-18080 cannot be made" in done.stderr) == (REFUSED, True)
    assert namespace.rules() == before


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
