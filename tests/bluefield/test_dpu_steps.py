"""Single steps of a DPU: bad images, messages of the BMC, lost answers, and an installation that is not interrupted."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pydantic
import pytest

from blueprints.answers import Failed, Json, Need, Ready, Scope, Wait
from blueprints.bluefield import bfb
from blueprints.dpu.bluefield import flashing as steps
from blueprints.dpu.bluefield import preparing, publishing
from blueprints.dpu.bluefield.config import Config
from blueprints.dpu.bluefield.kind import Bluefield as Kind
from tests.bluefield.dpus import Webroot, card_lease, config, publish, resources, web
from tests.bluefield.lab import Lab
from tests.bmc.bluefield import bluefield
from tests.bmc.flashing import OEM, TASKS, UPDATE, flashing, image
from tests.peers import require

pytestmark = pytest.mark.timeout(300, func_only=True)


@pytest.fixture(autouse=True)
def _database() -> None:
    """No database is needed."""


@pytest.fixture
def lab(tmp_path: Path) -> Iterator[Lab]:
    require("sshd")
    with (
        bluefield(resources()) as bmc, flashing(bmc) as card, web(tmp_path / "images") as images,
        web(tmp_path / "site") as site,
    ):  # fmt: skip
        publish(images)
        yield Lab(bmc, card, images, Webroot(site))
        assert not bmc.sessions
        assert not card.interrupted


# The image


def test_the_published_file_has_no_other_readers(lab):
    lab.publish()
    (found,) = lab.webroot.files
    assert found.stat().st_mode & 0o777 == 0o600
    assert found.read_bytes() == image() + preparing.bf_cfg_of(lab.spec())
    assert len(found.stem) == 48
    assert isinstance(lab.call(publishing.unpublish), Ready)
    assert not lab.webroot.files


def test_an_image_is_published_in_parts_whoever_dies_after_any_of_them(lab, monkeypatch):
    monkeypatch.setattr(publishing, "_PART", 16_000)
    monkeypatch.setattr(publishing, "_SHARE", 0.0)  # one part with each call
    monkeypatch.setattr(publishing, "_opened", _slower(publishing._opened))
    publish(lab.images, image(size=1 << 17))
    for act in (publishing.look_at_image, preparing.check_compatible, preparing.decide):
        assert isinstance(lab.call(act), Ready)
    memo: Json = {}
    for _ in range(40):
        lab.call(publishing.publish, memo)  # its answer is lost
        answer = lab.call(publishing.publish, memo)
        if not isinstance(answer, Wait):
            break
        memo = answer.memo
    assert isinstance(answer, Ready), answer
    (found,) = lab.webroot.files
    assert found.read_bytes() == image(size=1 << 17) + preparing.bf_cfg_of(lab.spec())


def _slower(opened: Any) -> Any:
    """Give a download seconds, while the loop over its parts has none."""
    return lambda url, at, seconds, **more: opened(url, at, 10.0, **more)


@pytest.mark.parametrize(
    ("content", "said"),
    [
        (b"<html>not found</html>", "magic number"), (image()[:-8], "a part of it is missing"),
        (image()[:-9] + bytes(9), "damaged"), (bfb.component(1, b"x")[:20], "too short|missing"),
    ],
    ids=["a page", "cut off", "damaged", "a beginning"],
)  # fmt: skip
def test_a_file_that_is_no_whole_bfb_is_refused(lab, content, said):
    publish(lab.images, content)
    for act in (publishing.look_at_image, preparing.check_compatible, preparing.decide, publishing.publish):
        answer = lab.carry(act)
        if isinstance(answer, Failed):
            break
    assert isinstance(answer, Failed)
    assert (answer.code, answer.scope) == ("no_bfb", Scope.BLUEPRINT)
    assert lab.images.uri in answer.message
    assert not lab.card.tasks


def test_an_image_with_another_sha256_is_refused_before_bf_cfg_is_written(lab):
    lab.more = {"sha256": "0" * 64}
    for act in (publishing.look_at_image, preparing.check_compatible, preparing.decide, publishing.publish):
        answer = lab.carry(act)
    assert isinstance(answer, Failed)
    assert (answer.code, answer.scope) == ("image_digest", Scope.BLUEPRINT)
    (found,) = lab.webroot.files
    assert found.read_bytes() == image(), "there is no secret in it"


def test_the_sha256_is_verified_whichever_worker_publishes_the_next_part(lab, monkeypatch):
    monkeypatch.setattr(publishing, "_PART", 16_000)
    monkeypatch.setattr(publishing, "_SHARE", 0.0)
    monkeypatch.setattr(publishing, "_opened", _slower(publishing._opened))
    content = image(size=1 << 17)
    publish(lab.images, content)
    lab.more = {"sha256": hashlib.sha256(content).hexdigest().upper()}
    lab.done(publishing.look_at_image, preparing.check_compatible, preparing.decide)
    workers: list[Any] = [OrderedDict(), OrderedDict()]
    memo: Json = {}
    for number in range(60):
        monkeypatch.setattr(publishing._Digest, "_known", workers[number % 2 if number < 9 else 1])
        answer = lab.call(publishing.publish, memo)
        if not isinstance(answer, Wait):
            break
        memo = answer.memo
    assert isinstance(answer, Ready), answer
    assert workers[0], "the other worker has read a part of it"
    (found,) = lab.webroot.files
    assert found.read_bytes() == content + preparing.bf_cfg_of(lab.spec())


@pytest.mark.parametrize(("status", "scope"), [(404, Scope.BLUEPRINT), (403, Scope.BLUEPRINT), (503, Scope.STEP)])
def test_a_wrong_address_leases_nothing(lab, status, scope):
    lab.images.status = status
    answer = lab.call(publishing.look_at_image)
    assert isinstance(answer, Failed)
    assert (answer.code, answer.scope) == ("no_image", scope)
    assert str(status) in answer.message


def test_an_image_that_changes_while_it_is_copied_is_refused(lab):
    for act in (publishing.look_at_image, preparing.check_compatible, preparing.decide):
        lab.call(act)
    publish(lab.images, image(size=1 << 17))
    answer = lab.carry(publishing.publish)
    assert isinstance(answer, Failed)
    assert answer.code == "image_changed"


def test_a_web_root_that_lists_its_folders_is_refused(lab):
    assert isinstance(lab.call(publishing.look_at_image), Ready)
    del lab.parents["image"]
    wanted = lab.call(publishing.have_webroot)
    assert isinstance(wanted, Need)
    assert [(one.type, one.lifetime, one.exclusive) for one in wanted.leases] == [("webroot", "phase", True)]
    lab.webroot.listing = True
    lab.parents["image"] = lab.webroot.lease()
    answer = lab.call(publishing.have_webroot)
    assert isinstance(answer, Failed)
    assert "lists the contents" in answer.message


@pytest.mark.parametrize(
    ("attributes", "code"), [({"mode": "nic"}, "nic_mode"), ({"model": "BlueField2"}, "image_for_other_card")]
)
def test_a_card_that_the_image_is_not_for_is_not_installed(lab, attributes, code):
    lab.parents["card"] = card_lease(lab.bmc, **attributes)
    answer = lab.call(preparing.check_compatible)
    assert isinstance(answer, Failed)
    assert answer.code == code
    assert answer.message.count("MT2328XZ185R") == 1


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"image": "ftp://x/a.bfb"}, "http"), ({"image": "https://x/a.iso"}, "end in .bfb"),
        ({"image": "https://u:p@x/a.bfb"}, "user"), ({"image": "https://x/$TAG.bfb"}, "placeholder"),
        ({"addresses": {}}, "address"), ({"parameters": {"BMC_PASSWORD": "x"}}, "BMC_PASSWORD"),
    ],
)  # fmt: skip
def test_a_config_that_cannot_work_is_refused_by_its_field(lab, given, said):
    with pytest.raises(pydantic.ValidationError, match=said) as error:
        Config.model_validate(config(lab.card, lab.images, **given))
    assert "u:p" not in str(error.value)


def test_both_kinds_of_dpus_take_the_same_requirements():
    from blueprints.dpu.dpf.kind import Dpf

    assert (Kind.Requirements, Kind.Attributes, Kind.matches) == (Dpf.Requirements, Dpf.Attributes, Dpf.matches)


# The installation


def test_an_answer_that_is_lost_is_looked_up_and_not_requested_again(lab):
    lab.ready()
    for payload in (True, False):
        lab.card.payload = payload
        first = lab.call(steps.flash)
        lab.bmc.lose = f"POST {UPDATE}"
        lost = lab.call(steps.flash, first.memo)
        lab.bmc.lose = ""
        assert isinstance(lost, Wait)
        assert lost.memo["task"] == ""
        died = steps.find_flash(lab.spec(), first.memo)  # the same, if the worker died with the answer
        assert isinstance(died, Wait)
        assert isinstance(lab.carry(steps.flash, died.memo), Ready)
    assert lab.bmc.calls.count(f"POST {UPDATE}") == 2
    assert lab.card.imaged == ["dpu-1", "dpu-1"]


def test_a_task_that_is_never_listed_ends_by_a_limit_and_is_not_requested_again(lab, monkeypatch):
    lab.ready()
    first = lab.call(steps.flash)
    lost = steps.find_flash(lab.spec(), first.memo)  # the worker died before the request
    monkeypatch.setattr(steps, "_LOST", 0.0)
    answer = lab.call(steps.flash, lost.memo)
    assert isinstance(answer, Failed)
    assert (answer.code, lab.card.tasks) == ("flash_unknown", {})
    assert answer.quarantines_carrier, "it is looked at before it is used"


def test_a_task_that_the_bmc_does_not_know_for_a_while_is_waited_for(lab):
    lab.ready()
    second = lab.call(steps.flash, lab.call(steps.flash).memo)
    hidden = {number: lab.card.tasks.pop(number) for number in list(lab.card.tasks)}
    waits = lab.call(steps.flash, second.memo)
    assert isinstance(waits, Wait)
    assert "The BMC does not know the task of the installation." in waits.sentence
    lab.card.tasks |= hidden
    assert isinstance(lab.carry(steps.flash, waits.memo), Ready)
    assert lab.bmc.calls.count(f"POST {UPDATE}") == 1


def test_a_task_that_the_bmc_has_forgotten_leaves_a_card_to_be_looked_at(lab, monkeypatch):
    lab.ready()
    second = lab.call(steps.flash, lab.call(steps.flash).memo)
    lab.card.tasks.clear()
    monkeypatch.setattr(steps, "_LOST", 0.0)
    answer = lab.carry(steps.flash, second.memo)
    assert isinstance(answer, Failed)
    assert (answer.code, answer.quarantines_carrier) == ("flash_unknown", True)
    assert "does not know the task of the installation any more" in answer.message
    assert lab.bmc.calls.count(f"POST {UPDATE}") == 1


def test_the_task_is_stored_before_it_is_read(lab):
    lab.ready()
    second = lab.call(steps.flash, lab.call(steps.flash).memo)
    assert second.memo["task"] == f"{TASKS}/1"
    assert f"GET {TASKS}/1" not in lab.bmc.calls


@pytest.mark.parametrize(
    ("said", "code"),
    [
        ("Invalid FW Package", "image_for_other_card"), ("Check and restart server's web service", "web_unreachable"),
        ("Please provide server's public key using PublicKeyExchange", "public_key_missing"),
        ("12V_ATX", "flash_failed"),
    ],
)  # fmt: skip
def test_a_task_that_fails_fails_the_build_with_its_meaning(lab, said, code):
    lab.ready()
    lab.card.says = [said]
    answer = lab.carry(steps.flash)
    assert isinstance(answer, Failed)
    assert answer.code == code
    assert lab.bmc.calls.count(f"POST {UPDATE}") == 1


def test_an_identical_image_is_done_and_a_background_copy_is_waited_for(lab):
    lab.ready()
    lab.card.says = ["Wait for background copy operation", "Component image is identical"]
    assert isinstance(lab.carry(steps.flash), Ready)
    assert lab.bmc.calls.count(f"POST {UPDATE}") == 2


def test_a_message_of_the_bmc_does_not_show_the_path_of_the_image(lab):
    lab.ready()
    path = lab.secrets[preparing.PATH]
    lab.card.says = [f"cannot read {path}"]
    answer = lab.carry(steps.flash)
    assert isinstance(answer, Failed)
    assert path not in answer.message


def test_a_destruction_waits_for_an_installation_that_runs(lab):
    lab.ready()
    memo = lab.call(steps.flash, lab.call(steps.flash).memo).memo
    lab.card.stuck = True
    answer = lab.call(steps.wait_for_flash)
    assert isinstance(answer, Wait)
    assert "still installs" in answer.sentence
    lab.card.stuck = False
    assert isinstance(lab.carry(steps.flash, memo), Ready)
    for act in (steps.wait_for_flash, steps.park, steps.leave_rshim):
        assert isinstance(lab.carry(act), Ready)
    assert (lab.card.power, lab.card.rshim, lab.card.running) == ("Off", False, [])


@pytest.mark.parametrize("silent", [True, False])
def test_a_card_is_not_handed_back_while_it_may_be_installed_or_run(lab, silent):
    """After the limit it is quarantined, and the destruction goes on trying."""
    lab.ready()
    lab.card.stuck = True
    lab.call(steps.flash, lab.call(steps.flash).memo)
    lab.bmc.silent = silent
    answer = lab.call(steps.wait_for_flash, {"began": "2020-01-01T00:00:00+00:00"})
    assert isinstance(answer, Failed)
    assert answer.quarantines_carrier
    lab.bmc.silent, lab.card.stuck = False, False
    assert isinstance(lab.call(steps.wait_for_flash), Wait | Ready)


def test_a_card_that_could_not_be_switched_off_afterwards_is_not_installed(lab):
    lab.publish()
    resets = lab.bmc.resources["/redfish/v1/Systems/Bluefield"]["Actions"]["#ComputerSystem.Reset"]
    offered = resets["ResetType@Redfish.AllowableValues"]
    resets["ResetType@Redfish.AllowableValues"] = ["ForceRestart"]
    answer = lab.carry(steps.note_rshim)
    assert isinstance(answer, Failed)
    assert (answer.scope, answer.code) == (Scope.OFFER, "cannot_park")
    assert "Set `park` to leave" in answer.message
    lab.more = {"park": "leave"}
    assert isinstance(lab.carry(steps.note_rshim), Ready)
    lab.more = {}
    answer = lab.carry(steps.park)
    assert isinstance(answer, Failed)
    assert answer.quarantines_carrier
    resets["ResetType@Redfish.AllowableValues"] = offered
    assert isinstance(lab.carry(steps.park), Ready)
    assert lab.card.power == "Off"


def test_a_destruction_waits_for_the_host_before_the_card_is_switched_off(lab):
    plan = [step.name for step in Kind().destroy()]
    assert plan.index("vacate") == plan.index("park") - 1
    assert lab.call(steps.vacate) == Ready()
    lab.ready()
    asked = lab.call(steps.vacate)
    assert isinstance(asked, Need)
    assert asked.maintenance is not None
    assert (asked.maintenance.relation, asked.maintenance.action) == (preparing.HOST, "vacate")
    assert steps.vacate(replace(lab.spec(), granted=frozenset({asked.maintenance.name})), {}) == Ready()
    assert lab.card.power == "On"


def test_a_card_that_was_switched_off_is_started_also_by_a_bmc_that_offers_resets_only(lab):
    lab.ready()
    assert isinstance(lab.carry(steps.park), Ready)
    assert lab.card.power == "Off"
    assert isinstance(lab.carry(steps.take_rshim), Ready)
    assert lab.card.power == "On"


def test_an_installation_that_never_ends_fails_by_its_limit(lab):
    lab.ready()
    lab.card.stuck, lab.more = True, {"flash_limit": 0.01}
    answer = lab.carry(steps.flash)
    assert isinstance(answer, Failed)
    assert answer.code == "flash_limit"


def test_a_bmc_that_restarts_or_sends_garbage_during_the_installation_is_waited_for(lab):
    lab.ready()
    memo = lab.call(steps.flash, lab.call(steps.flash).memo).memo
    lab.bmc.silent = True
    answer = lab.call(steps.flash, memo)
    assert isinstance(answer, Wait)
    lab.bmc.silent = False
    assert isinstance(lab.carry(steps.flash, answer.memo), Ready)


def test_a_bmc_that_sends_a_mebibyte_is_bounded(lab):
    lab.ready()
    lab.card.says = ["x" * (1 << 20)]
    answer = lab.carry(steps.flash)
    assert isinstance(answer, Failed)
    assert len(answer.message) < 2000


def test_a_bmc_that_fetches_by_scp_only_is_not_written_to(lab):
    lab.publish()
    card = lab.parents["card"]
    row = replace(card.resource, facts={"card": {"protocols": ["SCP"]}})
    lab.parents["card"] = replace(card, resource=row)
    answer = lab.call(steps.check_protocol)
    assert isinstance(answer, Failed)
    assert "SCP" in answer.message
    assert not lab.card.tasks


def test_a_bmc_that_does_not_get_the_rshim_is_not_asked_to_install(lab, monkeypatch):
    lab.publish()
    lab.call(steps.note_rshim)
    lab.bmc.answers = [(f"PATCH {OEM}", "403 Forbidden")]
    assert isinstance(answer := lab.carry(steps.take_rshim), Failed)
    lab.bmc.answers = []
    monkeypatch.setattr(steps, "_RSHIM", 0.0)
    lab.card.wanted = None
    answer = lab.call(steps.take_rshim, {"began": "2020-01-01T00:00:00+00:00"})
    assert isinstance(answer, Failed)
    assert answer.code == "rshim"
