"""The checks of `drydock hosts validate` in the ramdisk: boot, inspection from inside, deployment, erasure, end."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from blueprints.answers import Failed
from blueprints.baremetal import erasure, hardware, validation
from blueprints.baremetal.kind import BareMetal
from blueprints.bmc.values import Disk, LogEntry, PowerState, Sensor
from blueprints.specs import ResourceView
from blueprints.testing.outcome import Outcome
from interfaces.ssh.pool import POOL
from tests.blueprints.baremetal.ramdisk_bench import BMC, CANARY, media_server
from tests.blueprints.baremetal.scripted import changed, machine, scripted
from tests.blueprints.baremetal.test_ramdisk import Bed as RamdiskBed
from tests.blueprints.baremetal.test_validation import rows
from tests.blueprints.host_peers import WORKER
from tests.bmc.guests import guests

__all__ = ["scripted"]
pytestmark = [pytest.mark.timeout(240, func_only=True), pytest.mark.usefixtures("scripted")]
IN_RAMDISK = ["ramdisk", "in-band", "deploy", "disk-boot", "erase"]


class Bed(RamdiskBed):
    """An enrolled machine, and what a test asks of its validation."""

    choice: dict[str, Any]

    def validate(self, host: ResourceView, **choice: Any) -> Outcome:
        self.choice = choice
        act = next(one for one in BareMetal().acts() if one.name == "validate")
        return self.driver().run(act.plan(), self.act_spec(act, replace(host, blueprint=self.blueprint())))

    def act_arguments(self, act: str) -> dict[str, Any]:
        return self.choice

    def leave_a_canary(self) -> None:
        with (self.guest.disks.root / "dev/vda").open("r+b") as opened:
            opened.seek(7 << 20)
            opened.write(CANARY)

    def is_as_before(self) -> bool:
        return (self.bmc.state, self.inserted(), self.bmc.override) == (PowerState.OFF, [], None)


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    with media_server(tmp_path_factory.mktemp("image")) as running:
        yield running


@pytest.fixture
def bed(server: Any, tmp_path: Path, scripted: None) -> Iterator[Bed]:
    tmp_path.chmod(0o755)
    with guests(tmp_path / "guest", f"127.9.13.{WORKER + 1}") as guest:
        drives = {"CD1": "", "CD2": ""}
        with machine(BMC, guest, state=PowerState.OFF, drives=drives) as bmc:
            guest.machine = bmc  # type: ignore[assignment]
            bmc.sensors = (Sensor(name="Inlet", value=21.0, unit="Cel"),)
            bmc.log = (LogEntry(id="1", message="Power was applied.", severity="ok"),)
            changed(bmc, disks=(Disk(name="vda", serial="disk-1"),))
            yield Bed(server, guest, bmc)
        POOL.close_idle(0)


def test_with_permission_an_image_is_deployed_and_the_disks_are_erased(bed):
    host = bed.enrolled()
    bed.leave_a_canary()
    outcome = bed.validate(host, erase=True)
    assert outcome.ended == "ready", outcome.answer
    found = rows(outcome)
    not_ok = {name: row for name, row in found.items() if row[0] != "ok"}
    assert not_ok.keys() == {"certificate", "console"}, not_ok
    assert {row[0] for row in not_ok.values()} == {"not possible"}
    assert "disk" in bed.guest.boots, "the deployed system has booted"
    assert not bed.guest.holds(CANARY)
    assert bed.guest.seed() is None, "nothing of the image is left"
    erased = [one for call in outcome.calls for one in getattr(call.answer, "erasures", ())]
    assert [(one.disk, one.verified) for one in erased] == [("vda", True)]
    assert bed.is_as_before()
    left = outcome.spec.resource
    assert (left.facts["host_keys"], left.facts["ramdisk"]) == ([], None)
    assert left.secrets[validation.FACT] == {}
    lease = bed.active(left)
    assert bed.guest.runs == "disk", "the host serves leases as before"
    bed.ended(lease)


def test_without_permission_no_disk_is_changed(bed):
    host = bed.enrolled()
    bed.leave_a_canary()
    outcome = bed.validate(host, only=IN_RAMDISK)
    found = rows(outcome)
    assert [found[name][0] for name in ("ramdisk", "in-band", "left")] == ["ok"] * 3, found
    for name in ("deploy", "disk-boot", "erase"):
        assert found[name][0] == "not possible"
        assert "not asked for (--erase)" in found[name][1]
    assert bed.guest.holds(CANARY)
    assert bed.is_as_before()


def test_a_machine_that_boots_something_else_is_found_and_left_off(bed):
    host = bed.enrolled()
    bed.guest.ignores_override, bed.ramdisk = True, {"boot_timeout": 0.5}
    outcome = bed.validate(host, only=IN_RAMDISK, erase=True)
    found = rows(outcome)
    assert outcome.ended == "ready"
    assert found["ramdisk"][0] == "FAILED"
    assert "did not accept a login" in found["ramdisk"][1]
    assert found["erase"] == ("not possible", "It depends on in-band, whose result is: not possible.")
    assert bed.is_as_before()


def test_a_drive_that_loses_its_medium_is_found_and_so_is_the_boot_that_needs_it(bed):
    host = bed.enrolled()
    bed.bmc.loses_media, bed.given = True, {"power_timeout": 0.5}
    found = rows(bed.validate(host, only=["media", "ramdisk"]))
    assert (found["media"][0], found["ramdisk"][0], found["left"][0]) == ("FAILED", "FAILED", "ok"), found
    assert "reports the drive as empty" in found["media"][1]
    assert bed.is_as_before()


@pytest.mark.parametrize(("compare", "expected"), [("require", "FAILED"), ("report", "ok")])
def test_a_bmc_of_another_machine_is_found_from_inside_before_a_disk_is_touched(bed, monkeypatch, compare, expected):
    host = bed.enrolled()
    bed.leave_a_canary()
    bed.given = {"compare": compare}
    monkeypatch.setattr(hardware, "IN_BAND", "echo product_serial=OTHER")
    found = rows(bed.validate(host, only=["deploy"], erase=compare == "require"))
    assert found["in-band"][0] == expected, found
    assert "OTHER" in found["in-band"][1]
    assert found["deploy"][0] == "not possible"
    assert bed.guest.holds(CANARY)
    assert bed.is_as_before()


def test_an_image_with_another_hash_fails_and_the_disks_are_erased_nevertheless(bed, server, monkeypatch):
    host = bed.enrolled()
    config = bed.config()
    config["images"]["small"]["sha256"] = "a" * 64
    monkeypatch.setattr(bed, "config", lambda: config)
    outcome = bed.validate(host, only=["disk-boot", "erase"], erase=True)
    found = rows(outcome)
    assert found["deploy"][0] == "FAILED"
    assert found["disk-boot"] == ("not possible", "It depends on deploy, whose result is: FAILED.")
    assert (found["erase"][0], found["left"][0], outcome.ended) == ("ok", "ok", "ready"), found
    assert bed.guest.boots.count("ramdisk") == 3, "at the enrolment, for the image, and for the erasure"
    assert bed.is_as_before()


def test_an_erasure_that_fails_after_an_image_was_written_quarantines_the_host(bed, monkeypatch):
    host, erase = bed.enrolled(), erasure.erase

    def read_only(spec: Any, memo: Any) -> Any:
        (bed.guest.disks.root / "sys/block/vda/ro").write_text("1\n")
        return erase(spec, memo)

    monkeypatch.setattr(erasure, "erase", read_only)
    outcome = bed.validate(host, only=["deploy", "erase"], erase=True)
    assert isinstance(outcome.answer, Failed)
    assert "still on a disk" in outcome.answer.message
    assert "these FAILED: erase" in outcome.answer.message
    assert bed.is_as_before()
