"""The lock on the serial number of a card, which builds of different kinds share."""

from __future__ import annotations

from dataclasses import replace

import pytest

from blueprints.amounts import Amounts
from blueprints.answers import Need, Ready
from blueprints.bluefield import hold_card
from blueprints.bluefield.cards import generation_of
from blueprints.dpu.bluefield_card import enrolment
from blueprints.dpu.dpf import actions
from blueprints.specs import Asked, BlueprintView, LeaseView, ResourceView, Spec


@pytest.fixture(autouse=True)
def _database() -> None:
    """No database is needed."""


def resource(**more) -> ResourceView:
    blueprint = BlueprintView(id=1, name="b", kind="dpf", generation=1, config=None)
    base = ResourceView(
        id=1, key="r1", name="r", type="dpu", origin="built", blueprint=blueprint, attributes={},
        capacity=Amounts(slots=1),
    )  # fmt: skip
    return replace(base, **more)


def of_dpf(card: ResourceView) -> Spec:
    asked = Asked(type="dpu_card", requirements=None, amounts=Amounts(slots=1))
    lease = LeaseView(id=1, key="l1", owner="ada", asked=asked, resource=card)
    return Spec(phase="build", key="k", resource=resource(), parents={actions.CARD: lease})


def test_dpf_takes_the_lock_that_the_enrolment_takes():
    card = resource(type="dpu_card", attributes={"serial": "MT1"})
    enrolled = Spec(phase="build", key="k", resource=resource(registration={"serial": " MT1  "}))
    wanted = enrolment.lock(enrolled, {})
    assert isinstance(wanted, Need)
    assert actions.lock_card(of_dpf(card), {}) == wanted
    assert [lock.candidates for lock in wanted.locks] == [("MT1",)]
    typed = replace(enrolled, resource=resource(registration={"serial": "mt1"}))
    assert enrolment.lock(typed, {}) == wanted, "case does not count"
    held = replace(enrolled, locks={wanted.locks[0].name: "MT1"})
    assert enrolment.lock(held, {}) == Ready()


def test_a_build_on_a_leased_card_that_holds_the_lock_needs_no_other():
    card = resource(type="dpu_card", attributes={"serial": "MT1"}, locks={"card MT1": "MT1"})
    assert hold_card(of_dpf(card), "MT1", card) is None
    assert hold_card(of_dpf(card), "MT2", card) is not None


def test_a_card_without_serial_number_is_locked_by_its_place():
    card = resource(type="dpu_card", identity="h1/0000-04-00")
    wanted = actions.lock_card(of_dpf(card), {})
    assert isinstance(wanted, Need)
    assert wanted.locks[0].candidates == ("H1/0000-04-00",)


@pytest.mark.parametrize(
    ("product", "part_number", "generation"),
    [
        ("Bluefield 3 SmartNIC Main Card", "", "BlueField3"), ("BlueField-2 DPU", "", "BlueField2"),
        ("NVIDIA BlueField4", "", "BlueField4"), ("", "900-9D3B6-00CV-AA0", "BlueField3"),
        ("", "MBF2H516A-CENOT", "BlueField2"), ("ConnectX-7", "900-9X7AH", ""), ("", "", ""),
    ],
)  # fmt: skip
def test_generations_are_known_by_product_or_part_number(product, part_number, generation):
    assert generation_of(product, part_number) == generation
