"""The DPUServices of a lease as values: what is written for each version of DPF, and what is read of them."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from blueprints.dpf import services
from blueprints.kube import Dialect
from blueprints.kube.check import check
from blueprints.kube.dialect import bundled
from drydock.core.errors import InvalidRequest
from interfaces.dpu_services import Chart, Port, Service, ServiceState
from interfaces.dpu_services.helm import LARGEST
from interfaces.dpu_services.status import status_of
from tests.dpf.objects import condition, made

LEASE = "d-abcd-0-l7"
PROOF = {"drydock-installation": "abcd", "drydock-proof": "f" * 40, "drydock-resource": "7"}
CHART = Chart(repository="oci://charts.example.org/doca", name="firewall", version="1.2.0")
JOB = {"apiVersion": "batch/v1", "kind": "Job", "name": "hook", "uid": "j1"}


def service(**given: Any) -> Service:
    return Service(**{"name": "edge", "chart": CHART, **given})


def dialect(version: str) -> Dialect:
    return bundled()[f"dpf-{version}"]


def manifest(version: str, given: Service, cluster: dict[str, str] | None = None) -> dict[str, Any]:
    return services.manifest(
        dialect(version), given, lease=LEASE, namespace="dpf", proof=PROOF, cluster=cluster or {}
    )  # fmt: skip


@pytest.mark.parametrize("version", ["24.10", "26.4"])
def test_a_service_runs_on_the_node_with_the_proof_of_its_dpu_and_nowhere_else(version: str) -> None:
    found = manifest(version, service(values={"a": [1]}, labels={"team": "net"}), {"zone": "a"})
    assert not check(found, dialect(version))
    spec = found["spec"]
    (term,) = spec["serviceDaemonSet"]["nodeSelector"]["nodeSelectorTerms"]
    assert {one["key"]: one["values"] for one in term["matchExpressions"]} == {k: [v] for k, v in PROOF.items()}
    assert {one["operator"] for one in term["matchExpressions"]} == {"In"}
    assert "deployInCluster" not in spec
    assert ("dpuClusterSelector" in spec) == (version == "26.4")
    assert spec["helmChart"]["source"] == {
        "repoURL": CHART.repository, "chart": "firewall", "version": "1.2.0", "releaseName": f"{LEASE}-edge",
    }  # fmt: skip
    assert found["metadata"]["labels"] == {**PROOF, services.LEASE: LEASE, services.NAME: "edge"}
    assert spec["serviceDaemonSet"]["labels"] == {"team": "net", services.LEASE: LEASE, services.NAME: "edge"}


def test_a_cluster_without_labels_cannot_be_selected() -> None:
    assert "dpuClusterSelector" not in manifest("26.4", service())["spec"]


def test_ports_are_refused_where_the_server_cannot_express_them() -> None:
    ports = (Port(name="dns", port=53, protocol="UDP"),)
    found = manifest("26.4", service(ports=ports))
    assert not check(found, dialect("26.4"))
    assert found["spec"]["configPorts"] == {
        "serviceType": "NodePort", "ports": [{"name": "dns", "port": 53, "protocol": "UDP"}]
    }  # fmt: skip
    with pytest.raises(InvalidRequest) as refused:
        manifest("24.10", service(ports=ports))
    assert refused.value.field == "ports"


def test_no_service_is_privileged_where_the_server_wants_to_know() -> None:
    assert "security" not in manifest("26.4", service())["spec"]
    known = dialect("26.4")
    (one,) = (one for one in known.types if one.type.kind == services.KIND)
    schema = json.loads(json.dumps(one.schema))
    schema["properties"]["spec"]["properties"]["security"] = {
        "type": "object", "properties": {"privileged": {"type": "boolean"}}
    }  # fmt: skip
    later = Dialect(types=tuple(replace(one, schema=schema) if it is one else it for it in known.types))
    found = services.manifest(later, service(), lease=LEASE, namespace="dpf", proof=PROOF, cluster={})
    assert found["spec"]["security"] == {"privileged": False}


def test_names_fit_into_a_helm_release_and_differ() -> None:
    names = {services.name_of(LEASE, name) for name in ("a", "b" * 40, "b" * 39 + "c")}
    assert len(names) == 3
    assert all(len(name) <= 53 for name in names)


def test_the_largest_values_fit_into_the_annotations_of_an_object() -> None:
    found = manifest("26.4", service(values={"a": "\u00fc" * (LARGEST // 2 - 10)}))
    assert sum(len(one.encode()) for one in found["metadata"]["annotations"].values()) < 256 << 10


def found(given: Service | None = None, *, version: str = "26.4", **status: Any) -> Any:
    """Return the object of a service as a server has it."""
    there = manifest(version, given or service())
    meta = {key: there["metadata"][key] for key in ("labels", "annotations")}
    return made(services.KIND, there["metadata"]["name"], spec=there["spec"], status=status, **meta)


def pod(name: str = "edge-1", *, ready: bool = True, given: Service | None = None, **changes: Any) -> Any:
    kind = {
        "labels": {services.NAME: "edge"},
        "annotations": {services.VERSION: services.version_of(given or service())},
    }
    status = {"phase": "Running", "conditions": [condition("Ready", "True" if ready else "False")]}
    return made("Pod", name, status={**status, **changes.pop("status", {})}, **{**kind, **changes})


def seen(there: Any, *pods: Any, version: str = "26.4") -> Any:
    return services.deployed(dialect(version), there, lease=LEASE, proof=PROOF, pods=pods)


def state(there: Any, *pods: Any) -> ServiceState:
    return status_of(seen(there, *pods)).state


def test_a_service_is_read_as_it_was_written() -> None:
    given = service(values={"a": 1.0, "b": [True, 1]}, ports=(Port(name="dns", port=53),), labels={"team": "net"})
    assert seen(found(given)).service == given
    assert seen(found(given)).version == f"uid-{LEASE}-edge/1"


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"name": "other"}', '{"name": "../x", "chart": {}}'])
def test_an_object_that_cannot_be_understood_is_none_of_ours(text: str) -> None:
    there = found()
    there.annotations[services.DEFINITION] = text
    assert seen(there) is None


def test_it_is_ready_when_its_pods_are_and_are_of_the_last_version() -> None:
    assert state(found()) is ServiceState.PENDING
    assert state(found(), pod()) is ServiceState.READY
    assert state(found(), pod(), pod("edge-2", ready=False)) is ServiceState.PENDING
    assert state(found(), pod(given=service(values={"a": 1}))) is ServiceState.PENDING
    assert state(found(observedGeneration=0), pod()) is ServiceState.PENDING
    assert state(found(), pod(labels={services.NAME: "other"})) is ServiceState.PENDING
    false = condition("Ready", "False", "Pending", "not yet")
    assert state(found(observedGeneration=1, conditions=[false]), pod()) is ServiceState.READY


def test_pods_that_end_and_finished_hooks_do_not_count() -> None:
    ended = {"phase": "Succeeded"}
    failed = {"phase": "Failed"}
    assert state(found(), pod("hook", ready=False, status=ended)) is ServiceState.PENDING
    assert state(found(), pod(), pod("hook", ready=False, status=ended)) is ServiceState.READY
    tries = [pod("hook-1", ready=False, status=failed, ownerReferences=[JOB]),
             pod("hook-2", ready=False, status=ended, ownerReferences=[JOB])]  # fmt: skip
    assert state(found(), pod(), *tries) is ServiceState.READY
    assert state(found(), pod(), tries[0]) is ServiceState.FAILED
    deleted = pod("old", given=service(values={"a": 1}), deletionTimestamp="2026-01-01T00:00:00Z")
    assert state(found(), pod(), deleted) is ServiceState.READY


def test_a_pod_says_why_it_is_not_ready_and_texts_are_bounded() -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "m" * 5000}}
    status = {
        "containerStatuses": [{"state": {"running": {}}, "restartCount": 2}, {"state": waiting, "restartCount": 1}]
    }
    (shown,) = seen(found(), pod(ready=False, status=status)).pods
    assert (shown.reason, len(shown.message), shown.restarts) == ("ImagePullBackOff", 500, 3)
    unscheduled = {"phase": "Pending", "conditions": [condition("PodScheduled", "False", "Unschedulable", "no node")]}
    (shown,) = seen(found(), pod(ready=False, status=unscheduled)).pods
    assert (shown.phase, shown.ready, shown.reason, shown.message) == ("Pending", False, "Unschedulable", "no node")


@pytest.mark.parametrize(
    "odd",
    [
        {"containerStatuses": 7}, {"containerStatuses": [7, {"state": [], "restartCount": "x"}]},
        {"initContainerStatuses": [{"state": {"waiting": 7}}]}, {"phase": {}},
    ],
)  # fmt: skip
def test_odd_pods_break_nothing(odd: dict[str, Any]) -> None:
    assert state(found(), pod(ready=False, status=odd)) is ServiceState.PENDING


def test_an_object_that_others_changed_is_not_ready_and_says_so() -> None:
    there = found()
    there.body["spec"]["serviceDaemonSet"]["nodeSelector"]["nodeSelectorTerms"] = []
    told = status_of(seen(there, pod()))
    assert told.state is ServiceState.PENDING
    assert any("ChangedByOthers" in one for one in told.messages)
    moved = found()
    moved.body["spec"]["dpuClusterSelector"] = {"matchLabels": {"zone": "b"}}
    assert state(moved, pod()) is ServiceState.READY
