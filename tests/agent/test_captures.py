"""Real machines: every function and every trap of the captures, in the three ways of reading."""

from __future__ import annotations

import json
import subprocess

import pytest

from drydock_agent import Device, FolderTree, Hardware, MemoryTree, parse_fetched, scan, script
from drydock_agent.facts import Readiness
from tests.agent import captured, test_families

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
    captured.assert_lspci_agrees(found(name).devices, "-A", "linux-sysfs", "-O", f"sysfs.path={root}/sys/bus/pci")


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


def smi(name: str, drivers) -> Device:
    """The only device of a captured nvidia-smi output."""
    facts = captured.expected()["nvidia_smi"][name]
    text = (captured.CAPTURES / facts["file"]).read_text()
    (device,) = scan(MemoryTree({"drydock-tools/nvidia-smi.out": text}), drivers=drivers).devices
    return device


def test_trap_a_virtual_machine_has_no_accelerators(found):
    hardware = found(TWO_PA)
    assert hardware.host.dmi["product_name"] == "CloudStack KVM Hypervisor"
    assert not [one for one in hardware.devices if one.role == "lease_candidate"]


def test_trap_parts_that_were_added_to_a_tree_are_read_like_others(found, capture):
    assert capture(PHI).name == "32em64t-2n8c+1mic"
    disk = found(PHI).device("0000:00:02.0")
    assert (disk.kind, disk.numa_node, disk.nodes) == ("nvme", None, ("/dev/nvme0n1",))


def test_trap_ids_that_were_removed_leave_the_name(drivers):
    a10g, rtx = smi("a10g.xml", drivers), smi("rtx-3090-v12.xml", drivers)
    assert (a10g.vendor_id, a10g.device_id, a10g.name) == ("10de", "", "NVIDIA A10G")
    assert (rtx.device_id, rtx.subsystem_vendor_id, rtx.name) == ("", "", "NVIDIA GeForce RTX 3090")
    assert not {"serial", "uuid"} & rtx.identities.keys()


def test_trap_a_screen_is_no_compute_process_and_a_compute_process_is(drivers):
    def processes(name: str) -> tuple[object, object]:
        attributes = smi(name, drivers).attributes
        return attributes["compute_processes"], attributes["graphics_processes"]

    assert processes("a10g.xml") == (0, 1)
    assert processes("rtx-3090-v12.xml") == (0, 0)
    assert processes("tesla-t4.xml") == (1, 1)


def test_trap_both_versions_of_the_document_are_read(drivers):
    for name, version in (("tesla-t4.xml", "v11"), ("rtx-3090-v12.xml", "v12")):
        assert version in captured.expected()["nvidia_smi"][name]["dtd"]
        assert smi(name, drivers).memory_mib == captured.expected()["nvidia_smi"][name]["gpus"][0]["memory_total_MiB"]


TRAPS = {
    "PCI domain 0x10000": test_trap_a_domain_of_five_digits_is_kept_and_sorted_by_number,
    "that address was probably edited": test_trap_a_domain_of_five_digits_is_kept_and_sorted_by_number,
    "virtual machine (CloudStack": test_trap_a_virtual_machine_has_no_accelerators,
    "driver links dangle": test_trap_driver_links_dangle,
    "ConnectX-3 is class 0280": test_trap_infiniband_of_class_0280_is_no_wifi,
    "/sys/class/infiniband also holds scif0": (
        test_families.test_trap_the_xeon_phi_and_its_infiniband_card_are_read_and_scif0_is_not_a_card
    ),
    "112 of the 137 functions": test_trap_uncore_devices_of_the_processor_are_no_accelerators,
    "pmem/dax devices were added": test_trap_parts_that_were_added_to_a_tree_are_read_like_others,
    "root directory in the archive": test_trap_parts_that_were_added_to_a_tree_are_read_like_others,
    "the BMC VGA": test_trap_the_screen_of_the_bmc_is_listed_and_not_a_candidate,
    "iommu_group links dangle": test_trap_links_to_iommu_groups_dangle_and_groups_have_all_their_members,
    "functions of one iommu_group": test_trap_links_to_iommu_groups_dangle_and_groups_have_all_their_members,
    "the GPU 0000:00:02.0 is integrated": test_trap_graphics_inside_the_processor_is_not_a_candidate,
    "GPU has class 0302": test_trap_a_gpu_of_class_0302_is_found_beside_a_virtual_screen,
    "no iommu_group files": test_trap_without_iommu_groups_there_are_no_members,
    "device class 0x000200": test_trap_a_base_class_of_zeros_is_read,
    "class 1200 device": test_trap_an_accelerator_of_unknown_id_is_found_by_its_class,
    "VGA 1af4:1050": test_accelerators_have_their_roles_and_only_whole_devices_are_candidates,
    "pci_device_id is zeroed": test_trap_ids_that_were_removed_leave_the_name,
    "Xorg graphics process only": test_trap_a_screen_is_no_compute_process_and_a_compute_process_is,
    "pass-through GPU of a cloud VM": test_every_gpu_of_nvidia_smi_is_as_expected,
    "pci ids are the text [REDACTED]": test_trap_ids_that_were_removed_leave_the_name,
    "no processes: free": test_trap_a_screen_is_no_compute_process_and_a_compute_process_is,
    "v11 document": test_trap_both_versions_of_the_document_are_read,
    "one compute process": test_trap_a_screen_is_no_compute_process_and_a_compute_process_is,
    "the text ends in a stray block": test_families.test_trap_proc_crypto_has_a_stray_block_and_no_hardware,
    "one name can have several drivers": test_families.test_trap_proc_crypto_has_a_stray_block_and_no_hardware,
    "no hardware engine is among": test_families.test_trap_proc_crypto_has_a_stray_block_and_no_hardware,
    "procfs/crypto_corrupted": test_families.test_trap_proc_crypto_has_a_stray_block_and_no_hardware,
}
"""The test of each trap, by the beginning of its description."""


def test_every_trap_of_the_captures_has_a_test():
    facts = captured.expected()
    sections = [*facts["sysfs"].values(), *facts["nvidia_smi"].values(), facts["procfs"]]
    traps = {trap for section in sections for trap in section["traps"]}
    assert not [trap for trap in traps if not trap.startswith(tuple(TRAPS))]
    assert not [begin for begin in TRAPS if not any(trap.startswith(begin) for trap in traps)]
