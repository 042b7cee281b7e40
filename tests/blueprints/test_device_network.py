"""Network interfaces of leases in network namespaces: real ones of this machine. Ends of veth pairs stand for VFs."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from blueprints.devices import (
    Account,
    DeviceRefused,
    Link,
    attach,
    attached,
    detach,
    detach_account,
    has_network,
    namespace_of,
)
from interfaces.command.jobs import JobSpec, JobState
from interfaces.command.shell import ShellCommand
from interfaces.endpoints import LocalEndpoint
from interfaces.errors import InterfaceError
from interfaces.transports import transport_to
from tests.blueprints import device_peers
from tests.blueprints import host_peers as peers
from tests.blueprints.device_peers import Links, Place, ip

FIRST, SECOND, THIRD = "0000:3b:02.0", "0000:3b:02.1", "0000:3b:02.2"


@pytest.fixture(autouse=True)
def _database() -> None:
    """Nothing here needs one."""


@pytest.fixture
def place() -> Iterator[Place]:
    with device_peers.place() as made:
        yield made


@pytest.fixture
def links(place: Place, tmp_path: Path) -> Iterator[Links]:
    with device_peers.links(tmp_path / "tree", [FIRST, SECOND]) as made:
        yield made


def names(place: Place, account: Account) -> set[str]:
    """The interfaces that a process of the account's command interface has."""
    said = place.command(account).check("cat /proc/net/dev").text.splitlines()[2:]
    return {line.partition(":")[0].strip() for line in said}


@pytest.fixture
def home(place: Place) -> Iterator[Path]:
    """A home of the first account, for its jobs."""
    folder = Path(tempfile.mkdtemp(prefix="drydock-test-"))
    account = place.account(0)
    os.chown(folder, account.uid, account.gid)
    yield folder
    shutil.rmtree(folder)


def working(account: Account, home: Path) -> Any:
    endpoint = LocalEndpoint(uid=account.uid, gid=account.gid, home=str(home))
    return ShellCommand(transport_to(endpoint), still_mine=lambda: None)


def test_commands_of_the_account_have_the_interface_and_no_other(place: Place, links: Links, home: Path) -> None:
    account, other = place.account(0), place.account(1)
    link = links[FIRST]
    found = Link(address=FIRST, root=links.root, mac="02:00:5e:00:53:07", addresses=["192.0.2.7/24"])
    assert attach(place.shell, account, "lease0", found) == (link,)
    assert attach(place.shell, account, "lease0", found) == (link,), "a repeated step changes nothing"
    assert names(place, account) == {"lo", link}
    assert link not in names(place, other)
    assert not Path("/sys/class/net", link).exists()
    said = place.command(account).check(f"ip -o address show dev {link}; ip -o link show dev {link}").text
    assert "192.0.2.7/24" in said
    assert "02:00:5e:00:53:07" in said
    # The other end of the pair is the interface of another lease, as two VFs on one network are.
    links.add(THIRD, links.peer(FIRST))
    attach(place.shell, other, "lease1", Link(address=THIRD, root=links.root, addresses=["192.0.2.1/24"]))
    reply = "import socket; s = socket.create_server(('192.0.2.7', 7007)); c, _ = s.accept(); c.sendall(b'inside')"
    jobs = working(account, home).jobs
    job = jobs.start(JobSpec(id="listener", words=("python3", "-c", reply)))
    listen = "import socket; print(socket.create_connection(('192.0.2.7', 7007), timeout=5).recv(99).decode())"
    ask = ["python3", "-c", listen]
    assert peers.eventually(lambda: place.command(other).run(ask, timeout=10).text.strip()) == "inside"
    assert jobs.wait(job.id, timeout=20).exit_code == 0, "jobs are in the namespace too"
    detach(place.shell, other, "lease1")
    detach(place.shell, account, "lease0")
    assert attached(place.shell, account, "lease0") == ()
    assert link in names(place, account)
    assert not has_network(account.uid)


def test_the_account_can_neither_change_nor_move_nor_leave(place: Place, links: Links) -> None:
    account, link = place.account(0), links[FIRST]
    attach(place.shell, account, "lease0", Link(address=FIRST, root=links.root))
    mine = f"/run/netns/{namespace_of(account)}"
    for attempt in (
        f"ip link set dev {link} address 02:00:5e:00:53:66", f"ip link set dev {link} down",
        f"ip address add 192.0.2.9/24 dev {link}", f"ip link set dev {link} netns 1", "ip link add type veth",
        "nsenter --net=/proc/1/ns/net true", f"nsenter --net={mine} true", f"rm -f {mine}", f"umount {mine}",
        # Root of a user namespace of its own has no rights in the network namespace that it comes from.
        f"unshare -r ip link set dev {link} address 02:00:5e:00:53:66",
        f"unshare -rn sh -c 'nsenter --net=/proc/$PPID/ns/net ip link set dev {link} down'",
    ):  # fmt: skip
        assert place.command(account).run(["/bin/sh", "-c", attempt], timeout=10).exit_code != 0, attempt
    assert names(place, account) == {"lo", link}
    detach(place.shell, account, "lease0")


def test_interfaces_return_as_they_were_and_the_last_one_ends_the_processes(
    place: Place, links: Links, home: Path
) -> None:
    account = place.account(0)
    before = {address: links.state(address) for address in (FIRST, SECOND)}
    attach(place.shell, account, "lease0", Link(address=FIRST, root=links.root, mac="02:00:5e:00:53:07"))
    attach(place.shell, account, "lease1", Link(address=SECOND, root=links.root, addresses=["192.0.2.8/24"]))
    assert names(place, account) == {"lo", links[FIRST], links[SECOND]}
    jobs = working(account, home).jobs
    job = jobs.start(JobSpec(id="stays", words="exec sleep 300"))
    detach(place.shell, account, "lease0")
    assert links.state(FIRST) == before[FIRST]
    assert names(place, account) == {"lo", links[SECOND]}
    assert jobs.status(job.id).exit_code is None
    detach(place.shell, None, "lease1")
    assert links.state(SECOND) == before[SECOND]
    assert jobs.wait(job.id, timeout=20).state is JobState.LOST, "a job ends with its whole session"
    assert not peers.alive(account.uid)
    assert not Path("/run/netns", namespace_of(account)).exists()
    detach(place.shell, account, "lease1")


def test_the_end_of_an_account_takes_all_its_interfaces_back(place: Place, links: Links) -> None:
    account = place.account(0)
    for key, address in (("lease0", FIRST), ("lease1", SECOND)):
        attach(place.shell, account, key, Link(address=address, root=links.root))
    assert attached(place.shell, account, "lease0") == (
        "The host has a record of the network interfaces of the lease.",
    )
    assert has_network(account.uid)
    detach_account(place.shell, account.uid)
    assert not has_network(account.uid)
    assert {links[FIRST], links[SECOND]} <= set(os.listdir("/sys/class/net"))


def test_interfaces_that_the_host_uses_are_refused_and_unchanged(place: Place, links: Links) -> None:
    account, link = place.account(0), links[FIRST]
    cases = (
        (("address", "add", "192.0.2.3/24", "dev", link), "has an address in the host's own network"),
        (("link", "add", "link", link, "name", f"{link}m", "type", "macvlan"), f"{link} is part of {link}m"),
        (("route", "add", "default", "dev", link, "metric", "4096"), f"The host's default route uses {link}"),
    )
    for words, said in cases:
        ip("link", "set", link, "up")
        ip(*words)
        with pytest.raises(DeviceRefused, match=said):
            attach(place.shell, account, "lease0", Link(address=FIRST, root=links.root))
        undo = ("link", "delete", f"{link}m") if words[0] == "link" else (words[0], "delete", *words[2:])
        ip(*undo)
    assert not has_network(account.uid)
    with pytest.raises(DeviceRefused, match=r"0000:99:00\.0 has no network interface"):
        attach(place.shell, account, "lease0", Link(address="0000:99:00.0", root=links.root))
    (Path(links.root) / "sys/bus/pci/devices" / SECOND / "net/evil name").mkdir()
    with pytest.raises(InterfaceError, match="is not a valid name"):
        attach(place.shell, account, "lease0", Link(address=SECOND, root=links.root))


def test_the_threads_of_a_process_whose_first_one_has_exited_are_ended(place: Place, links: Links, home: Path) -> None:
    account = place.account(0)
    attach(place.shell, account, "lease0", Link(address=FIRST, root=links.root))
    program = (
        "import ctypes, platform, threading, time; threading.Thread(target=time.sleep, args=(300,)).start();"
        ' ctypes.CDLL(None).syscall({"x86_64": 60}.get(platform.machine(), 93), 0)'
    )
    jobs = working(account, home).jobs
    job = jobs.start(JobSpec(id="threads", words=("python3", "-c", program)))
    status = peers.eventually(lambda: next((
        one for one in Path("/proc").glob("[0-9]*/status") if _is_dead_leader(one, account.uid)
    ), None))  # fmt: skip
    detach(place.shell, account, "lease0")
    assert not Path("/run/netns", namespace_of(account)).exists()
    peers.eventually(lambda: not status.exists())
    assert jobs.wait(job.id, timeout=20).state != JobState.RUNNING


def _is_dead_leader(status: Path, uid: int) -> bool:
    try:
        said = status.read_text()
    except OSError:
        return False
    others = len(list(status.parent.glob("task/*"))) > 1
    return others and "State:\tZ" in said and f"Uid:\t{uid}\t" in said


def test_a_process_never_starts_outside_a_namespace_that_is_broken(place: Place, links: Links) -> None:
    account = place.account(0)
    attach(place.shell, account, "lease0", Link(address=FIRST, root=links.root))
    mine = f"/run/netns/{namespace_of(account)}"
    subprocess.run(["umount", mine], check=True)
    with pytest.raises(InterfaceError):
        place.command(account).check("true", timeout=10)
    os.unlink(mine)
    detach_account(place.shell, account.uid)
