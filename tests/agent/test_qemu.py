"""A physical function with VFs: the tree of an emulated machine, compared with what QEMU was told (see qemu.py)."""

from __future__ import annotations

import subprocess
import tarfile
from pathlib import Path

import pytest

from blueprints.accelerators.kind import Accelerators
from blueprints.reports import Report
from drydock_agent import FolderTree, Hardware, parse_fetched, scan, script
from drydock_agent.facts import Readiness
from tests.agent import captured, qemu

PF, PORT = f"0000:{qemu.FAR_BUS + 1:02x}:00.0", f"0000:{qemu.FAR_BUS:02x}:00.0"
VFS = tuple(f"{PF[:-1]}{n}" for n in range(1, qemu.ENABLED_VFS + 1))
PLAIN, SWITCH = "0000:03:00.0", ["0000:00:02.0", "0000:01:00.0", "0000:02:00.0"]


@pytest.fixture(scope="module")
def root(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("qemu")
    with tarfile.open(qemu.TREE) as archive:
        captured.extract(archive, folder)
    return folder


@pytest.fixture(scope="module")
def found(root, drivers) -> Hardware:
    return scan(FolderTree(str(root)), drivers=drivers)


def test_the_physical_function_names_its_vfs_and_how_many_there_can_be(found):
    device = found.device(PF)
    assert (device.total_vfs, device.attributes["enabled_vfs"]) == (qemu.TOTAL_VFS, qemu.ENABLED_VFS)
    assert (device.vfs, device.part_of) == (VFS, "")
    assert (device.device_class, device.driver, device.readiness) == ("nvme", "nvme", Readiness.READY)
    assert device.identities["serial"] == qemu.SERIAL
    assert device.attributes["size_mib"] == qemu.DISK_MIB


def test_a_vf_is_part_of_its_function_and_never_a_whole_device(found):
    assert [one.id for one in found.devices if one.part_of] == list(VFS)
    for one in VFS:
        device = found.device(one)
        assert (device.part_of, device.role, device.device_class) == (PF, "part", "vf")
        assert (device.total_vfs, device.vfs) == (None, ())
    whole = [one.id for one in found.devices if one.kind == "nvme" and one.role != "part"]
    assert whole == [PLAIN, PF]


def test_a_vf_without_a_driver_is_refused_as_a_part_of_its_function(found):
    kind = Accelerators()
    made = kind.drafts_from(kind.Config(), Report(place="7", content=found.to_json()))
    assert {one.identity: one.part_of for one in made} == {f"7/{PLAIN}": "", f"7/{PF}": ""} | {
        f"7/{vf}": f"7/{PF}" for vf in VFS
    }
    assert {one.identity for one in made if not one.refused} == {f"7/{PLAIN}", f"7/{PF}"}
    assert all("No kernel driver" in one.refused for one in made if one.part_of)


def test_numa_nodes_are_those_of_the_machine(found):
    nodes = found.host.numa_nodes
    assert [(one.node, one.cpus, one.distances) for one in nodes] == [
        (n, qemu.CPUS[n], qemu.DISTANCES[n]) for n in range(len(qemu.CPUS))
    ]
    # The kernel keeps some of the memory to itself.
    assert all(0.7 * size < one.memory_mib <= size for one, size in zip(nodes, qemu.MEMORY_MIB, strict=True))
    assert {found.device(one).numa_node for one in (PORT, PF, *VFS)} == {1}
    assert {found.device(one).local_cpus for one in (PF, *VFS)} == {qemu.CPUS[1]}
    assert found.device(PLAIN).numa_node is None, "QEMU says no node for what is below pcie.0"


def test_bridges_and_root_buses_are_those_of_the_machine(found):
    assert {(found.device(one).parent, found.device(one).root) for one in (PF, *VFS)} == {
        (PORT, f"pci0000:{qemu.FAR_BUS:02x}")
    }
    above, one = [], PLAIN
    while one := found.device(one).parent:
        above.insert(0, one)
    assert above == SWITCH
    assert found.device(PLAIN).root == "pci0000:00"


def test_an_iommu_separates_a_function_from_its_vfs_and_not_what_is_below_a_switch(found, root):
    assert found.host.attributes["iommu"] is True
    groups = [found.device(one).iommu_group for one in (PF, *VFS)]
    assert None not in groups
    assert len(set(groups)) == 1 + qemu.ENABLED_VFS
    assert [found.device(one).iommu_members for one in VFS] == [(one,) for one in VFS]
    assert found.device(PLAIN).iommu_members == (SWITCH[-1], PLAIN)
    for one in found.devices:
        folder = root / f"sys/kernel/iommu_groups/{one.iommu_group}/devices"
        assert one.iommu_members == tuple(sorted(path.name for path in folder.iterdir()))


def test_links_have_the_speeds_and_widths_of_the_machine(found):
    port, disk = found.device(PORT).link, found.device(PF).link
    assert (port.max_speed, port.max_width) == (qemu.PORT_SPEED, qemu.PORT_WIDTH)
    assert (disk.speed, disk.width, disk.max_speed, disk.max_width) == (2.5, 1, 2.5, 1), "all that QEMU's disk can"
    assert not found.device(PF).problems, "it is as wide as it can be, although its port is wider"


def test_a_folder_and_the_output_of_the_script_give_equal_facts(root, drivers, found):
    run = subprocess.run(
        ["sh", "-s", str(root)], input=script(drivers), capture_output=True, text=True, timeout=60, check=True
    )
    assert scan(parse_fetched(run.stdout), drivers=drivers) == found
    assert not found.warnings


def test_the_archive_of_a_tree_has_the_same_facts_and_always_the_same_bytes(root, drivers, found, tmp_path):
    content = qemu.packed(FolderTree(str(root)))
    assert content == qemu.packed(FolderTree(str(root)))
    (tmp_path / "again.tar.xz").write_bytes(content)
    with tarfile.open(tmp_path / "again.tar.xz") as archive:
        captured.extract(archive, tmp_path / "again")
    assert scan(FolderTree(str(tmp_path / "again")), drivers=drivers) == found
