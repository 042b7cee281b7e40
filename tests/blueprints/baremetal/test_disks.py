"""The disks of a host are compared with those that were recorded, before its cleaning erases what is in sight."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from blueprints.answers import Hold, Json, Ready, Resolution
from blueprints.baremetal import disks, plans
from blueprints.baremetal.kind import BareMetal
from blueprints.bmc.values import PowerState
from tests.blueprints.baremetal.scripted import scripted
from tests.blueprints.baremetal.test_ramdisk import Bed, bed, failure, server

__all__ = ["bed", "scripted", "server"]
pytestmark = [pytest.mark.timeout(240, func_only=True), pytest.mark.usefixtures("scripted")]
GB = 10**9


def disk(name: str = "sda", serial: str = "S1", size: int = 480 * GB, **more: Any) -> Json:
    return {"name": name, "model": "SSD", "serial": serial, "wwn": "", "size_bytes": size, "removable": False, **more}


def facts(*there: Json, **more: Any) -> Json:
    return {"disks": list(there), **more}


def controller(*namespaces: int, serial: str = "N1", hidden: tuple[int, ...] = ()) -> Json:
    return {"name": "nvme0", "model": "NVM", "serial": serial, "namespaces": list(namespaces), "hidden": list(hidden)}


@pytest.mark.parametrize(
    ("recorded", "found", "said"),
    [
        (facts(disk()), facts(disk()), []),
        (facts(disk(), disk("sdb", "S2")), facts(disk("sda", "S2"), disk("sdb", "S1")), []),
        (facts(disk(wwn="t10.ATA SSD S1")), facts(disk(wwn="0x5000")), []),
        (facts(disk(), disk("sdc", "STICK", removable=True)), facts(disk()), []),
        (facts(disk("vda", ""), disk("vdb", "", GB)), facts(disk("vda", "", GB), disk("vdb", "")), []),
        (facts(disk(), disk("sdb", "S2")), facts(disk()),
         ["sdb (SSD S2) is missing; 480000000000 bytes (480.0 GB) were recorded."]),
        (facts(disk(), disk("sdb", "S2")), facts(disk("sda", "S2")),
         ["sda (SSD S1) is missing; 480000000000 bytes (480.0 GB) were recorded."]),
        (facts(disk()), facts(disk(size=400 * GB)),
         ["sda (SSD S1) has 400000000000 bytes (400.0 GB); 480000000000 bytes (480.0 GB) were recorded."]),
        (facts(disk()), facts(disk(size=0)),
         ["sda (SSD S1) has no bytes; 480000000000 bytes (480.0 GB) were recorded."]),
        (facts(disk()), facts(disk(size=500 * GB)),
         ["sda (SSD S1) has 500000000000 bytes (500.0 GB); 480000000000 bytes (480.0 GB) were recorded."]),
        (facts(disk()), facts(disk(), disk("sdb", "S9")),
         ["sdb (SSD S9) with 480000000000 bytes (480.0 GB) was not recorded."]),
        (facts(disk()), facts(disk(removable=True)),
         ["sda (SSD S1) is missing; 480000000000 bytes (480.0 GB) were recorded."]),
        (facts(disk("vda", "")), facts(disk("vda", "", GB)),
         ["vda (SSD) has 1000000000 bytes (1.0 GB); 480000000000 bytes (480.0 GB) were recorded."]),
        (facts(disk("nvme0n1", wwn="eui.1"), disk("nvme0n2", wwn="eui.2")), facts(disk("nvme0n1", wwn="eui.2")),
         ["nvme0n1 (SSD S1) is missing; 480000000000 bytes (480.0 GB) were recorded."]),
        (facts(), facts(), []),
        (facts(disk_controllers=[controller(1)]), facts(disk_controllers=[controller(1)]), []),
        (facts(disk_controllers=[controller(1)]), facts(disk_controllers=[controller(1, 2)]),
         ["The NVMe controller nvme0 (NVM N1) has the namespaces 1, 2; the namespace 1 was recorded."]),
        (facts(disk_controllers=[controller(1, 2)]), facts(disk_controllers=[controller()]),
         ["The NVMe controller nvme0 (NVM N1) has no namespaces; the namespaces 1, 2 were recorded."]),
        (facts(disk_controllers=[controller(1)]), facts(disk_controllers=[controller(1, serial="N2")]),
         ["The NVMe controller nvme0 (NVM N1) is missing; the namespace 1 was recorded.",
          "The NVMe controller nvme0 (NVM N2) was not recorded."]),
        (facts(), facts(disk_controllers=[controller(1, 2)]), []),
        (facts(disk_controllers=[controller(1)]), facts(), []),
        (facts(disk_controllers=[controller(1)]), facts(disk_controllers=[{**controller(), "namespaces": None}]),
         ["The NVMe controller nvme0 (NVM N1) has unknown namespaces; the namespace 1 was recorded."]),
        (facts(disk("sda", size=GB), disk("sdb")), facts(disk("sda"), disk("sdb", size=GB)), []),
        (facts(disk("sda", size=GB), disk("sdb")), facts(disk("sda"), disk("sdb", size=GB - 512)),
         ["sdb (SSD S1) has 999999488 bytes (1.0 GB); 1000000000 bytes (1.0 GB) were recorded."]),
        (facts(disk_controllers=[{**controller(), "namespaces": None}]), facts(disk_controllers=[controller(1)]), []),
    ],
)  # fmt: skip
def test_each_difference_names_the_disk_and_what_was_recorded(recorded, found, said):
    assert disks.differences(recorded, found) == said


def test_more_disks_than_can_be_compared_are_refused_and_not_left_out(bed, monkeypatch):
    host, over = bed.ended(bed.active(bed.enrolled()))
    real = disks.ramdisk_agent.call

    def many(resource, *words, **more):
        listed = real(resource, *words, **more)
        return {**listed, "disks": listed["disks"] * 1025} if words == ("disks", "list") else listed

    monkeypatch.setattr(disks.ramdisk_agent, "call", many)
    outcome = bed.run("clean", host, over)
    answer = failure(outcome)
    assert (outcome.step, answer.scope, answer.code) == ("disks", "operator", "too_many_disks")
    assert "The ramdisk lists 1025 disks or controllers" in answer.message


def test_a_question_about_many_long_names_says_how_many_it_leaves_out():
    many = facts(*(disk(f"sd{n}", f"{n}-" + "S" * 190, model="M" * 190) for n in range(12)))
    assert disks._sentence(disks.differences(facts(), many)).endswith(" 2 more differ.")


class Operator:
    """Answers the holds of a bed, and remembers them."""

    def __init__(self, bed: Bed, *answers: bool) -> None:
        self.bed, self.answers, self.holds = bed, list(answers), []
        bed.resolve = self  # type: ignore[method-assign, assignment]

    def __call__(self, hold: Hold) -> Resolution | None:
        self.holds.append(hold.what)
        assert self.bed.inserted(), "the host waits in the ramdisk"
        return Resolution(yes=self.answers.pop(0), actor="ada", text="new disk") if self.answers else None


def shrink(bed: Bed, mib: int = 8) -> None:
    """Let a disk show fewer blocks than it has, as a tenant with root can."""
    root = bed.guest.disks.root
    (root / "sys/block/vda/size").write_text(f"{mib * 2048}\n")


def test_a_disk_that_a_tenant_shrank_holds_the_cleaning_before_anything_is_erased(bed):
    host, over = bed.ended(bed.active(bed.enrolled()))
    shrink(bed)
    ada = Operator(bed)
    outcome = bed.run("clean", host, over)
    assert (outcome.ended, outcome.step) == ("held", "disks")
    assert "vda (disk-1) has 8388608 bytes (0.0 GB); 16777216 bytes (0.0 GB) were recorded." in ada.holds[0]
    assert "Were the disks changed on purpose" in ada.holds[0]
    assert not [call for call in outcome.calls if call.step == "erase"]


def test_a_no_fails_the_cleaning_and_the_disk_that_is_back_is_erased(bed):
    host, over = bed.ended(bed.active(bed.enrolled()))
    shrink(bed)
    Operator(bed, False)
    outcome = bed.run("clean", host, over)
    answer = failure(outcome)
    assert (outcome.step, answer.scope, answer.code) == ("disks", "operator", "disks_changed")
    assert "vda (disk-1) has 8388608 bytes" in answer.message
    assert "ada did not accept this (new disk)." in answer.message
    assert (bed.bmc.state, bed.inserted()) == (PowerState.OFF, [])
    shrink(bed, 16)
    clean = bed.ready("clean", host, over)
    assert [one.size_bytes for call in clean.calls for one in getattr(call.answer, "erasures", ())] == [16 << 20]


def test_a_yes_records_the_disks_and_erases_them(bed):
    host, over = bed.ended(bed.active(bed.enrolled()))
    bed.guest.disks.virtio("vdb", serial="disk-2")
    ada = Operator(bed, True)
    clean = bed.ready("clean", host, over)
    assert len(ada.holds) == 1
    assert "vdb (disk-2) with 8388608 bytes (0.0 GB) was not recorded." in ada.holds[0]
    erased = [one for call in clean.calls for one in getattr(call.answer, "erasures", ())]
    assert [(one.serial, one.verified) for one in erased] == [("disk-1", True), ("disk-2", True)]
    assert [one["serial"] for one in clean.spec.resource.facts["disks"]] == ["disk-1", "disk-2"]
    again = bed.ready("clean", clean.spec.resource, over)
    assert len(ada.holds) == 1
    assert next(call.answer for call in again.calls if call.step == "disks") == Ready()


def test_disks_that_change_while_the_operator_decides_are_asked_about_again(bed):
    host, over = bed.ended(bed.active(bed.enrolled()))
    shrink(bed)

    class Hasty(Operator):
        def __call__(self, hold: Hold) -> Resolution | None:
            shrink(bed, 4)
            return super().__call__(hold)

    ada = Hasty(bed, True, True)
    clean = bed.ready("clean", host, over)
    assert [("has 8388608" in what, "has 4194304" in what) for what in ada.holds] == [(True, False), (False, True)]
    assert clean.spec.resource.facts["disks"][0]["size_bytes"] == 4 << 20


def test_a_disk_that_goes_away_while_it_is_erased_is_noticed(bed, monkeypatch):
    host, over = bed.ended(bed.active(bed.enrolled()))
    asked, real = [], disks.read

    def once(spec):
        asked.append(spec)
        return real(spec) if len(asked) == 1 else facts(disk("vdc", "another"))

    monkeypatch.setattr(disks, "read", once)
    answer = failure(bed.run("clean", host, over))
    assert answer.code == "not_erased"
    assert "vda (disk-1) is missing; 16777216 bytes (0.0 GB) were recorded" in answer.message


def test_a_namespace_that_nothing_shows_is_not_proven_to_be_empty(bed):
    bed.guest.disks.nvme(detached=[2], sanicap=0)
    outcome = bed.enrol()
    answer = failure(outcome)
    assert (outcome.step, answer.code) == ("erase", "not_erased")
    assert "nvme0 (SAMSUNG MZQL23T8HCLS-00A07 S64Gnvme0): these namespaces are not shown as disks: 2." in answer.message


def test_a_sanitize_operation_reaches_what_nothing_shows(bed):
    bed.guest.disks.nvme(detached=[2])
    host = bed.enrolled()
    assert host.facts["disk_controllers"][0]["namespaces"] == [1, 2]
    bed.destroyed(host)


def test_a_host_whose_disks_were_never_recorded_is_held_with_what_it_has(bed):
    host, over = bed.ended(bed.active(bed.enrolled()))
    ada = Operator(bed, True)
    host = replace(host, facts={name: value for name, value in host.facts.items() if name != "disks"})
    clean = bed.ready("clean", host, over)
    assert "The disks of the host were never recorded. It has: vda (disk-1) with 16777216 bytes" in ada.holds[0]
    assert [one["serial"] for one in clean.spec.resource.facts["disks"]] == ["disk-1"]


def test_a_disk_that_was_put_in_meanwhile_is_not_leased_before_it_is_erased(bed):
    host = bed.enrolled()
    bed.guest.disks.virtio("vdb", serial="disk-2")
    outcome = bed.run("activate", host, bed.lease(host))
    answer = failure(outcome)
    assert (outcome.step, answer.scope, answer.code, answer.quarantines) == ("disks", "operator", "disks_changed", True)
    assert "vdb (disk-2) with 8388608 bytes" in answer.message
    assert "the act erase" in answer.message
    assert (bed.bmc.state, bed.inserted()) == (PowerState.OFF, [])
    Operator(bed, True)
    erase = next(act for act in BareMetal().acts() if act.name == "erase")
    done = bed.driver().run(erase.plan(), replace(bed.act_spec(erase, host), phase="act"))
    assert done.ended == "ready", done.answer
    bed.active(done.spec.resource)


def test_a_host_without_a_record_gets_one_before_its_next_lease(bed):
    host = bed.enrolled()
    host = replace(host, facts={name: value for name, value in host.facts.items() if name != "disks"})
    lease = bed.active(host)
    assert [one["serial"] for one in lease.resource.facts["disks"]] == ["disk-1"]
    assert [step.name for step in plans.cleaning()].index("disks") < [step.name for step in plans.cleaning()].index(
        "erase"
    )
