"""Firmware, BIOS settings and Secure Boot of a host are brought to the baseline of its blueprint."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from blueprints.answers import Absent, Failed, Json, Wait
from blueprints.baremetal import baseline, plans
from blueprints.baremetal.config import Baseline, Config
from blueprints.baremetal.kind import BareMetal, apply
from blueprints.bmc.errors import BmcAnswerInvalid
from blueprints.bmc.values import BmcTask, Firmware, PowerState
from blueprints.hostshell import NeedsOperator
from blueprints.testing.outcome import Outcome
from interfaces.ssh.pool import POOL
from tests.blueprints.baremetal.ramdisk_bench import BMC, RamdiskHooks, media_server
from tests.blueprints.baremetal.scripted import MountingSession, Update, UpgradingSession, machine, scripted
from tests.blueprints.baremetal.test_phases import Bed as InstalledBed
from tests.blueprints.baremetal.test_phases import bed as installed
from tests.blueprints.baremetal.test_phases import failure, server
from tests.blueprints.host_peers import WORKER
from tests.bmc.guests import guests

__all__ = ["installed", "scripted", "server"]
pytestmark = [pytest.mark.timeout(240, func_only=True), pytest.mark.usefixtures("scripted")]
URL, BMC_URL = "http://10.0.0.1/bios-2.0.bin", "http://10.0.0.1/bmc-3.1.bin"
FIRMWARE = {"component": "BIOS", "version": "2.0", "url": URL}


def of(firmware: Json | None = None, **more: Any) -> Json:
    """A config with a baseline that updates the BIOS."""
    return {"baseline": {"firmware": [{**FIRMWARE, **(firmware or {})}], **more}}


@pytest.fixture
def bed(installed: InstalledBed) -> InstalledBed:
    """A host whose operating system somebody else has installed, with a BMC that updates firmware."""
    installed.bmc.updates = {URL: Update(component="BIOS", version="2.0")}
    return installed


def version(outcome: Outcome) -> dict[str, str]:
    return {one["component"]: one["version"] for one in outcome.facts["hardware"]["firmware"]}


def test_outdated_firmware_is_updated_when_a_host_is_enrolled(bed):
    bed.given = of()
    outcome = bed.build()
    assert (outcome.ended, version(outcome), bed.bmc.started) == ("ready", {"BIOS": "2.0"}, [URL])
    told = [call.answer for call in outcome.calls if isinstance(call.answer, Wait) and call.answer.percent]
    assert told[0].sentence == "BIOS is being updated to 2.0. Flashing."
    assert told[0].percent == 50
    assert "BIOS was updated from 1.0 to 2.0." in [getattr(call.answer, "log", "") for call in outcome.calls]
    again = bed.run("update", outcome.spec.resource)
    assert (again.ended, bed.bmc.started) == ("ready", [URL])


def test_a_process_that_dies_while_an_update_runs_is_followed_by_one_that_reads_its_task(bed):
    bed.given = of()
    spec, memo = bed.spec("build", bed.resource()), {}
    while "task" not in memo:
        memo = baseline.update_firmware(spec, memo).memo
    for _ in range(2):  # the memo that the second process finds is the one that was stored last
        assert isinstance(baseline.update_firmware(spec, memo), Wait)
    assert bed.bmc.started == [URL]


def test_an_update_whose_answer_is_lost_is_found_by_its_task_and_started_once(bed):
    bed.given, bed.bmc.loses_answers = of(), True
    outcome = bed.build()
    assert (outcome.ended, version(outcome), bed.bmc.started) == ("ready", {"BIOS": "2.0"}, [URL])
    told = [call.answer.sentence for call in outcome.calls if isinstance(call.answer, Wait)]
    assert any("did not answer within 10 s" in one for one in told)
    assert bed.bmc.read, "its task was not followed"


def test_a_lost_update_that_fails_says_why_at_once(bed):
    bed.given, bed.bmc.loses_answers = of(), True
    bed.bmc.updates[URL].error = "The image is not signed."
    answer = failure(bed.build())
    assert (answer.code, bed.bmc.started) == ("firmware_update", [URL])
    assert "could not update BIOS to 2.0: The image is not signed." in answer.message


def test_a_lost_update_of_a_bmc_without_a_list_of_tasks_is_waited_for(bed):
    bed.given, bed.bmc.loses_answers, bed.bmc.hides_tasks = of(update_timeout=0.2), True, True
    answer = failure(bed.build())
    assert (answer.scope, answer.code, bed.bmc.started) == ("operator", "firmware_update", [URL])
    assert "It is not known whether the BMC has begun the update" in answer.message
    assert bed.bmc.read == []


def test_a_task_of_something_else_is_not_taken_for_the_update(bed, monkeypatch):
    bed.given, bed.bmc.loses_answers = of(update_timeout=0.2), True
    monkeypatch.setattr(UpgradingSession, "tasks", lambda self: [f"/tasks/{len(bed.bmc.started)}"])
    monkeypatch.setattr(
        UpgradingSession, "task", lambda self, id: BmcTask(id=id, state="failed", message="Disk full", updates=False)
    )
    assert "Disk full" not in failure(bed.build()).message
    assert bed.bmc.started == [URL]


def test_a_new_task_that_cannot_be_read_does_not_end_the_waiting_for_a_lost_update(bed, monkeypatch):
    bed.given, bed.bmc.loses_answers = of(), True
    listed, read = UpgradingSession.tasks, UpgradingSession.task
    monkeypatch.setattr(
        UpgradingSession, "tasks", lambda self: [*listed(self), *("/tasks/broken" for _ in bed.bmc.started)]
    )

    def task(self, id):
        if id == "/tasks/broken":
            raise BmcAnswerInvalid("The BMC answered /tasks/broken with no object.")
        return read(self, id)

    monkeypatch.setattr(UpgradingSession, "task", task)
    outcome = bed.build()
    assert (outcome.ended, version(outcome), bed.bmc.started) == ("ready", {"BIOS": "2.0"}, [URL])
    assert not [call for call in outcome.calls if isinstance(call.answer, Failed)]


def test_an_update_whose_task_the_bmc_does_not_know_is_waited_for(bed, monkeypatch):
    """A BMC that restarts forgets its tasks, and some do not know a new one at once."""
    bed.given = of()
    read, asked = UpgradingSession.task, []

    def task(self, id):
        asked.append(id)
        return BmcTask(id=id, state="unknown") if len(asked) < 3 else read(self, id)

    monkeypatch.setattr(UpgradingSession, "task", task)
    outcome = bed.build()
    assert (outcome.ended, version(outcome), bed.bmc.started) == ("ready", {"BIOS": "2.0"}, [URL])
    told = [call.answer.sentence for call in outcome.calls if isinstance(call.answer, Wait)]
    assert "BIOS is being updated to 2.0. The BMC does not know its task. It reports version 1.0." in told


def test_an_update_whose_task_is_forgotten_fails_when_its_time_is_over(bed, monkeypatch):
    bed.given = of(update_timeout=0.2)
    monkeypatch.setattr(UpgradingSession, "task", lambda self, id: BmcTask(id=id, state="unknown"))
    answer = failure(bed.build())
    assert (answer.scope, answer.code, bed.bmc.started) == ("operator", "firmware_update", [URL])
    assert "The BMC does not know its task. It reports version 1.0." in answer.message


def test_an_update_that_may_have_been_started_is_not_started_again(bed):
    bed.given, bed.bmc.hides_tasks = of(), True
    spec = bed.spec("build", bed.resource())
    (step,) = [one for one in BareMetal().build() if one.name == "firmware_update"]
    assert isinstance(step.find(spec, {}), Absent), "nothing was started before a component was chosen"
    memo = step.act(spec, {}).memo
    step.act(spec, memo)  # whose answer is lost
    memo = step.find(spec, memo).memo
    waits = step.act(spec, memo)
    assert "It is not known whether the BMC has begun the update" in waits.sentence
    assert isinstance(step.find(spec, waits.memo), Absent)
    bed.bmc.install(bed.bmc.updates[URL])
    done = step.act(spec, waits.memo)
    assert done.memo == {"done": ["BIOS was updated from 1.0 to 2.0."]}
    assert bed.bmc.started == [URL]


def test_an_update_whose_start_is_unknown_ends_with_a_reason(bed):
    bed.given = of(update_timeout=0.01)
    spec = bed.spec("build", bed.resource())
    memo = baseline.find_update(spec, baseline.update_firmware(spec, {}).memo).memo
    time.sleep(0.02)
    answer = baseline.update_firmware(spec, memo)
    assert (answer.scope, answer.code, bed.bmc.started) == ("operator", "firmware_update", [])
    assert "BIOS did not get version 2.0" in answer.message


def test_a_bmc_that_restarts_with_its_new_firmware_is_waited_for(bed):
    bed.bmc.updates[BMC_URL] = Update(component="BMC", version="3.1", restarts=2)
    bed.bmc.inventory = replace(
        bed.bmc.inventory, firmware=(*bed.bmc.inventory.firmware, Firmware(component="BMC", version="3.0"))
    )
    wanted = [{"component": "bmc", "version": "3.1", "url": BMC_URL, "targeted": True}, FIRMWARE]
    bed.given = {"baseline": {"firmware": wanted}}
    outcome = bed.build()
    assert (version(outcome), bed.bmc.started) == ({"BMC": "3.1", "BIOS": "2.0"}, [BMC_URL, URL])


def test_a_component_that_needs_a_power_cycle_gets_one(bed):
    bed.bmc.updates[URL].after_power_cycle = True
    bed.given = of({"power_cycle": True})
    outcome = bed.build()
    assert (outcome.ended, version(outcome), bed.bmc.state) == ("ready", {"BIOS": "2.0"}, PowerState.ON)
    assert [one.value for one in bed.bmc.asked] == ["shutdown", "on"]


@pytest.mark.parametrize(
    ("update", "given", "said"),
    [
        ({"error": "The image is not signed."}, {}, "could not update BIOS to 2.0: The image is not signed."),
        ({"version": "1.9"}, {"update_timeout": 0.3}, "did not get version 2.0 within"),
        ({"after_power_cycle": True}, {"update_timeout": 0.3}, "The BMC still reports version 1.0"),
    ],
)
def test_an_update_that_does_not_succeed_says_what_the_bmc_said(bed, update, given, said):
    for name, value in update.items():
        setattr(bed.bmc.updates[URL], name, value)
    bed.given = of(**given)
    outcome = bed.build()
    answer = failure(outcome)
    assert (outcome.step, answer.scope, answer.code) == ("firmware_update", "operator", "firmware_update")
    assert said in answer.message


def test_an_unknown_component_is_named_with_those_that_there_are(bed):
    bed.given = of({"component": "Bios"})
    bed.ready("build", bed.resource())
    bed.given = of({"component": "UEFI"})
    answer = failure(bed.build())
    assert "lists no firmware component 'UEFI'" in answer.message
    assert "It lists: BIOS." in answer.message


def test_a_bmc_that_cannot_update_says_so(bed):
    bed.bmc.updates = None
    bed.given = of()
    assert failure(bed.build()).code == "bmc_lacks"


def test_settings_take_effect_with_a_restart_and_are_read_back(bed):
    bed.given = {"baseline": {"bios": {"TurboMode": "Disabled"}, "secure_boot": False}}
    outcome = bed.build()
    assert (outcome.ended, bed.bmc.bios["TurboMode"], bed.bmc.secure_boot) == ("ready", "Disabled", False)
    assert bed.bmc.state is PowerState.ON
    assert [one.value for one in bed.bmc.asked] == ["shutdown", "on"]
    bed.ready("update", outcome.spec.resource)
    assert len(bed.bmc.asked) == 2, "a host that has the settings was restarted"


def test_settings_that_the_firmware_ignores_are_an_error(bed, monkeypatch):
    monkeypatch.setattr(MountingSession, "set_settings", lambda self, changes: None)
    bed.given = {"baseline": {"bios": {"TurboMode": "Disabled"}}}
    outcome = bed.build()
    assert (outcome.step, failure(outcome).code) == ("firmware_verify", "firmware_settings")
    assert "has not changed TurboMode to Disabled" in failure(outcome).message


def test_the_act_brings_a_host_to_a_new_baseline(bed):
    host = bed.ready("build", bed.resource()).spec.resource
    act = next(one for one in BareMetal().acts() if one.name == "firmware")
    bed.given = of(bios={"TurboMode": "Disabled"})
    host = replace(host, blueprint=bed.blueprint())
    assert act in BareMetal().offered(host.blueprint.config)
    outcome = bed.driver().run(act.plan(), bed.act_spec(act, host))
    assert (outcome.ended, version(outcome), bed.bmc.bios["TurboMode"]) == ("ready", {"BIOS": "2.0"}, "Disabled")
    assert act not in BareMetal().offered(Config(credential="c"))


class DeployedBed(RamdiskHooks):
    """A host that Drydock deploys, with a BMC that updates firmware."""

    def __init__(self, server: Any, guest: Any, bmc: Any) -> None:
        self.server, self.guest, self.bmc, self.ramdisk = server, guest, bmc, {}
        self.given = of(bios={"TurboMode": "Disabled"}, secure_boot=False)


@pytest.fixture
def deployed(tmp_path: Path, scripted: None) -> Iterator[DeployedBed]:
    tmp_path.chmod(0o755)
    with (
        media_server(tmp_path) as server,
        guests(tmp_path / "guest", f"127.9.9.{WORKER + 1}") as guest,
        machine(BMC, guest, state=PowerState.OFF, drives={"CD1": "", "CD2": ""}) as bmc,
    ):
        bmc.updates = {URL: Update(component="BIOS", version="2.0")}
        guest.machine = bmc  # type: ignore[assignment]
        yield DeployedBed(server, guest, bmc)
        POOL.close_idle(0)


def test_a_deployed_host_gets_its_settings_with_the_boot_of_the_ramdisk(deployed):
    bed = deployed
    host = bed.built()
    assert (bed.bmc.bios["TurboMode"], bed.bmc.secure_boot, bed.bmc.started) == ("Disabled", False, [URL])
    assert bed.guest.boots == ["ramdisk"], "one boot applies the settings, inspects and erases"
    assert host.facts["firmware_settings"]["bios"]["TurboMode"] == "Disabled"
    bed.given = {"baseline": {"bios": {"TurboMode": "Auto"}}}
    host = replace(host, blueprint=bed.blueprint())
    updated = bed.driver().run(plans.update_plan(apply), bed.spec("update", host)).spec.resource
    assert bed.guest.boots == ["ramdisk"], "an update boots no ramdisk"
    assert updated.facts["firmware_settings"]["bios"]["TurboMode"] == "Auto"
    lease = bed.activated(bed.lease(updated))
    assert bed.bmc.bios["TurboMode"] == "Auto"
    ended = bed.ready("deactivate", lease.resource, lease)
    bed.ready("clean", ended.spec.resource, ended.spec.lease)


def test_a_ramdisk_whose_boot_did_not_apply_the_settings_is_left_off_without_media(deployed, monkeypatch):
    monkeypatch.setattr(MountingSession, "set_settings", lambda self, changes: None)
    outcome = deployed.run("build", deployed.resource())
    assert isinstance(outcome.answer, Failed)
    assert (outcome.step, outcome.answer.code) == ("ramdisk_verify", "firmware_settings")
    assert (deployed.bmc.state, deployed.inserted()) == (PowerState.OFF, [])


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"firmware": [FIRMWARE, {**FIRMWARE, "component": "bios"}]}, "names bios more than once"),
        ({"firmware": [{**FIRMWARE, "url": "ftp://x/y"}]}, "url"),
        ({"firmware": [{**FIRMWARE, "version": ""}]}, "version"),
        ({"bios": {"": 1}}, "bios"), ({"bios": {"A": [1]}}, "bios"), ({"secure_boot": "maybe"}, "secure_boot"),
        ({"update_timeout": 0}, "update_timeout"), ({"uefi": 1}, "uefi"),
    ],
)  # fmt: skip
def test_a_baseline_that_makes_no_sense_is_refused(given, said):
    with pytest.raises(ValidationError, match=said):
        Config.model_validate({"credential": "c", "baseline": given})


@pytest.mark.parametrize(
    ("given", "there", "said"),
    [
        ({"bios": {"A": 1}}, {"bios": {"B": 1}}, "no BIOS setting A"), ({"bios": {"A": 1}}, {}, "no BIOS setting A"),
        ({"secure_boot": True}, {}, "Secure Boot, which the BMC does not show"),
    ],
)  # fmt: skip
def test_a_setting_that_the_host_does_not_have_is_named(given, there, said):
    with pytest.raises(NeedsOperator, match=said):
        baseline.differing(Baseline.model_validate(given), there)
