"""The checks of `drydock hosts validate` against a Redfish BMC: each lie is found by the check for it."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar

import pytest
from pydantic import ValidationError

from blueprints.answers import Failed, Json
from blueprints.baremetal import validation
from blueprints.baremetal.kind import BareMetal
from blueprints.baremetal.validation import reading
from blueprints.bmc.values import PowerState
from blueprints.specs import ResourceView
from blueprints.testing.conformance import KindConformance
from blueprints.testing.outcome import Outcome
from interfaces.keys import new_key_pair
from tests.bmc.double import RedfishDouble, redfish_double
from tests.bmc.machine import Machine

pytestmark = pytest.mark.timeout(60)
PARTS = 6
"""The calls at which a worker dies are divided among so many tests, so that each is short."""
IMAGE = "http://10.0.0.1/small.iso"
KEY = new_key_pair("control")
LATER = ("ramdisk", "in-band", "deploy", "disk-boot", "erase")
"""Checks that need a ramdisk."""


class Bed(KindConformance):
    """A host without a ramdisk, whose operating system never answers. It was enrolled while it was off."""

    kind = BareMetal()
    pace: ClassVar[float] = 0.02

    def __init__(self, double: RedfishDouble) -> None:
        self.double, self.given, self.choice, self.bmc = double, {}, {"medium": IMAGE}, {}

    def config(self) -> Json:
        return {
            "credential": "control", "bmc_credential": "bmc", "idle_power": "off", "power_timeout": 0.3,
            "boot_timeout": 0.3, "connect_timeout": 1, "shutdown_timeout": 0.2, **self.given,
        }  # fmt: skip

    def credentials(self) -> dict[str, dict[str, str]]:
        return {"control": {"private_key": KEY.private}, "bmc": self.double.credential()}

    def registration(self) -> Json:
        bmc = {"driver": "redfish", **self.double.access(), **self.bmc}
        return {"address": "127.0.0.1", "port": 9, "host_keys": [KEY.public], "bmc": bmc}

    def resource(self, *given: Any, **more: Any) -> ResourceView:
        stored = self.kind.Registration.model_validate(self.registration()).model_dump(mode="json", exclude_unset=True)
        made = super().resource(*given, **more)
        facts = {**made.facts, "bmc_functions": [], "hardware": {}}
        return replace(made, registration=stored, facts=facts, power="off")

    def act_arguments(self, act: str) -> Json:
        return self.choice

    def validate(self, resource: ResourceView | None = None) -> Outcome:
        act = next(one for one in self.kind.acts() if one.name == "validate")
        return self.driver().run(act.plan(), self.act_spec(act, resource or self.resource()))

    def verdicts(self, *only: str) -> dict[str, tuple[str, str]]:
        """Validate, and return the verdict and the result of each check."""
        self.choice = {**self.choice, "only": list(only)}
        return rows(self.validate())


def rows(outcome: Outcome) -> dict[str, tuple[str, str]]:
    found = outcome.facts[validation.FACT]["rows"]
    return {name: (row["verdict"], row["message"]) for name, row in found.items()}


@pytest.fixture
def double() -> Iterator[RedfishDouble]:
    with redfish_double() as running:
        running.resources.log.append({"Id": "1", "Message": "Power was applied.", "Severity": "OK"})
        yield running
        assert running.machine.power_state == "Off", "the machine was left on"
        media = running.machine.media.values()
        assert not any(one.get("Inserted") for one in media), "a medium was left"
        if not running.resources.keeps_sessions:
            assert not running.sessions, "a session was left"


@pytest.fixture
def bed(double: RedfishDouble, monkeypatch: pytest.MonkeyPatch) -> Bed:
    monkeypatch.setattr(reading, "SESSIONS", 6)
    return Bed(double)


def test_an_image_of_an_earlier_validation_is_not_forgotten_before_it_is_erased(bed):
    """As after a cancelled one, of which only the record is left."""
    host, cancelled = bed.resource(), {"began_at": "2026-01-01T00:00:00+00:00", "at": "", "was": "off", "rows": {}}
    cancelled["lease"] = {"deployed_on": host.key}

    def ends(**facts: Any) -> tuple[str, Json]:
        bed.choice = {"only": ["left"]}
        outcome = bed.validate(replace(host, facts={**host.facts, validation.FACT: cancelled, **facts}))
        return getattr(outcome.answer, "message", "")[:57], outcome.facts[validation.FACT]

    message, record = ends()
    assert message == "The image of the validation is still on a disk. Erase the"
    cancelled = record
    assert ends()[0] == message, "a further one has not erased it either"
    assert ends(erased_at="2026-01-01T00:00:00+00:00")[0] == message
    assert ends(erased_at="2099-01-01T00:00:00+00:00")[0] == ""


def test_a_sound_bmc_passes_every_check_that_it_can_be_given(bed, double):
    outcome = bed.validate()
    assert outcome.ended == "ready", outcome.answer
    found = rows(outcome)
    assert list(found) == [one.name for one in validation.CHECKS]
    wrong = {name: row for name, row in found.items() if row[0] != "ok" and name not in LATER}
    assert wrong.keys() == {"console", "power-shutdown"}, wrong
    assert {row[0] for row in wrong.values()} == {"not possible"}
    assert {found[name][0] for name in LATER} == {"not possible"}
    assert found["ramdisk"][1] == "The blueprint has no ramdisk."
    assert "pinned certificate" in found["certificate"][1]
    assert {"ForceOff", "On", "ForceRestart", "PowerCycle"} <= set(double.machine.asked)
    assert "Nmi" not in double.machine.asked
    assert outcome.facts[validation.FACT]["ended_at"]
    assert not outcome.position.secrets[validation.FACT]


def test_a_wrong_password_is_tried_once(bed, double):
    verdict, said = bed.verdicts("wrong-password")["wrong-password"]
    assert verdict == "ok", said
    logins = double.called("POST", ".*/SessionService/Sessions")
    wrong = [one for one in logins if one.body["Password"] != double.resources.password]
    assert len(wrong) == 1
    assert not [one for one in double.calls if one.credential == "basic"]


def test_a_machine_that_was_on_is_on_again_and_one_that_accepts_no_login_then_is_told(bed, double):
    double.machine.force("On")
    bed.choice = {"only": ["power-off"]}
    outcome = bed.validate()
    found = rows(outcome)
    assert double.machine.power_state == "On"
    assert isinstance(outcome.answer, Failed), "so the host is quarantined"
    assert "accepts no login now" in found["left"][1]
    assert "--only left" in outcome.answer.message
    double.machine.force("Off")


def _changes_its_disks(double: RedfishDouble) -> None:
    numbers = itertools.count()
    path = f"/redfish/v1/Systems/{double.machine.uuid}/Storage/1/Drives/Disk.0"
    double.resources.changes[path] = lambda body: {**body, "SerialNumber": f"S{next(numbers)}"}


def _loses_media(double: RedfishDouble) -> None:
    def lost(device: str) -> None:
        if device == "Usb":
            double.machine.media[device] |= {"Image": "", "ImageName": "", "Inserted": False}

    double.machine.media_changed = lost  # type: ignore[method-assign]


def _hides_its_ports(double: RedfishDouble) -> None:
    double.machine.macs = ()


def _set(**values: Any) -> Any:
    def change(double: RedfishDouble) -> None:
        for name, value in values.items():
            setattr(double.machine if hasattr(double.machine, name) else double.resources, name, value)

    return change


@pytest.mark.parametrize(
    ("check", "lie", "said"),
    [
        ("wrong-password", _set(any_password=True), "accepted a wrong password"),
        ("privileges", _set(privileges=["Login"]), "lacks ConfigureComponents, ConfigureManager"),
        ("inventory", _hides_its_ports, "does not tell the MAC address"),
        ("inventory", _changes_its_disks, "Between two inspections, disks: S0 is gone."),
        ("sessions", _set(keeps_sessions=True, most_sessions=100), "sessions were open before 6 calls, and "),
        ("power-on", _set(lies=True), "accepted to switch the host on"),
        ("power-off", _set(ignores=("ForceOff", "GracefulShutdown")), "accepted to switch the host off"),
        ("boot-once", _set(keeps_override=True), "disk is still chosen"),
        ("power-reset", _set(ignores=("ForceRestart",)), "Its boot device is not used up, and it is on"),
        ("power-cycle", _set(ignores=("PowerCycle", "FullPowerCycle")), "Its boot device is not used up"),
        ("media", _loses_media, "accepted to insert an image into Usb, but reports the drive as empty"),
    ],
)
def test_each_lie_is_found_by_its_check(bed, double, check, lie, said):
    lie(double)
    verdict, message = bed.verdicts(check)[check]
    assert (verdict, said in message) == ("FAILED", True), message
    if check == "power-off":
        double.machine.ignores = ()
        double.machine.force("Off")


def test_what_depends_on_a_failed_check_is_not_tried(bed, double):
    double.machine.lies = True
    found = bed.verdicts("power-cycle", "media")
    assert list(found) == ["power-on", "power-off", "boot-once", "power-cycle", "media", "left"]
    assert found["boot-once"] == ("not possible", "It depends on power-on, whose result is: FAILED.")
    assert found["power-cycle"] == ("not possible", "It depends on boot-once, whose result is: not possible.")
    assert (found["media"][0], found["left"][0]) == ("ok", "ok")


def test_a_reset_is_not_taken_for_one_without_evidence(bed, double):
    double.machine.keeps_override = True
    found = bed.verdicts("power-reset")
    assert found["power-reset"] == ("not possible", "It depends on boot-once, whose result is: FAILED.")
    assert found["left"][0] == "ok", "the override is removed at the end"


@pytest.mark.parametrize("kind", ["error", "not_json", "unavailable"])
def test_a_bmc_that_answers_nonsense_fails_the_check_and_not_the_validation(bed, double, kind):
    double.fault(kind, ".*/Entries.*", value="0" if kind == "unavailable" else "no", times=2)
    found = bed.verdicts("event-log", "sensors")
    assert found["event-log"][0] == ("ok" if kind == "unavailable" else "FAILED"), found["event-log"]
    assert (found["sensors"][0], found["left"][0]) == ("ok", "ok")


def test_another_certificate_than_the_pinned_one_fails(bed, double):
    bed.bmc, bed.choice = {"fingerprint": "a" * 64}, {"only": ["certificate", "wrong-password"]}
    outcome = bed.validate()
    found = rows(outcome)
    assert found["certificate"][0] == "FAILED"
    assert "is pinned" in found["certificate"][1]
    assert found["wrong-password"][0] == "FAILED"
    assert not [one for one in double.calls if one.credential], "no login reached it"
    assert isinstance(outcome.answer, Failed), "the end state could not be read, so the host is quarantined"


def test_drives_need_an_address_where_drydock_serves_no_media(bed):
    bed.choice = {}
    verdict, said = bed.verdicts("media")["media"]
    assert (verdict, "--medium" in said) == ("not possible", True)


def test_a_check_that_does_not_exist_is_refused_with_the_list():
    for field in ("only", "skip"):
        with pytest.raises(ValidationError, match=r"Check 'powr' does not exist\. Choose one of: certificate, "):
            validation.Choice.model_validate({field: ["powr"]})


@pytest.mark.parametrize("part", range(PARTS))
def test_a_worker_that_dies_at_any_call_is_followed_by_one_that_finishes(bed, double, part):
    bed.choice = {**bed.choice, "only": ["boot-once", "media"]}
    act = next(one for one in BareMetal().acts() if one.name == "validate")
    clean = bed.validate()
    expected = {name: row[0] for name, row in rows(clean).items()}
    for mishap in list(bed.mishaps("crash", clean))[part::PARTS]:
        before = bed.driver().run(act.plan(), bed.act_spec(act, bed.resource()), mishap=mishap)
        after = bed.driver().run(act.plan(), before.spec, start=before.position)
        assert {name: row[0] for name, row in rows(after).items()} == expected, mishap
        assert double.machine.power_state == "Off"


def test_the_record_is_for_operators():
    assert validation.FACT in BareMetal.operator_facts


def test_power_that_takes_its_time_is_waited_for():
    with redfish_double(Machine(power_delay=0.1)) as double:
        found = Bed(double).verdicts("power-on", "power-off", "power-cycle")
        assert [row[0] for row in found.values()] == ["ok"] * len(found), found
        assert double.machine.power_state == PowerState.OFF.value.capitalize()
