"""Volumes and VPCs of a DPU over REST: within the config, exclusive among leases, and gone with the lease."""

from __future__ import annotations

import pytest

from blueprints.fake.cloud import Cloud
from leases.engine.core import specs
from leases.local import LocalClient
from leases.messaging.inline import settle
from leases.models import Event
from leases.operations.callers import caller
from tests.rest.dpus import leased, left, locks

CONFIG = {
    "provider": "dpus", "capacity": {"slots": 2}, "chains": {"vfs": 4},
    "volumes": {"policies": ["fast", "big"], "largest_gib": 50},
    "vpcs": {"isolations": ["ovn"], "subnets": ["10.30.0.0/16"], "vfs": 4},
}  # fmt: skip
DATA = {"policy": "fast", "size_gib": 20}
BLUE = {"name": "blue", "subnet": "10.30.1.0/24", "interfaces": ["pf0vf1"]}
LAB = {"isolation": "ovn", "networks": [BLUE]}
PLACES = {"volumes": ("data", DATA), "vpcs": ("lab", LAB)}


@pytest.fixture
def ada(api, owner, blueprint):
    blueprint("dpus", kind="fake_activated", config=CONFIG)
    return api(owner)


@pytest.fixture
def held(ada):
    return leased(ada)


def test_a_volume_is_created_listed_shown_and_removed(ada, held) -> None:
    where = f"leases/{held}/dpu-volumes/data"
    assert ada("GET", where, code=404)["code"] == "object_missing"
    made = ada("PUT", where, DATA)
    assert made == {
        **DATA, "name": "data", "state": "ready", "mode": "block", "access": "ReadWriteOnce", "function": "pf",
        "hotplug": True, "attached": {}, "messages": [],
    }  # fmt: skip
    assert made == ada("GET", where) == ada("PUT", where, DATA)
    assert ada("GET", f"leases/{held}/dpu-volumes")["results"] == [made]
    facts = {"device": "nvme1n1", "pci_address": "1:00.2"}
    Cloud("dpus").show_object(specs.key("l", held), "volume", "data", facts=facts)
    assert ada("GET", where)["attached"] == facts
    assert "another one" in ada("PUT", where, {**DATA, "size_gib": 21}, code=409)["detail"]
    ada("DELETE", where, code=204)
    ada("DELETE", where, code=204)
    assert (left("volume", "vpc"), locks(held)) == ([], [])
    told = Event.objects.filter(kind="lease.dpu_volume", lease_id=held).order_by("pk")
    assert told[0].message == "Created volume data of 20 GiB under policy fast."
    assert told[2].message == "Removed volume data."


def test_a_vpc_is_created_listed_shown_and_removed(ada, held) -> None:
    where = f"leases/{held}/dpu-vpcs/lab"
    assert ada("GET", where, code=404)["code"] == "object_missing"
    made = ada("PUT", where, LAB)
    whole = {**BLUE, "dhcp": True, "external": False, "masquerade": True}
    assert made == {**LAB, "networks": [whole], "name": "lab", "state": "ready", "routed": False, "messages": []}
    assert made == ada("GET", where) == ada("PUT", where, LAB)
    assert ada("GET", f"leases/{held}/dpu-vpcs")["results"] == [made]
    assert locks(held) == ["10.30.1.0", "in a VPC", "pf0vf1"]
    chain = {"switches": [["p0", "pf0vf1"]]}
    assert "used by VPC lab" in ada("PUT", f"leases/{held}/dpu-chains/web", chain, code=409)["detail"]
    assert "at most 1 VPC." in ada("PUT", f"leases/{held}/dpu-vpcs/more", LAB, code=409)["detail"]
    ada("DELETE", where, code=204)
    ada("DELETE", where, code=204)
    assert (left("volume", "vpc"), locks(held)) == ([], [])
    told = Event.objects.filter(kind="lease.dpu_vpc", lease_id=held).order_by("pk")
    assert told[0].message == "Created VPC lab: blue 10.30.1.0/24."
    assert told[2].message == "Removed VPC lab."


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({**DATA, "policy": "slow"}, "policy"), ({**DATA, "size_gib": 51}, "size_gib"),
        ({"policy": "fast"}, "size_gib"), ({**DATA, "size_gib": "20"}, "size_gib"), ({**DATA, "mode": "raw"}, "mode"),
        ({**DATA, "hotplug": 1}, "hotplug"),
        ({**DATA, "function": "vf", "hotplug": True}, "hotplug"), ({**DATA, "parameters": {}}, "parameters"),
        ({**DATA, "dpuNodeName": "h2"}, "dpuNodeName"),
    ],
)  # fmt: skip
def test_bad_volumes_are_refused_with_their_field_and_nothing_is_written(ada, held, body, field) -> None:
    assert ada("PUT", f"leases/{held}/dpu-volumes/data", body, code=400)["field"] == field
    assert (left("volume", "vpc"), locks(held)) == ([], [])
    assert not Event.objects.filter(kind="lease.dpu_volume").exists()


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({**LAB, "isolation": "none"}, "isolation"), ({**LAB, "networks": []}, "networks"),
        ({**LAB, "tenant": "eve"}, "tenant"), ({**LAB, "nodeSelector": {}}, "nodeSelector"),
        ({**LAB, "networks": [{**BLUE, "subnet": "10.31.0.0/24"}]}, "networks.0.subnet"),
        ({**LAB, "networks": [{**BLUE, "interfaces": ["p0"]}]}, "networks.0.interfaces.0"),
        ({**LAB, "networks": [{**BLUE, "interfaces": ["pf0vf4"]}]}, "networks.0.interfaces.0"),
        ({**LAB, "networks": [{**BLUE, "vpcName": "x"}]}, "networks.0.vpcName"), ({**LAB, "routed": "yes"}, "routed"),
    ],
)  # fmt: skip
def test_bad_vpcs_are_refused_with_their_field_and_nothing_is_written(ada, held, body, field) -> None:
    assert ada("PUT", f"leases/{held}/dpu-vpcs/lab", body, code=400)["field"] == field
    assert (left("volume", "vpc"), locks(held)) == ([], [])
    assert not Event.objects.filter(kind="lease.dpu_vpc").exists()


def test_two_leases_share_no_vpc_and_a_release_ends_everything(ada, held, api, django_user_model) -> None:
    eve = api(django_user_model.objects.create_user("eve"))
    hers = leased(eve)
    ada("PUT", f"leases/{held}/dpu-vpcs/lab", LAB)
    for number, one in ((held, ada), (hers, eve)):
        one("PUT", f"leases/{number}/dpu-volumes/data", DATA)
    other = {**LAB, "networks": [{**BLUE, "subnet": "10.30.2.0/24", "interfaces": ["pf1"]}]}
    refused = eve("PUT", f"leases/{hers}/dpu-vpcs/lab", other, code=409)
    assert "The DPU is in a VPC of another lease" in refused["detail"]
    ada("POST", f"leases/{held}/release", {})
    settle()
    assert (left("volume", "vpc"), locks(held)) == (["volume data"], [])
    eve("PUT", f"leases/{hers}/dpu-vpcs/lab", other)


@pytest.mark.parametrize("what", PLACES)
def test_only_the_owner_sees_and_changes_them(ada, held, api, owner, django_user_model, what) -> None:
    name, body = PLACES[what]
    listed = f"leases/{held}/dpu-{what}"
    ada("PUT", f"{listed}/{name}", body)
    eve = api(django_user_model.objects.create_user("eve"))
    for method, path, given in (
        ("GET", f"{listed}/{name}", None), ("GET", listed, None), ("PUT", f"{listed}/{name}", body),
        ("DELETE", f"{listed}/{name}", None),
    ):  # fmt: skip
        assert eve(method, path, given, code=404)["code"] == "not_found"
    reader = api(owner, "read")
    assert reader("GET", f"{listed}/{name}")["name"] == name
    reader("PUT", f"{listed}/{name}", body, code=403)
    reader("DELETE", f"{listed}/{name}", code=403)


@pytest.mark.parametrize(("what", "noun"), [("volumes", "volumes"), ("vpcs", "VPCs")])
def test_they_are_not_supported_unless_the_config_allows_them(api, owner, blueprint, what, noun) -> None:
    blueprint("none", kind="fake_activated", config={"provider": "dpus", "chains": {}})
    ada = api(owner)
    name, body = PLACES[what]
    refused = ada("PUT", f"leases/{leased(ada)}/dpu-{what}/{name}", body, code=409)
    assert (refused["code"], f"no {noun} on this DPU" in refused["detail"]) == ("not_supported", True)


def test_the_client_in_this_process_does_the_same(ada, held, owner) -> None:
    here = LocalClient(caller(owner))
    made = here.create_dpu_volume(held, "data", **DATA)
    assert here.dpu_volumes(held) == [made] == [here.dpu_volume(held, "data")]
    vpc = here.create_dpu_vpc(held, "lab", **LAB)
    assert here.dpu_vpcs(held) == [vpc] == [here.dpu_vpc(held, "lab")]
    again = here.create_dpu_vpc(held, "lab", isolation="ovn", networks=vpc.networks)
    assert again == vpc, "its answer can be given back"
    assert ada("GET", f"leases/{held}/dpu-vpcs/lab")["networks"][0]["interfaces"] == ["pf0vf1"]
    here.remove_dpu_volume(held, "data")
    here.remove_dpu_vpc(held, "lab")
    assert (here.dpu_volumes(held), here.dpu_vpcs(held)) == ([], [])
