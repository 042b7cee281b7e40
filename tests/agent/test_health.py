"""Errors and conditions that drivers report, on hand-written trees, because no capture has any."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path

import pytest

from drydock_agent import MemoryTree
from drydock_agent.drivers.nvme import Nvme
from drydock_agent.facts import Hardware, Health, LoggedError
from drydock_agent.kernel_log import COMMAND, RESET, xids
from drydock_agent.tools import run
from tests.agent.hand import GPU_UUID, Hand, gpu_xml

GPU = "0000:01:00.0"
SUM = """RxErr 0
BadTLP 7
TOTAL_ERR_{} {}
"""


def test_pcie_errors_are_counted_and_do_not_say_that_a_device_is_unwell_now():
    hand = Hand()
    hand.function(GPU, "10de:20b2", "030200", "nvidia", aer_dev_fatal=SUM.format("FATAL", 1),
                  aer_dev_nonfatal=SUM.format("NONFATAL", 0), aer_dev_correctable=SUM.format("COR", 5120))  # fmt: skip
    hand.tool("nvidia-smi", gpu_xml())
    (found,) = hand.scan().devices
    assert found.counters == {"pcie_fatal": 1, "pcie_correctable": 5120}
    assert (found.health, found.problems) == (Health.OK, ())


@pytest.mark.parametrize(
    "text", ["TOTAL_ERR_FATAL x\n", "TOTAL_ERR_FATAL -1\n", "TOTAL_ERR_FATAL\n", f"TOTAL_ERR_FATAL {'9' * 30}\n"]
)
def test_counts_that_are_no_numbers_are_left_out(text):
    hand = Hand()
    hand.function(GPU, "10de:20b2", "030200", "nvidia", aer_dev_fatal=text)
    assert hand.scan().devices[0].counters == {}


def linked(width: str, most: str, port: str, speed: str = "16.0 GT/s PCIe") -> tuple[str, ...]:
    """The problems of a card with such a link, behind a port of such a width."""
    hand = Hand()
    hand.function("0000:00:01.0", "8086:3c02", "060400", "pcieport", max_link_width=port)
    hand.function(GPU, "1002:74a1", "120000", "amdgpu", "0000:00:01.0", current_link_width=width, max_link_width=most,
                  current_link_speed=speed, max_link_speed="32.0 GT/s PCIe")  # fmt: skip
    return hand.scan().device(GPU).problems


def test_a_link_is_too_narrow_only_if_card_and_slot_can_do_more():
    assert linked("16", "16", "16") == ()
    assert linked("8", "16", "16") == ("The PCIe link has 8 lanes; 16 are possible.",)
    assert linked("8", "16", "8") == (), "the slot is narrower than the card"
    assert linked("16", "16", "16", "2.5 GT/s PCIe") == (), "an idle GPU lowers the speed of its link"
    assert linked("255", "16", "16") == (), "the kernel does not know the width"


LOG = f"""\
[    5.000001] NVRM: loading NVIDIA UNIX x86_64 Kernel Module
[   60.100000] NVRM: Xid (PCI:0000:01:00): 79
[   61.000000] {RESET} 0000:01:00.0
[  100.000000] NVRM: Xid (PCI:0000:01:00): 13
[  100.250000][ T4321] NVRM: Xid (PCI:0000:01:00): 13
[  101.500000] NVRM: Xid (PCI:0000:01:00 GPU-I:05): 94
[  102.000000] host-1 kernel: NVRM: Xid (0000:02:00): 48
[  103.000000] foo[77]: segfault NVRM: Xid (PCI:0000:01:00): 95
[  104.000000] NVRM: Xid (PCI:0000:01:00): 99999
NVRM: Xid (PCI:0000:01:00): 95
"""


def test_xids_are_read_once_for_each_code_since_the_last_reset():
    found = xids(MemoryTree({"drydock-tools/kernel-log.out": LOG, "drydock-tools/kernel-log.status": "0"}))
    assert found == {
        "0000:01:00.0": (
            LoggedError(code="xid 13", at=100.25, count=2), LoggedError(code="xid 94", at=101.5, part="mig-5"),
        ),
        "0000:02:00.0": (LoggedError(code="xid 48", at=102.0),),
    }  # fmt: skip


def test_a_gpu_has_its_xids_in_all_three_ways_also_if_nvidia_smi_fails():
    hand = Hand()
    hand.function(GPU, "10de:20b2", "030200", "nvidia")
    hand.tool("nvidia-smi", "Unable to determine the device handle for GPU: Unknown Error", "15")
    hand.tool("kernel-log", "[   60.100000] NVRM: Xid (PCI:0000:01:00): 79\n")
    (found,) = hand.scan().devices
    assert found.errors == (LoggedError(code="xid 79", at=60.1),)
    hand.tool("kernel-log", "", "77")
    found = hand.scan()
    assert found.devices[0].errors == ()
    assert [one.message for one in found.warnings if one.subject == "kernel-log"] == [
        "The kernel log could not be read, so Xid errors are not known. Reading it needs root."
    ]


DMESG = """#!/bin/sh
echo '[    1.000000] usb 1-1: new device'
echo '[   60.100000] NVRM: Xid (PCI:0000:01:00): 79, pid=4242, name=secret-job, GPU has fallen off the bus.'
echo '[   61.000000] drydock: reset of 0000:01:00.0 by alice'
"""


def test_the_tool_passes_on_the_codes_and_not_the_names_of_processes(tmp_path: Path, monkeypatch):
    """With a program that stands for dmesg."""
    (tmp_path / "dmesg").write_text(DMESG)
    (tmp_path / "dmesg").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert run(COMMAND) == ("", "0") or Path("/proc/driver/nvidia").exists(), "no NVIDIA driver, no log"
    everywhere = COMMAND[2].replace("[ -e /proc/driver/nvidia ] || exit 0", "")
    assert everywhere != COMMAND[2]
    assert run((*COMMAND[:2], everywhere)) == (
        "[   60.100000] NVRM: Xid (PCI:0000:01:00): 79\n[   61.000000] drydock: reset of 0000:01:00.0\n", "0",
    )  # fmt: skip
    (tmp_path / "dmesg").write_text("#!/bin/sh\necho 'dmesg: read kernel buffer failed' >&2\nexit 1\n")
    for name in ("sudo", "journalctl"):
        (tmp_path / name).write_text("#!/bin/sh\nexit 1\n")
        (tmp_path / name).chmod(0o755)
    assert run((*COMMAND[:2], everywhere)) == ("", "77")


def gpu_with(**changes: str):
    hand = Hand()
    hand.function(GPU, "10de:20b2", "030200", "nvidia")
    xml = gpu_xml()
    for old, new in changes.values():
        assert old in xml
        xml = xml.replace(old, new)
    hand.tool("nvidia-smi", xml)
    return hand.scan().devices[0]


def test_the_counters_of_a_gpu_are_sums_over_its_memories():
    volatile = "<volatile><dram_uncorrectable>0</dram_uncorrectable></volatile>"
    found = gpu_with(
        ecc=(volatile, "<volatile><dram_uncorrectable>2</dram_uncorrectable><sram_uncorrectable_parity>1"
             "</sram_uncorrectable_parity><dram_correctable>9</dram_correctable></volatile>"),
        rows=("<remapped_rows>", "<remapped_rows><remapped_row_corr>3</remapped_row_corr>"
              "<remapped_row_unc>1</remapped_row_unc>"),
    )  # fmt: skip
    assert found.counters == {"ecc_uncorrectable": 3, "ecc_correctable": 9, "remapped_rows": 4}
    assert (found.health, len(found.problems)) == (Health.DEGRADED, 2)
    assert found.identities["uuid"] == GPU_UUID


@pytest.mark.parametrize(
    ("action", "readiness", "said"),
    [
        ("None", "ready", "nvidia driver"), ("Reset", "reboot_required", "needs a reset."),
        ("Reboot", "reboot_required", "needs a reboot of the machine."), ("Drain P2P", "ready", "nvidia driver"),
    ],
)  # fmt: skip
def test_the_recovery_action_of_new_drivers_decides_the_readiness(action, readiness, said):
    found = gpu_with(action=("<processes>", f"<gpu_recovery_action>{action}</gpu_recovery_action><processes>"))
    assert (found.readiness, found.attributes["recovery_action"]) == (readiness, action.lower())
    assert said in found.reason


def test_an_exceeded_threshold_of_the_sram_degrades_a_gpu():
    found = gpu_with(sram=("</ecc_errors>", "<aggregate><sram_threshold_exceeded>Yes</sram_threshold_exceeded>"
                           "</aggregate></ecc_errors>"))  # fmt: skip
    assert (found.readiness, found.health) == ("ready", Health.DEGRADED)
    assert "threshold" in found.problems[0]


def test_amd_gpus_count_errors_by_block_and_name_bad_pages():
    hand = Hand()
    pages = "0x00001000 : 0x00001000 : R\n0x00002000 : 0x00001000 : P\n0x00003000 : 0x00001000 : F\nhostile : P\n"
    hand.function(GPU, "1002:74a1", "120000", "amdgpu", ras__umc_err_count="ue: 0\nce: 9",
                  ras__gfx_err_count="ue: 2\nce: 0", ras__gpu_vram_bad_pages=pages)  # fmt: skip
    (found,) = hand.scan().devices
    assert found.counters == {"ras_umc_correctable": 9, "ras_gfx_uncorrectable": 2}
    assert found.health is Health.DEGRADED
    assert found.problems == (
        "2 uncorrectable errors in gfx.", "1 bad memory pages wait to be taken out of use.",
        "1 bad memory pages could not be taken out of use. The GPU has to be reset.",
    )  # fmt: skip


def disk(smart: str | None, status: str = "0", state: str = "live"):
    hand = Hand()
    folder = hand.function("0000:04:00.0", "144d:a80a", "010802", "nvme")
    hand.files[f"{folder}/nvme/nvme0/state"] = state
    if smart is not None:
        hand.tool("nvme-smart", smart, status)
    found = hand.scan()
    return found.devices[0], [one.message for one in found.warnings]


HEALTHY = {"critical_warning": 0, "temperature": 310, "avail_spare": 100, "spare_thresh": 10, "percent_used": 3,
           "media_errors": 0}  # fmt: skip


@pytest.mark.parametrize(
    ("changes", "health", "said"),
    [
        ({}, "ok", ""), ({"critical_warning": 4}, "failed", "no longer reliable"),
        ({"critical_warning": {"value": 8, "read_only": 1}}, "failed", "read-only"),
        ({"critical_warning": 2}, "degraded", "temperature"), ({"critical_warning": 1}, "degraded", "spare"),
        ({"avail_spare": 9}, "degraded", "spare"), ({"percent_used": 104}, "degraded", "104 % of its rated life"),
        ({"media_errors": "12"}, "ok", ""), ({"critical_warning": True, "percent_used": None}, "ok", ""),
    ],
)  # fmt: skip
def test_the_health_log_of_a_disk_decides_its_health(changes, health, said):
    found, warnings = disk(f"= nvme0\n{json.dumps(HEALTHY | changes, indent=1)}\n")
    assert (found.health, found.readiness, warnings) == (health, "ready", [])
    assert bool(found.problems) == (health != "ok")
    assert said in " ".join(found.problems)
    assert found.counters == ({"media_errors": 12} if "media_errors" in changes else {})
    assert found.attributes["spare_percent"] == changes.get("avail_spare", 100)


def test_a_health_log_that_is_missing_or_malformed_changes_nothing():
    assert disk(None)[0].health is Health.OK
    assert disk("", "77") == (disk(None)[0], ["nvme smart-log gave no report on a disk (exit code 77). It needs root."])
    for text in ("= nvme0\n{", "= nvme0\n[1]\n"):
        found, (message,) = disk(text)
        assert (found.health, "malformed" in message) == (Health.OK, True)
    assert disk(f"= nvme7\n{json.dumps(HEALTHY | {'critical_warning': 4})}")[0].health is Health.OK
    assert disk(f"= nvme0\n{json.dumps(HEALTHY)}", state="dead")[0].health is Health.FAILED


def test_a_number_that_no_report_can_have_is_not_reported():
    assert disk(f"= nvme0\n{json.dumps(HEALTHY | {'media_errors': '9' * 19})}")[0].counters == {}
    hand = Hand()
    folder = hand.function("0000:04:00.0", "144d:a80a", "010802", "nvme")
    hand.files[f"{folder}/numa_node"] = f"{2**64 - 1}\n"
    hand.files[f"{folder}/aer_dev_fatal"] = f"TOTAL_ERR_FATAL {2**63}\n"
    found = hand.scan()
    assert (found.devices[0].numa_node, found.devices[0].counters) == (None, {})
    assert Hardware.from_json(found.to_json()) == found


def test_the_boot_of_the_host_is_known():
    hand = Hand()
    hand.files["proc/sys/kernel/random/boot_id"] = "5b1e9f8a-7a35-4a56-9a36-3a0a7dd1c1f2\n"
    assert hand.scan().host.attributes["boot_id"] == "5b1e9f8a-7a35-4a56-9a36-3a0a7dd1c1f2"


def test_the_tool_for_disks_is_a_valid_shell_script():
    for argv in (COMMAND, *Nvme.tools.values()):
        assert subprocess.run(["sh", "-n"], input=argv[2], text=True, capture_output=True).stderr == ""
