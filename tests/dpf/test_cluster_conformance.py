"""The kind dpf_cluster keeps the contract, in the dialects of two versions of DPF, on an API server in memory."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest

from blueprints.answers import Failed, Json, Wait
from blueprints.dpf import clusters
from blueprints.dpu.dpf_cluster import actions
from blueprints.dpu.dpf_cluster.kind import DpfCluster
from blueprints.kube import ApiUnavailable, Object
from blueprints.kube.dialect import bundled
from blueprints.specs import Draft, ResourceView
from blueprints.testing.bench import TAGS
from blueprints.testing.conformance import KindConformance, Outside
from tests.dpf.memory import KUBECONFIG, Memory

FINALIZER = "example.org/keep"


@pytest.fixture(autouse=True)
def _database() -> None:
    """No database is needed."""


class InMemory(KindConformance):
    """What built and registered clusters have in common."""

    kind = DpfCluster()
    labels: Json = {}

    @pytest.fixture(autouse=True, params=["24.10", "26.4"])
    def _server(self, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
        self.version = "v1.30.0" if request.param == "24.10" else ""
        self.memory = Memory(bundled()[f"dpf-{request.param}"])
        for module in ("blueprints.dpf.access", "blueprints.dpf.config", "blueprints.dpu.dpf_cluster.kind"):
            monkeypatch.setattr(f"{module}.connect", lambda *_, **__: self.memory)
            monkeypatch.setattr(f"{module}.dialect_of", lambda *_, **__: self.memory.dialect)

    def config(self) -> Json:
        build = {"max_nodes": 4, "version": self.version}
        return {"credential": "dpf", "namespace": "dpf", "build": build, "labels": self.labels}

    def credentials(self) -> Mapping[str, Mapping[str, Any]]:
        return {"dpf": {"kubeconfig": KUBECONFIG}}

    def registration(self) -> Json:
        return {"name": "tenant", "kubeconfig": "tenant-kubeconfig", "max_nodes": 5, "version": self.version}

    def resource(self, draft: Draft | None = None, *, generation: int = 1) -> ResourceView:
        made = super().resource(draft, generation=generation)
        if not made.identity:
            return replace(made, origin="built")
        self.memory.secret("tenant-kubeconfig")
        return replace(made, registration=self.registration())

    def impossible(self) -> Json:
        return {"cluster": "another"}

    def outside(self) -> Sequence[Outside]:
        found = [body["metadata"] for (kind, _), body in self.memory.objects.items() if kind == clusters.KIND]
        return [Outside(name=one["name"], tags=one.get("labels", {})) for one in found if one["name"] != "planted"]

    def theirs(self, name: str, **spec: Any) -> None:
        """Let somebody else create a static cluster."""
        manifest = clusters.manifest(
            self.memory.dialect, name, "dpf", type_="static", max_nodes=7, version=self.version, **spec
        )
        self.memory.create(self.memory.dialect.type(clusters.KIND), manifest)

    def plant(self) -> None:
        if (clusters.KIND, "planted") not in self.memory.objects:
            self.theirs("planted", kubeconfig="planted-kubeconfig")

    def cluster(self, resource: ResourceView) -> Json:
        return self.memory.objects[clusters.KIND, resource.facts["name"]]

    def kill(self, resource: ResourceView) -> None:
        del self.memory.objects[clusters.KIND, resource.facts["name"]]

    def degrade(self, resource: ResourceView) -> bool:
        self.cluster(resource)["status"]["phase"] = "NotReady"
        return True

    def test_a_deletion_that_hangs_is_reported_and_repeated_until_absence(self) -> None:
        resource = self.built()
        self.cluster(resource)["metadata"]["finalizers"] = [FINALIZER]
        spec = self.spec("destroy", resource)
        for _ in range(3):
            answer = actions.delete(spec, {})
            assert isinstance(answer, Wait)
            assert f"Its phase was Ready. It is kept by the finalizers {FINALIZER}." in answer.sentence
        self.cluster(resource)["metadata"]["finalizers"] = []
        self.destroyed(resource)
        assert not self.outside()

    def test_an_outage_is_waited_for(self, monkeypatch: pytest.MonkeyPatch) -> None:
        def fails(*_: object, **__: object) -> None:
            raise ApiUnavailable("Nobody answers.")

        resource = self.resource()
        monkeypatch.setattr(self.memory, "find", fails)
        monkeypatch.setattr(self.memory, "create", fails)
        answer = actions.create(self.spec("build", resource), {})
        assert isinstance(answer, Wait)
        assert answer.sentence == "Nobody answers."

    def waiting(self, resource: ResourceView) -> ResourceView:
        """Create a cluster that is not ready yet."""
        created = actions.create(self.spec("build", resource), {})
        return replace(resource, facts=created.facts)  # type: ignore[union-attr]


class TestBuilt(InMemory):
    """Clusters whose control plane kamaji runs."""

    def test_it_shows_phase_and_percent_which_never_falls_until_it_is_ready(self) -> None:
        self.memory.phases = ["Creating", "Pending", "Later", "Ready"]
        resource, memo, seen = self.waiting(self.resource()), dict[str, Any](), []
        while isinstance(answer := actions.wait(self.spec("build", resource), memo), Wait):
            memo = answer.memo
            seen.append((answer.percent, answer.sentence.split(".")[0].rpartition(": ")[2]))
        assert seen == [(0, "new"), (40, "Creating"), (40, "Pending"), (40, "Later")]
        assert answer.capacity.slots == 4  # type: ignore[union-attr]

    def test_a_phase_that_lasts_too_long_fails_and_names_it(self) -> None:
        self.memory.phases = ["Creating", "Ready"]
        resource = self.waiting(self.resource())
        self.memory.find(self.memory.dialect.type(clusters.KIND), resource.facts["name"])
        memo = {"phase": "Creating", "since": "2020-01-01T00:00:00+00:00", "percent": 40}
        answer = actions.wait(self.spec("build", resource), memo)
        assert isinstance(answer, Failed)
        assert (answer.code, "Creating" in answer.message) == ("cluster_timeout", True)

    def test_a_cluster_of_somebody_else_under_its_name_is_not_touched(self) -> None:
        resource = self.resource()
        self.theirs(resource.key, kubeconfig="theirs")
        before = dict(self.memory.objects)
        outcome = self.run("build", resource)
        assert (outcome.ended, outcome.answer.code) == ("failed", "kube_foreign")  # type: ignore[union-attr]
        self.destroyed(resource)
        assert self.memory.objects == before

    def test_labels_are_written_and_replaced_without_a_change_of_its_spec(self) -> None:
        self.labels = {"tier": "gold", "example.org/site": "north"}
        resource = self.built()
        spec = dict(self.cluster(resource)["spec"])
        proof = self.cluster(resource)["metadata"]["labels"]
        assert self.labels.items() <= proof.items()
        self.labels = {"tier": "silver"}
        resource = self.ready("update", replace(resource, blueprint=self.blueprint())).spec.resource
        now = self.cluster(resource)["metadata"]["labels"]
        assert now == {**{key: value for key, value in proof.items() if key.startswith("drydock-")}, "tier": "silver"}
        assert self.cluster(resource)["spec"] == spec
        self.destroyed(resource)
        assert not self.outside()

    def test_what_it_has_built_is_not_discovered(self) -> None:
        self.built()
        assert not self.kind.discover(self.blueprint())

    def outside(self) -> Sequence[Outside]:
        return [one for one in super().outside() if one.tags]


class TestRegistered(InMemory):
    """Clusters that an operator registers with the secret of their kubeconfig."""

    def draft(self) -> Draft:
        return self.registered()

    # The suite expects an object that is named by the key; here the operator has chosen the name.
    def test_what_was_built_is_listed_with_its_tags_and_can_be_destroyed_by_what_is_listed(self) -> None:
        resource = self.built()
        listed = {one.key: one for one in self.kind.owned(self.blueprint(), TAGS["drydock-installation"])}
        found = listed[resource.key]
        assert (found.named, found.tags, found.facts) == (False, TAGS, {"name": "tenant"})
        self.destroyed(replace(resource, origin="built", identity="", facts=found.facts, registration={}))
        assert not self.outside()

    def refused(self, resource: ResourceView, code: str) -> str:
        before = dict(self.memory.objects)
        outcome = self.run("build", resource)
        assert isinstance(outcome.answer, Failed)
        assert outcome.answer.code == code
        self.destroyed(resource)
        assert self.memory.objects == before
        return outcome.answer.message

    def test_nothing_is_written_without_its_secret(self) -> None:
        resource = self.resource()
        del self.memory.objects["Secret", "tenant-kubeconfig"]
        assert "tenant-kubeconfig does not exist" in self.refused(resource, "cluster_credential")

    def test_a_kubeconfig_that_runs_a_program_is_refused(self) -> None:
        resource = self.resource()
        del self.memory.objects["Secret", "tenant-kubeconfig"]
        self.memory.secret("tenant-kubeconfig", KUBECONFIG.replace("token: not-used", "exec: {command: hunter2}"))
        assert "hunter2" not in self.refused(resource, "cluster_credential")

    def test_one_of_somebody_else_is_used_with_its_own_slots_and_left(self) -> None:
        self.theirs("tenant", kubeconfig="tenant-kubeconfig")
        resource = self.resource()
        before = set(self.memory.objects)
        answers = [call.answer for call in self.ready("build", resource).calls]
        assert [one.capacity.slots for one in answers if getattr(one, "capacity", None)] == [7]
        self.destroyed(resource)
        assert set(self.memory.objects) == before

    def test_labels_of_one_of_somebody_else_are_removed_with_its_registration(self) -> None:
        self.theirs("tenant", kubeconfig="tenant-kubeconfig")
        self.labels = {"tier": "gold"}
        resource = self.built()
        assert self.cluster(resource)["metadata"]["labels"] == {"tier": "gold"}
        self.destroyed(resource)
        assert not self.memory.objects[clusters.KIND, "tenant"]["metadata"]["labels"]

    def test_one_with_another_secret_is_refused(self) -> None:
        self.theirs("tenant", kubeconfig="other")
        assert "in secret other" in self.refused(self.resource(), "cluster_differs")

    def test_one_that_drydock_has_created_for_another_resource_is_refused(self) -> None:
        self.theirs("tenant", kubeconfig="tenant-kubeconfig")
        labels = {**TAGS, "drydock-resource": "2"}
        self.memory.objects[clusters.KIND, "tenant"]["metadata"]["labels"] = labels
        assert "another resource" in self.refused(self.resource(), "cluster_differs")

    def outside(self) -> Sequence[Outside]:
        return [one for one in super().outside() if one.tags]


def test_the_identity_of_a_cluster_is_its_uid() -> None:
    body = {"metadata": {"name": "a", "uid": "AB-1"}}
    assert [str(one) for one in actions.identities(Object.of(body))] == ["dpu_cluster_uuid ab-1"]
