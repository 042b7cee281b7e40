"""Parking by the BMC of a card: what is done, what is proven, and what happens if it cannot be done."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from blueprints.amounts import Amounts
from blueprints.answers import Answer, Failed, Hold, Json, Need, Ready, Resolution, Scope, Wait
from blueprints.dpf import bmc as bmcs
from blueprints.dpf.cards import Card
from blueprints.dpu.dpf import leasing, parking
from blueprints.dpu.dpf.config import Config
from blueprints.dpu.dpf.kind import Dpf
from blueprints.dpu.dpf_card.config import Config as CardConfig
from blueprints.records.logins import LoginsInMemory
from blueprints.specs import Asked, BlueprintView, LeaseView, ResourceView, Spec, Whole
from drydock.core import clock
from tests.dpf.bmc import PASSWORD, CardBmc, card_bmc

SERIAL = "MT2400X00001"
BASE = {"credential": "dpf", "image": "https://images/a.bfb", "flavor": "hbn"}
pytestmark = pytest.mark.timeout(120)


@pytest.fixture(autouse=True)
def _database() -> None:
    """No database is needed."""


@pytest.fixture
def bmc() -> Iterator[CardBmc]:
    with card_bmc(SERIAL) as running:
        yield running
        assert running.basic == 0


def card(config: Json, password: str = PASSWORD, **more: Any) -> ResourceView:
    """Return the card that a DPU has leased."""
    view = BlueprintView(
        id=1, name="cards", kind="dpf_card", generation=1,
        config=CardConfig.model_validate({"credential": "dpf", "bmc_credential": "bmcs", **config}),
        credentials={"bmcs": {"password": password}},
    )  # fmt: skip
    given: Json = {"attributes": {"serial": SERIAL}, "identity": SERIAL, "logins": LoginsInMemory(), **more}
    return ResourceView(
        id=2, key="dd-r2", name="mt2400x00001", type="dpu_card", origin="discovered", blueprint=view,
        capacity=Amounts(slots=1), **given,
    )  # fmt: skip


def spec(park: str, there: ResourceView | None, *, facts: Json | None = None, **config: Any) -> Spec:
    """Return the input of a step that destroys a DPU."""
    view = BlueprintView(
        id=3, name="dpus", kind="dpf", generation=1, config=Config.model_validate({**BASE, "park": park, **config})
    )
    resource = ResourceView(
        id=4, key="dd-r4", name="dpus-4", type="dpu", origin="built", blueprint=view, attributes={},
        capacity=Amounts(slots=1), facts={"flavor_object": "hbn", "node": "n", **(facts or {})},
    )  # fmt: skip
    asked = Asked(type="dpu_card", requirements=None, amounts=Amounts(slots=1))
    parents = {} if there is None else {"card": LeaseView(id=5, key="l5", owner="", asked=asked, resource=there)}
    return Spec(phase="destroy", key="dd-r4", resource=resource, parents=parents, deadline=30.0)


def pinned(bmc: CardBmc) -> Json:
    return {"bmcs": {SERIAL: bmc.access()}}


def driven(one: Spec, bmc: CardBmc, *, twice: bool = False) -> Answer:
    """Call the step until it does not wait any more; `twice` repeats each call with its old memo, as after a death."""
    memo: Json = {}
    for _ in range(40):
        answer = parking.park(one, dict(memo))
        if twice and isinstance(answer, Wait):
            answer = parking.park(one, dict(memo))
        if not isinstance(answer, Wait):
            return answer
        assert PASSWORD not in answer.sentence
        memo = answer.memo
    raise AssertionError(memo)


@pytest.mark.parametrize("twice", [False, True])
def test_a_card_is_switched_off_and_stays_off(bmc, twice):
    one = spec("power_off", card(pinned(bmc)))
    answer = driven(one, bmc, twice=twice)
    assert isinstance(answer, Ready)
    assert answer.facts == {"parked": "power_off", "park_failed": ""}
    assert bmc.resets == ["ForceOff"]
    assert isinstance(driven(one, bmc), Ready)
    assert bmc.resets == ["ForceOff"]


@pytest.mark.parametrize(("park", "waits"), [("power_off", True), ("wipe", True), ("reimage", False), ("leave", False)])
def test_the_host_of_a_card_is_vacated_before_its_card_is_parked_by_the_bmc(bmc, park, waits):
    config = spec(park, None).resource.blueprint.config
    steps = [step for step in parking.plan() if step.applies is None or step.applies(config)]
    names = [step.name for step in steps]
    assert ("park_vacate" in names) is waits
    if not waits:
        return
    assert names.index("park_vacate") < names.index("park")
    host = Whole(id=9, name="h1", type="host", kind="fake")
    one = spec(park, card(pinned(bmc), part_of=(host,)))
    vacate = steps[names.index("park_vacate")].act
    asked = vacate(one, {})
    assert isinstance(asked, Need)
    assert asked.maintenance is not None
    assert (asked.maintenance.action, asked.maintenance.holders) == ("vacate", "wait")
    assert vacate(replace(one, granted=frozenset({asked.maintenance.name})), {}) == Ready()
    assert isinstance(vacate(spec(park, card(pinned(bmc))), {}), Ready)
    assert vacate(spec(park, None), {}) == Ready()
    assert bmc.calls == []


def test_a_system_that_force_does_not_stop_is_asked_to(bmc):
    bmc.ignores = ("ForceOff",)
    assert isinstance(driven(spec("power_off", card(pinned(bmc))), bmc), Ready)
    assert bmc.resets == ["ForceOff", "GracefulShutdown"]


@pytest.mark.parametrize("twice", [False, True])
def test_a_card_is_wiped_by_one_restart_and_not_before_the_firmware_has_done_it(bmc, twice):
    answer = driven(spec("wipe", card(pinned(bmc))), bmc, twice=twice)
    assert isinstance(answer, Ready)
    assert answer.facts["parked"] == "wipe"
    assert bmc.resets == ["ForceRestart"]
    assert not bmc.running


def test_a_card_that_is_being_erased_is_not_restarted_after_a_failure_or_a_limit(bmc):
    """The memo is lost then: the BMC is asked whether the firmware erases already."""
    bmc.reads = 8
    one, memo = spec("wipe", card(pinned(bmc))), Json()
    while not bmc.resets:
        memo = parking.park(one, memo).memo
    bmc.answers = [("GET /redfish/v1/Systems/Bluefield/Bios", "500 Internal Server Error")]
    assert isinstance(refused := parking.park(one, memo), Wait)
    bmc.answers = []
    assert isinstance(parking.park(one, refused.memo), Wait)
    assert isinstance(driven(one, bmc), Ready)
    assert bmc.resets == ["ForceRestart"]
    assert not bmc.running


def test_a_bmc_that_drops_the_settings_proves_nothing(bmc):
    bmc.forgets = True
    answer = parking.park(spec("wipe", card(pinned(bmc))), {"stage": "confirm"})
    assert isinstance(answer, Wait)
    assert "does not show it as pending" in answer.sentence
    assert "stage" not in answer.memo, "it is asked for anew"


def test_a_bmc_without_the_attributes_cannot_wipe(bmc):
    for name in ("EmmcWipe", "Nvme Wipe"):
        bmc.resources["/redfish/v1/Systems/Bluefield/Bios"]["Attributes"].pop(name)
    answer = driven(spec("wipe", card(pinned(bmc))), bmc)
    assert isinstance(answer, Failed)
    assert answer.quarantines_carrier
    assert "EmmcWipe" in answer.message


def test_the_bmc_of_another_card_is_left_alone(bmc):
    there = card(pinned(bmc), attributes={"serial": "MT9999"})
    answer = driven(spec("power_off", there), bmc)
    assert isinstance(answer, Failed)
    assert f"belongs to card {SERIAL}" in answer.message
    assert bmc.resets == []


def test_a_bmc_that_does_not_answer_is_asked_again_and_then_the_card_is_quarantined(bmc):
    bmc.silent = True
    one = spec("power_off", card(pinned(bmc)), park_timeout=60)
    answer = parking.park(one, {})
    assert isinstance(answer, Wait)
    assert "is not parked yet" in answer.sentence
    bmc.silent = False
    assert isinstance(parking.park(one, answer.memo), Wait)
    bmc.resources["/redfish/v1/Systems/Bluefield"]["PowerState"] = "On"
    bmc.silent = True
    early = {"since": (clock.now() - dt.timedelta(seconds=61)).isoformat()}
    failed = parking.park(one, early)
    assert isinstance(failed, Failed)
    assert (failed.scope, failed.code, failed.quarantines_carrier) == (Scope.OPERATOR, "park_failed", True)
    assert failed.facts["park_failed"] == failed.message


def test_a_wrong_password_is_tried_once_and_the_card_is_quarantined(bmc):
    answer = parking.park(spec("power_off", card(pinned(bmc), password="wrong-password-1")), {})
    assert isinstance(answer, Failed)
    assert answer.quarantines_carrier
    assert "wrong-password-1" not in answer.message
    assert bmc.failed == 1


def test_the_address_that_dpf_reports_is_used_with_an_authority_only(bmc):
    reported = {"bmc": {"address": bmc.address, "port": bmc.port}}
    there = card({"bmc_ca": bmc.ca}, facts=reported)
    assert isinstance(driven(spec("power_off", there), bmc), Ready)
    assert bmcs.known(card({}, facts=reported)) is None
    assert bmcs.known(card({"bmc_ca": bmc.ca}, facts={"bmc": {"address": "https://x/"}})) is None
    assert bmcs.known(card({"bmc_ca": bmc.ca}, facts={"bmc": ["odd"]})) is None


def test_a_card_without_a_bmc_is_not_parked_by_one_and_says_what_to_do():
    answer = parking.park(spec("power_off", card({"bmc_credential": ""})), {})
    assert isinstance(answer, Failed)
    assert answer.quarantines_carrier
    assert "Set bmc_credential" in answer.message


def test_leaving_a_card_says_what_runs_on_it():
    answer = parking.park(spec("leave", card({})), {})
    assert isinstance(answer, Ready)
    assert answer.carrier_health is not None
    assert answer.carrier_health.state == "degraded"
    assert "still runs the image https://images/a.bfb" in answer.carrier_health.reason


@pytest.mark.parametrize("facts", [{"flavor_object": None}, {"parked": "wipe"}])
def test_a_card_that_dpf_has_not_touched_or_that_is_parked_is_not_parked_again(bmc, facts):
    one = spec("power_off", card(pinned(bmc)), facts=facts)
    kept = {name: value for name, value in one.resource.facts.items() if value is not None}
    assert parking.park(replace(one, resource=replace(one.resource, facts=kept)), {}) == Ready()
    assert parking.park(spec("power_off", None), {}) == Ready()
    assert bmc.calls == []


def test_an_image_is_leased_for_parking_and_after_a_failure_an_operator_is_asked_first():
    first = spec("reimage", card({}), park_image="https://images/clean.bfb")
    needed = parking.have_image(first, {})
    assert isinstance(needed, Need)
    assert needed.leases[0].requirements == {"url": "https://images/clean.bfb"}
    after = spec("reimage", card({}), facts={"park_failed": "It failed."})
    held = parking.have_image(after, {})
    assert isinstance(held, Hold)
    assert held.what.startswith("It failed. Answer yes")
    no = parking.have_image(replace(after, resolution=Resolution(yes=False)), {})
    assert no == Ready(facts={"parked": "left"})
    assert isinstance(parking.have_image(replace(after, resolution=Resolution(yes=True)), {}), Need)


def test_a_card_whose_dpu_was_never_used_is_not_installed_again():
    one = spec("reimage", card({}))
    unused = replace(one, resource=replace(one.resource, facts={"flavor_object": "hbn"}))
    answer = parking.have_image(unused, {})
    assert isinstance(answer, Ready)
    assert answer.facts == {"parked": "unused"}


def test_a_way_that_was_changed_between_the_steps_does_not_leave_the_card_unparked():
    answer = parking.confirm(spec("wipe", card({})), {})
    assert isinstance(answer, Failed)
    assert not answer.quarantines_carrier
    assert parking.confirm(spec("wipe", card({}), facts={"parked": "wipe"}), {}) == Ready()


def test_a_card_that_was_switched_off_is_started_before_it_is_installed(bmc):
    bmc.resources["/redfish/v1/Systems/Bluefield"]["PowerState"] = "Off"
    one = spec("power_off", card(pinned(bmc)))
    assert isinstance(parking.wake(one, {}), Wait)
    assert isinstance(parking.wake(one, {"looks": 1}), Ready)
    assert bmc.resets == ["On"]
    bmc.silent = True
    answer = parking.wake(one, {})
    assert isinstance(answer, Ready)
    assert "not known whether the card is on" in answer.log


def test_check_names_field_and_cure(bmc):
    def found(config: Json, *there: Card, credentials: Json | None = None) -> list[tuple[str, bool]]:
        view = card(config).blueprint
        known = {"bmcs": {"password": PASSWORD}} if credentials is None else credentials
        return [(one.field, one.fatal) for one in bmcs.problems(replace(view, credentials=known), there)]

    plain, reported = (
        Card(name="a", node="h", pci="1", serial="MT1"),
        Card(name="b", node="h", pci="2", serial="MT2", bmc={"address": "10.0.0.1", "port": 443}),
    )
    assert found({"bmc_credential": ""}, plain) == []
    assert found({"bmc_credential": "", **pinned(bmc)}) == [("bmc_credential", True)]
    assert found({}, credentials={}) == [("bmc_credential", True)]
    assert found({}, credentials={"bmcs": {"username": "root"}}) == [("bmc_credential", True)]
    assert found({}, plain) == [("bmcs", False)]
    assert found({"bmc_ca": bmc.ca}, reported) == []
    assert bmcs.ways(card({"bmc_ca": bmc.ca}).blueprint.config, reported) == ["leave", "power_off", "reimage", "wipe"]
    assert bmcs.ways(card({}).blueprint.config, plain) == ["leave", "reimage"]
    view = BlueprintView(id=1, name="d", kind="dpf", generation=1, config=Config.model_validate({**BASE, "root": True}))
    assert [(one.field, one.fatal) for one in parking.problems(view)] == [("park", False)]


def test_a_dpu_on_which_a_lease_could_be_root_is_not_reused_although_the_config_has_changed():
    def lease(root: bool, facts: Json) -> LeaseView:
        asked = Asked(type="dpu", requirements=None, amounts=Amounts(slots=1))
        there = spec("wipe", None, root=root).resource
        return LeaseView(id=6, key="l6", owner="ada", asked=asked, resource=there, facts=facts)

    def kept(root: bool) -> Json:
        """Return the facts of a lease that begins under this config."""
        one = replace(spec("wipe", None, root=root), lease=lease(root, {}))
        answer = leasing.open_to_lease(one, {})
        assert isinstance(answer, Ready)
        return dict(answer.facts)

    assert not Dpf().reusable_after(lease(False, kept(True)))
    assert not Dpf().reusable_after(lease(True, kept(False)))
    assert Dpf().reusable_after(lease(False, kept(False)))
