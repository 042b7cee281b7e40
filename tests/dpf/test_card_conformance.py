"""Registered cards of the kind dpf_card keep the contract, on an API server in memory, and what DPF 24.10 is told."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import pytest
from pydantic import ValidationError

from blueprints.answers import Failed, Json, Need, Ready, Wait
from blueprints.bluefield.cards import SCOPE
from blueprints.dpf import cards
from blueprints.dpu.dpf_card import registering
from blueprints.dpu.dpf_card.config import Registration
from blueprints.dpu.dpf_card.kind import DpfCard
from blueprints.dpu.dpf_card.registering import DEVICE, ENABLED, KEY, NODE
from blueprints.kube.dialect import bundled
from blueprints.specs import Draft, ResourceView
from blueprints.testing.bench import TAGS
from blueprints.testing.conformance import KindConformance, Outside
from tests.dpf.memory import KUBECONFIG, Memory

FINALIZER = "example.org/keep"
SECOND = {**TAGS, "drydock-resource": "2", "drydock-proof": "second"}
"""The proof of another registered card of the same installation."""


def of_card(proof: Mapping[str, str]) -> Json:
    """Return a proof as a DPUDevice has it."""
    return {key.replace("drydock-", "drydock-card-"): value for key, value in proof.items()}


@pytest.fixture(autouse=True)
def _database() -> None:
    """No database is needed."""


def serve(monkeypatch: pytest.MonkeyPatch, version: str) -> Memory:
    memory = Memory(bundled()[f"dpf-{version}"])
    for module in ("blueprints.dpf.access", "blueprints.dpf.config", "blueprints.dpu.dpf_card.kind"):
        monkeypatch.setattr(f"{module}.connect", lambda *_, **__: memory)
        monkeypatch.setattr(f"{module}.dialect_of", lambda *_, **__: memory.dialect)
    return memory


class TestRegisteredCard(KindConformance):
    """A card whose DPUDevice and DPUNode Drydock creates."""

    kind = DpfCard()

    @pytest.fixture(autouse=True)
    def _server(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.memory = serve(monkeypatch, "26.4")
        self.given: Json = {"serial": "MT2400X00001", "node": "rack1-h1", "bmc": "10.0.9.7"}

    def config(self) -> Json:
        return {"credential": "dpf", "namespace": "dpf"}

    def credentials(self) -> Mapping[str, Mapping[str, Any]]:
        return {"dpf": {"kubeconfig": KUBECONFIG}}

    def registration(self) -> Json:
        return self.given

    def draft(self) -> Draft:
        return self.registered()

    def resource(self, draft: Draft | None = None, *, generation: int = 1) -> ResourceView:
        return replace(super().resource(draft, generation=generation), registration=self.registration())

    def impossible(self) -> Json:
        return {"serial": "MT2400X00009"}

    def outside(self) -> Sequence[Outside]:
        return [
            Outside(name=name, tags={key: labels[f"drydock-card-{key.removeprefix('drydock-')}"] for key in TAGS})
            for (kind, name), body in self.memory.objects.items()
            if kind == DEVICE and "drydock-card-installation" in (labels := body["metadata"]["labels"])
        ]

    def plant(self) -> None:
        if (DEVICE, "planted") not in self.memory.objects:
            self.device("planted", "MT9999X00009")

    def kill(self, resource: ResourceView) -> None:
        del self.memory.objects[DEVICE, resource.key]

    # What the suite does not know

    def device(self, name: str, serial: str, labels: Mapping[str, str] | None = None) -> None:
        """Let somebody create a DPUDevice."""
        made = self.memory.dialect.type(DEVICE).manifest(name, "dpf", spec={"serialNumber": serial})
        made["metadata"]["labels"] = dict(labels or {})
        self.memory.create(self.memory.dialect.type(DEVICE), made)

    def node(self, *devices: str, labels: Mapping[str, str] | None = None) -> None:
        """Let somebody create the DPUNode."""
        spec = {"dpus": [{"name": one} for one in devices], "nodeRebootMethod": {"hostAgent": {}}}
        made = self.memory.dialect.type(NODE).manifest("rack1-h1", "dpf", spec=spec)
        made["metadata"]["labels"] = dict(labels or {})
        self.memory.create(self.memory.dialect.type(NODE), made)

    def the_node(self) -> Json:
        return self.memory.objects[NODE, "rack1-h1"]

    @property
    def listed(self) -> list[str]:
        return [one["name"] for one in self.the_node()["spec"]["dpus"]]

    def test_dpf_gets_a_device_and_a_node_that_say_what_the_operator_has_said(self) -> None:
        self.given |= {"pci": "0000:2B:00.0", "bmc_port": 8443}
        resource = self.built()
        found = self.memory.objects[DEVICE, resource.key]
        assert found["spec"] == {
            "serialNumber": "MT2400X00001", "numberOfPFs": 1, "bmcIp": "10.0.9.7", "bmcPort": 8443,
        }  # fmt: skip
        labels = {cards.DEVICE_NODE: "rack1-h1", cards.DEVICE_PCI: "0000-2b-00", **of_card(TAGS)}
        assert found["metadata"]["labels"] == labels
        assert self.the_node()["spec"] == {"dpus": [{"name": resource.key}], "nodeRebootMethod": {"external": {}}}
        assert self.the_node()["metadata"]["labels"] == {ENABLED: "true", KEY: resource.key, **TAGS}
        assert resource.facts["card_labels"] == {cards.DEVICE_NODE: "rack1-h1", cards.DEVICE_PCI: "0000-2b-00"}
        self.destroyed(resource)
        assert not self.memory.objects

    def test_it_is_one_resource_whether_it_is_discovered_or_registered(self) -> None:
        resource = self.resource()
        answer = self.ready("build", resource).calls[-1].answer
        assert isinstance(answer, Ready)
        (draft,) = self.kind.discover(self.blueprint())
        assert (draft.identity, draft.refused) == (resource.identity, "")
        assert (draft.attributes, draft.facts) == (answer.attributes, answer.facts)

    def test_a_discovered_card_is_neither_created_nor_deleted(self) -> None:
        self.device("found", "MT2400X00001", {cards.DEVICE_NODE: "rack1-h1"})
        self.node("found")
        (draft,) = self.kind.discover(self.blueprint())
        before = dict(self.memory.objects)
        resource = replace(super().resource(draft), origin="discovered", registration={})
        calls = self.ready("build", resource).calls
        assert len(calls) == 1, "its first step ends the phase"
        self.destroyed(resource)
        assert self.memory.objects == before

    def test_it_waits_until_dpf_has_found_the_address_of_the_card(self) -> None:
        self.memory.finds_address = False
        resource = self.resource()
        spec = self.spec("build", resource)
        assert isinstance(registering.create_device(spec, {}), Ready)
        self.memory.find(self.memory.dialect.type(DEVICE), resource.key)
        assert "is not ready" in registering.wait(spec, {}).sentence  # type: ignore[union-attr]
        assert isinstance(registering.join_node(spec, {}), Ready)
        self.memory.find(self.memory.dialect.type(DEVICE), resource.key)
        answer = registering.wait(spec, {})
        assert isinstance(answer, Wait)
        assert "has not told the PCI address" in answer.sentence

    def test_the_serial_number_is_locked_as_by_every_build(self) -> None:
        self.given["serial"] = " mt2400x00001 "
        asked = registering.lock(self.spec("build", self.resource()), {})
        assert isinstance(asked, Need)
        assert [(one.scope, one.candidates) for one in asked.locks] == [(SCOPE, ("MT2400X00001",))]

    # Several cards of one host

    def second(self) -> None:
        """Let another resource of this installation have a card in the same host."""
        self.device("card-2", "MT2400X00002", of_card(SECOND))
        body = self.the_node()
        body["spec"]["dpus"].append({"name": "card-2"})

    def test_a_second_card_is_added_to_the_node_of_the_first(self) -> None:
        self.device("card-2", "MT2400X00002", of_card(SECOND))
        self.node("card-2", labels={**SECOND, KEY: "card-2"})
        self.the_node()["metadata"]["labels"]["theirs"] = "kept"
        resource = self.built()
        assert self.listed == ["card-2", resource.key]
        labels = {**SECOND, KEY: "card-2", "theirs": "kept"}
        assert self.the_node()["metadata"]["labels"] == labels, "the first card has it"
        assert self.the_node()["spec"]["nodeRebootMethod"] == {"hostAgent": {}}
        self.destroyed(resource)
        assert self.listed == ["card-2"]
        assert self.the_node()["metadata"]["labels"] == labels

    def test_the_second_card_takes_the_node_over_when_the_first_is_removed(self) -> None:
        resource = self.built()
        self.second()
        self.destroyed(resource)
        assert self.listed == ["card-2"]
        assert self.the_node()["metadata"]["labels"] == {ENABLED: "true", KEY: "card-2", **SECOND}
        owned = {one.key: one for one in self.kind.owned(self.blueprint(), TAGS["drydock-installation"])}
        assert set(owned) == {"card-2"}

    def test_a_node_whose_last_card_is_of_somebody_else_becomes_theirs(self) -> None:
        resource = self.built()
        self.device("theirs", "MT2400X00002")
        self.the_node()["spec"]["dpus"].append({"name": "theirs"})
        self.destroyed(resource)
        assert self.listed == ["theirs"]
        assert self.the_node()["metadata"]["labels"] == {ENABLED: "true"}

    def test_a_node_without_its_device_is_listed_and_destroyed(self) -> None:
        """A worker may die between the two deletions, or an operator may delete the DPUDevice."""
        resource = self.built()
        self.kill(resource)
        (found,) = self.kind.owned(self.blueprint(), TAGS["drydock-installation"])
        assert (found.key, found.tags, found.facts) == (resource.key, TAGS, {"node": "rack1-h1"})
        self.destroyed(replace(resource, origin="built", identity="", facts=found.facts, registration={}))
        assert not self.memory.objects

    # What others have

    def refused(self, code: str, resource: ResourceView | None = None) -> str:
        resource = resource or self.resource()
        before = dict(self.memory.objects)
        outcome = self.run("build", resource)
        assert isinstance(outcome.answer, Failed)
        assert outcome.answer.code == code
        self.destroyed(resource)
        assert self.memory.objects == before
        return outcome.answer.message

    def test_a_card_that_dpf_knows_already_is_not_registered_again(self) -> None:
        self.device("found", " MT2400X00001 ")
        assert "DPUDevice found has the serial number" in self.refused("card_exists")

    def test_a_device_of_somebody_else_under_its_name_is_not_touched(self) -> None:
        resource = self.resource()
        self.device(resource.key, "MT2400X00002")
        assert "do not prove" in self.refused("kube_foreign", resource)

    def test_a_node_of_somebody_else_is_not_changed(self) -> None:
        self.node("theirs")
        resource = self.resource()
        assert f"Add {{name: {resource.key}}} to its spec.dpus" in self.refused("node_of_others", resource)
        self.the_node()["spec"]["dpus"].append({"name": resource.key})
        resource = self.ready("build", resource).spec.resource
        before = dict(self.the_node())
        self.destroyed(resource)
        assert self.the_node() == before

    def test_a_node_that_another_card_has_left_gets_the_proof_of_the_card(self) -> None:
        labels = {ENABLED: "true", KEY: "other", **TAGS, "drydock-resource": "99"}
        self.node(labels=labels)
        resource = self.built()
        assert self.listed == [resource.key]
        assert self.the_node()["metadata"]["labels"] == {ENABLED: "true", KEY: resource.key, **TAGS}
        self.destroyed(resource)
        assert not self.memory.objects

    def test_a_node_that_a_card_joins_meanwhile_is_not_deleted(self, monkeypatch: pytest.MonkeyPatch) -> None:
        resource = self.built()
        delete = self.memory.delete

        def joined(*given: Any, **more: Any) -> Any:
            self.the_node()["spec"]["dpus"].append({"name": "new"})
            self.the_node()["metadata"]["resourceVersion"] = "77"
            return delete(*given, **more)

        with monkeypatch.context() as patch:
            patch.setattr(self.memory, "delete", joined)
            assert isinstance(registering.leave_node(self.spec("destroy", resource), {}), Wait)
        assert "new" in self.listed
        assert isinstance(registering.leave_node(self.spec("destroy", resource), {}), Ready)
        assert self.listed == ["new"]

    def test_a_deletion_that_hangs_is_reported_and_repeated(self) -> None:
        resource = self.built()
        for body in (self.memory.objects[DEVICE, resource.key], self.the_node()):
            body["metadata"]["finalizers"] = [FINALIZER]
        for act in (registering.leave_node, registering.delete_device):
            answer = act(self.spec("destroy", resource), {})
            assert isinstance(answer, Wait)
            assert f"kept by the finalizers {FINALIZER}" in answer.sentence
        for body in (self.memory.objects[DEVICE, resource.key], self.the_node()):
            body["metadata"]["finalizers"] = []
        self.destroyed(resource)
        assert not self.memory.objects

    def test_dpf_24_10_says_which_labels_the_operator_sets(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.memory = serve(monkeypatch, "24.10")
        self.given["pci"] = "0000-2b-00"
        said = self.refused("card_by_labels")
        assert "feature.node.kubernetes.io/dpu-enabled=true" in said
        assert "feature.node.kubernetes.io/dpu-0-pci-address=0000-2b-00 on Node rack1-h1" in said
        assert not self.kind.owned(self.blueprint(), TAGS["drydock-installation"])


@pytest.mark.parametrize(
    "wrong",
    [
        {"serial": " "}, {"serial": "MT;1"}, {"node": "Rack1"}, {"node": "n" * 49}, {"pci": "2b:00"}, {"pci": 7},
        {"bmc": "fe80::1"}, {"bmc": "bmc.example.org"}, {"bmc_port": 0},
    ],
)  # fmt: skip
def test_a_bad_registration_is_refused(wrong):
    with pytest.raises(ValidationError):
        Registration(**{"serial": "MT1", "node": "h1", **wrong})


@pytest.mark.parametrize("address", ["0000:2b:00.0", "0000-2B-00", "0000:2b:00"])
def test_a_pci_address_is_written_as_dpf_writes_it(address):
    assert Registration(serial="MT1", node="h1", pci=address).pci == "0000-2b-00"
