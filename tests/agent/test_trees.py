"""Hostile trees: each fault becomes a warning, what is sound is kept, nothing outside is read and nothing blocks."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from drydock_agent import (
    CpuFacts,
    Device,
    Drivers,
    Findings,
    FolderTree,
    Hardware,
    Host,
    Limits,
    MemoryTree,
    load_drivers,
    local_tree,
    parse_fetched,
    scan,
    script,
)
from drydock_agent.fetch import FetchFailed
from drydock_agent.messages import HardwareReport
from drydock_agent.program.host import ThisHost, now
from drydock_agent.wire import Malformed
from tests.agent import captured
from tests.agent.hand import FUNCTIONS, Hand

SOUND = "0000:01:00.0"


@pytest.fixture
def root(tmp_path) -> Path:
    """A tree with one sound function."""
    hand = Hand()
    hand.function(SOUND, "10de:20b2", "030200", "nvidia")
    hand.write(tmp_path)
    return tmp_path


def scanned(root: Path, drivers: Drivers, **limits: int) -> Hardware:
    return scan(FolderTree(str(root), limits=Limits(**limits)), drivers=drivers)


def fetched(root: Path, drivers: Drivers) -> Hardware:
    run = subprocess.run(
        ["sh", "-s", str(root)], input=script(drivers), capture_output=True, encoding="utf-8", errors="replace",
        timeout=60, check=True,
    )  # fmt: skip
    return scan(parse_fetched(run.stdout), drivers=drivers)


def test_a_fifo_a_socket_and_a_folder_in_place_of_a_file_do_not_block(root, drivers):
    folder = root / FUNCTIONS / SOUND
    os.mkfifo(folder / "subsystem_vendor")
    (folder / "revision").mkdir()
    with socket.socket(socket.AF_UNIX) as opened:
        here = os.getcwd()
        os.chdir(folder)
        opened.bind("boot_vga")
        os.chdir(here)
        hardware = scanned(root, drivers)
    assert hardware.device(SOUND).device_id == "20b2"
    assert {one.subject.rpartition("/")[2] for one in hardware.warnings} == {"subsystem_vendor", "boot_vga"}
    assert fetched(root, drivers).device(SOUND).device_id == "20b2"


def test_links_never_lead_outside_the_root_and_loops_end(root, drivers, tmp_path_factory):
    secret = tmp_path_factory.mktemp("outside") / "secret"
    secret.write_text("0x5ec7\n")
    folder = root / FUNCTIONS / SOUND
    for name, target in (("subsystem_vendor", str(secret)), ("subsystem_device", "../" * 40 + str(secret)[1:]),
                         ("revision", "revision"), ("infiniband", "../" + SOUND)):  # fmt: skip
        (folder / name).symlink_to(target)
    (root / FUNCTIONS / "0000:02:00.0").symlink_to("0000:03:00.0")
    (root / FUNCTIONS / "0000:03:00.0").symlink_to("0000:02:00.0")
    hardware = scanned(root, drivers)
    device = hardware.device(SOUND)
    assert (device.subsystem_vendor_id, device.subsystem_device_id, device.revision) == ("", "", "")
    assert any("loop" in one.message for one in hardware.warnings)
    assert hardware.device("0000:02:00.0").vendor_id == ""
    assert "5ec7" not in str(hardware.to_json())
    assert fetched(root, drivers).device(SOUND).device_id == "20b2"


def test_large_and_binary_files_and_odd_numbers_are_not_used(root, drivers):
    folder = root / FUNCTIONS / SOUND
    (folder / "local_cpulist").write_text("0," * 5000)
    (folder / "uevent").write_bytes(b"DRIVER=\0\x01")
    (folder / "numa_node").write_text("9" * 5000)
    (folder / "sriov_totalvfs").write_text("many")
    (folder / "max_link_width").write_text("255")
    hardware = scanned(root, drivers, file_bytes=8192)
    device = hardware.device(SOUND)
    assert (device.local_cpus, device.numa_node, device.total_vfs, device.link) == ("", None, None, None)
    assert {one.message.split(".")[0] for one in hardware.warnings} == {"The file has more than 8192 bytes"}
    (folder / "driver").unlink()
    assert "The file was ignored, because it is binary." in [one.message for one in scanned(root, drivers).warnings]


def test_hostile_names_are_left_out_and_shown_without_their_control_characters(root, drivers):
    functions = root / FUNCTIONS
    for name in (
        "0000:02:00.0\x1b[2J",
        "0000:02:00.0\nF",
        "..0",
        "$(touch x)",
        "0000:0٣:00.0",
        b"\xff\xfe".decode("utf-8", "surrogateescape"),
    ):
        (functions / name).mkdir()
    hardware = scanned(root, drivers)
    assert [one.id for one in hardware.devices] == [SOUND]
    assert len(hardware.warnings) == 6
    assert all(one.subject.isprintable() for one in hardware.warnings)
    assert [one.id for one in fetched(root, drivers).devices] == [SOUND]
    assert not (Path.cwd() / "x").exists()


def test_an_endless_tree_is_cut_at_its_limit_with_one_warning(root, drivers):
    folder = root / "sys/class/net"
    folder.mkdir(parents=True)
    for n in range(300):
        (folder / f"eth{n}").mkdir()
    warnings = scanned(root, drivers, entries=100).warnings
    assert "larger than the limit" in warnings[0].message
    deep = FolderTree(str(root), limits=Limits(depth=3))
    assert deep.read("sys/bus/pci/devices/x/y") is None
    assert deep.names("/".join(["a"] * 60)) == ()


@contextmanager
def unprivileged() -> Iterator[None]:
    """Go on as an account that cannot read everything, as root can."""
    if os.geteuid():
        yield
        return
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


def test_an_unreadable_file_is_a_warning(drivers):
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        root = Path(folder)
        hand = Hand()
        hand.function(SOUND, "10de:20b2", "030200", "nvidia")
        hand.write(root)
        root.chmod(0o755)
        (root / FUNCTIONS / SOUND / "revision").write_text("0x01")
        (root / FUNCTIONS / SOUND / "revision").chmod(0)
        with unprivileged():
            hardware = scanned(root, drivers)
    assert [one.message for one in hardware.warnings] == ["The file could not be read: Permission denied."]
    assert (hardware.device(SOUND).device_id, hardware.device(SOUND).revision) == ("20b2", "")


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes device nodes")
def test_an_endless_file_does_not_block_and_is_not_read(root, drivers):
    node = root / FUNCTIONS / SOUND / "revision"
    try:
        os.mknod(node, stat.S_IFCHR | 0o666, os.makedev(1, 5))
    except PermissionError:
        pytest.skip("this machine allows no device nodes")
    hardware = scanned(root, drivers)
    assert [one.subject.rpartition("/")[2] for one in hardware.warnings] == ["revision"]
    assert (hardware.device(SOUND).device_id, hardware.device(SOUND).revision) == ("20b2", "")
    assert fetched(root, drivers).device(SOUND) == hardware.device(SOUND)


def test_names_of_10_000_characters_are_left_out(root, drivers):
    run = subprocess.run(["sh", "-s", str(root)], input=script(drivers), capture_output=True, text=True, check=True)
    long = "0000:02:00.0" + "0" * 10_000
    body, end, _ = run.stdout.rpartition("END")
    text = (
        body
        + "".join(line.replace(SOUND, long) for line in body.splitlines(keepends=True)[1:] if SOUND in line)
        + end
        + "\n"
    )
    hardware = scan(parse_fetched(text), drivers=drivers)
    assert [one.id for one in hardware.devices] == [SOUND]
    assert all(len(one.subject) + len(one.message) < 1000 for one in hardware.warnings)


def test_output_that_is_cut_off_or_foreign_is_told(root, drivers):
    run = subprocess.run(["sh", "-s", str(root)], input=script(drivers), capture_output=True, text=True, check=True)
    banner = "Welcome to lab-1!\n" + run.stdout
    assert scan(parse_fetched(banner), drivers=drivers) == scan(parse_fetched(run.stdout), drivers=drivers)
    cut = scan(parse_fetched(run.stdout[: len(run.stdout) // 2]), drivers=drivers)
    assert "incomplete" in cut.warnings[0].message
    with pytest.raises(FetchFailed, match="permission denied"):
        parse_fetched("sh: permission denied")
    for odd in (
        "Lsys/a\t../b\nLsys/b\ta\nFsys/a/c\n x\n",
        "F\n x\nL\n\nD\n",
        "F../../etc/x\n a\n",
        "Tx\n a\n",
        "!\n\x00\n",
    ):
        tree = parse_fetched(f"drydock-hardware 1\n{odd}END\n")
        assert scan(tree, drivers=drivers).devices == ()


def test_the_script_runs_tools_with_a_limit_and_passes_their_output_on(tmp_path, drivers):
    """With the root of this machine, and tools that stand in for those of vendors."""
    programs = {
        "nvidia-smi": "echo '<nvidia_smi_log>'; echo; echo '@7 '; echo '</nvidia_smi_log>'; echo hidden >&2; exit 14",
        "amd-smi": "echo begun; exec sleep 60",
    }
    for name, text in programs.items():
        (tmp_path / name).write_text(f"#!/bin/sh\n{text}\n")
        (tmp_path / name).chmod(0o755)
    quick = script(drivers).replace("-s KILL 20", "-s KILL 1").replace("sleep 20", "sleep 1")
    assert quick != script(drivers)
    run = subprocess.run(
        ["sh", "-s"], input=quick, capture_output=True, text=True, timeout=60, check=True,
        env={**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"},
    )  # fmt: skip
    tree = parse_fetched(run.stdout)
    smi, hanging = tree.tool("nvidia-smi"), tree.tool("amd-smi")
    assert (smi.text, smi.status) == ("<nvidia_smi_log>\n\n@7 \n</nvidia_smi_log>", "14")
    assert (hanging.text, hanging.status) == ("begun", "timeout")


def test_this_machine_gives_the_same_three_ways(drivers):
    here = scan(local_tree(drivers), drivers=drivers)
    run = subprocess.run(["sh", "-s"], input=script(drivers), capture_output=True, text=True, timeout=60, check=True)
    assert run.stderr == ""
    there = scan(parse_fetched(run.stdout), drivers=drivers)
    sent = HardwareReport(sequence=1, boot_id="", time=now(), hardware=ThisHost().hardware()).to_body(compress=True)
    reported = HardwareReport.from_body(sent, "gzip").hardware
    for other in (there, reported):
        assert other.devices == here.devices
        assert (other.host.cpu, other.host.numa_nodes, other.host.crypto, other.host.dmi, other.host.identities) == (
            here.host.cpu, here.host.numa_nodes, here.host.crypto, here.host.dmi, here.host.identities
        )  # fmt: skip
    functions = Path("/sys/bus/pci/devices")
    listed = sorted(os.listdir(functions)) if functions.is_dir() else []
    assert sorted(one.id for one in here.devices if one.pci_class) == listed
    assert here.host.cpu.threads >= 1
    assert here.traits == ()


def test_lspci_agrees_on_this_machine(drivers):
    if not Path("/sys/bus/pci/devices").is_dir():
        pytest.skip("this machine has no PCI functions")
    devices = scan(local_tree(drivers), drivers=drivers).devices
    captured.assert_lspci_agrees(devices, "-A", "linux-sysfs")


class Odd:
    """A stranger's driver."""

    name = "odd"
    classes = ("odd",)
    paths = ("sys/odd",)
    tools: dict[str, tuple[str, ...]] = {}

    def __init__(self, answer: object) -> None:
        self.answer = answer

    def read(self, tree):
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


@pytest.mark.parametrize(
    "answer", [KeyError("x"), RecursionError(), None, Findings(devices=(Device(id=""),)), Findings(devices=("x",))]
)
def test_a_driver_that_fails_loses_only_its_own_facts(answer, root, drivers):
    hardware = scanned(root, Drivers(drivers=(*drivers.drivers, Odd(answer))))
    assert hardware.device(SOUND).driver == "nvidia"
    assert [one.subject for one in hardware.warnings] == ["driver odd"]


def test_facts_of_drivers_are_merged_and_the_worse_verdict_of_two_vendors_holds(root, drivers):
    def odd(readiness, **more):
        one = Device(id=SOUND, readiness=readiness, reason="It says so.", attributes={"odd": 1}, **more)
        return scanned(root, Drivers(drivers=(*drivers.drivers, Odd(Findings(devices=(one,)))))).device(SOUND)

    worse = odd("reboot_required", problems=("Bad.",))
    assert (worse.readiness, worse.reason, worse.problems) == ("reboot_required", "It says so.", ("Bad.",))
    assert (worse.attributes["odd"], worse.vendor_id, worse.found_by) == (1, "10de", ("pci", "nvidia", "odd"))
    assert odd("ready").reason != "It says so."


def test_patterns_that_a_shell_would_run_are_refused():
    for pattern in ("sys/$(reboot)", "/etc/shadow", "../etc", "a;b", "a b", ""):
        odd = Odd(None)
        odd.paths = (pattern,)
        with pytest.raises(ValueError, match="relative path"):
            script(Drivers(drivers=(odd,)))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"version": 2}, "version"), ({"surprise": 1}, "surprise"), ({"devices": {}}, "devices"),
        ({"devices": [{"id": 7}]}, r"devices\[0\]"), ({"devices": [{}]}, r"devices\[0\]"),
        ({"devices": [{"id": "x", "numa_node": float("nan")}]}, "numa_node"),
        ({"devices": [{"id": "x", "memory_mib": 1 << 64}]}, "memory_mib"),
        ({"devices": [{"id": "x", "link": {"speed": float("inf")}}]}, "speed"),
        ({"devices": [{"id": "x", "readiness": "maybe"}]}, "readiness"),
        ({"devices": [{"id": "x", "attributes": {"a": {"b": 1}}}]}, "attributes.a"),
        ({"devices": [{"id": "x" * 70_000}]}, "id"), ({"host": None}, "host"),
        ({"devices": [{"id": "x", "attributes": {"a": [[[[[[[[["x"]]]]]]]]]}}]}, "nested"),
        ({"traits": ["x"] * 200_001}, "more than"),
    ],
)  # fmt: skip
def test_a_document_that_is_wrong_is_refused_whole_and_names_the_field(change, field):
    with pytest.raises(Malformed, match=field):
        Hardware.from_json({"version": 1, "host": {}, **change})


def test_a_document_that_is_right_is_read():
    document = {"version": 1, "host": {"cpu": {"threads": 4}}, "devices": [{"id": "x", "link": {"speed": 8}}]}
    hardware = Hardware.from_json(document)
    assert hardware.host == Host(cpu=CpuFacts(threads=4))
    assert hardware.devices[0].link.speed == 8.0
    assert hardware.to_json() == {**document, "devices": [{"id": "x", "link": {"speed": 8.0}}]}


def test_a_tree_in_memory_follows_links_as_a_folder_does(tmp_path):
    files = {"sys/real/a/value": "1", "sys/class/x/other": "2"}
    links = {"sys/class/x": "../real/a", "sys/class/dangling": "/nowhere/else"}
    tree = MemoryTree(files, links=links, folders=("sys/empty",))
    assert (tree.read("sys/class/x/value"), tree.read("sys/real/a/other")) == ("1", "2")
    assert tree.link("sys/class/dangling") == "nowhere/else"
    assert tree.names("sys/class") == ("dangling", "x")
    assert (tree.names("sys/empty"), tree.exists("sys/empty"), tree.exists("sys/none")) == ((), True, False)


def test_files_that_are_read_together_are_those_that_are_read_one_by_one(root):
    folder, place = root / FUNCTIONS / SOUND, f"{FUNCTIONS}/{SOUND}"
    (folder / "revision").symlink_to("vendor")
    (folder / "boot_vga").symlink_to("missing")
    (folder / "sriov_numvfs").mkdir()
    (folder / "uevent").write_bytes(b"DRIVER=\0\x01")
    (folder / "local_cpulist").write_text(" 0-3\n\n")
    wanted = frozenset({"vendor", "class", "revision", "boot_vga", "sriov_numvfs", "uevent", "local_cpulist", "absent"})
    single = FolderTree(str(root))
    expected = {name: text for name in sorted(wanted) if (text := single.read(f"{place}/{name}")) is not None}
    assert set(expected) == {"vendor", "class", "revision", "local_cpulist"}
    together = FolderTree(str(root))
    assert together.texts(place, wanted) == expected == together.texts(place, wanted)
    assert together.warnings == single.warnings != []
    assert together.texts(f"{FUNCTIONS}/0000:ff:00.0", wanted) == {}
    memory = MemoryTree({f"{place}/{name}": text for name, text in expected.items()})
    assert memory.texts(place, wanted) == expected
    assert FolderTree(str(root), limits=Limits(file_bytes=6)).texts(place, wanted) == {"local_cpulist": "0-3"}


def test_a_broken_entry_point_stops_no_other_driver(monkeypatch, tmp_path):
    (tmp_path / "strange_hardware.py").write_text("raise RuntimeError('not today')\n")
    info = tmp_path / "strange-1.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: strange\nVersion: 1\n")
    (info / "entry_points.txt").write_text(
        "[drydock.hardware_drivers]\nstrange = strange_hardware:X\nnoread = builtins:object\n"
        "misnamed = tests.agent.test_trees:ODD\n"
    )
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    found = load_drivers()
    assert {"pci", "nvidia"} <= {one.name for one in found.drivers}
    assert [one.subject for one in found.warnings] == ["driver misnamed", "driver noread", "driver strange"]


ODD = Odd(None)
