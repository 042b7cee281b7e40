"""The list of disks, and requests that name them: what is there, what may be used, and what is refused."""

from __future__ import annotations

import os

import pytest

from drydock_agent.disks.errors import DiskError
from drydock_agent.disks.hints import GIB, select
from drydock_agent.disks.inventory import Disk, disks
from drydock_agent.disks.machine import Machine
from drydock_agent.disks.requests import Hints, erase_request, parsed, write_request
from tests.agent.disk_machine import MIB, DiskMachine
from tests.agent.test_erasure import OF_ATA, OF_NVME


@pytest.fixture
def machine(tmp_path):
    return DiskMachine(tmp_path / "machine")


def test_the_list_shows_what_each_disk_is_and_supports(machine):
    machine.nvme(mib=9)
    machine.sata(rotational=True, discard=4096, rzat=True)
    machine.virtio()
    found = machine.disks()
    assert found["nvme0n1"] == {
        "name": "nvme0n1", "path": "/dev/nvme0n1", "serial": "S64Gnvme0", "model": "SAMSUNG MZQL23T8HCLS-00A07",
        "wwn": "eui.00000000000000000000000000000001", "vendor": "", "hctl": "", "size_bytes": 9 * MIB,
        "sector_bytes": 512, "rotational": False, "transport": "nvme", "removable": False, "read_only": False,
        "methods": OF_NVME, "problem": "",
    }  # fmt: skip
    # The kernel's file has 16 characters of the model; the disk itself says all of it.
    shown = {name: found["sda"][name] for name in ("model", "serial", "wwn", "transport", "rotational", "hctl")}
    assert shown == {
        "model": "INTEL SSDSC2BW240A4", "serial": "BTDA4SDA1", "wwn": "0x55cd2e404c3d2a11", "transport": "sata",
        "rotational": True, "hctl": "0:0:0:0",
    }  # fmt: skip
    assert found["sda"]["methods"] == OF_ATA
    assert (found["vda"]["transport"], found["vda"]["methods"]) == ("virtio", ["overwrite"])


def test_a_busy_disk_is_asked_again_what_it_is(machine):
    machine.sata(silent=2)
    machine.sata(name="sdb", silent=3)
    found = machine.disks()
    assert (found["sda"]["serial"], "ata_secure_erase" in found["sda"]["methods"]) == ("BTDA4SDA1", True)
    assert found["sdb"]["serial"] == "", "it is not waited for without end"


def plain(machine: DiskMachine) -> dict[str, Disk]:
    """List the disks in this process, without the doubles of tools."""
    return {one.name: one for one in disks(Machine(str(machine.root)))}


def test_without_its_tools_a_disk_can_only_be_overwritten(machine, monkeypatch):
    monkeypatch.setenv("PATH", "/nonexistent")
    monkeypatch.setattr("drydock_agent.disks.machine._PATHS", "/nonexistent")
    machine.nvme()
    machine.sata()
    found = plain(machine)
    assert [one.methods for one in found.values()] == [("overwrite",), ("overwrite",)]
    assert found["sda"].model == "INTEL SSDSC2BW24"


def test_a_namespace_with_several_paths_belongs_to_its_subsystem(machine):
    machine.nvme()
    subsystem = machine.root / "sys/devices/virtual/nvme-subsystem/nvme-subsys0"
    (subsystem / "nvme0n1").mkdir(parents=True)
    (subsystem / "nvme0").symlink_to("../../../pci0000:00/0000:00:04.0/nvme/nvme0")
    machine.write(f"{subsystem}/serial", "S64G\n")
    machine.write(f"{subsystem}/nvme0n1/size", "16384\n")
    (subsystem / "nvme0n1/device").symlink_to("..")
    link = machine.root / "sys/block/nvme0n1"
    link.unlink()
    link.symlink_to("../devices/virtual/nvme-subsystem/nvme-subsys0/nvme0n1")
    machine.write("sys/block/nvme0c0n1/size", "16384\n")
    found = machine.disks()
    assert list(found) == ["nvme0n1"]
    assert (found["nvme0n1"]["serial"], found["nvme0n1"]["methods"][0]) == ("S64G", "nvme_sanitize_crypto")
    assert spaces(machine) == {"nvme0": ([1], [])}


def spaces(machine: DiskMachine) -> dict[str, tuple[list[int] | None, list[int]]]:
    """Return the namespaces of each controller, and which of them are no disks."""
    return {one["name"]: (one["namespaces"], one["hidden"]) for one in machine.run("disks", "list")["controllers"]}


def test_a_namespace_that_is_detached_is_listed_with_its_controller(machine):
    machine.nvme(spaces=2, detached=[7])
    machine.nvme("nvme1", spaces=0, detached=[1])
    machine.nvme("nvme2", oacs=0x57, detached=[3])
    machine.nvme("nvme3", list_fails=True)
    machine.nvme("nvme4", identify_fails=True, detached=[2])
    assert spaces(machine) == {
        "nvme0": ([1, 2, 7], [7]), "nvme1": ([1], [1]), "nvme2": ([1], []), "nvme3": (None, []),
        "nvme4": (None, []),
    }  # fmt: skip
    (first, *_) = machine.run("disks", "list")["controllers"]
    assert (first["serial"], first["model"]) == ("S64Gnvme0", "SAMSUNG MZQL23T8HCLS-00A07")


def test_a_namespace_is_told_by_its_id_and_not_by_the_number_in_its_name(machine):
    machine.nvme()
    machine.write("sys/block/nvme0n1/nsid", "5\n")
    assert spaces(machine) == {"nvme0": ([1], [1])}, "the kernel shows namespace 5, and the controller has 1"


def test_a_namespace_of_another_controller_of_the_same_disk_is_not_hidden(machine):
    machine.nvme(spaces=1, detached=[2])
    machine.nvme("nvme1", spaces=0, detached=[1, 2])
    machine.write("sys/class/nvme/nvme1/serial", "S64Gnvme0\n")
    assert spaces(machine) == {"nvme0": ([1, 2], [2]), "nvme1": ([1, 2], [2])}


@pytest.mark.parametrize(
    ("file", "text", "use"),
    [
        ("proc/self/mountinfo", "30 1 254:1 / /srv rw - ext4 /dev/vda1 rw", "vda1 is mounted at /srv"),
        ("proc/self/mountinfo", "30 1 0:31 / / rw shared:1 master:2 - btrfs /dev/vda rw", "vda is mounted at /"),
        ("proc/self/mountinfo", "30 1 254:0 / /boot rw - vfat /dev/disk/by-id/x rw", "vda is mounted at /boot"),
        ("proc/swaps", "Filename Type Size Used Priority\n/dev/vda1 partition 8 0 -2", "vda1 is swap space"),
        ("sys/block/vda/vda1/holders/md0/dev", "9:0", "vda1 is part of md0"),
        ("sys/block/vda/holders/dm-0/dev", "253:0", "vda is part of dm-0"),
    ],
)
def test_a_disk_in_use_is_refused(machine, file, text, use):
    machine.virtio()
    machine.write("sys/block/vda/vda1/partition", "1\n")
    machine.write("sys/block/vda/vda1/dev", "254:1\n")
    machine.write(file, f"{text}\n")
    disk = plain(machine)["vda"]
    assert disk.problem == f"The machine itself uses the disk: {use}."
    with pytest.raises(DiskError) as caught:
        select([disk], Hints(min_size_bytes=1))
    assert caught.value.code == "busy"


def test_disks_that_are_no_regular_files_below_the_root_are_not_opened(machine, tmp_path):
    outside = tmp_path / "outside"
    outside.write_bytes(b"kept")
    for name, kind in (("vda", "link"), ("vdb", "fifo"), ("vdc", "missing")):
        path = machine.virtio(name)
        path.unlink()
        if kind == "link":
            path.symlink_to(outside)
        elif kind == "fifo":
            os.mkfifo(path)
    found = plain(machine)
    assert "is not a regular file" in found["vda"].problem
    assert "is not a regular file" in found["vdb"].problem
    assert found["vdc"].problem == "/dev/vdc cannot be used: No such file or directory."
    assert outside.read_bytes() == b"kept"


def test_links_that_leave_the_root_and_names_that_are_no_disks_are_not_listed(machine, tmp_path):
    (tmp_path / "elsewhere").mkdir()
    (tmp_path / "elsewhere/size").write_text("2048\n")
    (machine.root / "sys/block/vda").symlink_to(tmp_path / "elsewhere")
    for name in ("loop0", "dm-0", "md0", "sr0", "ram0", "zram0", "nvme0c0n1", "mmcblk0boot0"):
        machine.write(f"sys/block/{name}/size", "2048\n")
    assert plain(machine) == {}


def test_a_disk_without_capacity_has_failed_and_an_empty_slot_is_no_disk(machine):
    machine.virtio("vda")
    machine.virtio("vdb")
    for name in ("vda", "vdb"):
        machine.write(f"sys/block/{name}/size", "0\n")
    machine.write("sys/block/vdb/removable", "1\n")
    found = plain(machine)
    assert list(found) == ["vda"]
    assert found["vda"].problem == "The disk reports no capacity. It has probably failed."


def test_a_removable_disk_is_only_erased_if_it_is_named(machine):
    machine.virtio()
    machine.write("sys/block/vda/removable", "1\n")
    refusal = machine.refusal("disks", "erase", "--job", "e-1", given={})
    assert refusal == {"code": "no_disk", "message": "This machine has no fixed disk."}
    assert machine.erase(disks=["vda"])["disks"][0]["verified"] is True


@pytest.mark.parametrize(
    "name", ["sda", "../../dev/vda", "/dev/../vda", "vda1", "", "vda/", "/dev/mapper/vda", "/dev//dev/vda"]
)
def test_only_names_of_disks_are_accepted(machine, name):
    disk = machine.virtio()
    before = disk.read_bytes()
    refusal = machine.refusal("disks", "erase", "--job", "e-1", given={"disks": [name]})
    assert refusal["code"] == "no_disk"
    assert refusal["message"].endswith("is not a disk of this machine. Its disks: vda.")
    assert disk.read_bytes() == before


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"[]", "The request is not a JSON object."),
        (b"{", "not valid JSON"),
        (b"\xff", "not valid JSON"),
        (b'{"disks": ["vda"], "disks": []}', "disks: this field is there more than once"),
        (b'{"disks": "vda"}', "disks: a list is expected"),
        (b'{"disks": [1]}', "disks[0]: str is expected"),
        (b'{"disk": "vda"}', "disk: this field is not known"),
        (b'{"methods": ["overwrite"]}', "methods: an object is expected"),
        (b'{"methods": {"allowed": []}}', "methods.allowed: the list is empty"),
        (b'{"methods": {"allowed": ["shred"]}}', "methods.allowed: 'shred' is none of nvme_sanitize_crypto"),
        (b'{"samples": 0}', "samples: 0 is not between 1 and 100000"),
        (b'{"samples": true}', "samples: int is expected"),
        (b'{"samples": 1e400}', "samples: int is expected"),
        (b'{"samples": NaN}', "NaN is not a number"),
        (b'{"a": ' * 30 + b"1" + b"}" * 30, "nested more than"),
        (b'{"disks": [' + b'"vda",' * 2000 + b'"vda"]}', "disks: more than 1000 names"),
    ],
)
def test_bad_requests_to_erase_name_the_field(content, message):
    with pytest.raises(DiskError) as caught:
        erase_request(parsed(content))
    assert caught.value.code == "bad_request"
    assert message in str(caught.value)


GOOD = {"url": "https://images.example/a.raw?signature=secret", "sha256": "0" * 64, "format": "raw"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"url": None}, "url: str is expected"),
        ({"url": "file:///etc/passwd"}, "url: an address that begins with https:// or http://"),
        ({"url": "ftp://images.example/a"}, "url: an address that begins with"),
        ({"url": "https:///a"}, "url: an address that begins with"),
        ({"url": "https://images.example/a b"}, "url: an address that begins with"),
        ({"url": "https://images.example/a\r\nX: y"}, "url: an address that begins with"),
        ({"url": "https://me:secret@images.example/a"}, "url: a user name or password in the address"),
        ({"sha256": "abc"}, "sha256: 64 hexadecimal digits are expected"),
        ({"format": "vmdk"}, "format: 'vmdk' is none of raw, qcow2, raw.zst, qcow2.zst"),
        ({"disk": "sda"}, "disk: an object is expected"),
        ({"disk": {"by_path": "x"}}, "disk.by_path: this field is not known"),
        ({"disk": {"min_size_bytes": 0}}, "disk.min_size_bytes: 0 is not a positive number of bytes"),
        ({"max_size_bytes": -1}, "max_size_bytes: -1 is not a positive number of bytes"),
        ({"seed": 1}, "seed: a text in base64 is expected"),
        ({"seed": "%%%"}, "seed: the text is not valid base64"),
        ({"seed": "aGVsbG8="}, "seed: the content is not an ISO 9660 image"),
        ({"extra": 1}, "extra: this field is not known"),
    ],
)
def test_bad_requests_to_write_name_the_field_and_no_secret(change, message):
    write_request(GOOD)
    with pytest.raises(DiskError) as caught:
        write_request(GOOD | change)
    assert caught.value.code == "bad_request"
    assert message in str(caught.value)
    assert "secret" not in str(caught.value)


def test_a_request_to_write_needs_its_three_fields():
    with pytest.raises(DiskError, match="sha256: this field is missing"):
        write_request({"url": "https://images.example/a.raw"})


def test_a_seed_for_something_else_is_refused():
    import base64

    from tests.agent.disk_images import seed

    with pytest.raises(DiskError, match="the label of the image is 'config-2'; cloud-init looks for cidata"):
        write_request(GOOD | {"seed": base64.b64encode(seed("config-2")).decode()})


# Root device hints. The cases without a comment are those of ironic-python-agent's tests of device_hints.

DISKS = [
    Disk(name="sda", size_bytes=60 * GIB, model="ok model", serial="fakeserial", wwn="0x5001", rotational=True),
    Disk(name="sdb", size_bytes=120 * GIB, model="big model", serial="veryfakeserial", wwn="0x5002", rotational=True),
    Disk(name="sdc", size_bytes=10 * GIB, model="small model", serial="veryveryfakeserial", wwn="0x5003",
         vendor="ACME", hctl="1:0:0:0", transport="sas"),
]  # fmt: skip


@pytest.mark.parametrize(
    ("hints", "name"),
    [
        ({"size": ">= 70"}, "sdb"),
        ({"rotational": False}, "sdc"),
        ({"size": ">=100", "rotational": True}, "sdb"),
        ({"size": ">= 50", "model": "s==big model", "serial": "s==veryfakeserial"}, "sdb"),
        ({"size": "<= 20", "model": "<or> model 5 <or> foomodel <or> small model <or>"}, "sdc"),
        ({"rotational": False, "model": "<in> small"}, "sdc"),
        ({"size": "120", "model": "big model", "serial": "veryfakeserial"}, "sdb"),
        ({"name": "s== /dev/sda"}, "sda"),
        ({"model": "s!= Small Model"}, "sda"),
        ({"wwn": "5002"}, "sdb"),  # tools differ in the prefix
        ({"name": "sdb"}, "sdb"),
        ({"size": 120}, "sdb"),
        ({"model": "<all-in> big <all-in> mod"}, "sdb"),
        ({"vendor": "acme", "hctl": "1:0:0:0", "tran": "sas"}, "sdc"),
        ({"size": ">= 10"}, "sdc"),  # Ironic takes the first one; the smallest is as good and does not change
        ({"min_size_bytes": 11 * GIB, "max_size_bytes": 60 * GIB}, "sda"),
        ({}, "sdc"),
    ],
)
def test_hints_select_a_disk(hints, name):
    assert select(DISKS, Hints(**hints)).name == name


def test_an_error_says_why_each_disk_does_not_match():
    with pytest.raises(DiskError) as caught:
        select(DISKS, Hints(serial="other", size=">= 50"))
    assert caught.value.code == "no_disk"
    assert str(caught.value) == (
        "No disk meets the hints. sda: its serial is 'fakeserial', and not 'other'. sdb: its serial is "
        "'veryfakeserial', and not 'other'. sdc: its serial is 'veryveryfakeserial', and not 'other'."
    )


def test_without_hints_disks_of_less_than_4_gib_are_left_out():
    small = Disk(name="sda", size_bytes=4 * GIB - 1)
    with pytest.raises(DiskError, match="at least 4294967296 are needed"):
        select([small], Hints())
    assert select([small], Hints(min_size_bytes=1)) is small


def test_a_read_only_disk_is_not_selected_but_named():
    broken = Disk(name="sda", size_bytes=60 * GIB, read_only=True, problem="The disk is read-only.")
    with pytest.raises(DiskError, match=r"sda: The disk is read-only\.") as caught:
        select([broken], Hints())
    assert caught.value.code == "read_only"
    assert select([broken, DISKS[1]], Hints()) is DISKS[1]


def test_a_size_that_is_no_expression_is_refused():
    with pytest.raises(DiskError, match=r"disk\.size: '5 GB' is neither a number of GiB"):
        select(DISKS, Hints(size="5 GB"))
