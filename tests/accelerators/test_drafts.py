"""Reports on the hardware of hosts become drafts of accelerators. No database is used."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import os_resource_classes
import os_traits
import pytest

from blueprints.accelerators.classes import RESOURCE_CLASSES, TRAITS, cuda_trait, os_trait
from blueprints.accelerators.drafts import beginnings, names_of
from blueprints.accelerators.kind import Accelerators
from blueprints.matching import misses
from blueprints.reports import Report
from blueprints.specs import Draft
from drydock.demo import captured
from drydock_agent import FolderTree, Hardware, load_drivers, scan
from drydock_agent.names import PciNames
from drydock_agent.scan import CAPTURED
from tests.agent import captured as captures
from tests.agent.hand import GPU_UUID, SLICE_XML, Hand, gpu, gpu_xml

KIND = Accelerators()


@pytest.fixture(autouse=True)
def _database() -> None:
    """Nothing here needs one."""


def found(hardware: Hardware, **config: Any) -> dict[str, Draft]:
    """The drafts of a report by address, after its way through JSON."""
    content = json.loads(json.dumps(hardware.to_json()))
    drafts = KIND.drafts_from(KIND.Config.model_validate(config), Report(place="7", content=content))
    return {draft.identity.removeprefix("7/"): draft for draft in drafts}


def missed(draft: Draft, **requirements: Any) -> list[str]:
    asked = KIND.Requirements.model_validate(requirements).model_dump(mode="json")
    return misses(KIND.matches, draft.attributes, asked)


def mig(slices: int = 2) -> Hardware:
    """An A100 in MIG mode."""
    listed = "".join(SLICE_XML.format(n=n, gi=n + 7) for n in range(slices))
    return gpu(output=gpu_xml(mig="Enabled", pending_mig="Enabled", slices=listed))


def test_a_whole_gpu_is_one_slot_with_its_identities_and_what_leases_may_require():
    (draft,) = found(gpu(output=gpu_xml())).values()
    assert (draft.host, draft.part_of, draft.refused) == (7, "", "")
    assert (draft.capacity.slots, draft.capacity.extra) == (1, {"gpu": 1})
    assert {str(one) for one in draft.identities} == {f"gpu_uuid {GPU_UUID.lower()}", "serial:10de 1650522003820"}
    fitting: list[dict[str, Any]] = [
        {"class": "gpu"}, {"class": ["npu", "GPU"]}, {"vendor": "NVIDIA"}, {"model": "A100"},
        {"model": "A100-SXM4-80GB"}, {"model": "nvidia a100-sxm4-80gb"}, {"memory_mib": 81920},
        {"driver_version": "535"}, {"driver_version": "535.54"}, {"numa_node": 0},
    ]  # fmt: skip
    for one in fitting:
        assert not missed(draft, **one), one
    others: list[dict[str, Any]] = [
        {"class": "vf"}, {"vendor": "amd"}, {"model": "A10"}, {"memory_mib": 81921}, {"driver_version": "53"},
        {"numa_node": 1}, {"compute_capability": 8.0}, {"firmware": "1"},
    ]  # fmt: skip
    for one in others:
        assert missed(draft, **one), one


def test_a_gpu_in_mig_mode_is_leased_by_slices_only():
    drafts = found(mig())
    card = drafts.pop("0000:01:00.0")
    assert (card.capacity.slots, card.refused) == (0, "")
    assert [draft.part_of for draft in drafts.values()] == [card.identity] * 2
    assert [draft.capacity.extra for draft in drafts.values()] == [{"gpu_slice": 1}] * 2
    assert all(missed(draft, **{"class": "gpu"}) for draft in drafts.values()), "a slice is not a GPU"
    for draft in drafts.values():
        assert not missed(draft, **{"class": "gpu_slice"}, model="A100", vendor="nvidia", driver_version="535")
        assert "mig" in draft.traits


def test_a_gpu_in_mig_mode_without_slices_is_not_leased():
    (card,) = found(mig(slices=0)).values()
    assert card.refused == "It is in MIG mode and has no slices."


@pytest.mark.parametrize(
    ("hardware", "reason"),
    [
        (gpu("nouveau"), "setup required. "),
        (gpu(output=gpu_xml(remap="Yes")), "reboot required. A memory row waits to be remapped"),
        (gpu(output=gpu_xml(failure="Yes")), "unsupported. A memory row could not be remapped"),
        (gpu(output="", status="124"), "setup required. nvidia-smi gives no valid report"),
    ],
)
def test_a_device_that_is_not_ready_is_refused_with_the_reason(hardware, reason):
    (draft,) = found(hardware).values()
    assert draft.refused.startswith(reason)
    assert hardware.devices[0].reason in draft.refused


def test_a_gpu_whose_reported_names_could_mean_something_else_is_refused():
    content = gpu(output=gpu_xml()).to_json()
    (device,) = (one for one in content["devices"] if one["device_class"] == "gpu")
    for forged, message in (
        ({"id": "0000:01:00.0,0000:02:00.0"}, "is not valid in a device"),
        ({"id": "0"}, "'0' does not name one GPU by its PCI address"),
        ({"id": "GPU-0"}, "does not name one GPU by its PCI address"),
        ({"nodes": ["/dev/../etc/shadow"]}, "is not a path of a device below /dev"),
        ({"identities": {"uuid": "GPU-1,GPU-2"}}, "is not valid in a device"),
    ):
        drafts = found(Hardware.from_json({**content, "devices": [{**device, **forged}]}))
        assert [message in draft.refused for draft in drafts.values()] == [True], (forged, drafts)


def network(*, ready: bool = True, vfs: int = 2) -> Hardware:
    """A network card with VFs. Without a driver it is not usable itself."""
    hand = Hand()
    names = [f"0000:03:10.{n}" for n in range(vfs)]
    folder = hand.function("0000:03:00.0", "8086:1572", "020000", "i40e" if ready else "", sriov_totalvfs="64")
    for n, name in enumerate(names):
        vf = hand.function(name, "8086:154c", "020000", "iavf")
        hand.links |= {f"{folder}/virtfn{n}": f"/{vf}", f"{vf}/physfn": f"/{folder}"}
    return hand.scan()


def test_vfs_are_parts_of_their_card_and_never_count_as_cards():
    drafts = found(network())
    card = drafts.pop("0000:03:00.0")
    assert card.capacity.extra == {"nic": 1}
    assert "sriov" in card.traits
    assert {draft.part_of for draft in drafts.values()} == {card.identity}
    assert {str(draft.attributes["class"]) for draft in drafts.values()} == {"vf"}


def test_a_card_that_is_not_ready_contains_its_vfs_and_is_not_leased():
    card = found(network(ready=False))["0000:03:00.0"]
    assert (card.capacity.slots, card.refused) == (0, "")


def test_a_card_of_a_class_that_is_not_leased_contains_its_vfs_too():
    drafts = found(network(), classes=["vf"])
    assert [draft.capacity.slots for draft in drafts.values()] == [0, 1, 1]
    assert not found(network(vfs=0), classes=["vf"])


def test_displays_and_devices_of_the_platform_are_left_out(tmp_path: Path):
    captured.write(tmp_path)
    drafts = found(scan(FolderTree(str(tmp_path)), traits=(CAPTURED,), names=PciNames("")))
    assert set(drafts) == {captured.GPU, captured.UNREADY, "0000:00:03.0"}
    assert drafts[captured.UNREADY].refused
    assert all(draft.traits == {"captured"} for draft in drafts.values())


def test_device_nodes_of_captured_devices_are_those_of_the_config_only(tmp_path: Path):
    captured.write(tmp_path)
    hardware = scan(FolderTree(str(tmp_path)), traits=(CAPTURED,), names=PciNames(""))
    nodes = {captured.GPU: ["/dev/drydock-test"]}
    config = {"captured": str(tmp_path), "nodes": nodes}
    assert found(hardware)[captured.GPU].facts["device"]["nodes"] == []
    assert found(hardware, **config)[captured.GPU].facts["device"]["nodes"] == ["/dev/drydock-test"]
    assert found(gpu(output=gpu_xml()))["0000:01:00.0"].facts["device"]["nodes"] == ["/dev/nvidia1"]


def test_what_changes_while_a_device_is_used_does_not_change_its_draft():
    before, after = (gpu(output=gpu_xml().replace("50 MiB", f"{n} MiB")) for n in (50, 70_000))
    assert before.to_json() != after.to_json()
    assert found(before) == found(after)


@pytest.mark.parametrize("wrong", [{"place": "rack 3"}, {"place": "-1"}, {"content": {"version": 9}}])
def test_reports_about_anything_but_a_host_are_refused(wrong):
    given: Any = {"place": "7", "content": mig().to_json()} | wrong
    with pytest.raises(ValueError, match=r"host|version"):
        KIND.drafts_from(KIND.Config(), Report(**given))


@pytest.mark.parametrize(
    ("config", "field"),
    [
        ({"captured": "relative"}, "absolute"),
        ({"nodes": {"0000:01:00.0": ["/dev/null"]}}, "only for captured"),
        ({"captured": "/x", "nodes": {"0000:01:00.0": ["/dev/../etc/shadow"]}}, "device node"),
        ({"captured": "/x", "reports": "sent"}, "exclude each other"),
        ({"classes": ["cpu"]}, "gpu"),
    ],
)
def test_configs_that_cannot_work_are_refused(config, field):
    with pytest.raises(ValueError, match=field):
        KIND.Config.model_validate(config)


@captures.needed
@pytest.mark.parametrize("name", captures.names())
def test_the_accelerators_of_every_capture_are_those_that_were_established_by_other_means(name, tmp_path):
    root = captures.unpacked(name, tmp_path)
    hardware = scan(FolderTree(str(root)), drivers=load_drivers(), traits=(CAPTURED,))
    facts = captures.expected()["sysfs"][name]
    wanted = {(one["address"] if isinstance(one, dict) else one) for one in facts["lease_candidates"]}
    drafts = found(hardware)
    candidates = {id for id, draft in drafts.items() if draft.attributes.get("class") not in ("nic", "nvme", "vf")}
    assert candidates <= wanted
    ready = {one.id for one in hardware.devices if one.id in wanted and one.readiness == "ready" and one.device_class}
    assert ready == {id for id in candidates if not drafts[id].refused} | {
        one
        for one in ready
        if hardware.device(one).device_class == "accelerator"  # type: ignore[union-attr]
    }


def test_names_by_which_a_model_is_required():
    assert names_of("Tesla P100-PCIE-16GB") == ["tesla p100-pcie-16gb", "p100-pcie-16gb", "p100", "16gb"]
    assert "3090" in names_of("NVIDIA GeForce RTX 3090")
    assert names_of("") == []
    assert beginnings("535.54.03") == ["535", "535.54", "535.54.03"]


def test_classes_and_traits_have_the_names_that_openstack_gives_them():
    for name in RESOURCE_CLASSES.values():
        assert os_resource_classes.is_custom(name) or name in os_resource_classes.STANDARDS
    traits = [*TRAITS, cuda_trait(6.0), cuda_trait(7.2), cuda_trait(8.0), cuda_trait(12.1), "ünusual-trait"]
    standard = set(os_traits.get_traits())
    for name in map(os_trait, traits):
        assert name in standard or (os_traits.is_custom(name) and name.isascii() and name == name.upper())
    assert os_trait(cuda_trait(7.0)) == os_traits.HW_GPU_CUDA_COMPUTE_CAPABILITY_V7_0
    assert not any(one.startswith("HW_GPU_CUDA_COMPUTE_CAPABILITY_V8") for one in standard), "the table is out of date"
