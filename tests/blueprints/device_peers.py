"""Real device nodes and accounts of this machine, for tests of the isolation of devices."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
import subprocess
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from blueprints.devices import Account, Device, Node, detach_account, hand_back_all, revoke, revoke_account
from blueprints.hostshell import HostShell
from interfaces.command.shell import ShellCommand
from interfaces.endpoints import LocalEndpoint
from interfaces.local.restrictions import device_group
from interfaces.transports import transport_to
from tests.blueprints import host_peers as peers
from tests.peers import require

HARMLESS = ("vga_arbiter", "cpu_dma_latency", "vsock", "userfaultfd", "btrfs-control", "udmabuf", "psaux")
"""Devices that do nothing when they are opened. They stand for accelerators."""
RECORD = Path("/run/drydock-devices")
PREFIX = "drydock-test-"
FIRST_UID = 700_000
"""Accounts of tests have uids from here on."""


@dataclass
class Place:
    """A folder below /dev with real character devices, and accounts that only this test uses."""

    folder: Path
    numbers: list[str]
    used: list[tuple[Account, str]] = field(default_factory=list)

    @property
    def shell(self) -> HostShell:
        """Root of this machine, as a control account."""
        return this_machine()

    def node(self, index: int, *, name: str = "", shared: bool = False) -> Node:
        """A real node of the device with this index."""
        path, number = self.folder / (name or f"card{index}"), self.numbers[index]
        if not path.exists():
            make_node(path, number)
        return Node(path=str(path), number=number, shared=shared)

    def device(self, index: int, *more: Node) -> Device:
        """A device with a node of its own, and shared ones."""
        return Device(id=f"0000:0{index}:00.0", nodes=(self.node(index), *more))

    def account(self, index: int) -> Account:
        """An account that no lease has."""
        uid = peers.FIRST_UID + 50 + index
        found = Account(uid=uid, gid=uid)
        self.used.append((found, f"lease{index}"))
        return found

    def command(self, account: Account) -> ShellCommand:
        """The command interface of a lease with this account."""
        endpoint = LocalEndpoint(uid=account.uid, gid=account.gid, home="/")
        return ShellCommand(transport_to(endpoint), still_mine=lambda: None)

    def opens(self, account: Account, path: str) -> str:
        """`opened`, or the kernel's error, when a process of the account's command interface opens the node."""
        said = self.command(account).run(["/bin/sh", "-c", f": 2>&1 <{path} && echo opened"], timeout=10)
        text = (said.text + said.error_text).strip()
        return text.rpartition(": ")[2] if text != "opened" else text


def make_node(path: Path, number: str, mode: int = 0o666) -> None:
    """Make a character device."""
    major, minor = map(int, number.split(":"))
    os.mknod(path, stat.S_IFCHR | mode, os.makedev(major, minor))
    path.chmod(mode)


@contextmanager
def place() -> Iterator[Place]:
    """Skips without root, device nodes or three harmless devices. Nothing is left afterwards."""
    peers.needs_root()
    with one_at_a_time():
        end_killed_runs()
        before = RECORD.exists()
        folder = Path(tempfile.mkdtemp(prefix=PREFIX, dir="/dev"))
        folder.chmod(0o755)
        try:
            found = Place(folder, _harmless(folder))
            try:
                yield found
            finally:
                for account, key in found.used:
                    _ended(account)
                    detach_account(found.shell, account.uid)
                    revoke(found.shell, account, key, ())
                for account, _ in found.used:
                    assert not (group := device_group(account.uid)) or not group.exists()
        finally:
            shutil.rmtree(folder)
            if not before:
                shutil.rmtree(RECORD, ignore_errors=True)


def end_killed_runs() -> None:
    """Take back what a run of these tests that was killed has granted: later runs would find its devices in use.

    Call it while no other process tests devices.
    """
    for folder in Path("/dev").glob(f"{PREFIX}*"):
        shutil.rmtree(folder)
    for record in RECORD.glob("leases/*/*"):
        paths = [line.split(" ", 2)[2] for line in record.read_text().splitlines()]
        if int(record.parent.name) >= FIRST_UID and all(path.startswith(f"/dev/{PREFIX}") for path in paths):
            revoke_account(this_machine(), record.parent.name)
    hand_back_all(this_machine())


def this_machine() -> HostShell:
    """Root of this machine, as a control account."""
    return HostShell(transport_to(LocalEndpoint(uid=0, gid=0, home="/")), 30)


@contextmanager
def one_at_a_time() -> Iterator[None]:
    """Tests of devices run one at a time, in whichever process: at the end the record of the host is removed."""
    with _locked(fcntl.LOCK_EX):
        _HELD.append(True)
        try:
            yield
        finally:
            _HELD.pop()


_HELD: list[bool] = []
"""Has an entry while this process tests devices."""


@contextmanager
def _locked(how: int) -> Iterator[None]:
    folder = os.open("/dev", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fcntl.flock(folder, how)
        yield
    finally:
        os.close(folder)


def hand_back_undisturbed(there: HostShell) -> None:
    """Hand back the devices of a host, unless another process tests devices of this machine.

    All hosts of the tests are this machine, so the end of one would give its devices back to everyone in the middle of
    a test about another.
    """
    if _HELD:
        return hand_back_all(there)
    with suppress(BlockingIOError), _locked(fcntl.LOCK_EX | fcntl.LOCK_NB):
        hand_back_all(there)


def needs_groups() -> None:
    """Skip where no control group refuses devices."""
    if device_group(0) is None:
        pytest.skip("this machine has no v1 controller of devices")


def _harmless(folder: Path) -> list[str]:
    misc = {name: number for number, name in map(str.split, Path("/proc/misc").read_text().splitlines())}
    found = []
    for name in HARMLESS:
        if name not in misc:
            continue
        number = f"10:{misc[name]}"
        try:
            make_node(folder / "probe", number)
            os.close(os.open(folder / "probe", os.O_RDONLY))
            found.append(number)
        except OSError:
            continue
        finally:
            (folder / "probe").unlink(missing_ok=True)
    if len(found) < 3:
        pytest.skip("this machine does not allow three harmless devices to be opened")
    return found


def _ended(account: Account) -> None:
    for process in peers.alive(account.uid):
        process.kill()
    peers.eventually(lambda: not peers.alive(account.uid))


def sleeping(account: Account, path: str = "/dev/null") -> subprocess.Popen[bytes]:
    """A process of the account outside every group, which holds a file open as descriptor 7."""
    opened = os.open(path, os.O_RDONLY)
    try:
        return subprocess.Popen(
            ["sleep", "300"], user=account.uid, group=account.gid, extra_groups=[], pass_fds=[opened],
            stdin=subprocess.DEVNULL,
        )  # fmt: skip
    finally:
        os.close(opened)


def ip(*words: str) -> str:
    """Run `ip` as root of this machine, and return what it prints."""
    return subprocess.run(["ip", *words], check=True, capture_output=True, text=True).stdout


@dataclass
class Links:
    """Real network interfaces of this machine, the ends of veth pairs, by the PCI function that a tree gives them."""

    root: str
    names: dict[str, str]

    def __getitem__(self, address: str) -> str:
        return self.names[address]

    def peer(self, address: str) -> str:
        """The other end of the pair, which stays in the host."""
        return f"{self.names[address]}p"

    def add(self, address: str, name: str) -> None:
        """List an interface as that of a function."""
        (Path(self.root) / "sys/bus/pci/devices" / address / "net" / name).mkdir(parents=True)
        self.names[address] = name

    def state(self, address: str) -> dict[str, object]:
        """What an interface of the host must have again after a lease."""
        (found,) = json.loads(ip("-j", "address", "show", "dev", self.names[address]))
        flags = set(found["flags"]) & {"UP"}
        inet = [one["local"] for one in found["addr_info"] if one["scope"] == "global"]
        return {"address": found["address"], "mtu": found["mtu"], "up": bool(flags), "inet": inet}


@contextmanager
def links(root: Path, addresses: Sequence[str]) -> Iterator[Links]:
    """Make an interface for each PCI function, and a tree that lists them. Skips without root; `ip` is a peer."""
    peers.needs_root()
    for program in ("ip", "nsenter"):
        require(program)
    made = {address: f"dd{os.getpid() % 1_000_000:x}{n}" for n, address in enumerate(addresses)}
    try:
        for name in made.values():
            ip("link", "add", name, "type", "veth", "peer", "name", f"{name}p")
        found = Links(str(root), {})
        for address, name in made.items():
            found.add(address, name)
        yield found
    finally:
        for name in made.values():
            if Path(f"/sys/class/net/{name}p").exists():
                ip("link", "delete", f"{name}p")
