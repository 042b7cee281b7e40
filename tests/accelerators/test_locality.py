"""The places of devices in their host follow the tree of PCI functions. No database is used."""

from __future__ import annotations

import json

import pytest

from blueprints.accelerators.kind import Accelerators
from blueprints.localities import Locality, contradictions, distance, problem
from blueprints.reports import Report
from drydock_agent import FolderTree, Hardware, load_drivers, scan
from tests.agent import captured as captures
from tests.agent.hand import Hand

KIND = Accelerators()
PORT, UPSTREAM, DOWN = "0000:00:01.0", "0000:02:00.0", ("0000:03:00.0", "0000:03:01.0")


@pytest.fixture(autouse=True)
def _database() -> None:
    """Nothing here needs one."""


def found(hardware: Hardware) -> dict[str, Locality]:
    """The localities of the drafts of a report, after its way through JSON."""
    report = Report(place="7", content=json.loads(json.dumps(hardware.to_json())))
    return {draft.identity.removeprefix("7/"): draft.locality for draft in KIND.drafts_from(KIND.Config(), report)}


def bridge(hand: Hand, address: str, above: str = "", **files: str) -> str:
    """Add a bridge. Returns the path of bridges above what is behind it."""
    hand.function(address, "10b5:8747", "060400", "pcieport", above=above, **files)
    return f"{above}/{address}".strip("/")


def switched(**last: str) -> Hardware:
    """Two GPUs behind a switch, a network card with a VF beside them, and a GPU behind another root port."""
    hand = Hand()
    upstream = bridge(hand, UPSTREAM, bridge(hand, PORT))
    for n, port in enumerate(DOWN):
        hand.function(f"0000:0{4 + n}:00.0", "10de:20b2", "030200", "nvidia", above=bridge(hand, port, upstream))
    behind = bridge(hand, "0000:03:02.0", upstream)
    card = hand.function("0000:06:00.0", "8086:1572", "020000", "i40e", above=behind, sriov_totalvfs="64")
    vf = hand.function("0000:06:02.0", "8086:154c", "020000", "iavf", above=behind, numa_node="-1")
    hand.links |= {f"{card}/virtfn0": f"/{vf}", f"{vf}/physfn": f"/{card}"}
    hand.function("0000:07:00.0", "10de:20b2", "030200", "nvidia", above=bridge(hand, "0000:00:02.0"), **last)
    return hand.scan()


def test_devices_behind_one_switch_are_nearer_than_those_behind_another_port():
    places = found(switched())
    behind = ("NUMA node 0", "root bus 0000:00", f"root port {PORT}", f"switch {UPSTREAM}")
    assert places == {
        **dict.fromkeys(("0000:04:00.0", "0000:05:00.0", "0000:06:00.0", "0000:06:02.0"), behind),
        "0000:07:00.0": ("NUMA node 0", "root bus 0000:00", "root port 0000:00:02.0"),
    }
    near = distance([places["0000:04:00.0"], places["0000:06:02.0"]])
    far = distance([places["0000:04:00.0"], places["0000:07:00.0"]])
    assert near < far
    assert str(near) == f"all at switch {UPSTREAM}"
    assert str(far) == "all at root bus 0000:00, 2 levels up"


def test_a_bus_whose_functions_disagree_on_their_numa_node_has_none():
    places = found(switched(numa_node="1"))
    assert {one[:2] for one in places.values()} == {("", "root bus 0000:00")}
    assert not contradictions(places.values())


def test_a_device_that_only_a_tool_has_listed_is_in_no_place():
    hardware = switched()
    unknown = [one.__class__(id=one.id, device_class=one.device_class, readiness=one.readiness)
               for one in hardware.devices if one.device_class == "gpu"]  # fmt: skip
    assert set(found(Hardware(host=hardware.host, devices=tuple(unknown))).values()) == {()}


@captures.needed
@pytest.mark.parametrize("name", captures.names())
def test_the_places_of_every_capture_are_well_formed(name, tmp_path):
    root = captures.unpacked(name, tmp_path)
    places = found(scan(FolderTree(str(root)), drivers=load_drivers()))
    assert not contradictions(places.values())
    assert not [one for one in places.values() if problem(one)]
    if name == "32em64t-2n8c+dax+nvme+mic+dimms":
        phi, cards = places["0000:83:00.0"], [places["0000:82:00.0"], places["0000:02:00.0"]]
        assert str(distance([phi, cards[0]])) == "all at root bus 0000:80, 1 level up"
        assert str(distance([phi, cards[1]])) == "no place in common"
