"""The real nvme-cli, hdparm and blkdiscard know the options that we give to their doubles. They get a regular file."""

from __future__ import annotations

import subprocess

import pytest

from drydock_agent.disks import ata, nvme
from drydock_agent.disks.machine import Machine
from tests.peers import SYSTEM_PATH, require

OF_NVME = [
    ("id-ctrl", "-o", "json"), ("id-ns", "-o", "json"), ("sanitize-log", "-o", "json"),
    ("list-ns", "-o", "json"), ("list-ns", "--all", "-o", "json"),
    ("sanitize", f"--sanact={nvme.CRYPTO_ERASE}", "--ause"), ("sanitize", f"--sanact={nvme.EXIT_FAILURE}"),
    ("format", "--ses=1", "--lbaf=1", "--ms=1", "--pi=1", "--pil=1", "--force", "--timeout=172800000"),
]  # fmt: skip
OF_HDPARM = ["set-pass", "unlock", "disable", "erase", "erase-enhanced"]


@pytest.fixture
def disk(tmp_path):
    path = tmp_path / "disk"
    path.write_bytes(b"kept" * 4096)
    yield path
    assert path.read_bytes() == b"kept" * 4096


def run(*argv) -> subprocess.CompletedProcess[str]:
    return subprocess.run(argv, capture_output=True, text=True, timeout=60, check=False, stdin=subprocess.DEVNULL)


@pytest.mark.parametrize("words", OF_NVME, ids=lambda words: " ".join(words[:2]))
def test_nvme_cli_gets_as_far_as_the_device(disk, words):
    tool = require("nvme")
    wrong = run(tool, *words, "--no-such-option", disk)
    assert "unrecognized option" in wrong.stderr
    done = run(tool, *words, disk)
    assert done.returncode != 0
    assert "unrecognized option" not in done.stderr
    assert "is not a block or character device" in done.stderr + done.stdout


@pytest.mark.parametrize("act", OF_HDPARM)
def test_hdparm_gets_as_far_as_the_device(disk, act):
    done = run(require("hdparm"), "--user-master", "u", f"--security-{act}", ata.PASSWORD, disk)
    assert f'security_password: "{ata.PASSWORD}"' in done.stdout
    assert "Inappropriate ioctl for device" in done.stderr


def test_hdparm_identifies_no_file(disk):
    require("hdparm")
    (disk.parent / "dev").mkdir()
    (disk.parent / "dev/sda").hardlink_to(disk)
    machine = Machine(str(disk.parent))
    assert ata.features(machine, "sda") is None
    assert ata.hidden(machine, "sda") == ""


def test_blkdiscard_discards_no_file(disk):
    done = subprocess.run(
        ["blkdiscard", disk], capture_output=True, text=True, check=False, env={"PATH": f"/usr/bin:{SYSTEM_PATH}"}
    )
    assert (done.returncode, "not a block device" in done.stderr) == (1, True)


REAL = """
/dev/sda:

ATA device, with non-removable media
\tModel Number:       WDC WD10SPZX-21Z10T0                    
\tSerial Number:      WD-WXB1A6843L1C
\tFirmware Revision:  02.01A02
Commands/features:
\tEnabled\tSupported:
\t   *\tSMART feature set
\t    \tSecurity Mode feature set
\t   *\tData Set Management TRIM supported (limit 8 blocks)
\t   *\tDeterministic read ZEROs after TRIM
Security: 
\tMaster password revision code = 65534
\t\tsupported
\tnot\tenabled
\tnot\tlocked
\t\tfrozen
\tnot\texpired: security count
\t\tsupported: enhanced erase
\t324min for SECURITY ERASE UNIT. 326min for ENHANCED SECURITY ERASE UNIT.
Logical Unit WWN Device Identifier: 50014ee25fcfe40c
\tNAA\t\t: 5
\tIEEE OUI\t: 0014ee
\tUnique ID\t: 25fcfe40c
Checksum: correct
"""  # noqa: W291 - hdparm prints these blanks


def test_what_hdparm_says_about_a_disk_is_read():
    assert ata.parsed(REAL) == ata.Features(
        model="WDC WD10SPZX-21Z10T0", serial="WD-WXB1A6843L1C", wwn="0x50014ee25fcfe40c", reads_zero=True,
        supported=True, enhanced=True, frozen=True, minutes=324, enhanced_minutes=326,
    )  # fmt: skip


def test_a_disk_without_the_security_feature_set_has_none():
    text = REAL.replace("\t\tsupported\n", "\tnot\tsupported\n").replace("\t\tsupported: ", "\tnot\tsupported: ")
    found = ata.parsed(text.replace("\t   *\tDeterministic", "\t    \tDeterministic"))
    assert (found.supported, found.enhanced, found.reads_zero) == (False, False, False)


@pytest.mark.parametrize(("flbas", "lbaf"), [(0x00, 0), (0x0F, 15), (0x21, 17), (0x61, 49)])
def test_a_format_keeps_the_size_of_sectors(flbas, lbaf):
    """FLBAS has the upper bits of the format's number in bits 5 and 6, as nvme_id_ns_flbas_to_lbaf_inuse of libnvme."""
    assert nvme._layout(flbas, 0) == (f"--lbaf={lbaf}",)
