"""Disks are erased by the best method that works, and nothing counts as erased that was not verified."""

from __future__ import annotations

import itertools
import os
import struct
from pathlib import Path

import pytest

from drydock_agent.disks.blocks import Blocks
from drydock_agent.disks.canaries import Canaries, check_all, check_samples, check_table
from drydock_agent.disks.errors import DiskError
from tests.agent import disk_images
from tests.agent.disk_machine import MIB, DiskMachine
from tests.peers import require

OF_NVME = ["nvme_sanitize_crypto", "nvme_sanitize_block", "nvme_format_crypto", "nvme_format", "discard", "overwrite"]
OF_ATA = ["ata_secure_erase_enhanced", "ata_secure_erase", "discard", "overwrite"]


@pytest.fixture
def machine(tmp_path):
    one = DiskMachine(tmp_path / "machine")
    yield one
    one.stop_all()


def is_zero(path: Path) -> bool:
    return not path.read_bytes().strip(b"\0")


def erased(machine: DiskMachine, **request) -> dict:
    (record,) = machine.erase(**request)["disks"]
    return record


def test_overwriting_leaves_only_zeros_to_the_last_byte(machine):
    disk = machine.virtio(mib=9)
    # The last sector is not part of a page, as on many disks with sectors of 512 bytes.
    with open(disk, "ab") as opened:
        opened.write(b"x" * 512)
    machine.write("sys/block/vda/size", f"{9 * 2048 + 1}\n")
    record = erased(machine)
    assert (record["method"], record["verified"], record["problem"]) == ("overwrite", True, "")
    assert (record["bytes"], record["serial"], record["tried"]) == (9 * MIB + 512, "disk-1", [])
    assert record["started_at"] <= record["ended_at"]
    assert is_zero(disk)
    assert disk.stat().st_size == 9 * MIB + 512


def test_each_disk_gets_its_best_method(machine):
    paths = [machine.nvme(), machine.sata(), machine.virtio()]
    records = {one["name"]: one for one in machine.erase()["disks"]}
    assert {name: one["method"] for name, one in records.items()} == {
        "nvme0n1": "nvme_sanitize_crypto", "sda": "ata_secure_erase_enhanced", "vda": "overwrite",
    }  # fmt: skip
    assert all(one["verified"] and not one["tried"] for one in records.values())
    assert all(map(is_zero, paths))
    assert machine.state("nvme0")["calls"] == ["sanitize --sanact=4 --ause"]
    assert machine.state("sda")["calls"] == ["set-pass", "erase-enhanced"]


@pytest.mark.parametrize("method", OF_NVME + OF_ATA[:3])
def test_every_method_can_be_demanded(machine, method):
    disk = machine.sata(discard=4096, rzat=True) if method in OF_ATA[:2] else machine.nvme(flbas=0x11)
    record = erased(machine, methods={"allowed": [method]}, samples=5)
    assert (record["method"], record["verified"], record["tried"]) == (method, True, [])
    assert is_zero(disk)
    if method == "nvme_format":
        assert machine.state("nvme0")["calls"] == ["format --ses=1 --lbaf=1 --ms=1 --force --timeout=172800000"]


@pytest.mark.parametrize(
    ("double", "method", "error"),
    [
        ({"sanitize_leaves": {"4": "everything"}}, "nvme_sanitize_block", "blocks that were written before are still"),
        ({"sanitize_leaves": {"4": "noise"}}, "nvme_sanitize_block", "is not empty at byte 0"),
        ({"sanitize_fails": 4}, "nvme_sanitize_block", "reports that the sanitize operation failed"),
        ({"fna": 0, "sanicap": 0, "format_leaves": 165}, "discard", "holds a pattern instead of zeros, such as a5a5"),
        ({"sanicap": 0, "format_fails": True}, "discard", "NVMe status: Access Denied"),
    ],
)
def test_what_an_nvme_disk_only_claims_leads_to_the_next_method(machine, double, method, error):
    machine.nvme(**double)
    record = erased(machine)
    assert (record["method"], record["verified"]) == (method, True)
    assert error in record["tried"][0]["error"]
    assert record["tried"][0]["method"] == machine.disks()["nvme0n1"]["methods"][0]


def test_ones_after_a_format_are_empty(machine):
    machine.nvme(sanicap=0, fna=0, format_leaves=255)
    assert erased(machine)["method"] == "nvme_format"


def test_a_disk_that_failed_to_sanitize_is_brought_out_of_its_failure_mode(machine):
    machine.nvme(sanitize_fails=4)
    machine.erase()
    assert machine.state("nvme0")["calls"] == [
        "sanitize --sanact=4 --ause", "sanitize --sanact=1", "sanitize --sanact=2 --ause",
    ]  # fmt: skip


def test_a_sanitize_operation_from_before_a_reboot_is_waited_for(machine):
    machine.nvme(status=2, steps=3, action=2)
    record = erased(machine, methods={"allowed": ["overwrite"]})
    assert record["verified"] is True
    assert machine.state("nvme0")["status"] == 1


def test_a_frozen_disk_is_erased_by_the_next_method_and_says_so(machine):
    machine.sata(frozen=True)
    record = erased(machine)
    assert (record["method"], record["verified"]) == ("overwrite", True)
    assert [one["method"] for one in record["tried"]] == OF_ATA[:2]
    assert "sda is frozen: the firmware locked its security settings" in record["tried"][0]["error"]
    assert "calls" not in machine.state("sda")


@pytest.mark.parametrize("locked", [True, False])
def test_a_disk_with_somebodys_password_is_not_erased(machine, locked):
    machine.sata(password="a tenant's", locked=locked)
    record = erased(machine)
    assert record["verified"] is False
    assert record["problem"] == "A password that is not Drydock's is set on the disk."


def test_the_password_of_an_interrupted_erasure_is_removed(machine):
    machine.sata(password="drydock", locked=True, security=True)
    record = erased(machine, methods={"allowed": ["overwrite"]})
    assert record["verified"] is True
    assert machine.state("sda")["password"] is None
    assert machine.state("sda")["calls"] == ["unlock", "disable"]


@pytest.mark.parametrize("refused", ["set-pass", "erase-enhanced"])
def test_a_refused_secure_erase_leaves_no_password(machine, refused):
    machine.sata(refuses=refused)
    record = erased(machine)
    assert record["method"] == ("overwrite" if refused == "set-pass" else "ata_secure_erase")
    assert "Input/output error (exit code 5)" in record["tried"][0]["error"]
    assert machine.state("sda").get("password") is None


def test_a_secure_erase_that_does_nothing_is_noticed(machine):
    machine.sata(lies=True)
    record = erased(machine)
    assert record["method"] == "overwrite"
    assert [one["method"] for one in record["tried"]] == OF_ATA[:2]
    assert all("are still there" in one["error"] for one in record["tried"])


@pytest.mark.parametrize(("pattern", "method"), [([0xA5] * 512, OF_ATA[0]), (list(range(200)), OF_ATA[1])])
def test_an_enhanced_erase_may_leave_one_pattern_in_all_sectors(machine, pattern, method):
    machine.sata(pattern=pattern)
    assert erased(machine)["method"] == method


def test_a_disk_that_hides_sectors_is_not_erased(machine):
    machine.sata(hidden=2048)
    record = erased(machine)
    assert (record["verified"], record["method"]) == (False, "")
    assert "hdparm -N p18432 --yes-i-know-what-i-am-doing /dev/sda" in record["problem"]


@pytest.mark.parametrize("double", [{"discard_lies": True}, {"discard_fails": True}])
def test_discarding_counts_only_if_the_whole_disk_reads_zero(machine, double):
    machine.sata(discard=4096, rzat=True, security=False)
    machine.double("sda", machine.state("sda") | double)
    record = erased(machine)
    assert (record["method"], record["tried"][0]["method"]) == ("overwrite", "discard")


def test_discarding_is_not_offered_if_the_disk_does_not_guarantee_zeros(machine):
    machine.sata(discard=4096)
    machine.nvme(dlfeat=0)
    assert "discard" not in machine.disks()["sda"]["methods"] + machine.disks()["nvme0n1"]["methods"]


def test_a_read_only_disk_is_reported_and_the_others_are_erased(machine):
    first, second = machine.virtio("vda"), machine.virtio("vdb")
    machine.write("sys/block/vda/ro", "1\n")
    before = first.read_bytes()
    records = machine.erase()["disks"]
    assert [one["verified"] for one in records] == [False, True]
    assert (records[0]["problem"], records[0]["method"], records[0]["bytes"]) == ("The disk is read-only.", "", 0)
    assert first.read_bytes() == before
    assert is_zero(second)


def test_a_method_that_would_erase_a_neighbour_is_not_used(machine):
    first = machine.nvme(spaces=2)
    second = first.with_name("nvme0n2")
    before = second.read_bytes()
    (record,) = machine.erase(disks=["nvme0n1"])["disks"]
    assert record["method"] == "nvme_format_crypto"
    assert "It would also erase nvme0n2 on the same controller" in record["tried"][0]["error"]
    assert second.read_bytes() == before
    machine.double("nvme0", machine.state("nvme0") | {"fna": 7})
    (record,) = machine.erase("erase-2", disks=["/dev/nvme0n1"])["disks"]
    assert (record["method"], len(record["tried"])) == ("discard", 4)
    assert second.read_bytes() == before


def test_all_namespaces_of_a_controller_are_sanitized(machine):
    machine.nvme(spaces=2)
    records = machine.erase()["disks"]
    assert [(one["name"], one["method"]) for one in records] == [
        ("nvme0n1", "nvme_sanitize_crypto"), ("nvme0n2", "nvme_sanitize_crypto"),
    ]  # fmt: skip


def test_no_allowed_method_is_a_problem_of_the_disk(machine):
    disk = machine.virtio()
    before = disk.read_bytes()
    record = erased(machine, methods={"allowed": ["discard"]})
    assert record["problem"] == "The disk supports none of the allowed methods. It supports overwrite."
    assert disk.read_bytes() == before


# What a tenant leaves beside the disks


CONTROLLER = struct.pack("<BBHII", 2, 1, 12, 0x0A0341D0, 0)
PARTITION = struct.pack("<BBHIQQ16sBB", 4, 1, 42, 1, 2048, 2048, bytes(range(16)), 2, 2)
NETWORK = struct.pack("<BBH32sB", 3, 11, 37, bytes.fromhex("525400123456"), 0)


def address(text: str) -> bytes:
    return struct.pack("<BBH", 3, 24, 4 + len(text)) + text.encode()


def variable(folder: Path, number: int, name: str, path: bytes, kind: str = "Boot") -> None:
    content = struct.pack("<IIH", 7, 1, len(path) + 4) + name.encode("utf-16-le") + b"\0\0" + path + b"\x7f\xff\x04\0"
    (folder / f"{kind}{number:04X}-8be4df61-93ca-11d2-aa0d-00e098032b8c").write_bytes(content)


def entries(folder: Path) -> list[str]:
    return [name.partition("-")[0] for name in sorted(os.listdir(folder)) if "Order" not in name]


@pytest.fixture
def efivars(machine) -> Path:
    require("efibootmgr")
    machine.virtio()
    folder = machine.root / "sys/firmware/efi/efivars"
    folder.mkdir(parents=True)
    return folder


def test_boot_entries_of_disks_are_removed_and_others_stay(machine, efivars):
    variable(efivars, 1, "debian", PARTITION)
    variable(efivars, 2, "UEFI PXEv4", CONTROLLER + NETWORK)
    variable(efivars, 3, "Linux Boot Manager", CONTROLLER + PARTITION)
    variable(efivars, 4, "UEFI HTTPv4", CONTROLLER + NETWORK + address(""))
    (efivars / "BootOrder-8be4df61-93ca-11d2-aa0d-00e098032b8c").write_bytes(struct.pack("<IHHHH", 7, 1, 2, 3, 4))
    result = machine.erase()
    assert result["boot_entries_removed"] == ["0001 debian", "0003 Linux Boot Manager"]
    assert result["boot_entries_problem"] == ""
    assert entries(efivars) == ["Boot0002", "Boot0004"]


def test_no_entry_hides_behind_its_name_or_another_way_to_start(machine, efivars):
    variable(efivars, 1, "a\nBoot0009* b", PARTITION)
    variable(efivars, 2, "from afar", CONTROLLER + NETWORK + address("http://192.0.2.1/x.efi"))
    variable(efivars, 3, "not a device path", PARTITION[:2] + b"\xff\xff")
    variable(efivars, 4, "driver", PARTITION, kind="Driver")
    variable(efivars, 5, "before all", PARTITION, kind="SysPrep")
    variable(efivars, 6, "UEFI PXEv4", CONTROLLER + NETWORK)
    for kind in ("Driver", "SysPrep"):
        (efivars / f"{kind}Order-8be4df61-93ca-11d2-aa0d-00e098032b8c").write_bytes(struct.pack("<IHH", 7, 4, 5))
    result = machine.erase()
    assert result["boot_entries_problem"] == ""
    assert result["boot_entries_removed"] == [
        "0001 a Boot0009* b", "0002 from afar", "0003 not a device path", "Driver 0004 driver",
        "SysPrep 0005 before all",
    ]  # fmt: skip
    assert entries(efivars) == ["Boot0006"]


def test_boot_entries_that_cannot_be_read_are_a_problem(machine, efivars):
    result = machine.erase()
    assert "efivarfs is not mounted" in result["boot_entries_problem"]


def test_the_tpm_is_cleared(machine):
    machine.virtio()
    assert machine.erase()["tpm"] == "absent"
    (machine.root / "sys/class/tpm/tpm0").mkdir(parents=True)
    assert machine.erase("erase-2")["tpm"] == "cleared"
    machine.double("tpm0", {"locked": ["l"]})
    assert machine.erase("erase-3")["tpm"] == "cleared"
    assert machine.state("tpm0")["calls"] == ["-c l", "-c p"]
    machine.double("tpm0", {"locked": ["l", "p"]})
    assert machine.erase("erase-4")["tpm"].startswith("failed: ERROR: Esys_Clear(0x98E)")


def test_erasing_some_disks_leaves_the_tpm_and_the_boot_entries(machine):
    machine.virtio()
    (machine.root / "sys/class/tpm/tpm0").mkdir(parents=True)
    result = machine.erase(disks=["vda"])
    assert (result["tpm"], result["boot_entries_removed"]) == ("kept", [])


# The verification alone


@pytest.fixture
def disk(tmp_path):
    path = tmp_path / "disk"
    path.write_bytes(bytes(8 * MIB))
    return path


class Forgetful(Blocks):
    """A disk that accepts writes and does not keep them, as worn-out flash does."""

    def write(self, offset: int, content: bytes | memoryview) -> None:
        if offset:
            super().write(offset, content)


def test_a_disk_that_does_not_keep_canaries_cannot_be_proven_to_be_erased(disk):
    with Forgetful(disk) as blocks, pytest.raises(DiskError, match="does not keep what is written to it"):
        Canaries(blocks.size, 8).plant(blocks)


def test_no_canary_overlaps_the_one_at_the_end_of_a_disk_with_an_odd_number_of_sectors():
    size = 2 * MIB + 512
    offsets = Canaries(size, 1024).offsets
    assert offsets[-1] == size - 4096
    assert all(next_ - one >= 4096 for one, next_ in itertools.pairwise(offsets))


def test_canaries_are_at_both_ends_and_in_every_part(disk):
    offsets = Canaries(8 * MIB, 16).offsets
    assert {0, 8 * MIB - 4096} <= set(offsets)
    assert {one * 2 // MIB for one in offsets} == set(range(16))


def test_one_canary_that_is_left_is_found(disk):
    with Blocks(disk) as blocks:
        canaries = Canaries(blocks.size, 8)
        canaries.plant(blocks)
        kept = blocks.read(canaries.offsets[4], 4096)
        blocks.zero(lambda percent: None)
        canaries.check(blocks)
        blocks.write(canaries.offsets[4], kept)
        blocks.sync()
        with pytest.raises(DiskError, match=f"1 of {len(canaries.offsets)} blocks .* byte {canaries.offsets[4]}"):
            canaries.check(blocks)


@pytest.mark.parametrize("offset", [0, 5 * MIB + 17, 8 * MIB - 1])
def test_one_byte_that_is_left_is_found(disk, offset):
    with open(disk, "r+b") as opened:
        opened.seek(offset)
        opened.write(b"x")
    with Blocks(disk, writable=False) as blocks, pytest.raises(DiskError, match="is not empty between the bytes"):
        check_all(blocks, lambda percent: None)


def test_samples_find_what_is_left_in_a_part_of_the_disk(disk):
    with open(disk, "r+b") as opened:
        opened.seek(3 * MIB)
        opened.write(os.urandom(MIB))
    with Blocks(disk, writable=False) as blocks, pytest.raises(DiskError, match="is not empty at byte"):
        check_samples(blocks, 64, patterned=True, report=lambda percent: None)


def test_different_patterns_in_different_places_are_not_empty(disk):
    disk.write_bytes(b"\xa5" * 4 * MIB + b"\x5a" * 4 * MIB)
    with Blocks(disk, writable=False) as blocks, pytest.raises(DiskError, match="different patterns"):
        # Both ends alone: a random place might lie across the border, which is refused with another message.
        check_samples(blocks, 0, patterned=True, report=lambda percent: None)


@pytest.mark.parametrize("part", ["first", "last"])
def test_a_partition_table_or_its_backup_is_found(disk, tmp_path, part):
    image = disk_images.raw(tmp_path, mib=8)
    half = 4 * MIB
    disk.write_bytes(image[:half] + bytes(half) if part == "first" else bytes(half) + image[half:])
    with (
        Blocks(disk, writable=False) as blocks,
        pytest.raises(DiskError, match=r"A partition table \((backup of a )?gpt"),
    ):
        check_table(blocks)
