"""Names, labels, comparison and roles: pure functions."""

from __future__ import annotations

import json
from typing import Any

import pytest

from blueprints.kube import (
    FOLLOW,
    MANAGE,
    NODE,
    ObjectChanged,
    ObjectForeign,
    ObjectType,
    Rule,
    ensure,
    has_labels,
    label_value,
    labelled,
    object_name,
    proof_labels,
    role,
    selector,
)
from blueprints.kube.comparison import dropped
from blueprints.kube.fieldsets import claimed
from tests.kube.double import Double

THING = ObjectType(group="test.example.com", version="v1", kind="Thing", plural="things")
PATH = "/apis/test.example.com/v1/namespaces/lab/things"
PROOF = {"drydock-installation": "abc", "drydock-proof": "f" * 40}


@pytest.mark.parametrize("limit", [20, 28, 48, 63])
def test_names_fit_and_differ(limit: int):
    keys = [
        "a",
        "drydock-1a2b3c4d-7-r12",
        "x" * 200,
        "x" * 201,
        "Über/Straße",
        "über/straße",
        "1st",
        "-",
        "",
        "a_b",
        "a-b",
    ]
    names = [object_name(key, limit) for key in keys]
    assert len(set(names)) == len(keys)
    for name in names:
        assert len(name) <= limit
        assert name[0].isalpha()
        assert name.replace("-", "").isalnum()
        assert name == name.lower()
        assert not name.endswith("-")
    assert names == [object_name(key, limit) for key in keys]
    assert names[0] == "a"


def test_labels_are_valid_and_differ():
    values = ["", "abc", "f" * 63, "f" * 64, "a b", "a/b", "-", "é"]
    made = [label_value(one) for one in values]
    assert made[:3] == values[:3]
    assert len(set(made)) == len(values)
    assert all(len(one) <= 63 and (not one or (one[0].isalnum() and one[-1].isalnum())) for one in made)
    assert proof_labels(PROOF) == PROOF
    assert selector(PROOF) == f"drydock-installation=abc,drydock-proof={'f' * 40}"


def stored(labels: dict[str, str], **metadata: Any) -> dict[str, Any]:
    return {
        "metadata": {
            "name": "one",
            "namespace": "lab",
            "uid": "u1",
            "resourceVersion": "1",
            "labels": labels,
            **metadata,
        }
    }


def test_an_object_that_is_provably_ours_is_adopted(double: Double):
    double.fails("POST", PATH, 409, "AlreadyExists")
    double.says("GET", f"{PATH}/one", stored(PROOF))
    with double.cluster() as cluster:
        found = ensure(cluster, THING, labelled(THING.manifest("one", "lab"), PROOF), proves=has_labels(PROOF))
    assert found.uid == "u1"


def test_an_object_of_somebody_else_is_left_alone_and_reported(double: Double):
    double.fails("POST", PATH, 409, "AlreadyExists")
    double.says("GET", f"{PATH}/one", stored({"drydock-installation": "abc"}))
    with double.cluster() as cluster, pytest.raises(ObjectForeign, match="do not prove"):
        ensure(cluster, THING, THING.manifest("one", "lab"), proves=has_labels(PROOF))
    assert [call.method for call in double.calls] == ["POST", "GET"]


def test_one_that_is_being_deleted_is_waited_for(double: Double):
    double.fails("POST", PATH, 409, "AlreadyExists")
    double.says("GET", f"{PATH}/one", stored(PROOF, deletionTimestamp="2026-01-01T00:00:00Z", finalizers=["f/g"]))
    with double.cluster() as cluster, pytest.raises(ObjectChanged, match="f/g"):
        ensure(cluster, THING, THING.manifest("one", "lab"), proves=has_labels(PROOF))


def cr(**spec: Any) -> dict[str, Any]:
    return {"apiVersion": "test.example.com/v1", "kind": "Thing", "metadata": {"name": "x"}, "spec": spec}


def secret(**fields: Any) -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "x"}, **fields}


@pytest.mark.parametrize(
    ("sent", "found", "paths"),
    [
        (cr(a=1), cr(a=1, b=2), []),
        (cr(a={"b": [1, {"c": 2}]}), cr(a={"b": [1, {}]}), ["spec.a.b[1].c"]),
        (cr(a=[1, 2]), cr(a=[1]), ["spec.a[1]"]),
        (cr(a=None), cr(), []),
        (cr(selector={}), cr(), ["spec.selector"]),
        (cr(a="x"), cr(a="y"), ["spec.a"]),
        (cr(a=1), cr(a=True), ["spec.a"]),
        (cr(a={"e.com/x": 1}), cr(a={}), ["spec.a[e.com/x]"]),
        (cr(a=1), {"apiVersion": "test.example.com/v1", "kind": "Thing", "metadata": {"name": "x"}}, ["spec"]),
        (secret(stringData={"a": "b"}), secret(data={"a": "Yg=="}), []),
        (secret(data={"a": "Yg=="}), secret(), ["data"]),
        (labelled(cr(), {"a": "b"}), cr(), ["metadata.labels"]),
    ],
)  # fmt: skip
def test_what_a_server_dropped_or_changed_is_named(sent: dict[str, Any], found: dict[str, Any], paths: list[str]):
    assert dropped(sent, found) == paths


def test_a_server_that_prunes_is_refused_before_anything_is_written(double: Double):
    double.says("POST", PATH, cr(size=1) | stored({}), 201)
    from blueprints.kube import FieldsDropped

    manifest = THING.manifest("one", "lab", spec={"size": 1, "selector": {}})
    with double.cluster() as cluster, pytest.raises(FieldsDropped, match=r"spec\.selector") as caught:
        cluster.create(THING, manifest)
    assert caught.value.paths == ("spec.selector",)
    assert [call.query for call in double.calls] == [
        {"fieldManager": "drydock", "fieldValidation": "Strict", "dryRun": "All"}
    ]


def test_our_fields_are_claimed_for_apply_and_others_stay():
    ours = {"manager": "drydock", "operation": "Update", "fieldsV1": {"f:spec": {"f:a": {}}}}
    applied = {"manager": "drydock", "operation": "Apply", "fieldsV1": {"f:spec": {"f:b": {}}}}
    other = {"manager": "kubectl", "operation": "Update", "fieldsV1": {"f:spec": {"f:c": {}}}}
    beside = {"manager": "drydock", "operation": "Update", "subresource": "status", "fieldsV1": {}}
    assert claimed([applied, other, beside], "drydock") is None
    both = {"f:spec": {"f:a": {}, "f:b": {}}}
    assert claimed([ours, other, applied], "drydock") == [other, {**ours, "operation": "Apply", "fieldsV1": both}]


def test_a_role_has_exactly_the_rules_that_were_declared():
    rules = [
        Rule(type=THING, verbs=MANAGE),
        Rule(type=THING, verbs=("get",)),
        Rule(type=THING, verbs=("get",), names=("a",)),
    ]
    granted, binding = role(rules, "lab", name="dpf", account="bot", account_namespace="ops")
    assert granted["kind"] == "Role"
    assert granted["rules"] == [
        {"apiGroups": ["test.example.com"], "resources": ["things"], "verbs": list(MANAGE)},
        {"apiGroups": ["test.example.com"], "resources": ["things"], "verbs": ["get"], "resourceNames": ["a"]},
    ]
    assert binding["roleRef"]["name"] == "dpf"
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": "bot", "namespace": "ops"}]
    assert "*" not in json.dumps([granted, binding])
    assert role([Rule(type=NODE, verbs=FOLLOW)], "")[0]["kind"] == "ClusterRole"


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: Rule(type=THING, verbs=("*",)), lambda: Rule(type=THING, verbs=()),
        lambda: Rule(type=ObjectType(group="*", version="v1", kind="X", plural="xs")),
        lambda: Rule(type=THING, verbs=("list",), names=("a",)), lambda: role([Rule(type=NODE)], "lab"),
        lambda: role([Rule(type=THING)], ""), lambda: role([Rule(type=THING)], "a/b"),
    ],
)  # fmt: skip
def test_a_role_without_bounds_cannot_be_made(wrong: Any):
    with pytest.raises(ValueError, match=r"verbs|names|limited|role|valid"):
        wrong()
