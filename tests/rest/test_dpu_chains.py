"""Chains of a DPU over REST: connected, locked against other leases, refused, and gone with the lease."""

from __future__ import annotations

import pytest

from blueprints.fake.cloud import Cloud
from blueprints.fake.dpuobjects import FakeChains
from drydock_client.values import DpuChart
from interfaces.errors import LeaseEnded
from leases.engine.core import specs
from leases.local import LocalClient
from leases.messaging.inline import settle
from leases.models import Event, Lease
from leases.operations.callers import caller
from leases.slot_locks import DatabaseSlotLocks
from tests.rest.dpus import leased, left, locks

CHART = {"repository": "oci://charts.example.org/doca", "name": "firewall", "version": "1.2.0"}
CONFIG = {
    "provider": "dpus", "capacity": {"slots": 2}, "chains": {"vfs": 4},
    "charts": [{"repository": CHART["repository"], "name": "firewall", "versions": ["1.2.0"]}],
}  # fmt: skip
WEB = {"switches": [["p0", "edge:net1"], ["edge:net2", "pf0vf3"]]}


@pytest.fixture
def ada(api, owner, blueprint):
    blueprint("dpus", kind="fake_activated", config=CONFIG)
    return api(owner)


@pytest.fixture
def held(ada):
    made = leased(ada)
    ada("PUT", f"leases/{made}/dpu-services/edge", {"chart": CHART, "interfaces": ["net1", "net2"]})
    return made


def test_a_chain_is_connected_listed_shown_and_removed(ada, held) -> None:
    where = f"leases/{held}/dpu-chains/web"
    assert ada("GET", where, code=404)["code"] == "object_missing"
    made = ada("PUT", where, WEB)
    assert made == {"name": "web", "state": "ready", "switches": WEB["switches"], "messages": []}
    assert made == ada("GET", where) == ada("PUT", where, WEB)
    assert ada("GET", f"leases/{held}/dpu-chains")["results"] == [made]
    assert locks(held) == ["edge:net1", "edge:net2", "p0", "pf0vf3"]
    assert "exists and is another one" in ada("PUT", where, {"switches": [["p0", "pf0"]]}, code=409)["detail"]

    wrong = {"type": "ServiceChainSetReady", "status": "False", "reason": "Pending", "message": "not yet"}
    Cloud("dpus").show_object(specs.key("l", held), "chain", "web", ready=False, conditions=[wrong])
    found = ada("GET", where)
    assert (found["state"], found["messages"]) == ("pending", ["ServiceChainSetReady is False: Pending not yet"])

    ada("DELETE", where, code=204)
    ada("DELETE", where, code=204)
    assert (left("chain"), locks(held)) == ([], [])
    told = Event.objects.filter(kind="lease.dpu_chain", lease_id=held).order_by("pk")
    assert [one.message for one in told][0::3] == [
        "Connected chain web: p0, edge:net1; edge:net2, pf0vf3.", "Removed chain web.",
    ]  # fmt: skip
    assert {one.actor for one in told} == {"ada"}


def test_what_a_chain_uses_is_not_removed_and_the_chain_is_named(ada, held) -> None:
    where = f"leases/{held}/dpu-services/edge"
    ada("PUT", f"leases/{held}/dpu-chains/web", WEB)
    for method, body in (("DELETE", None), ("PUT", {"chart": CHART, "interfaces": ["net2"]})):
        refused = ada(method, where, body, code=409)
        assert "edge:net1 is used by chain web" in refused["detail"]
    assert ada("GET", where)["interfaces"] == ["net1", "net2"]
    ada("DELETE", f"leases/{held}/dpu-chains/web", code=204)
    ada("DELETE", where, code=204)
    assert locks(held) == []


def test_two_leases_on_one_dpu_never_share_an_interface(ada, held, api, django_user_model) -> None:
    eve = api(django_user_model.objects.create_user("eve"))
    hers = leased(eve)
    assert len(set(Lease.objects.filter(pk__in=(held, hers)).values_list("resource_id", flat=True))) == 1
    ada("PUT", f"leases/{held}/dpu-chains/web", WEB)
    refused = eve("PUT", f"leases/{hers}/dpu-chains/web", {"switches": [["p1", "pf0vf3"]]}, code=409)
    assert "pf0vf3 is used by another lease" in refused["detail"]
    assert "ada" not in str(refused)
    assert locks(hers) == [], "all or none"
    eve("PUT", f"leases/{hers}/dpu-chains/web", {"switches": [["p1", "pf0vf2"]]})
    # The VF is free once the lease has been cleaned, and not before.
    ada("POST", f"leases/{held}/release", {})
    assert "pf0vf3" in locks(held)
    settle()
    assert (left("chain"), locks(held)) == (["chain web"], [])
    eve("PUT", f"leases/{hers}/dpu-chains/more", {"switches": [["p0", "pf0vf3"]]})


def test_a_lease_that_was_cleaned_gets_no_lock(ada, held) -> None:
    mine = DatabaseSlotLocks(held)
    assert mine.take("chain web", ["interface of a/p0", "interface of a/p1"]) == {}
    assert mine.take("chain web", ["interface of a/p1", "interface of a/p2"]) == {}
    assert mine.take("chain b", ["interface of a/p2", "interface of a/p3"]) == {"interface of a/p2": "chain web"}
    assert mine.held("chain b") == frozenset()
    assert mine.take("chain b", ["interface of a/p2"], over=["chain web"]) == {}
    assert mine.held("chain web") == {"interface of a/p0", "interface of a/p1"}
    mine.drop("chain b")
    assert locks(held) == ["p0", "p1"]
    ada("POST", f"leases/{held}/release", {})
    settle()
    assert locks(held) == []
    with pytest.raises(LeaseEnded):
        mine.take("chain web", ["interface of a/p0"])
    assert locks(held) == []


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"switches": [["p0", "eth0"]]}, "switches.0.1"), ({"switches": [["p0"]]}, "switches.0"),
        ({"switches": [["p0", "pf0vf4"]]}, "switches.0.1"), ({"switches": [["p2", "pf0"]]}, "switches.0.0"),
        ({"switches": [["p0", "edge:net9"]]}, "switches.0.1"), ({"switches": [["p0", "other:net1"]]}, "switches.0.1"),
        ({"switches": []}, "switches"), ({"switches": "p0"}, "switches"), ({}, "switches"),
        ({**WEB, "nodeSelector": {"a": "b"}}, "nodeSelector"), ({**WEB, "node": "n1"}, "node"),
        ({**WEB, "clusterSelector": {}}, "clusterSelector"), ({**WEB, "dpuClusterSelector": {}}, "dpuClusterSelector"),
        ({**WEB, "namespace": "kube-system"}, "namespace"),
    ],
)  # fmt: skip
def test_bad_chains_are_refused_with_their_field_and_nothing_is_written(ada, held, change, field) -> None:
    assert ada("PUT", f"leases/{held}/dpu-chains/web", change, code=400)["field"] == field
    assert (left("chain"), locks(held)) == ([], [])
    assert not Event.objects.filter(kind="lease.dpu_chain").exists()


def test_odd_names_are_refused(ada, held) -> None:
    for name in ("Web", "a" * 41, "a_b", "-a", "7"):
        for method, body in (("PUT", WEB), ("GET", None), ("DELETE", None)):
            assert ada(method, f"leases/{held}/dpu-chains/{name}", body, code=400)["field"] == "name"


def test_only_the_owner_sees_and_changes_chains_and_only_with_the_scope(
    ada, held, api, owner, django_user_model
) -> None:
    where = f"leases/{held}/dpu-chains/web"
    ada("PUT", where, WEB)
    eve = api(django_user_model.objects.create_user("eve"))
    for method, path, body in (
        ("GET", where, None), ("GET", f"leases/{held}/dpu-chains", None), ("PUT", where, WEB), ("DELETE", where, None),
    ):  # fmt: skip
        assert eve(method, path, body, code=404)["code"] == "not_found"
    reader = api(owner, "read")
    assert reader("GET", where)["name"] == "web"
    reader("PUT", where, WEB, code=403)
    reader("DELETE", where, code=403)
    assert left("chain") == ["chain web"]


def test_chains_are_not_supported_unless_the_config_allows_them(api, owner, blueprint) -> None:
    blueprint("none", kind="fake_activated", config={"provider": "dpus", "charts": CONFIG["charts"]})
    ada = api(owner)
    made = leased(ada)
    refused = ada("PUT", f"leases/{made}/dpu-chains/web", {"switches": [["p0", "pf0"]]}, code=409)
    assert (refused["code"], "no chains on this DPU" in refused["detail"]) == ("not_supported", True)
    body = {"chart": CHART, "interfaces": ["net1"]}
    assert ada("PUT", f"leases/{made}/dpu-services/edge", body, code=400)["field"] == "interfaces"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_request_that_comes_after_the_cleaning_leaves_nothing(ada, held, monkeypatch, when) -> None:
    create = FakeChains.create

    def released() -> None:
        ada("POST", f"leases/{held}/release", {})
        settle()

    def late(self, chain, deadline):
        if when == "before":
            released()
        made = create(self, chain, deadline)
        if when == "after":
            released()
        return made

    monkeypatch.setattr(FakeChains, "create", late)
    refused = ada("PUT", f"leases/{held}/dpu-chains/web", WEB, code=409)
    assert refused["code"] == "lease_ended"
    assert (left("chain"), locks(held)) == ([], [])


def test_the_client_in_this_process_does_the_same(ada, held, owner) -> None:
    here = LocalClient(caller(owner))
    here.apply_dpu_service(held, "edge", chart=DpuChart(**CHART), interfaces=["net1", "net2"])
    made = here.connect_dpu_chain(held, "web", switches=WEB["switches"])
    assert here.dpu_chains(held) == [made]
    assert here.dpu_chain(held, "web") == made
    assert ada("GET", f"leases/{held}/dpu-chains/web")["switches"] == WEB["switches"]
    here.remove_dpu_chain(held, "web")
    assert here.dpu_chains(held) == []
