"""The wire format of Cyborg's internal API: the published example, both spellings, UUIDs, and what is refused."""

from __future__ import annotations

import copy
import dataclasses
import json

import pytest

from drydock_agent import Device, Hardware, Host, MemoryTree, scan
from drydock_agent.cyborg import DriverHello, device_uuid, from_document, to_document
from drydock_agent.facts import Link, Readiness
from drydock_agent.wire import Malformed
from tests.agent.hand import Hand

UUID = "8e45a2ea-5364-4b0d-a252-bf8becaa606e"

# The example of the document, with the commas that it lacks.
PUBLISHED = {
    "hardware": [
        {
            "uuid": UUID,
            "acc_specs": {
                "remote": 0,
                "num": 1,
                "device_type": "CRYPTO",
                "acc_capability": {"num": 2, "ipsec": {"aes": {"3des": 50, "num": 1}}},
            },
            "acc_status": {"setup_required": True, "reboot_equired": False},
        }
    ]
}

GPU = Device(
    id="0000:01:00.0", device_class="gpu", name="A100", role="lease_candidate", numa_node=1,
    link=Link(speed=16.0, width=16), iommu_members=("0000:01:00.0",), identities={"serial": "1325021006781"},
    attributes={"mig_mode": "enabled", "cores": 6912, "ratio": 0.5, "ecc": True, "modes": ("a", "b")},
    readiness=Readiness.READY, reason="The driver is bound.",
)  # fmt: skip
SLICE = Device(id="0000:01:00.0/mig-1", part_of="0000:01:00.0", device_class="gpu_slice", role="part")
FPGA = Device(id="0000:02:00.0", device_class="fpga", readiness=Readiness.REBOOT_REQUIRED, reason="A new image waits.")
BRIDGE = Device(id="0000:00:01.0", kind="bridge")
QAT = Device(id="0000:03:00.0", device_class="qat", readiness=Readiness.SETUP_REQUIRED)
ALL = Hardware(host=Host(identities={"dmi_uuid": "4c4c4544-0051-3010-8057-b4c04f4d3132"}),
               devices=(BRIDGE, GPU, SLICE, FPGA, QAT))  # fmt: skip


def changed(*path: object, value: object = None, remove: bool = False) -> dict:
    document = copy.deepcopy(PUBLISHED)
    place: object = document
    for one in path[:-1]:
        place = place[one]
    if remove:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return document


def test_the_published_example_is_understood():
    (found,) = from_document(PUBLISHED)
    assert found.id == found.identities["cyborg_uuid"] == UUID
    assert (found.device_class, found.readiness) == ("qat", Readiness.SETUP_REQUIRED)
    assert found.attributes == {
        "remote": 0, "num": 1, "capability.num": 2, "capability.ipsec.aes.3des": 50, "capability.ipsec.aes.num": 1
    }  # fmt: skip


def test_devices_survive_the_format_as_they_are():
    document = json.loads(json.dumps(to_document(ALL)))
    assert from_document(document) == (GPU, SLICE, FPGA, QAT)
    assert from_document(to_document(ALL, every=True)) == ALL.devices


def test_both_spellings_are_sent():
    statuses = [one["acc_status"] for one in to_document(ALL)["hardware"]]
    assert statuses[2] == {"setup_required": False, "reboot_required": True, "reboot_equired": True}
    assert statuses[3] == {"setup_required": True, "reboot_required": False, "reboot_equired": False}
    assert [one["acc_specs"]["device_type"] for one in to_document(ALL)["hardware"]] == ["GPU", "GPU", "FPGA", "CRYPTO"]


@pytest.mark.parametrize("status", [{"reboot_required": True}, {"reboot_equired": True},
                                    {"reboot_required": True, "reboot_equired": True}])  # fmt: skip
def test_each_spelling_is_accepted(status):
    document = changed("hardware", 0, "acc_status", value={"setup_required": False, **status})
    assert from_document(document)[0].readiness is Readiness.REBOOT_REQUIRED


def test_a_uuid_stays_with_the_thing_and_else_with_its_place():
    other = dataclasses.replace(ALL, host=Host(identities={"dmi_uuid": "4c4c4544-0051-3010-8057-b4c04f4d3133"}))
    moved = dataclasses.replace(GPU, id="0000:41:00.0", firmware={"vbios": "92"})
    assert device_uuid(moved, other) == device_uuid(GPU, ALL)
    assert device_uuid(FPGA, other) != device_uuid(FPGA, ALL)
    assert device_uuid(FPGA, ALL) == device_uuid(dataclasses.replace(FPGA, name="x"), ALL)
    assert device_uuid(SLICE, ALL) == device_uuid(SLICE, dataclasses.replace(other, devices=ALL.devices))
    uuids = [one["uuid"] for one in to_document(ALL, every=True)["hardware"]]
    assert len(set(uuids)) == len(ALL.devices)
    assert device_uuid(GPU, ALL) == "cb076745-48e8-57fb-a2d4-dbed8aead018"


def test_what_a_scan_finds_has_the_same_uuids_each_time(drivers):
    hand = Hand()
    hand.function("0000:01:00.0", "10de:20b2", "030200", "nvidia")
    hand.function("0000:02:00.0", "8086:4940", "0b4000", "4xxx")
    first, second = (
        to_document(scan(MemoryTree(dict(hand.files), links=dict(hand.links)), drivers=drivers)) for _ in range(2)
    )
    assert first == second
    assert len(first["hardware"]) == 2


@pytest.mark.parametrize(
    ("document", "reason"),
    [
        ([], "an object is expected"),
        ({}, "hardware: a list"),
        ({**PUBLISHED, "version": 2}, "version: 2"),
        ({**PUBLISHED, "version": True}, "version"),
        ({**PUBLISHED, "host": "other"}, r"document\.host: this field is not known"),
        ({"hardware": PUBLISHED["hardware"] * 2}, "same device"),
        ({"hardware": [{}] * 20_001}, "20000 values"),
        (changed("hardware", 0, "uuid", value="7"), r"hardware\[0\]\.uuid"),
        (changed("hardware", 0, "host", value="x"), r"hardware\[0\]\.host"),
        (changed("hardware", 0, "acc_specs", "device_type", value="CRY PTO"), "type"),
        (changed("hardware", 0, "acc_specs", "num", value=True), "num: a whole number"),
        (changed("hardware", 0, "acc_specs", "num", value=float("nan")), "num|not a number"),
        (changed("hardware", 0, "acc_specs", "acc_capability", value={"a\x1b": 1}), "name is too long or"),
        (changed("hardware", 0, "acc_specs", "acc_capability", value={"a": None}), "text, a number"),
        (changed("hardware", 0, "acc_specs", "acc_capability", value={"device": {"id": "x", "y": 1}}), "device.y"),
        (changed("hardware", 0, "acc_specs", "acc_capability", value={"device": {"id": "x"}}), "contradicts"),
        (changed("hardware", 0, "acc_status", "setup_required", value="no"), "setup_required: true or false"),
        (changed("hardware", 0, "acc_status", "setup_required", remove=True), "setup_required: it is missing"),
        (changed("hardware", 0, "acc_status", "reboot_equired", remove=True), "reboot_required: it is missing"),
        (changed("hardware", 0, "acc_status", "reboot_required", value=True), "contradict each other"),
    ],
)
def test_other_documents_are_refused_by_field(document, reason):
    with pytest.raises(Malformed, match=reason):
        from_document(document)


def test_a_driver_says_hello_as_published_or_with_more():
    published = {"status": "READY", "endpoint": "localhost:1337", "type": "CRYPTO"}
    hello = DriverHello.from_json(published)
    assert (hello.endpoint, hello.types, hello.name) == ("localhost:1337", ("qat",), "")
    assert hello.to_json() == {**published, "version": 1}
    several = {**published, "version": 1, "type": ["GPU", "ACME"], "name": "acme"}
    assert DriverHello.from_json(several).to_json() == several
    for field, value in (
        ("status", "BUSY"),
        ("endpoint", 5),
        ("type", []),
        ("type", ["a b"]),
        ("more", 1),
        ("version", 2),
    ):
        with pytest.raises(Malformed, match=field):
            DriverHello.from_json({**published, field: value})
