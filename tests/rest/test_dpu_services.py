"""Services on a DPU over REST: applied, shown, refused with the field, and gone when the lease is."""

from __future__ import annotations

import json

import pytest

from blueprints.fake.cloud import Cloud
from blueprints.fake.services import FakeServices
from drydock_client.values import DpuChart
from interfaces.deadline import Deadline
from interfaces.errors import ServiceChanged
from leases.engine.core import specs
from leases.local import LocalClient
from leases.messaging.inline import settle
from leases.models import Event
from leases.operations.callers import caller

CHART = {"repository": "oci://charts.example.org/doca", "name": "firewall", "version": "1.2.0"}
CONFIG = {"provider": "dpus", "charts": [{**CHART, "versions": ["1.2.0", "1.3.0"]}]}
del CONFIG["charts"][0]["version"]
SECRET = "hunter2-in-values"


@pytest.fixture
def ada(api, owner, blueprint):
    blueprint("dpus", kind="fake_activated", config=CONFIG)
    return api(owner)


@pytest.fixture
def held(ada):
    made = ada("POST", "leases", {"type": "fake_activated", "ttl": "2h"}, code=201)["id"]
    settle()
    assert "dpu_services" in ada("GET", f"leases/{made}")["interfaces"]
    return made


def services() -> list[str]:
    return [one.what for one in Cloud("dpus").left() if one.what.startswith("service ")]


def test_a_service_is_applied_changed_listed_shown_and_removed(ada, held) -> None:
    where = f"leases/{held}/dpu-services/edge"
    ada("GET", where, code=404)
    body = {
        "chart": CHART, "values": {"token": SECRET, "rules": ["a"]}, "labels": {"team": "net"},
        "ports": [{"name": "metrics", "port": 9100}, {"name": "dns", "port": 53, "protocol": "UDP"}],
    }  # fmt: skip
    made = ada("PUT", where, body)
    assert (made["name"], made["state"], made["pods"], made["pods_ready"]) == ("edge", "ready", 1, 1)
    assert made == ada("GET", where) == ada("PUT", where, body)
    assert (made["values"], made["labels"], made["ports"][1]["protocol"]) == (body["values"], body["labels"], "UDP")

    changed = ada("PUT", where, {"chart": {**CHART, "version": "1.3.0"}})
    assert (changed["chart"]["version"], changed["values"], changed["ports"]) == ("1.3.0", {}, [])
    ada("PUT", f"leases/{held}/dpu-services/alpha", {"chart": CHART})
    listed = ada("GET", f"leases/{held}/dpu-services")
    assert [(one["name"], one["values"]) for one in listed["results"]] == [("alpha", None), ("edge", None)]

    pod = {"name": "edge-1", "ready": False, "reason": "ImagePullBackOff", "message": "no such image"}
    ready = {"type": "ApplicationsReady", "status": "True"}
    Cloud("dpus").show_service(specs.key("l", held), "edge", pods=[pod], conditions=[ready])
    found = ada("GET", where)
    assert (found["state"], found["pods_ready"]) == ("failed", 0)
    assert found["messages"] == ["Pod edge-1 is not ready (Running): ImagePullBackOff no such image"]

    ada("DELETE", where, code=204)
    ada("DELETE", where, code=204)
    assert services() == ["service alpha"]


def test_events_say_who_applied_what_without_its_values(ada, held) -> None:
    ada("PUT", f"leases/{held}/dpu-services/edge", {"chart": CHART, "values": {"token": SECRET}})
    ada("DELETE", f"leases/{held}/dpu-services/edge", code=204)
    found = Event.objects.filter(kind="lease.dpu_service", lease_id=held).order_by("pk")
    assert [one.message for one in found] == ["Applied service edge: chart firewall 1.2.0.", "Removed service edge."]
    assert {one.actor for one in found} == {"ada"}
    assert not [one for one in Event.objects.all() if SECRET in json.dumps([one.message, one.details])]


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"deployInCluster": True}, "deployInCluster"),
        ({"nodeSelector": {}}, "nodeSelector"),
        ({"dpuClusterSelector": {}}, "dpuClusterSelector"),
        ({"namespace": "kube-system"}, "namespace"),
        ({"chart": {**CHART, "repository": "oci://elsewhere.example.org"}}, "chart.repository"),
        ({"chart": {**CHART, "name": "miner"}}, "chart.name"),
        ({"chart": {**CHART, "version": "9.9.9"}}, "chart.version"),
        ({"chart": {**CHART, "path": "x"}}, "chart.path"),
        ({"values": {"a": None}}, "values.a"),
        ({"values": {"pod": {"nodeSelector": {"a": "b"}}}}, "values.pod.nodeSelector"),
        ({"values": {"podLabels": {"dpu.nvidia.com/a": "b"}}}, "values.podLabels.dpu.nvidia.com/a"),
        ({"values": {"a": "x" * (65 << 10)}}, "values"),
        ({"values": [1]}, "values"),
        ({"ports": [{"name": "a", "port": 70_000}]}, "ports.0.port"),
        ({"ports": [{"name": "A", "port": 7}]}, "ports"),
        ({"labels": {"svc.dpu.nvidia.com/a": "b"}}, "labels.svc.dpu.nvidia.com/a"),
        ({"labels": {"a": "b c"}}, "labels"),
    ],
)
def test_what_cannot_be_installed_is_refused_with_its_field(ada, held, change, field) -> None:
    refused = ada("PUT", f"leases/{held}/dpu-services/edge", {"chart": CHART, **change}, code=400)
    assert refused["field"] == field
    assert services() == []
    assert not Event.objects.filter(kind="lease.dpu_service").exists()


def test_values_that_are_too_deep_are_refused(ada, held) -> None:
    deep: object = 1
    for _ in range(21):
        deep = {"a": deep}
    refused = ada("PUT", f"leases/{held}/dpu-services/edge", {"chart": CHART, "values": deep}, code=400)
    assert (refused["field"], "20 levels" in refused["detail"]) == ("values", True)


def test_an_odd_name_is_refused(ada, held) -> None:
    for name in ("Edge", "a" * 41, "a_b", "-a", "7"):
        assert ada("PUT", f"leases/{held}/dpu-services/{name}", {"chart": CHART}, code=400)["field"] == "name"
        assert ada("GET", f"leases/{held}/dpu-services/{name}", code=400)["field"] == "name"
        assert ada("DELETE", f"leases/{held}/dpu-services/{name}", code=400)["field"] == "name"


def test_no_chart_is_allowed_unless_the_config_lists_it(api, owner, blueprint) -> None:
    blueprint("none", kind="fake_activated", config={"provider": "dpus"})
    ada = api(owner)
    made = ada("POST", "leases", {"type": "fake_activated"}, code=201)["id"]
    settle()
    refused = ada("PUT", f"leases/{made}/dpu-services/edge", {"chart": CHART}, code=400)
    assert (refused["field"], refused["hint"]) == ("chart.repository", "Allowed: none.")


def test_only_the_owner_sees_and_changes_services_and_only_with_the_scope(
    ada, held, api, owner, django_user_model
) -> None:
    where = f"leases/{held}/dpu-services/edge"
    ada("PUT", where, {"chart": CHART})
    eve = api(django_user_model.objects.create_user("eve"))
    for method, path, body in (
        ("GET", where, None), ("GET", f"leases/{held}/dpu-services", None), ("PUT", where, {"chart": CHART}),
        ("DELETE", where, None),
    ):  # fmt: skip
        assert eve(method, path, body, code=404)["code"] == "not_found"
    reader = api(owner, "read")
    assert reader("GET", where)["name"] == "edge"
    reader("PUT", where, {"chart": CHART}, code=403)
    reader("DELETE", where, code=403)
    assert services() == ["service edge"]


def test_a_kind_without_services_says_so(api, owner, blueprint) -> None:
    blueprint("pool")
    ada = api(owner)
    made = ada("POST", "leases", {"type": "fake"}, code=201)["id"]
    settle()
    refused = ada("GET", f"leases/{made}/dpu-services", code=409)
    assert (refused["code"], "does not provide" in refused["detail"]) == ("not_supported", True)


def test_services_end_with_the_lease(ada, held) -> None:
    ada("PUT", f"leases/{held}/dpu-services/edge", {"chart": CHART})
    ada("POST", f"leases/{held}/release", {})
    settle()
    assert services() == []
    assert ada("GET", f"leases/{held}/dpu-services", code=409)["code"] == "lease_ended"


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_request_that_comes_after_the_cleaning_leaves_nothing(ada, held, monkeypatch, when) -> None:
    """The lease is released, deactivated and cleaned while the request is on its way to the DPU."""
    create = FakeServices.create

    def released() -> None:
        ada("POST", f"leases/{held}/release", {})
        settle()
        assert ada("GET", f"leases/{held}")["state"] == "destroyed"

    def late(self, service, deadline):
        if when == "before":
            released()
        made = create(self, service, deadline)
        assert services() == ["service edge"]
        if when == "after":
            released()
        return made

    monkeypatch.setattr(FakeServices, "create", late)
    refused = ada("PUT", f"leases/{held}/dpu-services/edge", {"chart": CHART}, code=409)
    assert refused["code"] == "lease_ended"
    assert services() == []
    assert not Event.objects.filter(kind="lease.dpu_service").exists()


def test_a_service_that_was_made_anew_is_not_the_former_one(ada, held) -> None:
    (instance,) = Cloud("dpus").instances()
    backend, where = FakeServices("dpus", instance.key, specs.key("l", held)), f"leases/{held}/dpu-services/edge"
    ada("PUT", where, {"chart": CHART})
    former = backend.find("edge", Deadline(5))
    ada("DELETE", where, code=204)
    ada("PUT", where, {"chart": CHART})
    with pytest.raises(ServiceChanged):
        backend.replace(former.service, former, Deadline(5))
    with pytest.raises(ServiceChanged):
        backend.remove(former, Deadline(5))
    assert services() == ["service edge"]


def test_a_dpu_that_does_not_answer_is_told(ada, held) -> None:
    cloud = Cloud("dpus")
    (instance,) = cloud.instances()
    cloud.cut_off(instance.key)
    assert ada("GET", f"leases/{held}/dpu-services", code=502)["code"] == "unreachable"
    assert ada("PUT", f"leases/{held}/dpu-services/edge", {"chart": CHART}, code=502)["code"] == "unreachable"
    cloud.connect(instance.key)
    assert ada("GET", f"leases/{held}/dpu-services")["results"] == []


def test_the_client_in_this_process_does_the_same(ada, held, owner) -> None:
    here = LocalClient(caller(owner))
    made = here.apply_dpu_service(held, "edge", chart=DpuChart(**CHART), values={"a": 1}, labels={"team": "net"})
    assert made == here.dpu_service(held, "edge")
    assert [one.name for one in here.dpu_services(held)] == ["edge"]
    assert ada("GET", f"leases/{held}/dpu-services/edge")["values"] == {"a": 1}
    here.remove_dpu_service(held, "edge")
    assert here.dpu_services(held) == []
