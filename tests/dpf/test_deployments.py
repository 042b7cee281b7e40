"""DPUDeployments as values: what is written to servers of both versions of DPF, and what is refused."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from blueprints.dpf import deployments, services
from blueprints.dpf.images import Image
from blueprints.dpu.dpf import actions, deploying, kind, updating
from blueprints.dpu.dpf.config import Config
from blueprints.kube.dialect import bundled
from interfaces.dpu_services import ServiceState
from interfaces.dpu_services.status import status_of
from tests.dpf.objects import condition, made

CHART = {"repository": "oci://charts.example.org/doca", "name": "firewall"}
URL = "https://images.example.org/a.bfb"
CARD = {
    "card_labels": {"provisioning.dpu.nvidia.com/dpudevice-pciAddress": "0000-08-00"},
    "node_labels": {"kubernetes.io/hostname": "h1"},
}
PROOF = {"drydock-installation": "abc", "drydock-resource": "7"}
PORTS = [{"service": "edge", "interface": "net1"}, {"labels": {"uplink": "p0"}}]


def config(*, chains: Any = (PORTS,), service: Any = None, **given: Any) -> Config:
    edge = {"chart": {**CHART, "version": "1.2.0"}, "interfaces": ["net1"], **(service or {})}
    made_of = {"image": URL, "flavor": {}, "services": {"edge": edge}, "chains": chains}
    charts = [{**CHART, "versions": ["1.2.0", "1.3.0"]}]
    return Config(**{"credential": "dpf", "charts": charts, "deployment": made_of, **given})


def deployment(version: str, *, selects: bool) -> Any:
    layout = config().deployment.layout()
    return deployments.deployment(
        bundled()[f"dpf-{version}"], "d7", "dpf", CARD, key="d7", image=Image("BFB", "image"), flavor="flavor",
        layout=layout, selects=selects,
    )  # fmt: skip


@pytest.mark.parametrize("version", ["24.10", "26.4"])
def test_every_object_is_valid_for_the_server(version):
    dialect = bundled()[f"dpf-{version}"]
    assert deploying.inexpressible(dialect, config(), "here") == []
    parts = deployments.parts(dialect, "d7", "d7", "dpf", config().deployment.layout(), PROOF)
    for one in (*parts, deployment(version, selects=True), deployment(version, selects=False)):
        assert not dialect.missing(one)
    template, configuration = parts
    assert "deployInCluster" not in str(configuration)
    pods = configuration["spec"]["serviceConfiguration"]["serviceDaemonSet"]
    assert PROOF.items() <= pods["labels"].items()
    assert template["spec"]["helmChart"]["source"]["version"] == "1.2.0"


@pytest.mark.parametrize("version", ["24.10", "26.4"])
def test_nothing_is_selected_before_the_dpuset_is_provably_ours(version):
    (first,) = deployment(version, selects=False)["spec"]["dpus"]["dpuSets"]
    (then,) = deployment(version, selects=True)["spec"]["dpus"]["dpuSets"]
    assert deployments.NOTHING in str(first)
    assert deployments.NOTHING not in str(then)
    assert str(CARD["card_labels"])[1:-1] in str(then), "the card is selected by all of its labels"
    with pytest.raises(ValueError, match="selects all nodes"):
        deployments.deployment(
            bundled()[f"dpf-{version}"], "d7", "dpf", {"card_labels": {}}, key="d7", image=Image("BFB", "i"),
            flavor="f", layout=config().deployment.layout(), selects=True,
        )  # fmt: skip


def test_dpf_24_10_is_told_before_that_not_to_drain_or_reboot_the_host():
    defaults = {"nodeEffect": {"drain": {"automaticNodeReboot": True}}, "automaticNodeReboot": True}
    found = made("DPUSet", "d7-card", spec={"dpuTemplate": {"spec": defaults}})
    change = deployments.amendment(bundled()["dpf-24.10"], found, PROOF, PROOF)
    template = change["spec"]["dpuTemplate"]["spec"]
    assert template["nodeEffect"] == {"drain": None, "noEffect": True}
    assert template["automaticNodeReboot"] is False
    assert change["metadata"]["labels"] == template["cluster"]["nodeLabels"] == PROOF
    held = made("DPUSet", "d7-card", spec={"dpuTemplate": {"spec": {"nodeEffect": {"hold": True}}}})
    change = deployments.amendment(bundled()["dpf-26.4"], held, PROOF, PROOF)
    assert change["spec"]["dpuTemplate"]["spec"] == {"cluster": {"nodeLabels": PROOF}}
    done = {"dpuTemplate": {"spec": {"nodeEffect": {"hold": True}, "cluster": {"nodeLabels": {**PROOF, "x": "y"}}}}}
    complete = made("DPUSet", "d7-card", spec=done, labels={**PROOF, "z": "1"})
    assert deployments.amendment(bundled()["dpf-26.4"], complete, PROOF, PROOF) == {}


def test_a_dpuset_of_another_deployment_of_the_name_is_not_ours():
    ours, other = made("DPUDeployment", "d7"), made("DPUDeployment", "d7", uid="uid-of-another")
    found = made("DPUSet", "d7-card", ownerReferences=[{"kind": "DPUDeployment", "name": "d7", "uid": ours.uid}])
    assert deployments.is_made_of(found, ours)
    assert not deployments.is_made_of(found, other)
    assert not deployments.is_made_of(made("DPUSet", "d7-card"), ours)


def test_what_a_server_cannot_express_names_the_field():
    (problem,) = deploying.inexpressible(bundled()["dpf-24.10"], config(chains=()), "here")
    assert (problem.field, problem.fatal) == ("deployment.chains", True)
    assert "spec.serviceChains" in problem.message
    assert deploying.inexpressible(bundled()["dpf-26.4"], config(chains=()), "here") == []


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"image": "https://x/b.bfb"}, "image: with `deployment`"),
        ({"charts": []}, "deployment.services.edge.chart.repository"),
        ({"service": {"chart": {**CHART, "version": "9.9.9"}}}, "deployment.services.edge.chart.version"),
        ({"service": {"values": {"nodeSelector": {"a": "b"}}}}, "services.edge.values.nodeSelector"),
        ({"service": {"labels": {"svc.dpu.nvidia.com/x": "y"}}}, "services.edge.labels"),
        ({"service": {"deployInCluster": True}}, "deployInCluster"),
        ({"service": {"interfaces": ["eth0"]}}, "services.edge.interfaces"),
        ({"chains": [[{"service": "edge", "interface": "net9"}]]}, "service edge has no interface net9"),
        ({"chains": [[{"service": "edge", "interface": "net1"}], [PORTS[0]]]}, "connected twice"),
        ({"chains": [[{"service": "edge"}]]}, "A port has"),
        ({"namespace": "n" * 43}, "namespace"),
        ({"chain": {}}, "chain"),
    ],
)
def test_bad_deployments_are_refused_with_their_field(given, said):
    if "chain" in given:
        with pytest.raises(ValidationError, match="owners cannot connect chains"):
            Config(**{**config().model_dump(exclude={"image", "flavor", "chains"}), "chains": {}})
        return
    with pytest.raises(ValidationError, match=said):
        config(**given)


def test_without_a_deployment_image_and_flavor_are_required():
    for given, name in (({}, "image"), ({"image": URL}, "flavor")):
        with pytest.raises(ValidationError, match=f"{name}: it is required"):
            Config(credential="dpf", **given)
    found = config()
    assert (found.image, found.flavor) == (URL, {})
    assert Config.model_validate(found.model_dump()) == found


def test_a_service_is_ready_by_its_pods_in_the_version_of_its_template():
    (service,) = config().deployment.parsed()
    source = {"chart": "firewall", "version": "1.2.0"}
    annotations = {services.DEFINITION: services.text_of(service)}
    template = made(
        "DPUServiceTemplate", "d7-edge", spec={"helmChart": {"source": source}}, labels={services.NAME: "edge"},
        annotations=annotations,
    )  # fmt: skip
    version = services.version_of(service)
    pods = {"labels": {services.NAME: "edge"}, "annotations": {services.VERSION: version}}
    spec = {"helmChart": {"source": source}, "serviceDaemonSet": pods}
    found = made("DPUService", "edge-x", spec=spec, status={"conditions": [condition("Ready", "True")]})
    running = {"phase": "Running", "conditions": [condition("Ready", "True")]}
    pod = made("Pod", "p", status=running, labels=pods["labels"], annotations=pods["annotations"])

    def state(objects: Any, running: Any) -> ServiceState:
        seen = deployments.deployed(template, objects, running)
        assert seen is not None
        assert seen.of_blueprint
        return status_of(seen).state

    assert state([found], [pod]) is ServiceState.READY
    assert state([found], []) is ServiceState.PENDING, "whatever its object says"
    assert state([], [pod]) is ServiceState.PENDING, "DPF has made nothing of it yet"
    former = made("Pod", "q", status=running, labels=pods["labels"], annotations={services.VERSION: "former"})
    assert state([found], [pod, former]) is ServiceState.PENDING
    other = made("DPUService", "edge-x", spec={**spec, "helmChart": {"source": {**source, "version": "6.6.6"}}})
    assert state([other], [pod]) is ServiceState.PENDING, "somebody has changed the chart"


def test_an_update_that_fails_leaves_the_facts_about_the_former_image():
    def leased(url: str) -> Any:
        return SimpleNamespace(resource=SimpleNamespace(attributes={"url": url}))

    spec: Any = SimpleNamespace(config=SimpleNamespace(image="new"), parents={"image": leased("old")})
    spec.resource = SimpleNamespace(facts={})
    need = updating.have_image(spec, {})
    (lease,) = need.leases
    spec.parents[lease.name] = leased("new")
    answer = updating.have_image(spec, {})
    spec.resource.facts |= answer.facts
    assert actions.image_of(spec) is spec.parents["image"], "until the new one is written"
    spec.config.image = "old"
    spec.resource.facts |= updating.have_image(spec, {}).facts
    assert spec.resource.facts == {"next": {}}


def test_orphans_are_searched_among_the_types_that_the_role_lets_list(monkeypatch):
    seen = []
    monkeypatch.setattr(kind, "owned", lambda blueprint, installation, kinds, **_: seen.append(set(kinds)) or [])
    for given in (Config(credential="dpf", image=URL, flavor={}), config()):
        blueprint: Any = SimpleNamespace(config=given)
        kind.Dpf().owned(blueprint, "i1")
    assert seen == [{"DPUSet", "DPUFlavor"}, {"DPUSet", "DPUFlavor", "DPUDeployment"}]


def test_what_cannot_be_forced():
    before = config()
    assert updating.unforcible(before, config(service={"chart": {**CHART, "version": "1.3.0"}})) == ""
    assert "between a DPUSet and a DPUDeployment" in updating.unforcible(
        Config(credential="dpf", image=URL, flavor={}), before
    )
    assert "card" in updating.unforcible(before, config(card={"model": "BlueField3"}))
    assert updating.unforcible(None, before)
    changed = config(service={"chart": {**CHART, "version": "1.3.0"}})
    assert updating.disruption(before, changed) == "The services of the deployment change."
    layout = {**before.deployment.model_dump(), "image": f"{URL}2.bfb"}
    other = config(deployment=layout)
    assert updating.disruption(before, other) == "The DPU is installed anew for another deployment."
