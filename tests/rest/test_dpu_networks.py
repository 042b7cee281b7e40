"""Networks of a DPU over REST: within the config, exclusive among leases, and gone with the lease."""

from __future__ import annotations

import pytest

from leases.local import LocalClient
from leases.messaging.inline import settle
from leases.models import Event
from leases.operations.callers import caller
from tests.rest.dpus import leased, left, locks

CHART = {"repository": "oci://charts.example.org/doca", "name": "firewall", "version": "1.2.0"}
CONFIG = {
    "provider": "dpus", "capacity": {"slots": 2}, "chains": {}, "networks": ["10.20.0.0/16", "10.30.0.0/24"],
    "charts": [{"repository": CHART["repository"], "name": "firewall", "versions": ["1.2.0"]}],
}  # fmt: skip
BLUE = {"subnet": "10.20.1.0/24", "addresses": 32}


@pytest.fixture
def ada(api, owner, blueprint):
    blueprint("dpus", kind="fake_activated", config=CONFIG)
    return api(owner)


@pytest.fixture
def held(ada):
    return leased(ada)


def test_a_network_is_created_listed_shown_and_removed(ada, held) -> None:
    where = f"leases/{held}/dpu-networks/blue"
    assert ada("GET", where, code=404)["code"] == "object_missing"
    made = ada("PUT", where, BLUE)
    assert (made["name"], made["state"], made["subnet"], made["gateway"]) == (
        "blue", "ready", "10.20.1.0/24", "10.20.1.1",
    )  # fmt: skip
    assert made == ada("GET", where) == ada("PUT", where, BLUE)
    ada("PUT", f"leases/{held}/dpu-networks/wide", {"network": "10.20.16.0/22", "prefix": 26})
    assert [one["name"] for one in ada("GET", f"leases/{held}/dpu-networks")["results"]] == ["blue", "wide"]
    assert locks(held) == ["10.20.1.0", "10.20.16.0", "10.20.17.0", "10.20.18.0", "10.20.19.0"]
    ada("DELETE", where, code=204)
    ada("DELETE", where, code=204)
    assert left("network") == ["network wide"]
    told = Event.objects.filter(kind="lease.dpu_network", lease_id=held).order_by("pk")
    assert told[0].message == "Created network blue with the range 10.20.1.0/24."
    assert told[3].message == "Removed network blue."


@pytest.mark.parametrize(
    ("body", "field"),
    [
        ({"subnet": "10.21.1.0/24"}, "subnet"), ({"subnet": "10.30.0.0/23"}, "subnet"), ({}, "subnet"),
        ({"network": "192.168.0.0/20", "prefix": 24}, "network"), ({**BLUE, "gateway": "10.20.9.1"}, "gateway"),
        ({**BLUE, "addresses": "32"}, "addresses"), ({**BLUE, "mtu": 90_000}, "mtu"),
        ({**BLUE, "nodeSelector": {}}, "nodeSelector"), ({**BLUE, "bridge": "br-ovn"}, "bridge"),
    ],
)  # fmt: skip
def test_bad_networks_are_refused_with_their_field_and_nothing_is_written(ada, held, body, field) -> None:
    assert ada("PUT", f"leases/{held}/dpu-networks/blue", body, code=400)["field"] == field
    assert (left("network"), locks(held)) == ([], [])
    assert not Event.objects.filter(kind="lease.dpu_network").exists()


def test_two_leases_never_share_addresses_until_one_has_ended(ada, held, api, django_user_model) -> None:
    eve = api(django_user_model.objects.create_user("eve"))
    hers = leased(eve)
    ada("PUT", f"leases/{held}/dpu-networks/blue", BLUE)
    for theirs in ({"subnet": "10.20.1.128/25"}, {"network": "10.20.0.0/22", "prefix": 24}):
        refused = eve("PUT", f"leases/{hers}/dpu-networks/blue", theirs, code=409)
        assert "10.20.1.0 is used by another lease" in refused["detail"]
        assert locks(hers) == []
    ada("POST", f"leases/{held}/release", {})
    settle()
    assert (left("network"), locks(held)) == ([], [])
    eve("PUT", f"leases/{hers}/dpu-networks/blue", BLUE)


def test_a_network_that_a_chain_uses_is_not_removed(ada, held) -> None:
    ada("PUT", f"leases/{held}/dpu-services/edge", {"chart": CHART, "interfaces": ["net1"]})
    web = {"switches": [["p0", "edge:net1@blue"]]}
    assert ada("PUT", f"leases/{held}/dpu-chains/web", web, code=400)["field"] == "switches.0.1"
    ada("PUT", f"leases/{held}/dpu-networks/blue", BLUE)
    assert ada("PUT", f"leases/{held}/dpu-chains/web", web)["switches"] == web["switches"]
    refused = ada("DELETE", f"leases/{held}/dpu-networks/blue", code=409)
    assert "network blue is used by chain web" in refused["detail"]
    ada("DELETE", f"leases/{held}/dpu-chains/web", code=204)
    ada("DELETE", f"leases/{held}/dpu-networks/blue", code=204)
    assert (left("network"), locks(held)) == ([], [])


def test_only_the_owner_sees_and_changes_networks(ada, held, api, owner, django_user_model) -> None:
    where = f"leases/{held}/dpu-networks/blue"
    ada("PUT", where, BLUE)
    eve = api(django_user_model.objects.create_user("eve"))
    for method, path, body in (
        ("GET", where, None), ("GET", f"leases/{held}/dpu-networks", None), ("PUT", where, BLUE),
        ("DELETE", where, None),
    ):  # fmt: skip
        assert eve(method, path, body, code=404)["code"] == "not_found"
    reader = api(owner, "read")
    assert reader("GET", where)["name"] == "blue"
    reader("PUT", where, BLUE, code=403)
    reader("DELETE", where, code=403)


def test_networks_are_not_supported_unless_the_config_has_ranges(api, owner, blueprint) -> None:
    blueprint("none", kind="fake_activated", config={"provider": "dpus", "chains": {}})
    ada = api(owner)
    refused = ada("PUT", f"leases/{leased(ada)}/dpu-networks/blue", BLUE, code=409)
    assert (refused["code"], "no networks on this DPU" in refused["detail"]) == ("not_supported", True)


def test_the_client_in_this_process_does_the_same(ada, held, owner) -> None:
    here = LocalClient(caller(owner))
    made = here.create_dpu_network(held, "blue", **BLUE)
    assert here.dpu_networks(held) == [made]
    assert here.dpu_network(held, "blue") == made
    assert ada("GET", f"leases/{held}/dpu-networks/blue")["gateway"] == made.gateway
    here.remove_dpu_network(held, "blue")
    assert here.dpu_networks(held) == []
