"""NVIDIA GPUs in states that no capture has. The reports are hand-written after those of real machines."""

from __future__ import annotations

import json
import sys
import types

import pytest

from drydock_agent import nvml, tools
from drydock_agent.facts import Health, Readiness
from drydock_agent.tree import TOOLS
from drydock_agent.xml import BadXml, parse
from tests.agent.hand import GPU_UUID, SLICE_XML, Hand, gpu, gpu_xml


def only(hardware):
    return hardware.device("0000:01:00.0")


def test_slices_are_parts_and_have_profile_and_uuid_of_the_list():
    hand = Hand()
    hand.function("0000:01:00.0", "10de:20b2", "030200", "nvidia")
    slices = SLICE_XML.format(n=0, gi=3) + SLICE_XML.format(n=1, gi=4)
    hand.tool("nvidia-smi", gpu_xml(mig="Enabled", pending_mig="Enabled", slices=slices))
    hand.tool("nvidia-smi-list", f"GPU 0: NVIDIA A100-SXM4-80GB (UUID: {GPU_UUID})\n"
              "  MIG 2g.20gb     Device  0: (UUID: MIG-41b3359c-e721-56e5-8009-12e5797ed514)\n"
              "  MIG 2g.20gb     Device  1: (UUID: MIG-65b79fff-6d3c-5490-a288-b31ec705f310)\n")  # fmt: skip
    whole, first, second = hand.scan().devices
    assert (whole.id, whole.role, whole.attributes["mig"]) == ("0000:01:00.0", "lease_candidate", "Enabled")
    assert [one.id for one in (first, second)] == ["0000:01:00.0/mig-3-0", "0000:01:00.0/mig-4-0"]
    assert (first.part_of, first.role, first.device_class) == (whole.id, "part", "gpu_slice")
    assert (first.memory_mib, first.attributes["mig_profile"], first.readiness) == (19968, "2g.20gb", "ready")
    assert second.identities == {"uuid": "MIG-65b79fff-6d3c-5490-a288-b31ec705f310"}


@pytest.mark.parametrize(
    ("changes", "readiness", "health", "said"),
    [
        ({}, "ready", "ok", "nvidia driver"),
        ({"remap": "Yes"}, "reboot_required", "degraded", "waits to be remapped"),
        ({"failure": "Yes"}, "unsupported", "failed", "could not be remapped"),
        ({"reset": "Yes"}, "reboot_required", "ok", "has to be reset"),
        ({"mig": "Disabled", "pending_mig": "Enabled"}, "reboot_required", "ok", "MIG mode is Disabled"),
        ({"ecc": "3"}, "ready", "degraded", "nvidia driver"),
    ],
)
def test_the_state_of_a_gpu_decides_its_readiness(changes, readiness, health, said):
    device = only(gpu(output=gpu_xml(**changes)))
    assert (device.readiness, device.health) == (readiness, health)
    assert said in device.reason
    assert bool(device.problems) == (health != "ok")


def test_the_kernel_driver_decides_whether_setup_is_needed():
    assert only(gpu("")).readiness is Readiness.SETUP_REQUIRED
    assert "nouveau" in only(gpu("nouveau")).reason
    held = only(gpu("vfio-pci", gpu_xml(address="00000000:09:00.0")))
    assert (held.readiness, held.attributes["pass_through"]) == ("ready", True)


def test_a_gpu_that_nvidia_smi_lacks_while_it_lists_others_is_lost():
    hand = Hand()
    hand.function("0000:01:00.0", "10de:20b2", "030200", "nvidia")
    hand.function("0000:02:00.0", "10de:20b2", "030200", "nvidia")
    hand.tool("nvidia-smi", gpu_xml(address="00000000:02:00.0"))
    hardware = hand.scan()
    assert hardware.device("0000:02:00.0").readiness is Readiness.READY
    assert (only(hardware).readiness, only(hardware).health) == (Readiness.REBOOT_REQUIRED, Health.FAILED)


def test_a_warning_before_the_report_is_tolerated():
    text = "WARNING: infoROM is corrupted at gpu 0000:01:00.0\n" + gpu_xml()
    assert only(gpu(output=text)).readiness is Readiness.READY


def test_nvidia_smi_that_fails_hangs_or_is_cut_off_says_so_with_its_scope():
    failed = gpu(output="NVIDIA-SMI has failed because it couldn't communicate with the NVIDIA driver.", status="9")
    assert only(failed).readiness is Readiness.SETUP_REQUIRED
    assert "exit code 9" in only(failed).reason
    assert "couldn't communicate" in only(failed).reason
    assert [one.subject for one in failed.warnings] == ["nvidia-smi"]
    hanging = gpu(output="", status="timeout")
    assert "did not respond in time" in only(hanging).reason
    cut = gpu(output=gpu_xml()[:700])
    assert "truncated" in cut.warnings[0].message
    assert only(cut).readiness is Readiness.SETUP_REQUIRED


PROCESS = """<process_info><gpu_instance_id>N/A</gpu_instance_id><pid>{pid}</pid><type>{type}</type>
<process_name>{name}</process_name><used_memory>100 MiB</used_memory></process_info>"""


@pytest.mark.parametrize("name", ["a < b && c", "]]>", "<!DOCTYPE x>", "</process_name>", "<!-- "])
def test_the_name_of_a_process_cannot_break_the_report(name):
    processes = PROCESS.format(pid=1, type="C", name=name) + PROCESS.format(pid=2, type="M+C", name="/usr/bin/other")
    found = only(gpu(output=gpu_xml(processes=processes)))
    assert (found.readiness, found.health, found.problems) == (Readiness.READY, Health.OK, ())
    assert found.attributes["compute_processes"] == 2


def test_the_name_of_a_process_cannot_add_facts_to_its_gpu():
    name = ("</process_name></process_info></processes><retired_pages><pending_retirement>Yes</pending_retirement>"
            "</retired_pages><remapped_rows><remapped_row_failure>Yes</remapped_row_failure></remapped_rows><processes>"
            "<process_info><process_name>")  # fmt: skip
    found = only(gpu(output=gpu_xml(processes=PROCESS.format(pid=1, type="C", name=name))))
    assert (found.readiness, found.health, found.problems) == (Readiness.READY, Health.OK, ())


def test_a_report_to_which_the_name_of_a_process_adds_a_gpu_is_not_used():
    broken = gpu_xml(address="00000000:02:00.0", failure="Yes").partition("<gpu ")[2].partition("</gpu>")[0]
    name = f"</process_name></process_info></processes></gpu><gpu {broken}</gpu><gpu><processes><process_info>"
    hand = Hand()
    for address in ("0000:01:00.0", "0000:02:00.0"):
        hand.function(address, "10de:20b2", "030200", "nvidia")
    first, second = gpu_xml(processes=PROCESS.format(pid=1, type="C", name=name)), gpu_xml(address="00000000:02:00.0")
    both = first.replace("</nvidia_smi_log>", "<gpu " + second.partition("<gpu ")[2]).replace(
        "<attached_gpus>1", "<attached_gpus>2"
    )
    hand.tool("nvidia-smi", both)
    found = hand.scan()
    assert [one.health for one in found.devices] == [None, None]
    assert [one.readiness for one in found.devices] == [Readiness.READY, Readiness.READY]
    assert "only 2 are attached" in found.warnings[0].message


@pytest.mark.parametrize(
    "declaration",
    [
        '<!DOCTYPE nvidia_smi_log [<!ENTITY a "b">]>',
        '<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd" [<!ENTITY % a SYSTEM "file:///etc/passwd"> %a;]>',
        '<!DOCTYPE x SYSTEM "nvsmi_device_v12.dtd"><!DOCTYPE nvidia_smi_log [<!ENTITY a SYSTEM "file:///etc/passwd">]>',
        '<!DOCTYPE nvidia_smi_log PUBLIC "a" "http://127.0.0.1/x.dtd">',
        # Billion laughs.
        '<!DOCTYPE nvidia_smi_log [<!ENTITY z "lol">'
        + "".join(f'<!ENTITY {a} "{f"&{b};" * 10}">' for a, b in zip("abcdefghi", "zabcdefgh", strict=True))
        + "]>",
    ],
)
def test_entities_and_other_declarations_are_refused(declaration):
    text = f"<?xml version='1.0'?>{declaration}<nvidia_smi_log><driver_version>&a;</driver_version></nvidia_smi_log>"
    with pytest.raises(BadXml, match="declarations"):
        parse(text, "nvidia_smi_log")
    hardware = gpu(output=text)
    assert "declarations" in hardware.warnings[0].message
    assert only(hardware).driver == "nvidia"


@pytest.mark.parametrize("text", ["", "<", "<nvidia_smi_log>", "<nvidia_smi_log/>x",
                                  "<nvidia_smi_log>&x;</nvidia_smi_log>",
                                  "<nvidia_smi_log>" * 5000, "<nvidia_smi_logger/>"])  # fmt: skip
def test_malformed_documents_are_refused_with_a_reason(text):
    with pytest.raises(BadXml):
        parse(text, "nvidia_smi_log")


def test_serials_that_two_gpus_share_and_placeholders_identify_nothing():
    hand = Hand()
    for bus in ("01", "02"):
        hand.function(f"0000:{bus}:00.0", "10de:20b2", "030200", "nvidia")
    both = "".join(
        part.split("</attached_gpus>")[1].split("</nvidia_smi_log>")[0]
        for part in (gpu_xml(), gpu_xml(address="00000000:02:00.0", uuid="N/A"))
    )
    hand.tool("nvidia-smi", f"<nvidia_smi_log>{both}</nvidia_smi_log>")
    hardware = hand.scan()
    assert [one.identities for one in hardware.devices] == [{"uuid": GPU_UUID}, {}]
    assert "serial 1650522003820" in [one.subject for one in hardware.warnings]


def test_vgpu_types_are_listed():
    hand = Hand()
    types_folder = "mdev_supported_types__nvidia-231__"
    hand.function("0000:01:00.0", "10de:1eb8", "030200", "nvidia",
                  **{f"{types_folder}name": "GRID T4-4C", f"{types_folder}available_instances": "4"})  # fmt: skip
    assert only(hand.scan()).attributes["vgpu_types"] == ("nvidia-231 GRID T4-4C (4 free)",)


def stand_in_for_nvml(*, works: bool = True) -> types.SimpleNamespace:
    """Stand in for pynvml with one GPU: there is no GPU here."""

    class NVMLError(Exception):
        pass

    def fail(*_):
        raise NVMLError("Driver Not Loaded")

    values = {
        "Count": 1, "HandleByIndex": object(), "Name": b"NVIDIA A100", "UUID": GPU_UUID, "Serial": "1650522003820",
        "MinorNumber": 0, "PciInfo": types.SimpleNamespace(busId="00000000:01:00.0"), "CudaComputeCapability": (8, 0),
        "MemoryInfo": types.SimpleNamespace(total=80 << 30), "MigMode": (0, 0), "ComputeRunningProcesses": [],
        "RemappedRows": (0, 0, 1, 0),
    }  # fmt: skip
    made = {f"nvmlDeviceGet{name}": (lambda *_, value=value: value) for name, value in values.items()}
    made |= {"NVMLError": NVMLError, "nvmlInit": (lambda: None) if works else fail, "nvmlShutdown": lambda: None,
             "nvmlDeviceGetEccMode": fail, "nvmlSystemGetDriverVersion": lambda: "535.54.03"}  # fmt: skip
    return types.SimpleNamespace(**made)


def test_nvml_gives_the_facts_where_nvidia_smi_is_missing():
    hand = Hand()
    hand.function("0000:01:00.0", "10de:20b2", "030200", "nvidia")
    hand.tool("nvml", json.dumps(nvml.report(stand_in_for_nvml())))
    device = only(hand.scan())
    assert (device.name, device.memory_mib, device.identities["uuid"]) == ("NVIDIA A100", 81920, GPU_UUID)
    assert (device.attributes["compute_capability"], device.attributes["compute_processes"]) == ("8.0", 0)
    assert device.readiness is Readiness.REBOOT_REQUIRED
    hand.tool("nvml", json.dumps(nvml.report(stand_in_for_nvml(works=False))))
    assert "Driver Not Loaded" in only(hand.scan()).reason
    hand.tool("nvml", "Traceback", "1")
    assert only(hand.scan()).readiness is Readiness.SETUP_REQUIRED


def test_a_tool_that_hangs_is_stopped_with_everything_it_started(tmp_path):
    code = "import subprocess, sys, time; subprocess.Popen(['sleep', '77']); print('begun', flush=True); time.sleep(77)"
    text, status = tools.run((sys.executable, "-c", code), seconds=1.0)
    assert (text, status) == ("begun\n", "timeout")
    found = tools.collect({"x": ("sh", "-c", "echo out; echo err >&2; exit 3"), "y": ("no-such-tool",)})
    assert found == {f"{TOOLS}/x.out": "out\n", f"{TOOLS}/x.status": "3"}
    text, status = tools.run(("sh", "-c", "yes"))
    assert (len(text), status) == (tools.BYTES, tools.TOO_LONG)
