"""Manifests compared with CRDs, offline: the same verdicts as a real API server gave, for both versions of DPF."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from blueprints.kube import Dialect, KindUnknown
from blueprints.kube import check as checks
from blueprints.kube.schemas import below, compact
from drydock.cli.program import app
from drydock.core.errors import InvalidRequest
from tests.agent.captured import CAPTURES, expected, needed
from tests.kube import bundle

VERSIONS = {"v24.10": "dpf-24.10", "v26.4": "dpf-26.4"}
CASES = sorted(expected().get("dpf_examples", {}).get("files", {})) or ["none"]


@cache
def sets() -> dict[str, Dialect]:
    return checks.bundled()


def verdict(file: str, crds: str, words: dict[str, str]) -> checks.Verdict:
    found = checks.check_file(CAPTURES / file, {crds: sets()[crds]}, words)
    assert len(found) == 1
    return found[0]


@needed
@pytest.mark.parametrize("mode", ["raw", "substituted"])
@pytest.mark.parametrize("version", VERSIONS)
@pytest.mark.parametrize("file", CASES)
def test_the_examples_of_dpf_get_the_verdicts_of_a_real_server(file: str, version: str, mode: str):
    facts = expected()["dpf_examples"]
    wanted = facts["files"][file]["verdicts"][version]
    wanted = wanted.get(mode) or wanted["raw"]  # a file without placeholders has one verdict
    found = verdict(file, VERSIONS[version], facts["substitution"] if mode == "substituted" else {})
    assert list(found.findings.unknown) == wanted["unknown_fields"]
    assert list(found.findings.missing) == wanted["missing_required"]
    assert [one.field for one in found.findings.invalid] == wanted["invalid"]
    assert found.ok is (wanted["strict_http"] == 201)
    assert not found.findings.unchecked


@needed
@pytest.mark.parametrize("name", bundle.SETS)
def test_the_bundled_crds_are_those_of_the_captures(name: str):
    assert json.loads((bundle.FOLDER / f"{name}.json").read_text()) == bundle.made(name)


def test_every_rule_of_both_versions_compiles():
    from blueprints.kube import cel

    found = [rule for one in sets().values() for rule in cel.all_rules([known.schema or {} for known in one.types])]
    assert len(found) == 134
    for rule in set(found):
        cel.program(rule)


def flavor(*devices: str | None) -> dict[str, Any]:
    nvconfig = [({"device": one} if one else {}) | {"parameters": ["A=1"]} for one in devices]
    return manifest("DPUFlavor", {"nvconfig": nvconfig})


def manifest(kind: str, spec: dict[str, Any], **metadata: Any) -> dict[str, Any]:
    group = "svc" if kind.startswith("DPUService") or kind == "DPUDeployment" else "provisioning"
    meta = {"name": "one", "namespace": "dpf"} | metadata
    return {"apiVersion": f"{group}.dpu.nvidia.com/v1alpha1", "kind": kind, "metadata": meta, "spec": spec}


NODE = {"dpuNodeName": "n", "nodeEffect": {"drain": True}}


@pytest.mark.parametrize(
    ("given", "fields"),
    [
        (flavor("*"), []),
        (flavor("p0", "p1"), []),
        (flavor("p0", "*"), ["spec.nvconfig"]),
        (flavor("p0", "P0"), ["spec.nvconfig"]),
        (manifest("DPUNode", {"nodeRebootMethod": {"external": {}}}, name="n" * 48), []),
        (manifest("DPUNode", {"nodeRebootMethod": {"external": {}}}, name="n" * 49), [""]),
        (manifest("DPUNode", {"nodeRebootMethod": {"external": {}, "hostAgent": {}}}), ["spec.nodeRebootMethod"]),
        (manifest("DPUNodeMaintenance", NODE), []),
        (manifest("DPUNodeMaintenance", NODE | {"nodeEffect": {"drain": True, "hold": True}}), ["spec.nodeEffect"]),
        (manifest("DPUNodeMaintenance", NODE | {"nodeEffect": {}}), ["spec.nodeEffect"]),
        (manifest("DPUNodeMaintenance", NODE | {"nodeEffect": {"drain": "yes"}}), ["spec.nodeEffect.drain"]),
    ],
)
def test_rules_are_evaluated_as_a_server_does(given: dict[str, Any], fields: list[str]):
    found = checks.check(given, sets()["dpf-26.4"])
    assert not found.unknown
    assert [one.field for one in found.invalid] == fields
    assert not found.unchecked


def test_dialects_are_told_apart_by_fields():
    old, new = sets()["dpf-24.10"], sets()["dpf-26.4"]
    assert (old.has("DPUSet", "spec.nodeSelector"), new.has("DPUSet", "spec.nodeSelector")) == (True, False)
    assert (old.has("DPUSet", "spec.dpuNodeSelector"), new.has("DPUSet", "spec.dpuNodeSelector")) == (False, True)
    assert (old.has("DPUNode"), new.has("DPUNode")) == (False, True)
    drain = "spec.dpuTemplate.spec.nodeEffect.drain"
    assert (old.field_type("DPUSet", drain), new.field_type("DPUSet", drain)) == ("object", "boolean")
    effect = "spec.dpuTemplate.spec.nodeEffect"
    assert (old.required("DPUSet", effect), new.required("DPUSet", effect)) == (False, True)
    strategy = "spec.strategy.type"
    assert (old.enum("DPUSet", strategy)[0], new.enum("DPUSet", strategy)[0]) == ("Recreate", "OnDelete")
    chains = "spec.serviceChains"
    assert (old.field_type("DPUDeployment", chains), new.field_type("DPUDeployment", chains)) == ("array", "object")
    assert new.has("DPUDeployment", "spec.dpus.dpuSets[].nameSuffix")
    assert not new.has("DPUDeployment", "spec.dpus.dpuSets[].unheardOf")
    limits = {kind: new.name_limit(kind) for kind in ("DPUDeployment", "DPUNode", "DPUSet", "BFB")}
    assert limits == {"DPUDeployment": 20, "DPUNode": 48, "DPUSet": 63, "BFB": 187}
    assert {kind: old.name_limit(kind) for kind in ("DPUDeployment", "DPUSet")} == {"DPUDeployment": 20, "DPUSet": 63}
    with pytest.raises(KindUnknown):
        old.type("DPUNode")


def test_a_dialect_survives_being_stored():
    new = sets()["dpf-26.4"]
    assert Dialect.from_json(json.loads(json.dumps(new.to_json()))) == new


SCHEMA = compact(
    {
        "type": "object",
        "properties": {
            "spec": {
                "type": "object", "required": ["size"],
                "properties": {
                    "size": {"type": "integer", "format": "int32", "minimum": 1, "maximum": 9, "default": 3},
                    "port": {"x-kubernetes-int-or-string": True, "anyOf": [{"type": "integer"}, {"type": "string"}]},
                    "free": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
                    "words": {"type": "object", "additionalProperties": {"type": "string", "maxLength": 3}},
                    "set": {"type": "array", "x-kubernetes-list-type": "set", "items": {"type": "string"}},
                    "map": {
                        "type": "array", "x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": ["k"],
                        "items": {"type": "object", "properties": {"k": {"type": "string"}}},
                    },
                    "maybe": {"type": "string", "nullable": True},
                    "at": {"type": "string", "format": "date-time"},
                    "ip": {"type": "string", "format": "ipv4"},
                    "code": {"type": "string", "pattern": "^[a-z]+$", "enum": ["abc", "abe"]},
                },
            },
        },
    }
)  # fmt: skip


@pytest.mark.parametrize(
    ("spec", "wrong"),
    [
        ({}, []), ({"size": 2.0}, []), ({"size": None}, []), ({"size": True}, ["spec.size"]),
        ({"size": "2"}, ["spec.size"]),
        ({"size": 10}, ["spec.size"]), ({"size": 0}, ["spec.size"]), ({"port": "http"}, []), ({"port": 80}, []),
        ({"port": 8.5}, ["spec.port"]), ({"free": {"a": {"b": 1}}}, []),
        ({"words": {"a.b/c": "toolong"}}, ["spec.words[a.b/c]"]),
        ({"words": {"a": 1}}, ["spec.words.a"]), ({"set": ["a", "b", "a"]}, ["spec.set[2]"]), ({"maybe": None}, []),
        ({"map": [{"k": "a"}, {"k": "b"}, {"k": "a"}]}, ["spec.map[2]"]),
        ({"set": {"a": 1}}, ["spec.set", "spec.set.a"]),
        ({"at": "2026-01-01T00:00:00Z"}, []), ({"at": "yesterday"}, ["spec.at"]), ({"ip": "1.2.3"}, ["spec.ip"]),
        ({"code": "abc"}, []), ({"code": "abc\n"}, ["spec.code", "spec.code"]), ({"other": 1}, ["spec.other"]),
        ({"map": [{"x": 1}]}, ["spec.map[0].x"]), ([], ["spec"]),
    ],
)  # fmt: skip
def test_values_are_compared_with_their_schema(spec: Any, wrong: list[str]):
    from blueprints.kube.schemas import check

    found = check({"apiVersion": "v1", "kind": "X", "metadata": {"name": "x"}, "spec": spec}, SCHEMA)[0]
    assert sorted(found.paths) == sorted(wrong)


@pytest.mark.parametrize(
    ("metadata", "wrong"),
    [
        ({"name": "a.b-c"}, []), ({"name": "A"}, ["metadata.name"]), ({"name": "a" * 254}, ["metadata.name"]),
        ({}, ["metadata.name"]), ({"generateName": "x-"}, []),
        ({"name": "x", "namespace": "A"}, ["metadata.namespace"]),
        ({"name": "x", "labels": {"a": "b c"}}, ["metadata.labels.a"]), ({"name": "x", "shoes": 1}, ["metadata.shoes"]),
        ({"name": "x", "labels": {"e.com/a": 1}}, ["metadata.labels[e.com/a]"]), (None, ["metadata"]),
    ],
)  # fmt: skip
def test_names_and_labels_are_checked(metadata: Any, wrong: list[str]):
    from blueprints.kube.schemas import check

    found = check({"apiVersion": "v1", "kind": "X", "metadata": metadata, "spec": {}}, SCHEMA)[0]
    assert [path.replace("metadata.labels[a]", "metadata.labels.a") for path in found.paths] == wrong


def test_fields_are_found_by_path():
    assert below(SCHEMA, "spec.map[].k") == {"type": "string"}
    assert below(SCHEMA, "spec.words.anything") == {"type": "string", "maxLength": 3}
    assert below(SCHEMA, "spec.free.anything") == {}
    assert below(SCHEMA, "spec.size.deeper") is None
    assert below(SCHEMA, "status") is None


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("a: &x 1\nb: *x", "anchors or aliases"),
        ("- 1", "must be a mapping"),
        ("a: [", "not valid YAML"),
        ("a: 1\na: 2", "twice"),
    ],
)
def test_a_file_that_is_no_manifest_is_refused(tmp_path: Path, text: str, said: str):
    file = tmp_path / "x.yaml"
    file.write_text(text)
    with pytest.raises(InvalidRequest, match=said):
        checks.check_file(file, sets())


class TestCommand:
    def run(self, *words: str) -> Any:
        return CliRunner().invoke(app, ["kube", "check", *words])

    def file(self, folder: Path, name: str = "one") -> str:
        path = folder / "set.yaml"
        spec = {"strategy": {"type": "OnDelete"}, "dpuNodeSelector": {"matchLabels": {"a": "b"}}}
        spec["dpuTemplate"] = {"spec": {"dpuFlavor": "f", "bfb": {"name": "b"}, "nodeEffect": {"noEffect": True}}}
        path.write_text(json.dumps(manifest("DPUSet", spec, name=name)))
        return str(path)

    def test_it_passes_if_one_version_accepts_the_manifest(self, tmp_path: Path):
        done = self.run(self.file(tmp_path), "--json")
        assert done.exit_code == 0, done.output
        found = {one["crds"]: one for one in json.loads(done.output)}
        assert found["dpf-26.4"]["ok"]
        assert found["dpf-24.10"]["unknown"] == ["spec.dpuNodeSelector"]

    def test_it_fails_if_no_version_accepts_it_and_replaces_placeholders(self, tmp_path: Path):
        file = self.file(tmp_path, "set-$TAG")
        assert self.run(file).exit_code == 1
        assert self.run(file, "--set", "$TAG=v1").exit_code == 0
        assert self.run(file, "--set", "$TAG").exit_code == 2

    def test_a_kind_that_no_crd_defines_is_named(self, tmp_path: Path):
        file = tmp_path / "pod.yaml"
        file.write_text("apiVersion: v1\nkind: Pod\nmetadata: {name: x}\n")
        done = self.run(str(file))
        assert done.exit_code == 1
        assert "No CRD defines Pod of v1" in done.output

    def test_a_folder_without_crds_is_refused(self, tmp_path: Path):
        file = self.file(tmp_path)
        assert "no file with a CustomResourceDefinition" in self.run(file, "--crds", str(tmp_path)).output
        assert self.run(file, "--crds", str(tmp_path / "none")).exit_code == 2

    @needed
    def test_other_crds_can_be_given(self, tmp_path: Path):
        done = self.run(self.file(tmp_path), "--crds", str(CAPTURES / "dpf-crds"))
        assert done.exit_code == 1
        assert "spec.dpuNodeSelector: the server does not know this field." in done.output
