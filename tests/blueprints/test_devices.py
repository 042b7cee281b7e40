"""An account opens the devices of its leases and no others: real nodes, accounts, processes and control groups."""

from __future__ import annotations

import os
import pwd
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from blueprints.devices import (
    Account,
    Device,
    DeviceRefused,
    Node,
    close,
    end_users,
    grant,
    hand_back,
    has_devices,
    remaining,
    revoke,
    revoke_account,
    usage,
    users,
)
from blueprints.devices.values import valid_key
from blueprints.specs import LeaseView
from blueprints.testing.phases import Phases
from drydock.core.errors import InvalidRequest
from interfaces.command.contract import Command
from interfaces.command.jobs import JobSpec
from interfaces.local.restrictions import device_group
from tests.blueprints import device_peers, test_ssh_host_leases
from tests.blueprints import host_peers as peers
from tests.blueprints.device_peers import Place, make_node, needs_groups, sleeping

# Waiting for others who use the accounts of this machine does not count.
pytestmark = pytest.mark.timeout(120, func_only=True)

OPENED, DENIED, FORBIDDEN = "opened", "Permission denied", "Operation not permitted"


@pytest.fixture
def place() -> Iterator[Place]:
    with device_peers.place() as made:
        yield made


def test_only_the_account_of_the_lease_opens_its_node(place: Place) -> None:
    mine, other = place.account(0), place.account(1)
    device = place.device(0)
    path = device.nodes[0].path
    granted = grant(place.shell, mine, "lease0", [device])
    assert granted.numbers == {path: place.numbers[0]}
    assert (place.opens(mine, path), place.opens(other, path)) == (OPENED, DENIED)
    assert (os.stat(path).st_uid, os.stat(path).st_gid, os.stat(path).st_mode & 0o777) == (0, mine.gid, 0o660)


def test_a_control_group_refuses_what_the_modes_of_nodes_allow(place: Place) -> None:
    needs_groups()
    accounts = place.account(0), place.account(1)
    paths = []
    for index, account in enumerate(accounts):
        device = place.device(index)
        paths.append(device.nodes[0].path)
        assert grant(place.shell, account, f"lease{index}", [device]).mechanism == "cgroup-v1"
    for path in paths:
        os.chmod(path, 0o666)
    opened = [[place.opens(account, path) for path in paths] for account in accounts]
    assert opened == [[OPENED, FORBIDDEN], [FORBIDDEN, OPENED]]
    for account in accounts:
        assert place.opens(account, "/dev/null") == OPENED


def test_an_account_without_devices_can_be_confined(place: Place) -> None:
    needs_groups()
    account, path = place.account(0), place.node(0).path
    assert place.opens(account, path) == OPENED
    grant(place.shell, account, "lease0", ())
    assert place.opens(account, path) == FORBIDDEN


def test_processes_from_before_the_grant_are_confined(place: Place) -> None:
    needs_groups()
    account, path = place.account(0), place.node(1).path
    program = f"import threading, os\ndef work():\n input()\n os.open({path!r}, os.O_RDONLY)\n"
    # The first thread exits, so that the kernel shows the process as a zombie.
    program += "threading.Thread(target=work).start()\nimport ctypes; ctypes.CDLL(None).pthread_exit(None)\n"
    shell = subprocess.Popen(
        ["/bin/sh", "-c", f'read _; : 2>&1 <{path} && echo opened'], user=account.uid, group=account.gid,
        extra_groups=[], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
    )  # fmt: skip
    headless = subprocess.Popen(
        ["/usr/bin/python3" if os.access("/usr/bin/python3", os.X_OK) else sys.executable, "-c", program],
        user=account.uid, group=account.gid, extra_groups=[], stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
    )  # fmt: skip
    peers.eventually(lambda: headless.pid in peers.headless(account.uid))
    assert grant(place.shell, account, "lease0", [place.device(0)]).moved == 2
    assert grant(place.shell, account, "lease0", [place.device(0)]).moved == 0
    assert FORBIDDEN in shell.communicate("\n", timeout=20)[0]
    assert FORBIDDEN in headless.communicate("\n", timeout=20)[1]


def test_root_in_the_group_neither_opens_nor_makes_nodes(place: Place, tmp_path: Path) -> None:
    """A setuid program is root, and still in the group of the account that ran it."""
    needs_groups()
    account, path = place.account(0), place.node(1).path
    grant(place.shell, account, "lease0", [place.device(0)])
    group = device_group(account.uid)
    script = 'echo $$ >"$1/cgroup.procs"; (: <"$2"); mknod "$3" c 1 3; (: <"$4") && echo opened'
    said = subprocess.run(
        ["/bin/sh", "-c", script, "sh", str(group), path, str(tmp_path / "null"), place.node(0).path],
        capture_output=True, text=True, timeout=20,
    )  # fmt: skip
    assert said.stderr.count(FORBIDDEN) == 2, said.stderr
    assert said.stdout == "opened\n"


def test_an_account_cannot_leave_its_group(place: Place) -> None:
    needs_groups()
    account, other = place.account(0), place.account(1)
    for index, each in enumerate((account, other)):
        grant(place.shell, each, f"lease{index}", [place.device(index)])
    group = device_group(other.uid)
    assert group
    for folder in (group, group.parent, group.parent.parent):
        said = place.command(account).run(["/bin/sh", "-c", f"echo $$ >{folder}/cgroup.procs"], timeout=10)
        assert DENIED in said.error_text
    said = place.command(account).run(["/bin/sh", "-c", f"mkdir {device_group(account.uid)}/below"], timeout=10)
    assert DENIED in said.error_text


def test_a_shared_node_is_open_to_its_holders_until_the_last_one_ends(place: Place) -> None:
    needs_groups()
    shared = place.node(2, name="control", shared=True)
    accounts = place.account(0), place.account(1)
    outsider = place.account(2)
    devices = [place.device(index, shared) for index in range(2)]
    for index, account in enumerate(accounts):
        grant(place.shell, account, f"lease{index}", [devices[index]])
    grant(place.shell, outsider, "lease2", ())
    assert [place.opens(account, shared.path) for account in accounts] == [OPENED, OPENED]
    assert place.opens(outsider, shared.path) in (DENIED, FORBIDDEN)
    revoke(place.shell, accounts[0], "lease0", [devices[0]])
    assert not remaining(place.shell, accounts[0], "lease0", [devices[0]])
    assert place.opens(accounts[1], shared.path) == OPENED
    revoke(place.shell, accounts[1], "lease1", [devices[1]])
    assert os.stat(shared.path).st_mode & 0o777 == 0o600


def test_two_leases_of_one_account_hold_their_own_devices(place: Place) -> None:
    account = place.account(0)
    first, second = place.device(0), place.device(1)
    paths = first.nodes[0].path, second.nodes[0].path
    for key, device in (("one", first), ("two", second)):
        place.used.append((account, key))
        grant(place.shell, account, key, [device])
    assert [place.opens(account, path) for path in paths] == [OPENED, OPENED]
    revoke(place.shell, account, "one", [first])
    for path in paths:
        os.chmod(path, 0o666)
    assert place.opens(account, paths[1]) == OPENED
    if device_group(0):
        assert place.opens(account, paths[0]) == FORBIDDEN


def test_a_grant_can_be_repeated_and_changed(place: Place) -> None:
    account = place.account(0)
    before, after = place.device(0), place.device(1)
    assert grant(place.shell, account, "lease0", [before]) == grant(place.shell, account, "lease0", [before])
    grant(place.shell, account, "lease0", [after])
    assert place.opens(account, before.nodes[0].path) == DENIED
    assert place.opens(account, after.nodes[0].path) == OPENED


def test_nothing_is_left_after_revoking(place: Place) -> None:
    account, device = place.account(0), place.device(0)
    path = device.nodes[0].path
    grant(place.shell, account, "lease0", [device])
    assert remaining(place.shell, account, "lease0", [device])
    for _ in range(2):
        revoke(place.shell, account, "lease0", [device])
    assert remaining(place.shell, account, "lease0", [device]) == ()
    assert place.opens(account, path) == DENIED
    os.chmod(path, 0o644)
    assert "open to others" in remaining(place.shell, account, "lease0", [device])[0]
    revoke(place.shell, account, "lease0", [device])
    hand_back(place.shell, [device])
    assert os.stat(path).st_mode & 0o777 == 0o666
    assert not device_peers.RECORD.exists()


def test_the_nodes_of_a_free_device_are_closed_and_those_of_a_lease_are_not(place: Place) -> None:
    free, leased = place.device(0), place.device(1)
    account = place.account(0)
    grant(place.shell, account, "lease0", [leased])
    assert place.opens(place.account(1), free.nodes[0].path) == OPENED
    for _ in range(2):
        close(place.shell, [free, leased, Device(id="gone", nodes=(Node(path=f"{place.folder}/gone"),))])
    modes = [os.stat(device.nodes[0].path).st_mode & 0o777 for device in (free, leased)]
    assert modes == [0o600, 0o660]
    hand_back(place.shell, [free])
    assert os.stat(free.nodes[0].path).st_mode & 0o777 == 0o666


@pytest.mark.parametrize("taken", [False, True], ids=["gone", "another-device"])
def test_a_node_that_comes_back_under_another_name_is_handed_back_as_it_came(place: Place, taken: bool) -> None:
    gone = place.device(0)
    close(place.shell, [gone])
    Path(gone.nodes[0].path).unlink()
    if taken:
        make_node(Path(gone.nodes[0].path), place.numbers[1])
    again = Device(id="again", nodes=(place.node(0, name="again"),))
    close(place.shell, [again])
    assert os.stat(again.nodes[0].path).st_mode & 0o777 == 0o600
    hand_back(place.shell, [again])
    assert os.stat(again.nodes[0].path).st_mode & 0o777 == 0o666


def test_what_a_killed_run_of_these_tests_granted_is_taken_back(place: Place) -> None:
    account = place.account(0)
    grant(place.shell, account, "lease0", [place.device(0)])
    device_peers.end_killed_runs()
    assert not place.folder.exists()
    assert not device_peers.RECORD.exists()
    assert not has_devices(account.uid)
    place.folder.mkdir()


def test_an_account_that_ends_gives_back_what_its_leases_have_not(place: Place) -> None:
    account, other = place.account(0), place.account(1)
    devices = [place.device(index) for index in range(3)]
    for index, device in enumerate(devices[:2]):
        place.used.append((account, f"lease{index}"))
        grant(place.shell, account, f"lease{index}", [device])
    grant(place.shell, other, "lease1", [devices[2]])
    assert has_devices(account.uid)
    for _ in range(2):
        revoke_account(place.shell, account.uid)
    assert not has_devices(account.uid)
    for index, device in enumerate(devices[:2]):
        assert not remaining(place.shell, account, f"lease{index}", [device])
        assert os.stat(device.nodes[0].path).st_mode & 0o777 == 0o600
    assert place.opens(other, devices[2].nodes[0].path) == OPENED
    revoke_account(place.shell, "drydock-no-such-account")
    # What comes afterwards, with a uid that may have been given out again, changes nothing for the next lease.
    grant(place.shell, account, "next", [devices[1]])
    place.used.append((account, "next"))
    revoke(place.shell, account, "lease0", [devices[0]])
    assert place.opens(account, devices[1].nodes[0].path) == OPENED


def test_a_node_that_became_another_device_is_closed_as_that_device(place: Place) -> None:
    """A driver that was loaded again gives numbers anew."""
    account, device = place.account(0), place.device(0)
    path = Path(device.nodes[0].path)
    grant(place.shell, account, "lease0", [device])
    path.unlink()
    make_node(path, place.numbers[1])
    revoke(place.shell, account, "lease0", [device])
    assert path.stat().st_mode & 0o777 == 0o600


def test_a_node_that_may_not_be_touched_keeps_no_lease_from_ending(place: Place) -> None:
    """A forged report names it, or a new version knows more devices of the host itself."""
    account, device = place.account(0), place.device(0)
    grant(place.shell, account, "lease0", [device])
    protected = place.folder / "bad"
    make_node(protected, "1:3")
    named = Device(id="x", nodes=(Node(path=str(protected)), *device.nodes))
    for _ in range(2):
        (said,) = revoke(place.shell, account, "lease0", [named])
        assert said == f"{protected} (1:3) is a device of the host itself, and was left as it is."
    assert end_users(place.shell, account, [named]) == ()
    assert remaining(place.shell, account, "lease0", [named]) == ()
    with pytest.raises(DeviceRefused, match="device of the host itself"):
        close(place.shell, [named])
    assert [path.stat().st_mode & 0o777 for path in (protected, Path(device.nodes[0].path))] == [0o666, 0o600]
    hand_back(place.shell, [named])
    assert Path(device.nodes[0].path).stat().st_mode & 0o777 == 0o666

    # An earlier version opened it: it becomes what it was.
    grant(place.shell, account, "lease0", [device])
    record = device_peers.RECORD
    (record / f"leases/{account.uid}/lease0").write_text(f"E 10:229 {protected}\n")
    (record / "found/10:229").write_text(f"666 0 0 {protected}\n")
    protected.unlink()
    make_node(protected, "10:229", mode=0o660)
    os.chown(protected, 0, account.gid)
    assert revoke(place.shell, account, "lease0", []) == ()
    found = protected.stat()
    assert (found.st_mode & 0o777, found.st_uid, found.st_gid) == (0o666, 0, 0)
    assert remaining(place.shell, account, "lease0", [Device(id="x", nodes=(Node(path=str(protected)),))]) == ()
    hand_back(place.shell, [device])


def test_processes_that_use_what_was_taken_back_are_ended(place: Place) -> None:
    account, other = place.account(0), place.account(1)
    shared = place.node(2, name="control", shared=True)
    mine, kept, another = place.device(0, shared), place.device(1, shared), place.account(2)
    grant(place.shell, account, "lease0", [mine])
    grant(place.shell, another, "lease2", [Device(id="x", nodes=(shared,))])
    ended = [sleeping(account, mine.nodes[0].path), sleeping(account, shared.path)]
    left = [sleeping(account), sleeping(another, shared.path)]
    foreign = sleeping(other, mine.nodes[0].path)
    revoke(place.shell, account, "lease0", [mine])
    try:
        (found,) = end_users(place.shell, account, [mine])
        assert (found.pid, found.uid) == (foreign.pid, other.uid), "it got an open descriptor from the lease"
        assert [process.wait(10) for process in ended] == [-9, -9]
        assert [process.poll() for process in (*left, foreign)] == [None, None, None]
        foreign.kill()
        foreign.wait()
        assert end_users(place.shell, account, [mine]) == ()
        grant(place.shell, account, "lease1", [kept])
        place.used.append((account, "lease1"))
        user = sleeping(account, shared.path)
        assert end_users(place.shell, account, [mine]) == ()
        assert user.poll() is None, "another lease of the account still holds the shared node"
        left.append(user)
    finally:
        for process in (*left, foreign):
            process.kill()
            process.wait()


def test_a_search_for_users_that_cannot_see_is_no_proof(place: Place) -> None:
    script = usage.USERS.replace("/proc/", "/nowhere/")
    said = subprocess.run(["/bin/sh", "-c", script, "sh", place.numbers[0]], capture_output=True, text=True)
    assert (said.returncode, said.stdout) == (71, "")
    assert "cannot be seen" in said.stderr


def test_a_running_process_keeps_the_group_closed_after_revoking(place: Place) -> None:
    needs_groups()
    account, device = place.account(0), place.device(0)
    grant(place.shell, account, "lease0", [device])
    process = sleeping(account)
    grant(place.shell, account, "lease0", [device])
    revoke(place.shell, account, "lease0", [device])
    os.chmod(device.nodes[0].path, 0o666)
    assert place.opens(account, device.nodes[0].path) == FORBIDDEN
    process.kill()
    process.wait()


def test_a_device_of_another_lease_is_refused(place: Place) -> None:
    holder, other = place.account(0), place.account(1)
    device = place.device(0)
    grant(place.shell, holder, "lease0", [device])
    again = Node(path=str(place.folder / "alias"))
    make_node(Path(again.path), place.numbers[0])
    for node in (device.nodes[0], again, Node(path=again.path, shared=True)):
        with pytest.raises(DeviceRefused, match="held by another lease"):
            grant(place.shell, other, "lease1", [Device(id="x", nodes=(node,))])
    assert place.opens(holder, device.nodes[0].path) == OPENED


HOSTILE = {
    "a link": ("ln -s card0 bad", "not a character device"),
    "a linked folder": ("mkdir real; mknod real/node c 10 1; ln -s real deep", "is not a folder"),
    "a folder of an account": ("mkdir deep; mknod deep/node c 10 1; chown 12345 deep", "does not belong to root"),
    "an open folder": ("mkdir deep; chmod 1777 deep; mknod deep/node c 10 1", "can write to"),
    "a folder open to a group": ("mkdir deep; chmod 775 deep; mknod deep/node c 10 1", "can write to"),
    "a file": ("touch bad", "not a character device"),
    "a pipe": ("mkfifo bad", "not a character device"),
    "a block device": ("mknod bad b 7 250", "not a character device"),
    "nothing": (":", "not a character device"),
    "/dev/null by another name": ("mknod bad c 1 3", "device of the host itself"),
    "the memory": ("mknod bad c 1 1", "device of the host itself"),
    "a terminal": ("mknod bad c 136 0", "device of the host itself"),
    "FUSE": ("mknod bad c 10 229", "device of the host itself"),
    "raw access to a disk": ("mknod bad c 21 0", "device of the host itself"),
    "registers of a processor": ("mknod bad c 202 0", "device of the host itself"),
    "commands for a disk": (
        "mknod bad c $(sed -n 's/ bsg$//p' /proc/devices | grep . || echo 21) 0",
        "device of the host itself",
    ),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_nodes_are_refused_and_unchanged(place: Place, case: str) -> None:
    account = place.account(0)
    place.node(0)
    made, message = HOSTILE[case]
    subprocess.run(["/bin/sh", "-c", f"umask 022; {made}"], cwd=place.folder, check=True)
    node = place.folder / ("deep/node" if "deep" in made else "bad")
    before = node.lstat() if os.path.lexists(node) else None
    with pytest.raises(DeviceRefused, match=message):
        grant(place.shell, account, "lease0", [Device(id="x", nodes=(Node(path=str(node)),))])
    assert (node.lstat() if before else None) == before
    assert not list(device_peers.RECORD.glob(f"leases/{account.uid}/*"))


def test_another_device_under_the_same_name_is_refused(place: Place) -> None:
    """A driver may number its devices differently after it was loaded again."""
    node = place.node(0)
    wrong = Node(path=node.path, number=place.numbers[1])
    with pytest.raises(DeviceRefused, match=f"is the device {place.numbers[0]}, not {place.numbers[1]}"):
        grant(place.shell, place.account(0), "lease0", [Device(id="x", nodes=(wrong,))])


@pytest.mark.parametrize(
    "path",
    ["", "/", "/dev", "/dev/", "dev/nvidia0", "/etc/passwd", "/dev/../etc/passwd", "/dev/./null", "/dev//null",
     "/dev/a b", "/dev/$(id)", "/dev/a\nb", "/dev/nvidia0\n", "/dev/-rf", "/dev/'x", "/dev/..", "/dev/a/../b",
     "/dev/" + "a" * 65, "/dev/a/b/c/d/e", "/dev/ä"],
)  # fmt: skip
def test_only_plain_paths_below_dev_name_nodes(path: str) -> None:
    with pytest.raises(InvalidRequest):
        Node(path=path)


def test_values_that_could_name_something_else_are_refused() -> None:
    for number in ("1", "a:b", "1:2:3", " 1:2", "1:2\n", "-1:0", "1:99999999"):
        with pytest.raises(InvalidRequest):
            Node(path="/dev/nvidia0", number=number)
    for id in ("", "a b", "x\n", "$(id)", "-x", "a" * 101):
        with pytest.raises(InvalidRequest):
            Device(id=id)
    for uid, gid in ((0, 0), (0, 2000), (2000, 0), (999, 999), (-1, -1)):
        with pytest.raises(InvalidRequest):
            Account(uid=uid, gid=gid)


@pytest.mark.parametrize("key", ["", "..", ".hidden", "a/b", "a b", "a\n", "-x", "a" * 101])
def test_keys_that_are_no_file_names_are_refused(key: str) -> None:
    with pytest.raises(InvalidRequest):
        valid_key(key)


def test_processes_with_an_open_device_are_found(place: Place) -> None:
    account, node = place.account(0), place.node(0)
    alias = place.folder / "alias"
    make_node(alias, place.numbers[0])
    assert users(place.shell, [node.number]) == ()
    process = sleeping(account, str(alias))
    (found,) = users(place.shell, [node.number])
    assert (found.pid, found.uid, found.number, found.name) == (process.pid, account.uid, node.number, "sleep")
    process.kill()
    process.wait()


def test_a_thread_with_open_files_of_its_own_is_found(place: Place) -> None:
    node = place.node(0)
    program = f"""
import ctypes, os, threading, time
def work():
    assert ctypes.CDLL(None).unshare(0x400) == 0
    os.open({node.path!r}, os.O_RDONLY)
    print("there", flush=True)
    time.sleep(300)
threading.Thread(target=work, daemon=True).start()
time.sleep(300)
"""
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    assert process.stdout.readline() == "there\n"
    assert not [1 for one in Path(f"/proc/{process.pid}/fd").iterdir() if os.path.realpath(one) == node.path]
    assert [one.pid for one in users(place.shell, [node.number])] == [process.pid]
    process.kill()
    process.communicate()


LAST_THREAD = """
import ctypes, os, platform, threading, time
exits = {"x86_64": 60}.get(platform.machine(), 93)
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
def work():
    opened = os.open(NODE, os.O_RDONLY)
    assert libc.mmap(None, ctypes.c_size_t(4096), 1, 2, opened, ctypes.c_long(0)) != ctypes.c_void_p(-1).value
    os.close(opened)
    time.sleep(0.1)
    print("there", flush=True)
    time.sleep(300)
threading.Thread(target=work).start()
libc.syscall(exits, 0)
"""


def test_a_mapping_of_a_process_whose_first_thread_has_exited_is_found(place: Place) -> None:
    node = place.folder / "zero"
    make_node(node, "1:5")
    program = LAST_THREAD.replace("NODE", repr(str(node)))
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    assert process.stdout
    try:
        assert process.stdout.readline() == "there\n"
        peers.eventually(lambda: "State:\tZ" in Path(f"/proc/{process.pid}/status").read_text())
        found = [one for one in users(place.shell, ["1:5"]) if one.pid == process.pid]
    finally:
        process.kill()
        process.communicate()
    assert [one.number for one in found] == ["1:5"]


class TestOverSsh:
    """The login shell of a confined account enters its group."""

    @pytest.fixture
    def hosts(self) -> Iterator[test_ssh_host_leases.Hosts]:
        peers.needs_root()
        peers.require("useradd", "userdel", "usermod")
        with peers.alone(), peers.server(f"127.{peers.WORKER % 100 + 20}.7.1") as server:
            yield test_ssh_host_leases.Hosts(server)

    def test_sessions_and_jobs_are_confined(self, place: Place, hosts: Phases) -> None:
        needs_groups()
        host = hosts.built()
        lease = hosts.activated(hosts.lease(host))
        try:
            self.confined(place, lease)
        finally:
            hosts.ready("deactivate", lease.resource, lease)
            taken_back = not has_devices(lease.facts["uid"])
            closed = os.stat(place.device(0).nodes[0].path).st_mode & 0o777
            hosts.destroyed(host)
        assert (taken_back, closed) == (True, 0o600), "the account's end takes its devices back"
        assert os.stat(place.device(0).nodes[0].path).st_mode & 0o777 == 0o666, "the host is handed back as it was"
        assert not device_peers.RECORD.exists()
        assert not Path("/var/lib/drydock-devices").exists()

    def confined(self, place: Place, lease: LeaseView) -> None:
        """Grant a device to the lease's account, and see what its sessions and jobs open."""
        account = Account(uid=lease.facts["uid"], gid=lease.facts["gid"])
        place.used.append((account, "lease0"))
        mine, other = place.device(0), place.device(1)
        grant(place.shell, account, "lease0", [mine])
        os.chmod(mine.nodes[0].path, 0o666)
        command = lease.interface("command")
        assert isinstance(command, Command)
        for node, said in ((mine.nodes[0], OPENED), (other.nodes[0], FORBIDDEN)):
            script = f": 2>&1 <{node.path} && echo opened"
            assert command.run(["/bin/sh", "-c", script], timeout=20).text.strip().endswith(said)
            job = command.jobs.start(JobSpec(id=f"job-{said.split()[0].lower()}", words=script))
            assert command.jobs.wait(job.id, timeout=20).exit_code == (0 if said == OPENED else 2)
        assert pwd.getpwuid(account.uid).pw_shell == "/var/lib/drydock-devices/enter"
        revoke(place.shell, account, "lease0", [mine])
        assert not remaining(place.shell, account, "lease0", [mine])
        assert pwd.getpwuid(account.uid).pw_shell in ("/bin/bash", "/bin/sh")
        assert not Path("/var/lib/drydock-devices").exists(), "the login shell goes with the last account"
        grant(place.shell, account, "lease0", [mine])
