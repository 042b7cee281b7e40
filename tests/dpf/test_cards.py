"""Cards, as DPUDevices and labels of Nodes describe them."""

from __future__ import annotations

from blueprints.dpf import cards
from tests.dpf.objects import condition, made

READY = [condition("Ready", "True")]


def device(name: str, node: str = "h1", pci: str = "0000-2b-00", *, conditions=READY, **status):
    labels = {cards.DEVICE_NODE: node, cards.DEVICE_PCI: pci} if node else {}
    return made(
        "DPUDevice",
        name,
        spec={"serialNumber": f"MT{name} "},
        status={"conditions": conditions, **status},
        labels=labels,
    )


def node(name: str, *devices: str):
    return made("DPUNode", name, spec={"dpus": [{"name": one} for one in devices]})


def test_a_device_is_a_card_with_its_stripped_serial_number():
    (card,) = cards.of_devices([device("a", dpuType="BlueField3", opn="900")], [node("h1", "a")])
    assert (card.identity, card.node, card.model, card.memory_gib) == ("MTa", "h1", "BlueField3", 32)
    assert not card.problem


def test_a_device_that_only_its_node_names_is_in_that_node_and_cannot_be_selected():
    bare = made("DPUDevice", "a", spec={"serialNumber": "MT1"}, status={"conditions": READY})
    (card,) = cards.of_devices([bare], [node("h1", "a")])
    assert (card.node, card.card_labels) == ("h1", {})
    assert cards.selected(card.facts(), [card]) == [card]
    assert len(cards.selected(card.facts(), [card, card])) == 2


def test_problems_of_a_device_are_told():
    for one, said in (
        (device("a", conditions=[condition("Ready", "False", "Discovering", "BMC")]), "is not ready: Discovering BMC"),
        (device("a", conditions=[condition("Error", "True", "NoBmc", "")]), "has an error: NoBmc"),
        (device("a", node=""), "is in no DPUNode"),
    ):
        assert said in cards.of_devices([one], [])[0].problem


def test_two_cards_of_one_host_are_told_apart_by_their_pci_addresses():
    both = cards.of_devices([device("a"), device("b", pci="0000-5e-00")], [])
    assert [cards.selected(one.facts(), both) for one in both] == [[both[0]], [both[1]]]


def test_labels_of_a_node_describe_its_cards():
    labels = {
        "kubernetes.io/hostname": "h1", f"{cards.FEATURE}dpu-0-pci-address": "0000-04-00",
        f"{cards.FEATURE}dpu-1-pci-address": "0000-b1-00", f"{cards.FEATURE}dpu-1-ps-id": "MT_1", "other": "x",
    }  # fmt: skip
    first, second = cards.of_nodes([made("Node", "h1", labels=labels)])
    assert (first.identity, second.identity, second.psid) == ("h1/0000-04-00", "h1/0000-b1-00", "MT_1")
    assert cards.selected(second.facts(), [first, second]) == [second]
    assert second.facts()["card_labels"] == {f"{cards.FEATURE}dpu-1-pci-address": "0000-b1-00"}
