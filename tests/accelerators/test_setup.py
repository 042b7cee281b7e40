"""The act `setup` and declared numbers of VFs, with a program that stands for the kernel (`fake_sysfs`)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from blueprints.accelerators import drafts
from blueprints.accelerators.host import hardware_of
from blueprints.accelerators.kind import Accelerators
from blueprints.answers import Failed, Ready
from blueprints.specs import BlueprintView, Draft, HostView
from drydock.demo import captured
from interfaces.endpoints import LocalEndpoint
from interfaces.transports import transport_to
from tests.accelerators import fake_sysfs as sysfs
from tests.accelerators.fake_sysfs import CARD, DISK, OTHER
from tests.blueprints import device_peers
from tests.blueprints import host_peers as peers
from tests.blueprints.device_peers import ip

KIND = Accelerators()
ROOT = LocalEndpoint(uid=0, gid=0, home="/")
HOST = HostView(id=7, name="rack-7", blueprint="racks", connect=lambda: transport_to(ROOT))


@pytest.fixture(autouse=True)
def _database() -> None:
    """Nothing here needs one."""


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    peers.needs_root()
    sysfs.write(tmp_path / "tree")
    return tmp_path / "tree"


@pytest.fixture
def kernel(tree: Path) -> Iterator[Path]:
    with sysfs.kernel(tree):
        yield tree


def found(tree: Path, **config: Any) -> dict[str, Draft]:
    """What the kind finds in the tree, by address."""
    read = KIND.Config.model_validate({"captured": str(tree), **config})
    return {one.facts["device"]["id"]: one for one in drafts.drafts(read, 7, hardware_of(read, HOST))}


def test_what_changes_while_a_device_is_used_is_not_in_the_report(tmp_path: Path) -> None:
    peers.needs_root()
    captured.write(tmp_path / "tree")
    config = KIND.Config.model_validate({"captured": str(tmp_path / "tree")})
    view = BlueprintView(
        id=1, name="gpus", kind="accelerators", generation=1, config=config, hosts=lambda _: [HOST]
    )  # fmt: skip
    before = KIND.read_report(view, "7", "")
    output = tmp_path / "tree/drydock-tools/nvidia-smi.out"
    output.write_text(output.read_text().replace("<used>2 MiB", "<used>9000 MiB"))
    assert hardware_of(config, HOST).device(captured.GPU).attributes["memory_used_mib"] == 9000
    assert KIND.read_report(view, "7", "").content == before.content


def spec(tree: Path, id: str, arguments: Any = None, **config: Any) -> Any:
    """What a step gets, as far as it reads it."""
    read = KIND.Config.model_validate({"captured": str(tree), "setup": ["*"], **config})
    draft = next(one for one in found(tree, setup=["*"]).values() if one.facts["device"]["id"] == id)
    resource = SimpleNamespace(
        name=f"nic {id}", facts=draft.facts, attributes=draft.attributes, host=lambda: HOST
    )  # fmt: skip
    return SimpleNamespace(phase="act", resource=resource, arguments=arguments, deadline=30.0, config=read)


def set_up(tree: Path, id: str, *, config: Any = None, **arguments: Any) -> Any:
    act = next(one for one in KIND.acts() if one.name == "setup")
    (step,) = act.plan()
    return step.act(spec(tree, id, act.Arguments.model_validate(arguments), **(config or {})), {})


def updated(tree: Path, id: str, **config: Any) -> Any:
    (step,) = KIND.update()
    return step.act(spec(tree, id, **config), {})


def test_a_driver_is_bound_and_the_device_becomes_ready(kernel: Path) -> None:
    sysfs.bind(kernel, CARD, "")
    waiting = found(kernel, setup=[CARD])[CARD]
    assert (waiting.capacity.slots, waiting.refused) == (0, ""), "known, so that the act can be run, but not leased"
    assert waiting.attributes["setup"] == "No kernel driver is bound to the device."
    assert found(kernel)[CARD].refused, "a device that the blueprint does not name stays unknown"
    answer = set_up(kernel, CARD)
    assert isinstance(answer, Ready), answer
    assert answer.rediscover
    assert sysfs.driver_of(kernel, CARD) == "ice"
    assert found(kernel, setup=[CARD])[CARD].capacity.slots == 1


def test_vfio_is_bound_by_override_and_given_up_again(kernel: Path) -> None:
    assert isinstance(set_up(kernel, CARD, driver="vfio-pci"), Ready)
    assert sysfs.driver_of(kernel, CARD) == "vfio-pci"
    assert found(kernel)[CARD].attributes["attach"] == "vfio"
    assert isinstance(set_up(kernel, CARD, driver="vfio-pci"), Ready), "a repeated step changes nothing"
    assert isinstance(set_up(kernel, CARD), Ready)
    assert sysfs.driver_of(kernel, CARD) == "ice", "the driver that the kernel chooses"
    assert isinstance(set_up(kernel, CARD, driver="none"), Ready)
    assert sysfs.driver_of(kernel, CARD) == ""


def test_only_whole_groups_are_bound_to_vfio(kernel: Path) -> None:
    group = kernel / "sys/kernel/iommu_groups/20/devices"
    bridge = sysfs.function(kernel, "0000:3a:00.0", "8086:347a", "060400", "", 20)
    sysfs.bind(kernel, bridge.name, "broken")  # a bridge is no obstacle, whatever its driver
    (group / OTHER).symlink_to(f"../../../../devices/pci0000:3a/{OTHER}")
    answer = set_up(kernel, CARD, driver="vfio-pci")
    assert isinstance(answer, Failed)
    assert f"{OTHER} is in the same IOMMU group and in use by ice" in answer.message
    assert sysfs.driver_of(kernel, CARD) == "ice"
    assert isinstance(set_up(kernel, OTHER, driver="none"), Ready)
    assert isinstance(set_up(kernel, CARD, driver="vfio-pci"), Ready)
    (kernel / "sys/bus/pci/devices" / OTHER / "iommu_group").unlink()
    answer = set_up(kernel, OTHER, driver="vfio-pci")
    assert isinstance(answer, Failed)
    assert f"The host has no IOMMU group for {OTHER}" in answer.message


def test_a_driver_that_does_not_take_the_device_is_undone(kernel: Path) -> None:
    answer = set_up(kernel, CARD, driver="broken")
    assert isinstance(answer, Failed)
    assert answer.message == f"The kernel does not bind broken to {CARD}."
    assert sysfs.driver_of(kernel, CARD) == "ice"
    assert (kernel / "sys/bus/pci/devices" / CARD / "driver_override").read_text().strip() == ""
    answer = set_up(kernel, CARD, driver="absent")
    assert isinstance(answer, Failed)
    assert "The host has no kernel driver absent" in answer.message
    assert sysfs.driver_of(kernel, CARD) == "ice"


def test_a_device_that_is_still_not_ready_gets_its_driver_back(kernel: Path) -> None:
    gpu = "0000:07:00.0"
    sysfs.DRIVERS["nouveau"] = ""
    folder = kernel / "sys/bus/pci/drivers/nouveau"
    folder.mkdir()
    (folder / "unbind").write_text("")
    sysfs.function(kernel, gpu, "10de:1eb8", "030200", "vfio-pci", 50)
    sysfs.bind(kernel, gpu, "nouveau")
    del sysfs.DRIVERS["nouveau"]
    answer = set_up(kernel, gpu)
    assert isinstance(answer, Failed)
    assert "still not ready: The kernel driver nouveau is bound" in answer.message
    assert sysfs.driver_of(kernel, gpu) == "nouveau"


@pytest.mark.parametrize(
    ("mounts", "swaps", "said"),
    [
        ("30 1 259:2 / / rw - ext4 /dev/root rw\n", "", "The disk nvme0n1 is mounted on /."),
        ("30 1 0:35 / /data rw - btrfs /dev/nvme0n1 rw\n", "", "The disk nvme0n1 is mounted on /data."),
        ("", "Filename\n/dev/nvme0n1 partition 1 0 -2\n", "The host swaps to its disk nvme0n1."),
    ],
)
def test_the_disk_of_the_host_is_never_touched(kernel: Path, mounts: str, swaps: str, said: str) -> None:
    sysfs.disk(kernel, "nvme0n1", "259:2")
    with (kernel / "proc/self/mountinfo").open("a") as table:
        table.write(mounts)
    (kernel / "proc/swaps").write_text(swaps)
    answer = set_up(kernel, DISK, driver="vfio-pci")
    assert isinstance(answer, Failed)
    assert answer.message == f"The host itself uses {DISK}: {said}"
    assert sysfs.driver_of(kernel, DISK) == "nvme"


def test_a_disk_below_another_or_with_several_paths_is_not_touched(kernel: Path) -> None:
    folder = sysfs.disk(kernel, "nvme0n1", "259:2")
    (folder / "holders/dm-0").mkdir()
    answer = set_up(kernel, DISK, driver="none")
    assert isinstance(answer, Failed)
    assert "The disk nvme0n1 is part of dm-0" in answer.message
    (folder / "holders/dm-0").rmdir()
    # With native multipath the disk is below its subsystem, and only the controller below the function.
    subsystem = kernel / "sys/devices/virtual/nvme-subsystem/nvme-subsys1"
    (subsystem / "nvme1n1/holders").mkdir(parents=True)
    (subsystem / "nvme1n1/dev").write_text("259:7\n")
    (subsystem / "nvme1").symlink_to(f"../../../pci0000:3a/{DISK}/nvme/nvme0")
    (kernel / "sys/class/block/nvme1n1").symlink_to("../../devices/virtual/nvme-subsystem/nvme-subsys1/nvme1n1")
    with (kernel / "proc/self/mountinfo").open("a") as table:
        table.write("30 1 259:7 / /srv rw - xfs /dev/nvme1n1 rw\n")
    answer = set_up(kernel, DISK, driver="none")
    assert isinstance(answer, Failed)
    assert "The disk nvme1n1 is mounted on /srv" in answer.message
    assert sysfs.driver_of(kernel, DISK) == "nvme"


def test_the_network_card_of_the_host_is_never_touched(kernel: Path, tmp_path: Path) -> None:
    with device_peers.links(tmp_path / "links", ["0000:00:00.0"]) as links:
        link = links["0000:00:00.0"]
        (kernel / "sys/bus/pci/devices" / CARD / "net" / link).mkdir(parents=True)
        ip("address", "add", "192.0.2.3/24", "dev", link)
        for arguments in ({"driver": "vfio-pci"}, {"vfs": 2}):
            answer = set_up(kernel, CARD, **arguments)
            assert isinstance(answer, Failed)
            assert f"The host itself uses {CARD}: {link} has an address" in answer.message
        assert (sysfs.driver_of(kernel, CARD), sysfs.vfs_of(kernel, CARD)) == ("ice", [])
        ip("address", "delete", "192.0.2.3/24", "dev", link)
        assert isinstance(set_up(kernel, CARD, driver="vfio-pci"), Ready)


def test_a_device_that_the_blueprint_does_not_name_is_refused(kernel: Path) -> None:
    answer = set_up(kernel, CARD, driver="vfio-pci", config={"setup": [OTHER]})
    assert isinstance(answer, Failed)
    assert answer.message == f"The blueprint does not allow {CARD} to be set up: `setup` does not name it."


def test_vfs_are_created_changed_and_removed(kernel: Path) -> None:
    assert isinstance(set_up(kernel, CARD, vfs=2), Ready)
    vfs = sysfs.vfs_of(kernel, CARD)
    assert vfs == ["0000:3b:02.0", "0000:3b:02.1"]
    assert {one: found(kernel)[one].part_of for one in vfs} == dict.fromkeys(vfs, f"7/{CARD}")
    answer = set_up(kernel, CARD, vfs=3)
    assert answer.gone == tuple(f"7/{one}" for one in vfs), "the kernel removes all before it creates others"
    assert len(sysfs.vfs_of(kernel, CARD)) == 3
    assert not set_up(kernel, CARD, vfs=3).rediscover
    answer = set_up(kernel, CARD, driver="vfio-pci")
    assert isinstance(answer, Failed)
    assert "has VFs, which would disappear" in answer.message
    assert isinstance(set_up(kernel, CARD, vfs=0), Ready)
    assert sysfs.vfs_of(kernel, CARD) == []


def test_vfs_that_the_card_or_its_driver_does_not_give_leave_the_card_as_it_was(tree: Path) -> None:
    with sysfs.kernel(tree, most=4):
        assert isinstance(set_up(tree, CARD, vfs=1), Ready)
        answer = set_up(tree, CARD, vfs=9)
        assert isinstance(answer, Failed)
        assert answer.message == f"{CARD} offers at most 8 VFs; 9 were requested."
        answer = set_up(tree, CARD, vfs=6)
        assert isinstance(answer, Failed)
        assert answer.message == f"The driver ice of {CARD} does not create 6 VFs."
        assert len(sysfs.vfs_of(tree, CARD)) == 1
    answer = set_up(tree, DISK, vfs=1)
    assert isinstance(answer, Failed)
    assert answer.message == f"{DISK} offers no VFs."


def test_the_blueprint_declares_the_number_and_the_driver_of_vfs(kernel: Path) -> None:
    declared = {"vfs": [{"address": CARD, "count": 2, "driver": "vfio-pci"}, {"count": 0}]}
    card = found(kernel, **declared)
    assert card[CARD].outdated == "It has 0 VFs; its blueprint declares 2."
    assert not card[OTHER].outdated
    assert isinstance(updated(kernel, CARD, **declared), Ready)
    assert [sysfs.driver_of(kernel, one) for one in sysfs.vfs_of(kernel, CARD)] == ["vfio-pci", "vfio-pci"]
    assert not found(kernel, **declared)[CARD].outdated
    assert updated(kernel, CARD, **declared) == Ready(log=f"{CARD} has 2 VFs.")
    kernel_driver = {"vfs": [{"address": CARD, "count": 2, "driver": "iavf"}]}
    assert "is not iavf" in found(kernel, **kernel_driver)[CARD].outdated
    assert isinstance(updated(kernel, CARD, **kernel_driver), Ready)
    assert sysfs.driver_of(kernel, "0000:3b:02.1") == "iavf"
    assert updated(kernel, DISK, **declared) == Ready(), "only network cards"


def test_a_device_that_cannot_be_attached_as_declared_is_refused(kernel: Path) -> None:
    def refused(**declared: Any) -> str:
        return found(kernel, networks=[{"address": CARD, **declared}])[CARD].refused

    assert refused(attach="vfio") == (
        "Its blueprint attaches it by vfio, but the kernel driver ice is bound to it."
    )  # fmt: skip
    assert refused(attach="netns") == ""
    sysfs.bind(kernel, CARD, "vfio-pci")
    assert refused(attach="netns") == "Its blueprint attaches it by network namespace, but it is bound to vfio-pci."
    assert refused(attach="vfio") == ""
    group = kernel / "sys/kernel/iommu_groups/20/devices"
    (group / OTHER).symlink_to(f"../../../../devices/pci0000:3a/{OTHER}")
    assert refused(attach="vfio") == f"{OTHER} of the same IOMMU group is in use by the kernel driver ice."


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("vfs", [{"count": -1}], "greater than or equal to 0"),
        ("vfs", [{"count": 1, "driver": "../evil"}], "is not the name of a kernel driver"),
        ("mig", [{"profiles": ["1g.5gb; reboot"]}], "is not a MIG profile, such as 1g.5gb"),
        ("networks", [{"mac": "ff:ff:ff:ff:ff:ff"}], "is not the MAC address of a single interface"),
        ("networks", [{"vlan": 4095}], "less than or equal to 4094"),
        ("networks", [{"addresses": ["example.org"]}], "is not an IP address with the length of its prefix"),
        ("networks", [{"gateway": "-x"}], "is not an IP address"),
        ("networks", [{"attach": "bridge"}], "'netns', 'vfio' or 'none'"),
    ],
)
def test_a_declaration_that_is_not_valid_is_refused(field: str, value: Any, said: str) -> None:
    with pytest.raises(ValueError, match=said):
        KIND.Config.model_validate({field: value})


@pytest.mark.parametrize("change", [{"driver": "vfio-pci"}, {"vfs": 2}])
def test_a_forged_address_makes_root_write_nowhere_else(kernel: Path, change: Any) -> None:
    """As from an agent that was taken over, whose account prepares a folder with links to files of root."""
    precious, before = kernel / "precious", "as it was\n\n"
    precious.write_text(before)
    forged = kernel / "forged"
    (forged / "driver").mkdir(parents=True)
    (forged / "iommu_group/devices").mkdir(parents=True)
    (forged / "sriov_totalvfs").write_text("8\n")
    for name in ("driver_override", "driver/unbind", "sriov_numvfs"):
        (forged / name).symlink_to(precious)
    given = spec(kernel, CARD)
    given.resource.facts["device"]["id"] = "../../../../forged"
    act = next(one for one in KIND.acts() if one.name == "setup")
    given.arguments = act.Arguments.model_validate(change)
    answer = act.plan()[0].act(given, {})
    assert precious.read_text() == before
    assert isinstance(answer, Failed)
    assert (answer.scope, "'../../../../forged' is not a PCI address" in answer.message) == ("operator", True)
    assert isinstance(KIND.update()[0].act(given, {}), (Failed, Ready))
    assert precious.read_text() == before
