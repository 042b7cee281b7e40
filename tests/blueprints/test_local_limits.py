"""A lease of local_host is held to its share: by control groups where the machine has them, else by limits."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from blueprints.amounts import Amounts
from blueprints.layered.account import account
from blueprints.local import groups
from blueprints.specs import LeaseView, ResourceView
from interfaces.endpoints import Environment, LocalEndpoint
from interfaces.transport import Transport
from interfaces.transports import transport_to
from tests.blueprints import host_peers as peers
from tests.blueprints.layered_peers import Machine, lent, new_folder
from tests.blueprints.test_local_host import Hosts, _alone, command, end, folder, hosts

__all__ = ["_alone", "folder", "hosts"]

FORK_BOMB = """cd /; perl -e '
my $end = time + 60; while (time < $end) { fork // select undef, undef, undef, 0.5 }
' </dev/null >/dev/null 2>&1 &"""
"""Perl's: a shell that cannot fork gives up, and how many of its bomb are left then is chance."""
FILLING = "n=0; while [ $n -lt 80 ]; do sleep 300 </dev/null >/dev/null 2>&1 & n=$((n + 1)); done"
FILES = ("cpu.max", "memory.max", "memory.swap.max", "pids.max", "cgroup.procs")


# Waiting for others who use the accounts of this machine does not count.
pytestmark = pytest.mark.timeout(120, func_only=True)


@pytest.fixture
def bounded(hosts: Hosts) -> Hosts:
    """A host whose leases have few processes each."""
    hosts.more = {"processes": 150, "open_files": 256, "cgroup": ""}
    return hosts


def test_a_lease_says_what_holds_it(bounded: Hosts) -> None:
    host = bounded.built()
    lease = bounded.activated(bounded.lease(host))
    assert lease.facts["limits"] == ("rlimit" if peers.AS_ROOT else "none")
    end(bounded, lease)
    bounded.destroyed(host)


def test_a_fork_bomb_takes_neither_the_host_nor_another_lease(bounded: Hosts) -> None:
    peers.needs_root()
    peers.require("perl")
    host = bounded.built()
    bomb, other = (bounded.activated(_named(bounded, host, name)) for name in ("bomb", "other"))
    command(bomb).check(FORK_BOMB)
    peers.eventually(lambda: len(peers.alive(bomb.facts["uid"])) >= 140, 60)
    assert _most(bomb) <= 150
    assert command(other).check("(echo alive)").text == "alive\n"
    subprocess.run(["true"], check=True)
    end(bounded, bomb)
    end(bounded, other)
    bounded.destroyed(host)


def _most(lease: LeaseView) -> int:
    return max(len(peers.alive(lease.facts["uid"])) for _ in range(5))


def _named(bench: Hosts, host: ResourceView, name: str) -> LeaseView:
    lease = bench.lease(host)
    return replace(lease, key=f"{lease.key}-{name}")


def _tree(folder: Path, *, controllers: str = "cpu io memory pids") -> Path:
    """Plain files in the place of a kernel's cgroup v2 tree: what is written is looked at, not what comes of it."""
    (folder / "cgroup.controllers").write_text(controllers)
    (folder / "cgroup.subtree_control").touch()
    group = folder / "drydock" / "lease"
    group.mkdir(parents=True)
    (folder / "drydock" / "cgroup.subtree_control").touch()
    for name in FILES:
        (group / name).touch()
    return group


def test_the_amounts_of_a_lease_become_the_bounds_of_its_group(tmp_path: Path) -> None:
    group = _tree(tmp_path)
    made = groups.make(str(group.parent), "lease", Amounts(cpu_millicores=1500, ram_mib=512), 100)
    assert made == groups.Group(group, bounded=True)
    assert {name: (group / name).read_text() for name in FILES} == {
        "cpu.max": "150000 100000", "memory.max": str(512 << 20), "memory.swap.max": "0", "pids.max": "100",
        "cgroup.procs": "",
    }  # fmt: skip
    for above in (tmp_path, group.parent):
        assert (above / "cgroup.subtree_control").read_text() == "+cpu +memory +pids"


def test_what_a_lease_did_not_ask_for_is_not_bounded(tmp_path: Path) -> None:
    group = _tree(tmp_path)
    (group / "memory.swap.max").unlink()
    assert groups.make(str(group.parent), "lease", Amounts(), 100)
    assert (group / "cpu.max").read_text() == "max 100000"
    assert (group / "memory.max").read_text() == "max"


def test_where_the_tree_does_not_offer_it_all_the_group_is_only_for_ending_the_lease(tmp_path: Path) -> None:
    group = _tree(tmp_path, controllers="cpu memory")
    assert groups.make(str(group.parent), "lease", Amounts(), 100) == groups.Group(group, bounded=False)


def test_where_there_is_no_tree_there_is_no_group(tmp_path: Path) -> None:
    assert groups.make(f"{tmp_path}/no/such", "lease", Amounts(), 100) is None
    assert groups.make("", "lease", Amounts(), 100) is None


def test_a_group_that_is_not_empty_is_not_taken_for_gone(tmp_path: Path) -> None:
    group = _tree(tmp_path)
    assert not groups.remove(str(group.parent), "lease")
    for name in FILES:
        (group / name).unlink()
    assert groups.remove(str(group.parent), "lease")
    assert not group.exists()
    assert groups.remove(str(group.parent), "lease")


class Bounded(Machine):
    """Host leases with few processes each."""

    def way(self, home: str, environment: Environment) -> Transport:
        return transport_to(LocalEndpoint(uid=self.uid, gid=self.gid, home=home, environment=environment, processes=60))


def test_what_stands_on_a_lease_can_end_a_fork_bomb_that_has_used_up_its_processes() -> None:
    peers.needs_root()
    for machine in lent(Bounded(new_folder(), own_account=True)):
        host = machine.lease()
        bomb: Any = host.interface("command")
        # A shell gives up when it cannot fork; what it has started stays.
        for _ in range(3):
            assert "fork" in bomb.run(FILLING).error_text
        assert account(host, 60.0).ended()
        assert not machine.processes()
