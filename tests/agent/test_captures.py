"""Real machines: every function and every trap of the captures, in the three ways of reading."""

from __future__ import annotations

import json
import subprocess

import pytest

from drydock_agent import FolderTree, Hardware, MemoryTree, parse_fetched, scan, script
from drydock_agent.facts import Readiness
from tests import peers
from tests.agent import captured

pytestmark = captured.needed

TWO_PA, PHI = "2pa-pcidomain32bits", "32em64t-2n8c+dax+nvme+mic+dimms"
LAPTOP, P100, QEMU = "linux-amd64-415ee03b8c4d1c4f07ae2e9d8b3d3d6d", "linux-amd64-accel-nvidia", "linux-amd64-accel"


@pytest.fixture
def found(capture, drivers):
    return lambda name: scan(FolderTree(str(capture(name))), drivers=drivers, traits=["captured"])


def bare(text: str | None) -> str:
    return (text or "").removeprefix("0x")


@pytest.mark.parametrize("name", captured.names())
def test_every_function_is_as_expected(name, found):
    facts, hardware = captured.expected()["sysfs"][name], found(name)
    assert hardware.traits == ("captured",)
    assert [one.id for one in hardware.devices if "/" not in one.id] == [one["address"] for one in facts["functions"]]
    for one in facts["functions"]:
        device = hardware.device(one["address"])
        assert (device.kind, device.pci_class) == (one["kind"], bare(one["class"]))
        assert (device.vendor_id, device.device_id) == (bare(one["vendor"]), bare(one["device"]))
        assert device.subsystem_vendor_id == bare(one["subsystem_vendor"])
        assert device.subsystem_device_id == bare(one["subsystem_device"])
        assert (device.revision, device.driver) == (bare(one["revision"]), one["driver"] or "")
        assert (device.numa_node, device.local_cpus) == (
            None if one["numa_node"] == -1 else one["numa_node"], one["local_cpulist"]
        )  # fmt: skip
        assert device.iommu_group == (None if one["iommu_group"] is None else int(one["iommu_group"]))
        assert (device.total_vfs, list(device.vfs), device.parent) == (
            one["sriov_totalvfs"], one["virtfns"], one["parent"] or ""
        )  # fmt: skip
        assert device.part_of == (one["physfn"] or "")
        assert device.readiness is not None
        assert device.reason.endswith(".")


@pytest.mark.parametrize("name", captured.names())
def test_accelerators_have_their_roles_and_only_whole_devices_are_candidates(name, found):
    facts, hardware = captured.expected()["sysfs"][name], found(name)
    assert [one.id for one in hardware.devices if one.role == "lease_candidate"] == facts["lease_candidates"]
    for one in facts["accelerators"]:
        device = hardware.device(one["address"])
        assert device.role == one["role"], one["what"]
        assert (device.readiness is Readiness.SETUP_REQUIRED) == one["setup_required"]
    roles = {one["address"] for one in facts["accelerators"]}
    assert {one.id for one in hardware.devices if one.role and one.role != "part"} == roles
    assert not hardware.warnings


@pytest.mark.parametrize("name", captured.names())
def test_a_folder_and_the_output_of_the_script_give_equal_facts(name, capture, drivers, found):
    root = str(capture(name))
    run = subprocess.run(
        ["sh", "-s", root], input=script(drivers), capture_output=True, text=True, timeout=60, check=True
    )
    assert run.stderr == ""
    assert scan(parse_fetched(run.stdout), drivers=drivers, traits=["captured"]) == found(name)


@pytest.mark.parametrize("name", captured.names())
def test_the_json_form_gives_the_same_facts_and_is_the_same_at_every_scan(name, found):
    text = json.dumps(found(name).to_json())
    assert Hardware.from_json(json.loads(text)) == found(name)
    assert json.dumps(found(name).to_json()) == text


@pytest.mark.parametrize("name", captured.names())
def test_lspci_agrees(name, capture, found):
    root = capture(name)
    run = subprocess.run(
        [peers.require("lspci"), "-A", "linux-sysfs", "-O", f"sysfs.path={root}/sys/bus/pci", "-Dnvmm"],
        capture_output=True, text=True, timeout=60, check=True,
    )  # fmt: skip
    listed = {}
    for block in run.stdout.strip().split("\n\n"):
        fields = dict(line.split(":\t", 1) for line in block.splitlines())
        listed[fields["Slot"]] = (fields["Class"], fields["Vendor"], fields["Device"])
    devices = [one for one in found(name).devices if "/" not in one.id]
    assert listed == {one.id: (one.pci_class[:4], one.vendor_id, one.device_id) for one in devices}


def test_trap_a_domain_of_five_digits_is_kept_and_sorted_by_number(found):
    devices = found(TWO_PA).devices
    assert devices[-1].id == "10000:00:04.0"
    assert not [one for one in devices if one.role == "lease_candidate"]
    assert found(TWO_PA).device("0000:00:02.0").role == "display_only"


def test_trap_driver_links_dangle(found, capture):
    assert not (capture(TWO_PA) / "sys/bus/pci/devices/0000:00:03.0/driver").exists()
    assert found(TWO_PA).device("0000:00:03.0").driver == "virtio-pci"


def test_trap_infiniband_of_class_0280_is_no_wifi(found):
    device = found(PHI).device("0000:82:00.0")
    assert (device.pci_class, device.kind, device.driver) == ("028000", "infiniband", "mlx4_core")


def test_trap_uncore_devices_of_the_processor_are_no_accelerators(found):
    uncore = [one for one in found(PHI).devices if one.pci_class[:4] in ("0880", "1101")]
    assert len(uncore) == 112
    assert {(one.kind, one.role, one.readiness) for one in uncore} == {("other", "", Readiness.UNSUPPORTED)}


def test_trap_the_screen_of_the_bmc_is_listed_and_not_a_candidate(found):
    device = found(PHI).device("0000:05:00.0")
    assert (device.role, device.readiness) == ("display_only", Readiness.SETUP_REQUIRED)


def test_trap_links_to_iommu_groups_dangle_and_groups_have_all_their_members(found):
    devices = [one for one in found(LAPTOP).devices if one.iommu_group is not None]
    assert len(devices) == 23
    shared = {one.iommu_group for one in devices if len(one.iommu_members) > 1}
    assert shared == {8, 9, 11, 12, 13}
    for one in devices:
        members = tuple(other.id for other in devices if other.iommu_group == one.iommu_group)
        assert one.iommu_members == members


def test_trap_graphics_inside_the_processor_is_not_a_candidate(found):
    assert found(LAPTOP).device("0000:00:02.0").role == "integrated_gpu"


def test_trap_a_gpu_of_class_0302_is_found_beside_a_virtual_screen(found):
    hardware = found(P100)
    assert (hardware.device("0000:06:00.0").device_class, hardware.device("0000:06:00.0").role) == (
        "gpu",
        "lease_candidate",
    )
    assert hardware.device("0000:04:00.0").role == "display_only"


def test_trap_without_iommu_groups_there_are_no_members(found):
    assert {(one.iommu_group, one.iommu_members) for one in found(P100).devices} == {(None, ())}


def test_trap_a_base_class_of_zeros_is_read(found):
    assert [one.pci_class for one in found(P100).devices].count("000200") == 2


def test_trap_an_accelerator_of_unknown_id_is_found_by_its_class(found):
    device = found(QEMU).device("0000:00:04.0")
    assert (device.kind, device.driver, device.role) == ("accelerator", "fake_pci_driver", "lease_candidate")
    assert device.readiness is Readiness.READY


@pytest.mark.parametrize("name", captured.names("nvidia_smi"))
def test_every_gpu_of_nvidia_smi_is_as_expected(name, drivers):
    facts = captured.expected()["nvidia_smi"][name]
    text = (captured.CAPTURES / facts["file"]).read_text()
    hardware = scan(MemoryTree({"drydock-tools/nvidia-smi.out": text}), drivers=drivers)
    assert len(hardware.devices) == facts["gpu_elements"]
    for one in facts["gpus"]:
        device = hardware.device(one["sysfs_address"])
        assert (device.name, device.device_class) == (one["product_name"], "gpu")
        assert device.attributes["architecture"] == one["architecture"]
        assert device.device_id == bare(one["device"])
        subsystem = f"0x{device.subsystem_vendor_id}:0x{device.subsystem_device_id}"
        assert subsystem == (one["subsystem"] or "0x:0x")
        assert (device.memory_mib, device.attributes["memory_used_mib"]) == (
            one["memory_total_MiB"], one["memory_used_MiB"]
        )  # fmt: skip
        assert device.attributes.get("mig") == one["mig_mode_current"]
        assert device.attributes.get("ecc") == one["ecc_current"]
        assert device.attributes["compute_processes"] == len(one["compute_processes"])
        assert device.attributes["graphics_processes"] == one["graphics_processes"]
        assert device.attributes["compute_mode"] == one["compute_mode"]
        assert device.firmware["vbios"] == one["vbios"]
        assert device.firmware["driver"] == facts["driver_version"]
        assert device.nodes == (f"/dev/nvidia{one['minor_number']}",)
        assert device.link.max_width == one["pcie_max_width"]
        assert (device.readiness, device.health) == (Readiness.READY, "ok")
        assert "serial" not in device.identities


def test_trap_a_made_up_uuid_identifies_nothing(drivers):
    def uuid(name: str) -> str | None:
        facts = captured.expected()["nvidia_smi"][name]
        text = (captured.CAPTURES / facts["file"]).read_text()
        (device,) = scan(MemoryTree({"drydock-tools/nvidia-smi.out": text}), drivers=drivers).devices
        return device.identities.get("uuid")

    assert uuid("rtx-3090-v12.xml") is None
    assert uuid("tesla-t4.xml") == "GPU-d37e67a5-91dd-3774-a5cb-99096249601a"
