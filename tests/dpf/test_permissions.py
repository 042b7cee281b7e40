"""The roles that kinds of DPF need. That they suffice is tested by tests/dpf/test_life.py, whose account has them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import yaml
from typer.testing import CliRunner

from blueprints.dpf import permissions
from blueprints.kube.dialect import bundled
from blueprints.models import Blueprint
from drydock.cli.program import app
from drydock.cli.toolkit import options
from leases.local import LocalClient
from leases.operations.callers import caller
from tests.leases.conftest import _database as _database

SERVER = {"credential": "dpf", "namespace": "dpus"}


def rules(kind: str, version: str, **given: Any) -> dict[str, set[str]]:
    """Return resource -> verbs of a kind's roles; those of the cluster role begin with a slash.

    Those in the namespace that is set aside begin with `apart/`.
    """
    found = permissions.permissions(kind, bundled()[f"dpf-{version}"], **given)
    made: dict[str, set[str]] = {}
    for prefix, part in (("", found.namespaced), ("/", found.cluster), ("apart/", found.secrets)):
        for rule in part:
            made.setdefault(prefix + rule.type.plural, set()).update(rule.verbs)
    return made


def test_a_card_is_read_and_only_what_describes_a_registered_one_is_written():
    written = {"get", "list", "create", "delete"}
    assert rules("dpf_card", "26.4") == {
        "dpus": {"list"}, "dpudevices": written | {"patch"}, "dpunodes": written | {"patch"}
    }  # fmt: skip
    assert rules("dpf_card", "24.10") == {"dpus": {"list"}, "/nodes": {"list"}}


@pytest.mark.parametrize("version", ["24.10", "26.4"])
def test_no_role_may_write_what_others_own(version):
    found = rules("dpf", version)
    assert found["dpuflavors"] == {"get", "list", "watch", "create", "delete"}
    assert found["dpusets"] == found["dpuflavors"] | {"patch"}, "to restore it, if the config says so"
    assert found["bfbs"] == {"get"}
    clusters = {"dpuclusters": {"get", "list", "watch", "create", "patch", "delete"}, "secrets": {"get"}}
    assert rules("dpf_cluster", version) == clusters
    ours = {"get", "list", "watch", "create", "delete"}
    assert found["dpuservices"] == found["dpuservicecredentialrequests"] == {*ours, "patch"}
    assert found["dpuservicechains"] == found["dpuserviceinterfaces"] == found["dpuserviceipams"] == ours
    assert ("dpuservicenads" in found) == (version == "26.4")
    assert found["secrets"] == {"get"}
    assert found["apart/secrets"] == {"get", "delete"}
    assert "create" not in found["dpus"]
    assert ("/nodes" in found) == (version == "24.10")
    assert not {"update", "deletecollection", "*"} & {verb for verbs in found.values() for verb in verbs}


def test_secrets_are_limited_to_names():
    found = permissions.permissions("dpf", bundled()["dpf-26.4"], ["tenant-kubeconfig"])
    assert [one.names for one in found.namespaced if one.type.plural == "secrets"] == [("tenant-kubeconfig",)]


@pytest.fixture
def drydock(django_user_model: Any, monkeypatch: pytest.MonkeyPatch) -> Callable[..., str]:
    """Run the program in this process, as an operator."""
    root = caller(django_user_model.objects.create_superuser("root"))
    monkeypatch.setattr(options, "client", lambda *_: LocalClient(root))

    def run(*words: str, code: int = 0) -> str:
        done = CliRunner().invoke(app, words)
        assert done.exit_code == code, done.output
        return done.output

    return run


@pytest.fixture
def dpus() -> Blueprint:
    config = {**SERVER, "image": "http://127.0.0.1/a.bfb", "flavor": "plain"}
    return Blueprint.objects.create(name="dpus", kind="dpf", resource_type="dpu", config=config)


def test_the_command_prints_role_and_binding(dpus, drydock):
    role, binding = yaml.safe_load_all(drydock("kube", "role", "dpus", "--secret", "tenant", "--account", "lab"))
    assert (role["kind"], role["metadata"]) == ("Role", {"name": "lab-dpf", "namespace": "dpus"})
    assert {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"], "resourceNames": ["tenant"]} in role["rules"]
    assert binding["roleRef"]["name"] == "lab-dpf"
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "lab", "namespace": "dpus"}]


def test_the_command_prints_what_the_config_needs_and_nothing_else(dpus, drydock):
    def written() -> set[str]:
        role, _ = yaml.safe_load_all(drydock("kube", "role", "dpus"))
        return {one for rule in role["rules"] if "create" in rule["verbs"] for one in rule["resources"]}

    least = {"dpusets", "dpuflavors"}
    assert written() == least
    volumes = {"volumes": {"policies": ["fast"]}}
    Blueprint.objects.filter(pk=dpus.pk).update(config={**dpus.config, **volumes, "chains": {}})
    assert written() == {
        *least, "dpuvolumes", "dpuvolumeattachments", "dpuservicechains", "dpuserviceinterfaces",
    }  # fmt: skip


def test_cards_of_24_10_need_a_cluster_role(dpus, drydock):
    Blueprint.objects.filter(pk=dpus.pk).update(kind="dpf_card", resource_type="dpu_card", config=SERVER)
    made = list(yaml.safe_load_all(drydock("kube", "role", "dpus", "--dpf", "24.10")))
    assert [one["kind"] for one in made] == ["Role", "RoleBinding", "ClusterRole", "ClusterRoleBinding"]


def test_the_namespace_is_that_of_dpf_if_the_config_has_none(dpus, drydock):
    Blueprint.objects.filter(pk=dpus.pk).update(
        kind="dpf_cluster", resource_type="dpu_cluster", config={"credential": "x"}
    )
    role, _ = yaml.safe_load_all(drydock("kube", "role", "dpus"))
    assert role["metadata"]["namespace"] == "dpf-operator-system"


def test_credentials_have_a_role_in_their_own_namespace(dpus, drydock):
    Blueprint.objects.filter(pk=dpus.pk).update(config={**dpus.config, "credentials": {"namespace": "apart"}})
    made = list(yaml.safe_load_all(drydock("kube", "role", "dpus")))
    role, binding = (one for one in made if one["metadata"]["namespace"] == "apart")
    assert role["rules"] == [{"apiGroups": [""], "resources": ["secrets"], "verbs": ["get", "delete"]}]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "drydock", "namespace": "dpus"}]


@pytest.mark.parametrize("wrong", [("--account", "No Name"), ("--account-namespace", "x" * 64), ("--secret", "*")])
def test_a_bad_name_is_refused(dpus, drydock, wrong):
    assert "No role can be printed" in drydock("kube", "role", "dpus", *wrong, code=2)


def test_other_kinds_and_unknown_versions_are_refused(dpus, drydock):
    assert "Choose one of: 24.10, 26.4." in drydock("kube", "role", "dpus", "--dpf", "25", code=2)
    Blueprint.objects.filter(pk=dpus.pk).update(kind="fake", resource_type="fake", config={})
    assert "is of kind fake" in drydock("kube", "role", "dpus", code=2)
