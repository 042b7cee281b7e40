"""DPU clusters as values: manifests in both dialects, sentences, kubeconfigs in secrets, drafts and roles."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from pydantic import ValidationError

from blueprints.amounts import Amounts
from blueprints.contract import Fields
from blueprints.dpf import clusters, permissions
from blueprints.dpu.dpf_cluster import actions
from blueprints.dpu.dpf_cluster.config import Config, Registration
from blueprints.dpu.dpf_cluster.kind import DpfCluster
from blueprints.kube.dialect import bundled
from blueprints.specs import Asked
from tests.dpf.objects import condition, made

OLD, NEW = bundled()["dpf-24.10"], bundled()["dpf-26.4"]
KIND = DpfCluster()
ENDPOINT = {"vip": "10.0.0.9", "interface": "br0", "router": 7, "nodes": {"role": "edge"}}


@pytest.fixture(autouse=True)
def _database() -> None:
    """No database is needed."""


def config(**given: Any) -> Config:
    return Config(credential="dpf", **given)


def asked(slots: int = 1, **requirements: Any) -> Asked:
    found: Fields = KIND.Requirements(**requirements)
    return Asked(type="dpu_cluster", requirements=found, amounts=Amounts(slots=slots))


def manifest(dialect: Any, **given: Any) -> dict[str, Any]:
    return clusters.manifest(dialect, "c1", "dpf", type_="kamaji", **{"max_nodes": 10, **given})


def test_the_version_is_required_by_24_10_and_unknown_to_26_4():
    assert OLD.missing(manifest(OLD)).missing == ("spec.version",)
    assert not OLD.missing(manifest(OLD, version="v1.30.0"))
    assert not NEW.missing(manifest(NEW))
    assert NEW.missing(manifest(NEW, version="v1.30.0")).unknown == ("spec.version",)


def test_more_nodes_than_the_server_allows_are_named():
    assert [one.field for one in NEW.missing(manifest(NEW, max_nodes=2000)).invalid] == ["spec.maxNodes"]


@pytest.mark.parametrize("dialect", [OLD, NEW])
def test_an_endpoint_is_written_as_dpf_has_it(dialect):
    found = config(build={"endpoints": [ENDPOINT]})
    version = "v1.30.0" if dialect is OLD else ""
    written = manifest(dialect, keepalived=actions.keepalived(found, "10.0.0.9"), version=version)
    assert written["spec"]["clusterEndpoint"] == {
        "keepalived": {
            "vip": "10.0.0.9", "interface": "br0", "virtualRouterID": 7, "nodeSelector": {"role": "edge"}
        }
    }  # fmt: skip
    assert not dialect.missing(written)


@pytest.mark.parametrize(
    "wrong",
    [
        {"build": {"max_nodes": 0}},
        {"build": {"max_nodes": 3001}},
        {"build": {"version": "latest"}},
        {"build": {"endpoints": [ENDPOINT, {**ENDPOINT, "router": 8}]}},
        {"build": {"endpoints": [ENDPOINT, {**ENDPOINT, "vip": "10.0.0.10"}]}},
        {"build": {"endpoints": [{**ENDPOINT, "vip": "fe80::1"}]}},
    ],
)
def test_a_bad_config_is_refused(wrong):
    with pytest.raises(ValidationError):
        config(**wrong)


@pytest.mark.parametrize("wrong", [{"name": "Tenant"}, {"name": "1st"}, {"kubeconfig": "../x"}, {"max_nodes": 0}])
def test_a_bad_registration_is_refused(wrong):
    with pytest.raises(ValidationError):
        Registration(**{"name": "tenant", "kubeconfig": "tenant-admin", **wrong})


def test_a_registered_cluster_has_its_nodes_as_slots():
    draft = KIND.register(config(), Registration(name="tenant", kubeconfig="secret", max_nodes=12))
    assert (draft.identity, draft.capacity.slots) == ("dpf-operator-system/tenant", 12)
    assert draft.attributes == {"cluster": "tenant", "manager": "static"}


def test_a_blueprint_builds_only_what_its_config_says_and_the_request_fits():
    assert not KIND.drafts(config(), asked())
    building = config(build={"max_nodes": 4})
    assert [one.capacity.slots for one in KIND.drafts(building, None)] == [4]
    assert len(KIND.drafts(building, asked(manager="kamaji"))) == 1
    assert not KIND.drafts(building, asked(slots=5))
    assert not KIND.drafts(building, asked(manager="static"))
    assert not KIND.drafts(building, asked(cluster="tenant"))


def test_a_deletion_that_hangs_names_phase_and_finalizers():
    found = made(
        "DPUCluster", "c1", status={"phase": "Ready"}, deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["a/b"]
    )
    assert clusters.sentence(found) == (
        "DPUCluster c1 is being deleted. Its phase was Ready. It is kept by the finalizers a/b."
    )


def test_a_sentence_has_the_phase_and_the_false_condition():
    status = {"phase": "Creating", "conditions": [condition("Created", "False", "NoAddress", "no free address")]}
    assert clusters.sentence(made("DPUCluster", "c1", status=status)) == (
        "DPUCluster c1: Creating. Created: NoAddress no free address."
    )


def secret(text: str, key: str = "admin.conf") -> Any:
    return made("Secret", "s").of(
        {"kind": "Secret", "metadata": {"name": "s"}, "data": {key: base64.b64encode(text.encode()).decode()}}
    )


@pytest.mark.parametrize(
    ("found", "said"),
    [
        (None, "does not exist"),
        (secret("x", key="token"), "has no kubeconfig. It needs one of the keys"),
        (secret("hunter2: ["), "cannot be used"),
        (made("Secret", "s").of({"metadata": {"name": "s"}, "data": {"admin.conf": "%"}}), "that can be read"),
        (made("Secret", "s").of({"metadata": {"name": "s"}, "data": [1]}), "has no kubeconfig"),
    ],
)
def test_a_secret_without_a_usable_kubeconfig_is_told_and_not_quoted(found, said):
    problem = clusters.kubeconfig_problem(found, "s")
    assert said in problem
    assert "hunter2" not in problem


@pytest.mark.parametrize("dialect", [OLD, NEW])
def test_the_role_writes_clusters_and_reads_secrets(dialect):
    found = permissions.permissions("dpf_cluster", dialect, ["tenant"])
    assert {one.type.plural: set(one.verbs) for one in found.namespaced} == {
        "dpuclusters": {"get", "list", "watch", "create", "patch", "delete"}, "secrets": {"get"}
    }  # fmt: skip
    assert [one.names for one in found.namespaced if one.type.plural == "secrets"] == [("tenant",)]
    assert not found.cluster
