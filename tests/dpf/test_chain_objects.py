"""The chains of a lease as objects: what both versions of DPF accept, and what their status says. Pure."""

from __future__ import annotations

from typing import Any

import pytest

from blueprints.dpf import chains as objects
from blueprints.dpf import services
from blueprints.dpf.objects import Place
from blueprints.dpf.services import LEASE
from blueprints.kube import Object
from blueprints.kube.check import check
from blueprints.kube.dialect import bundled
from interfaces.dpu_services import Chain, Chart, ObjectState, Service
from interfaces.dpu_services.objects import status_of

LEASE_KEY = "d-l1"
PROOF = {"drydock-installation": "i1", "drydock-resource": "7"}
VERSIONS = ("24.10", "26.4")
WEB = Chain.of("web", [["p0", "edge:net1"], ["edge:net2", "pf0vf3", "pf1"]])
CHART = Chart(repository="oci://charts.example.org", name="firewall", version="1.2.0")
RIGHT = {"conditions": [{"type": "Ready", "status": "True"}], "observedGeneration": 1}


def place(version: str = "26.4", lease: str = LEASE_KEY, **given: Any) -> Place:
    known = {"cluster": {}, "network": "mybrsfc", **given}
    return Place(dialect=bundled()[f"dpf-{version}"], lease=lease, namespace="dpf", proof=PROOF, **known)


def written(version: str = "26.4", chain: Chain = WEB, **given: Any) -> list[dict[str, Any]]:
    known = {"cluster": {"zone": "a"}, "network": "mybrsfc", **given}
    made = objects.CHAINS.manifests(place(version, **known), chain)
    for number, one in enumerate(made):
        one["metadata"] |= {"uid": f"u{number}", "resourceVersion": "1", "generation": 1}
        one["status"] = RIGHT
    return made


def found(made: list[dict[str, Any]], version: str = "26.4") -> Any:
    # The items of a listing have no kind of their own.
    parts = [(one["kind"], Object.of({key: one[key] for key in ("metadata", "spec", "status")})) for one in made]
    chains = objects.CHAINS.found(place(version), parts)
    return chains[0] if chains else None


@pytest.mark.parametrize("version", VERSIONS)
def test_both_versions_accept_a_chain_and_its_interfaces(version: str) -> None:
    made = written(version)
    for one in made:
        findings = check({key: one[key] for key in one if key != "status"}, bundled()[f"dpf-{version}"])
        assert (*findings.unknown, *findings.missing, *findings.invalid) == ()
        assert one["metadata"]["labels"] == {**PROOF, LEASE: LEASE_KEY, objects.CHAINS.name: "web"}
        assert one["spec"]["template"]["spec"]["nodeSelector"] == {"matchLabels": PROOF}
        field = "dpuClusterSelector" if version == "26.4" else "clusterSelector"
        assert one["spec"][field] == {"matchLabels": {"zone": "a"}}
        assert set(one["spec"]) == {field, "template"}
    *interfaces, chain = made
    kinds = [one["spec"]["template"]["spec"]["template"]["spec"] for one in interfaces]
    parent = {} if version == "26.4" else {"parentInterfaceRef": "p0"}
    assert kinds == [
        {"interfaceType": "physical", "physical": {"interfaceName": "p0"}},
        {
            "interfaceType": "service",
            "service": {"serviceID": "d-l1-edge", "network": "mybrsfc", "interfaceName": "net1"},
        },
        {
            "interfaceType": "service",
            "service": {"serviceID": "d-l1-edge", "network": "mybrsfc", "interfaceName": "net2"},
        },
        {"interfaceType": "vf", "vf": {"pfID": 0, "vfID": 3, **parent}},
        {"interfaceType": "pf", "pf": {"pfID": 1}},
    ]
    ports = [
        port["serviceInterface"]["matchLabels"]
        for switch in chain["spec"]["template"]["spec"]["template"]["spec"]["switches"]
        for port in switch["ports"]
    ]
    labels = [one["spec"]["template"]["spec"]["template"]["metadata"]["labels"] for one in interfaces]
    assert ports == labels
    assert len({label[objects.OF] for label in labels}) == 5
    assert {label[LEASE] for label in labels} == {LEASE_KEY}


@pytest.mark.parametrize("version", VERSIONS)
def test_a_service_names_the_interfaces_that_its_chain_writes(version: str) -> None:
    edge = Service(name="edge", chart=CHART, interfaces=("net1", "net2"))
    dialect = bundled()[f"dpf-{version}"]
    made = services.manifest(dialect, edge, lease=LEASE_KEY, namespace="dpf", proof=PROOF, cluster={})
    findings = check(made, dialect)
    assert (*findings.unknown, *findings.missing, *findings.invalid) == ()
    there = {
        one["metadata"]["name"]: one["spec"]["template"]["spec"]["template"]["spec"]["service"]["serviceID"]
        for one in written(version)
        if ":" not in one["metadata"]["name"] and "edge" in one["metadata"]["name"]
    }
    assert there == dict.fromkeys(made["spec"]["interfaces"], made["spec"]["serviceID"])


def test_without_labels_of_the_cluster_the_node_decides_alone() -> None:
    assert [set(one["spec"]) for one in written(cluster={})] == [{"template"}] * 6


def test_names_of_different_leases_chains_and_interfaces_differ_and_are_dns_labels() -> None:
    chains = [Chain.of("a" * 40, [["p0", f"{'b' * 40}:net1"]]), Chain.of("p0", [["pf0", f"{'b' * 40}:net2"]])]
    names = {
        (one["kind"], one["metadata"]["name"])
        for chain in chains
        for lease in ("d-l1", "d-l12")
        for one in objects.CHAINS.manifests(place(lease=lease), chain)
    }
    assert len(names) == 12
    assert max(len(name) for _, name in names) <= 63


def test_a_chain_is_ready_once_all_of_its_objects_are() -> None:
    made = written()
    assert status_of(found(made)).state is ObjectState.READY
    assert found(made).definition == WEB
    wrong = {"type": "ServiceInterfaceSetReady", "status": "False", "reason": "Pending", "message": "no pod"}
    ready = {"type": "Ready", "status": "False", "reason": "Pending", "message": ""}
    made[1]["status"] = {"conditions": [wrong, ready]}
    shown = status_of(found(made))
    assert shown.state is ObjectState.PENDING
    assert shown.messages[0] == (
        "DPUServiceInterface d-l1-edge-net1: ServiceInterfaceSetReady is False: Pending no pod"
    )
    made[1]["status"] = {**RIGHT, "observedGeneration": 0}
    assert status_of(found(made)).state is ObjectState.PENDING
    made[1]["status"] = {}
    assert status_of(found(made)).state is ObjectState.PENDING


@pytest.mark.parametrize("missing", [0, 5])
def test_what_is_missing_is_told(missing: int) -> None:
    made = written()
    del made[missing]
    seen = found(made)
    assert (seen.complete, seen.definition) == (False, WEB)
    assert status_of(seen).messages[0].startswith("Not all of its objects exist.")


def test_a_chain_of_which_an_object_is_being_deleted_is_being_removed() -> None:
    made = written()
    made[0]["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    seen = found(made)
    assert (seen.removing, seen.complete, status_of(seen).state) == (True, False, ObjectState.REMOVING)


def test_an_object_that_others_have_changed_is_told_and_defaults_of_the_server_are_not() -> None:
    made = written()
    inside = made[-1]["spec"]["template"]["spec"]["template"]["spec"]
    inside["switches"][0]["serviceMTU"] = 1500
    made[0]["metadata"]["annotations"]["dpu.nvidia.com/consumed-by"] = "edge"
    made[0]["spec"]["dpuClusterSelector"] = {"matchLabels": {"zone": "b"}}
    assert found(made).ready
    made[3]["spec"]["template"]["spec"]["template"]["spec"]["vf"]["vfID"] = 4
    shown = status_of(found(made))
    assert (shown.state, "Unchanged is False" in shown.messages[0]) == (ObjectState.PENDING, True)
    assert "d-l1-pf0vf3" in shown.messages[0]


@pytest.mark.parametrize(
    "text",
    [
        "", "[]", "{", '{"name": "web"}', '{"name": "other", "switches": [["p0", "pf0"]]}',
        '{"name": "web", "switches": 7}', '{"name": "web", "switches": [["p0", {}]]}',
    ],
)  # fmt: skip
def test_garbled_objects_are_no_chains(text: str) -> None:
    made = written()
    for one in made:
        one["metadata"]["annotations"][objects.CHAINS.definition] = text
    assert found(made) is None
