"""Failures in the phases of bare-metal hosts: certificates, logins, serial numbers, power."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from pydantic import ValidationError

from blueprints.answers import Failed, Hold, Json, Ready, Resolution, Wait
from blueprints.baremetal import hardware, health
from blueprints.baremetal.kind import BareMetal
from blueprints.baremetal.sessions import bmc_told
from blueprints.bmc.errors import BmcBusy, BmcError, BmcLoginRefused
from blueprints.bmc.values import Firmware, LogEntry, PowerAction, PowerState, Sensor
from blueprints.specs import ResourceView
from blueprints.testing.outcome import Mishap, Outcome
from drydock.core import clock
from interfaces.ssh.pool import POOL
from tests.blueprints import host_peers as peers
from tests.blueprints.baremetal import test_conformance as conformance
from tests.blueprints.baremetal.scripted import Machine, certificate, changed, machine, scripted
from tests.blueprints.host_peers import WORKER, Server

__all__ = ["scripted"]
pytestmark = [pytest.mark.timeout(240, func_only=True), pytest.mark.usefixtures("scripted")]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    peers.needs_root()
    with peers.server(f"127.9.4.{WORKER + 1}") as running:
        yield running


class Bed(conformance.Hooks):
    """A host whose answers to holds a test gives. Its leases would use the control account."""

    kind = BareMetal()
    pace = 0.05
    more: ClassVar[Json] = {}
    answer: Resolution | None = None
    holds: list[Hold]

    def __init__(self, server: Server, bmc: Machine) -> None:
        self.server, self.bmc, self.made, self.holds, self.given = server, bmc, set(), [], {}

    def config(self) -> Json:
        return {**super().config(), "accounts": "shared", "trusted": True, **self.given}

    def resolve(self, hold: Hold) -> Resolution | None:
        self.holds.append(hold)
        return self.answer

    def build(self, resource: ResourceView | None = None) -> Outcome:
        return self.run("build", resource or self.resource())

    def off(self) -> None:
        self.bmc.to(PowerState.OFF)
        POOL.close_idle(0)


@pytest.fixture
def bed(server: Server, scripted: None) -> Iterator[Bed]:
    with machine(conformance.BMC, server) as bmc:
        yield Bed(server, bmc)


def failure(outcome: Outcome) -> Failed:
    assert isinstance(outcome.answer, Failed), outcome.answer
    return outcome.answer


def registration(**bmc: Any) -> Json:
    return {"address": "127.0.0.1", "host_keys": [conformance_key()], "bmc": bmc}


def conformance_key() -> str:
    from interfaces.keys import new_key_pair

    return new_key_pair("host").public


@pytest.mark.parametrize(
    ("bmc", "where", "said"),
    [
        ({"driver": "scripted", "address": ""}, ("bmc", "address"), "at least 1 character"),
        ({"driver": "scripted", "address": "x", "port": "many"}, ("bmc", "port"), "valid integer"),
        ({"driver": "scripted", "address": "x", "extra": 1}, ("bmc", "extra"), "not permitted"),
        ({"driver": "telnet", "address": "x"}, ("bmc", "driver"), "no BMC driver 'telnet'. Installed are: scripted"),
        ({"address": "x"}, ("bmc", "driver"), "Name the driver"),
    ],
)
def test_a_wrong_bmc_is_told_with_its_field(bmc, where, said):
    with pytest.raises(ValidationError) as caught:
        BareMetal.Registration.model_validate(registration(**bmc))
    (error,) = caught.value.errors()
    assert error["loc"] == where
    assert said in error["msg"]


def test_an_unknown_certificate_is_held_until_it_is_confirmed_and_then_pinned(bed):
    bed.bmc.shows = certificate("a")
    held = bed.build()
    assert held.ended == "held"
    assert "AA:AA:" in bed.holds[0].what
    assert "subject CN=bmc, issuer CN=bmc" in bed.holds[0].what
    assert not bed.bmc.asked
    bed.answer = Resolution(yes=True, actor="ada")
    done = bed.build(held.spec.resource)
    assert done.ended == "ready", done.answer
    assert done.facts["bmc_pin"] == {"bmc": f"{conformance.BMC}:443", "sha256": "a" * 64}
    bed.bmc.shows = certificate("b")
    answer = failure(bed.run("check", done.spec.resource))
    assert answer.code == "bmc_certificate_changed"
    assert answer.code in bed.kind.unreachable
    assert "b" * 64 in answer.message
    bed.bmc.shows = certificate("a")
    bed.ready("check", done.spec.resource)


def test_a_certificate_that_changes_while_it_is_confirmed_is_asked_about_again(bed):
    bed.bmc.shows = certificate("a")

    def resolve(hold: Hold) -> Resolution | None:
        bed.holds.append(hold)
        bed.bmc.shows = certificate("b")
        return Resolution(yes=True, actor="ada") if len(bed.holds) < 3 else None

    bed.resolve = resolve
    done = bed.build()
    assert [("AA:AA" in one.what, "BB:BB" in one.what) for one in bed.holds] == [(True, False), (False, True)]
    assert done.facts["bmc_pin"]["sha256"] == "b" * 64


def test_a_refused_certificate_is_not_asked_about_again(bed):
    bed.bmc.shows = certificate("a")
    bed.answer = Resolution(yes=False, actor="ada", text="not ours")
    first = bed.build()
    again = bed.build(first.spec.resource)
    for outcome in (first, again):
        assert failure(outcome).code == "bmc_certificate_unknown"
        assert "ada refused the certificate" in failure(outcome).message
        assert "(not ours)" in failure(outcome).message
    assert len(bed.holds) == 1
    bed.bmc.shows = certificate("b")
    bed.answer = Resolution(yes=True, actor="ada")
    assert bed.build(again.spec.resource).ended == "ready"


def test_a_refused_login_and_missing_privileges_are_told(bed):
    bed.bmc.password = "another"
    answer = failure(bed.build())
    assert (answer.code, answer.scope) == ("bmc_login_refused", "operator")
    bed.bmc.password = "correct-horse"
    bed.bmc.privileges_missing = ("ConfigureComponents",)
    answer = failure(bed.build())
    assert "The account admin of the BMC lacks the privileges ConfigureComponents." in answer.message


def test_a_login_without_a_password_is_told_without_secrets(bed):
    resource = bed.resource()
    stripped = replace(resource.blueprint, credentials={**bed.credentials(), "bmc": {"username": "s3cret-name"}})
    answer = failure(bed.build(replace(resource, blueprint=stripped)))
    assert "The login of the BMC is incomplete: password: Field required" in answer.message
    assert "s3cret" not in answer.message


def test_the_credential_of_the_host_takes_precedence(bed):
    bed.bmc.password = "of-this-host"
    own = replace(bed.resource(), credential={"password": "of-this-host"})
    assert bed.build(own).ended == "ready"


def test_another_serial_number_than_the_registered_one_stops_the_enrolment(bed):
    changed(bed.bmc, serial="SN2")
    answer = failure(bed.build())
    assert answer.scope == "operator"
    assert "the serial number is SN2, but was registered as SN1" in answer.message
    assert not bed.bmc.asked
    changed(bed.bmc, sku="sn1")
    assert bed.build().ended == "ready", "the service tag counts as well"


def test_an_enrolled_machine_has_its_hardware_identities_and_attributes(bed):
    done = bed.build()
    answers = {call.step: call.answer for call in done.calls}
    inspected = answers["inspect"]
    assert isinstance(inspected, Ready)
    assert inspected.attributes == {
        "vendor": "Contoso", "model": "R1", "serial": "SN1", "bios_version": "1.0", "bmc_version": "2.0"
    }  # fmt: skip
    assert [str(one) for one in inspected.identities] == ["serial:Contoso SN1"]
    assert done.facts["hardware"]["firmware"] == [{"component": "BIOS", "version": "1.0", "updateable": False}]
    assert done.facts["bmc_user"] == "admin"
    assert "boots" in done.facts["bmc_functions"]
    assert any("network ports: 02:00:00:00:00:01" in one for one in done.facts["differences"])


def test_a_machine_that_is_off_is_switched_on_to_be_enrolled_and_off_again_if_it_is_idle(bed):
    bed.off()
    bed.given = {"idle_power": "off"}
    done = bed.build()
    assert done.ended == "ready", done.answer
    assert bed.bmc.asked == [PowerAction.ON, PowerAction.SHUTDOWN]
    powers = [call.answer.power for call in done.calls if isinstance(call.answer, Ready) and call.answer.power]
    assert powers == ["on", "off"]


def test_a_bmc_that_accepts_requests_and_does_nothing_is_told_within_the_time(bed):
    bed.off()
    bed.bmc.lies = True
    bed.given = {"power_timeout": 0.2}
    answer = failure(bed.build())
    assert answer.code == "power"
    assert "The BMC accepted to switch the host on" in answer.message
    assert "but its power is off" in answer.message


def test_a_host_that_answers_is_on_whatever_its_bmc_says(bed):
    bed.given = {"power_timeout": 0.2}
    done = bed.build()
    with bed.bmc.pretending(PowerState.OFF):
        assert bed.build(done.spec.resource).ended == "ready"
        checked = bed.ready("check", done.spec.resource)
    (said,) = [call.answer.health for call in checked.calls if isinstance(call.answer, Ready) and call.answer.health]
    assert said.state == "degraded"
    assert "reports the host as off, although it answers" in said.reason


def test_a_host_that_is_off_is_switched_on_for_a_lease_and_off_after_it(bed):
    bed.given = {"idle_power": "off"}
    resource = bed.build().spec.resource
    assert bed.bmc.state is PowerState.OFF
    POOL.close_idle(0)
    lease = bed.activated(bed.lease(replace(resource, power="off")))
    assert bed.bmc.state is PowerState.ON
    bed.ready("deactivate", resource, lease)
    assert bed.bmc.state is PowerState.OFF
    bed.bmc.asked.clear()
    bed.ready("check", resource)
    assert not bed.bmc.asked, "an idle host that is off is healthy"


def test_a_host_with_another_lease_stays_on(bed):
    bed.given = {"idle_power": "off"}
    resource = bed.build().spec.resource
    lease = bed.activated(bed.lease(resource))
    bed.ready("deactivate", resource, replace(lease, others=lambda: (lease.asked,)))
    assert bed.bmc.state is PowerState.ON


def test_a_host_that_is_unexpectedly_off_is_switched_on_for_a_lease(bed):
    resource = replace(bed.build().spec.resource, power="on")
    bed.off()
    outcome = bed.run("activate", resource, bed.lease(resource))
    assert outcome.ended == "ready", outcome.answer
    assert bed.bmc.asked == [PowerAction.ON]
    bed.ready("deactivate", resource, outcome.spec.lease)


def test_a_host_that_is_on_and_does_not_answer_fails_at_once(bed):
    resource = bed.build().spec.resource
    POOL.close_idle(0)
    bed.server.stop()
    try:
        outcome = bed.run("activate", resource, bed.lease(resource))
        assert failure(outcome).code == "unreachable"
        assert not bed.bmc.asked
    finally:
        bed.server.again()


def test_a_host_that_gets_another_lease_while_it_shuts_down_is_switched_on_again(bed):
    bed.given = {"idle_power": "off"}
    resource = bed.build().spec.resource
    lease = bed.activated(bed.lease(resource))
    came = iter([(), (lease.asked,), (lease.asked,), (lease.asked,)])
    waiting = replace(lease, others=lambda: next(came))
    with bed.bmc.pretending(PowerState.CHANGING):
        rest = bed.kind.deactivate()[-1].act
        first = rest(bed.spec("deactivate", resource, waiting), {})
        assert isinstance(first, Wait)
        bed.bmc.asked.clear()
        again = rest(bed.spec("deactivate", resource, waiting), first.memo)
        assert isinstance(again, Wait)
        assert bed.bmc.asked == [PowerAction.ON]
    bed.ready("deactivate", resource, lease)


def test_a_host_that_was_switched_off_on_request_is_not_switched_on_by_a_lease(bed):
    resource = replace(bed.build().spec.resource, power="off", power_wanted="off")
    bed.off()
    answer = failure(bed.run("activate", resource, bed.lease(resource)))
    assert answer.code == "switched_off"
    assert answer.code in bed.kind.unreachable
    assert bed.bmc.state is PowerState.OFF


def test_a_host_that_lost_its_power_is_found_by_the_check_and_switched_on_if_configured(bed):
    resource = bed.build().spec.resource
    bed.off()
    answer = failure(bed.run("check", resource))
    assert (answer.code, "lost its power" in answer.message) == ("switched_off", True)
    bed.given = {"start_stopped": True}
    again = replace(resource, blueprint=bed.blueprint())
    assert bed.ready("check", again).facts["power"] == "on"
    assert bed.bmc.state is PowerState.ON


def test_a_silent_bmc_fails_an_idle_host_and_degrades_a_leased_one(bed):
    resource = bed.build().spec.resource
    bed.bmc.silent = True
    assert failure(bed.run("check", resource)).code == "bmc_unreachable"
    checked = bed.ready("check", replace(resource, lease_facts=lambda: ({},)))
    (said,) = [call.answer.health for call in checked.calls if isinstance(call.answer, Ready) and call.answer.health]
    assert (said.state, "BMC cannot be used" in said.reason) == ("degraded", True)


def test_sensors_and_new_critical_log_entries_make_a_host_degraded(bed):
    now = dt.datetime.now(dt.UTC)
    bed.bmc.log = (LogEntry(id="1", message="old", severity="critical", at=now),)
    resource = bed.ready("check", bed.build().spec.resource).spec.resource
    bed.bmc.sensors = (Sensor(name="Fan 1", value=0.0, unit="RPM", state="critical"),)
    bed.bmc.log += (LogEntry(id="2", message="PSU 1 failed", severity="critical", at=now),)
    checked = bed.ready("check", resource)
    (said,) = [call.answer for call in checked.calls if isinstance(call.answer, Ready) and call.answer.health]
    assert said.health is not None
    assert said.health.reason == "Fan 1 is critical (0 RPM). Event log: PSU 1 failed."
    assert "event log: PSU 1 failed" in said.log
    assert "old" not in said.log


def test_each_inspection_reports_what_sensors_measured_and_other_checks_do_not(bed):
    bed.bmc.sensors = (
        Sensor(name="Total", value=214.5, unit="W", state="ok", whole=True),
        Sensor(name="PSU 1", value=110.0, unit="W", state="ok"),
        Sensor(name="", value=math.nan, unit="V"),
    )
    bed.given = {"inspect_interval": 3600}
    checked = bed.ready("check", bed.build().spec.resource)
    (report,) = reports(checked)
    assert (report.power_watts, report.interval) == (214.5, 3600)
    assert [(one.name, one.value, one.unit, one.state) for one in report.readings] == [
        ("Total", 214.5, "W", "ok"), ("PSU 1", 110.0, "W", "ok"), ("?", None, "V", "unknown"),
    ]  # fmt: skip
    assert reports(bed.ready("check", checked.spec.resource)) == []


def reports(outcome: Outcome) -> list[Any]:
    found = [getattr(call.answer, "sensors", None) for call in outcome.calls]
    return [one for one in found if one is not None]


@pytest.mark.parametrize("watts", [None, math.nan, math.inf, -1.0])
def test_a_power_that_makes_no_sense_is_not_reported(watts):
    report = health.reported([Sensor(name="Total", value=watts, unit="W", whole=True)], 300)
    assert report is not None
    assert report.power_watts is None
    assert health.reported([], 300) is None


def test_a_reset_is_for_a_host_that_does_not_answer(bed):
    resource = bed.build().spec.resource
    bed.ready("reboot", resource)
    assert bed.bmc.asked == [PowerAction.SHUTDOWN, PowerAction.ON]
    POOL.close_idle(0)
    bed.bmc.asked.clear()
    bed.server.stop()
    bed.ready("reboot", resource)
    assert bed.bmc.asked == [PowerAction.RESET]


def test_an_inspection_tells_what_has_changed(bed):
    resource = bed.build().spec.resource
    changed(bed.bmc, bios_version="1.1", firmware=(Firmware(component="BIOS", version="1.1"),), nics=())
    act = next(one for one in bed.kind.acts() if one.name == "inspect")
    outcome = bed.driver().run(act.plan(), bed.act_spec(act, resource))
    (answer,) = [call.answer for call in outcome.calls]
    assert isinstance(answer, Ready)
    assert answer.log.splitlines() == [
        "bios_version changed from 1.0 to 1.1.",
        "nics: 02:00:00:00:00:01 is gone.",
        "firmware: version of BIOS changed from 1.0 to 1.1.",
    ]


def test_a_host_that_was_never_reached_is_handed_back_without_a_call(bed):
    bed.given = {"idle_power": "off"}
    bed.bmc.silent = True
    bed.ready("destroy", bed.resource())
    assert not bed.bmc.asked


def test_a_host_that_cannot_be_switched_off_stays_on_and_is_handed_back(bed):
    bed.given = {"idle_power": "off", "power_timeout": 0.1, "shutdown_timeout": 0}
    resource = bed.build().spec.resource
    bed.bmc.to(PowerState.ON)
    with bed.bmc.pretending(PowerState.ON):
        ended = bed.ready("destroy", resource)
    logs = [call.answer.log for call in ended.calls if isinstance(call.answer, Ready)]
    assert "could not be switched off: The BMC accepted" in logs[-1]


def test_a_boot_device_that_the_bmc_lacks_is_refused(bed):
    resource = bed.build().spec.resource
    act = next(one for one in bed.kind.acts() if one.name == "boot-device")
    spec = bed.act_spec(act, resource)
    outcome = bed.driver().run(act.plan(), replace(spec, arguments=act.Arguments(device="setup")))
    assert failure(outcome).code == "bmc_lacks"


def test_an_interrupt_whose_answer_is_lost_is_not_sent_again(bed):
    act = next(one for one in bed.kind.acts() if one.name == "nmi")
    spec = bed.act_spec(act, bed.resource())
    outcome = bed.driver().run(act.plan(), spec, mishap=Mishap(does="lose", at=0))
    assert (outcome.ended, bed.bmc.asked) == ("ready", [PowerAction.NMI])
    assert "not known whether the interrupt was sent" in outcome.calls[-1].answer.log


BUSY = BmcBusy("The BMC at 10.0.1.7:443 is busy.", retry_after=7)


def answered(error: BmcError, memo: Json, *, phase: str = "activate", lease: Any = None) -> Any:
    """Return the answer of a step whose call of the BMC fails."""
    config = BareMetal.Config(credential="control")
    there = SimpleNamespace(phase=phase, lease=lease, config=config, resource=SimpleNamespace(key="dd-1"))

    @bmc_told
    def fails(spec: Any, memo: Json) -> Any:
        assert "busy_since" not in memo, "a step that has done nothing sees an empty memo"
        raise error

    return fails(there, memo)  # type: ignore[arg-type]


def test_a_busy_bmc_is_asked_again_when_it_wants():
    answer = answered(BUSY, {"a": 1})
    assert isinstance(answer, Wait)
    assert answer.after == pytest.approx(7)
    assert answer.memo.keys() == {"a", "busy_since"}


@pytest.mark.parametrize(
    ("phase", "memo", "limit"),
    [("activate", {}, 10), ("check", {}, 10), ("activate", {"asked_at": "x"}, 120), ("build", {}, 600)],
)
def test_a_bmc_that_stays_busy_fails_the_step(phase, memo, limit):
    """It waited until the deadline of the step, which is two hours for the activation of a lease."""
    for seconds, expected in ((limit - 2, Wait), (limit + 1, Failed)):
        begun = (clock.now() - dt.timedelta(seconds=seconds)).isoformat()
        answer = answered(BUSY, {**memo, "busy_since": begun}, phase=phase)
        assert isinstance(answer, expected)
    assert answer.code == "bmc_busy"
    assert answer.code in BareMetal.unreachable


@pytest.mark.parametrize("error", [BUSY, BmcLoginRefused("The BMC at 10.0.1.7:443 refused the credential of root.")])
def test_the_owner_of_a_lease_reads_neither_address_nor_account_of_the_bmc(error):
    for lease, hidden in ((object(), True), (None, False)):
        answer = answered(error, {}, lease=lease)
        told = answer.sentence if isinstance(answer, Wait) else answer.message
        assert ("10.0.1.7" not in told) == hidden
        assert "The BMC" in told
    facts = {
        "bmc_problem": f"The BMC cannot be used: {error.message}",
        "hardware_problem": f"It failed: {error.message}",
    }
    reason = health.judged(facts, leased=True).reason
    assert reason == "The BMC cannot be used. The hardware could not be read."
    assert facts.keys() <= BareMetal.operator_facts


KNOWN = {"serial": "BOARD-1", "sku": "TAG1", "uuid": "11111111-2222-3333-4444-555555555555", "memory_mib": 1000}


@pytest.mark.parametrize(
    ("own", "grave", "others"),
    [
        ("product_serial=tag1\nproduct_uuid=11111111-2222-3333-4444-555555555555\nmemory_kib=972800\n", 0, 0),
        ("product_uuid=11111111-2222-3333-4444-555555555555\n", 0, 0),
        ("product_serial=To be filled by O.E.M.\nproduct_uuid=\n", 0, 0),
        ("product_serial=OTHER\n", 1, 0),
        ("product_uuid=99999999-2222-3333-4444-555555555555\n", 1, 0),
        ("memory_kib=512000\n", 0, 1),
    ],
)
def test_what_the_kernel_says_is_compared_with_what_the_bmc_says(own, grave, others):
    found = hardware.contradictions(KNOWN, hardware.read_in_band(own))
    assert [len(one) for one in found] == [grave, others]


def test_a_uuid_in_the_other_byte_order_is_the_same():
    assert hardware.same_uuid("00112233-4455-6677-8899-aabbccddeeff", "33221100-5544-7766-8899-AABBCCDDEEFF")
    assert not hardware.same_uuid("00112233-4455-6677-8899-aabbccddeeff", "none")


def test_a_failed_machine_keeps_its_leases_and_gets_no_others():
    facts = {"hardware": {"health": "failed"}}
    assert health.judged(facts, False).state == "failed"
    assert health.judged(facts, True).state == "degraded"


def test_a_bmc_that_now_belongs_to_another_machine_is_told(bed):
    resource = bed.build().spec.resource
    changed(bed.bmc, serial="SN9")
    answer = failure(bed.run("check", resource))
    assert "now belongs to the machine SN9, but SN1 was enrolled" in answer.message
