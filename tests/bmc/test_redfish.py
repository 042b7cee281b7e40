"""The Redfish driver against sushy-tools' application: what each call does to the machine, and reads from it."""

from __future__ import annotations

import datetime as dt
import math
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from blueprints.bmc import redfish_readings
from blueprints.bmc.contract import capabilities
from blueprints.bmc.errors import (
    BmcAnswerInvalid,
    BmcAnswerLost,
    BmcBusy,
    BmcCertificateChanged,
    BmcCertificateUnknown,
    BmcError,
    BmcLacks,
    BmcLoginRefused,
    BmcRefused,
)
from blueprints.bmc.redfish import Redfish
from blueprints.bmc.redfish_sensors import outermost
from blueprints.bmc.registry import driver
from blueprints.bmc.values import BmcTask, BootDevice, BootOverride, Medium, PowerAction, PowerState, SecureBoot
from tests.bmc.double import PASSWORD, RedfishDouble, redfish_double
from tests.bmc.machine import RESETS, Machine

V1 = "/redfish/v1"
ROOT = Path(__file__).parents[2]


def opened(double: RedfishDouble, *, deadline: float = 30, credential: dict[str, str] | None = None, **access: object):
    given = Redfish.Access(**double.access(**access))
    return Redfish().open(given, credential or double.credential(), deadline=deadline)


def path(double: RedfishDouble) -> str:
    return f"{V1}/Systems/{double.machine.uuid}"


def test_the_driver_is_found_by_its_entry_point():
    assert isinstance(driver("redfish"), Redfish)


def test_a_session_can_do_everything(double):
    with opened(double) as session:
        assert len(capabilities(session)) == 9


# Sessions, credentials and certificates


def test_a_session_is_ended_when_it_is_closed(double):
    with opened(double) as session:
        session.power()
        assert double.sessions == 1
    assert double.sessions == 0


def test_a_session_is_ended_after_an_error(double):
    double.fault("error", path(double), value="no")
    with pytest.raises(BmcRefused), opened(double) as session:
        session.power()
    assert double.sessions == 0


def test_a_session_that_cannot_be_ended_is_no_error(double):
    double.fault("unavailable", method="DELETE")
    with opened(double) as session:
        assert session.power() is PowerState.OFF


def test_a_session_that_the_bmc_ended_is_opened_again(double):
    with opened(double) as session:
        session.power()
        double.resources.sessions.clear()
        assert session.power() is PowerState.OFF
    assert double.sessions == 0


@pytest.mark.parametrize("most", [None, 0])
def test_a_bmc_without_free_sessions_gets_basic_authentication(most):
    auth = ("basic",) if most is None else ("session", "basic")
    with redfish_double(auth=auth) as double:
        double.resources.most_sessions = most or 0
        with opened(double) as session:
            assert session.power() is PowerState.OFF
        assert {call.credential for call in double.called("GET", f"{V1}/Systems.*")} == {"basic"}


def polled(double: RedfishDouble, known: str, **changes: str) -> PowerState:
    given = Redfish.Access(**double.access())
    return Redfish().poll_power(given, double.credential() | changes, known, deadline=30)


def test_the_power_is_polled_with_one_request_and_no_session(double):
    with opened(double) as session:
        known = session.power_poll()
    before = len(double.calls)
    assert polled(double, known) is PowerState.OFF
    assert [(one.method, one.path, one.credential) for one in double.calls[before:]] == [("GET", path(double), "basic")]
    double.machine.power_state = "On"
    assert polled(double, known) is PowerState.ON


def test_a_bmc_that_says_that_it_has_no_basic_authentication_is_not_tried(double):
    double.resources.basic_auth = "Disabled"
    with opened(double) as session:
        assert session.power_poll() == ""
    assert "basic" not in {one.credential for one in double.calls}


def test_a_bmc_that_refuses_basic_authentication_is_not_polled():
    with redfish_double(auth=("session",)) as double, opened(double) as session:
        assert session.power_poll() == ""
        assert session.power() is PowerState.OFF, "the session goes on"


def test_a_bmc_that_is_busy_has_not_refused_basic_authentication(double):
    client = Redfish().client(Redfish.Access(**double.access()), double.credential(), deadline=30)
    try:
        fault = double.fault("unavailable", path=path(double))
        with pytest.raises(BmcBusy):
            client.allows_basic(path(double))
        double.faults.remove(fault)
        assert client.allows_basic(path(double))
        double.resources.auth = frozenset({"session"})
        assert not client.allows_basic(path(double))
    finally:
        client.close()


def test_a_poll_that_fails_says_why_without_the_password(double):
    with pytest.raises(BmcLoginRefused, match="refused the credential of drydock") as refused:
        polled(double, path(double), username="drydock", password="a-wrong-secret")
    assert "a-wrong-secret" not in str(refused.value)
    with pytest.raises(BmcRefused, match="HTTP 404"):
        polled(double, f"{V1}/Systems/other")
    double.fault("truncated", path=path(double))
    with pytest.raises(BmcAnswerInvalid, match="not JSON"):
        polled(double, path(double))


def test_nothing_is_sent_in_a_poll_to_a_bmc_with_another_certificate(double):
    given = Redfish.Access(**double.access(fingerprint="0" * 64))
    with pytest.raises(BmcCertificateChanged):
        Redfish().poll_power(given, double.credential(), path(double), deadline=30)
    assert not double.calls


def test_a_wrong_password_is_tried_once_and_not_repeated_in_the_error(double):
    wrong = {"username": "drydock", "password": "a-wrong-secret"}
    with pytest.raises(BmcLoginRefused, match="refused the credential of drydock") as refused:
        opened(double, credential=wrong)
    assert "a-wrong-secret" not in str(refused.value)
    assert len(double.called("POST")) == 1


@pytest.mark.parametrize("changes", [{"username": ""}, {"password": ""}, {"token": "x"}])
def test_a_credential_that_is_none_is_refused_without_a_call(double, changes):
    with pytest.raises(ValidationError) as refused:
        opened(double, credential={**double.credential(), **changes})
    assert PASSWORD not in str(refused.value)
    assert not double.calls


def test_a_certificate_of_a_trusted_authority_is_accepted(double):
    with opened(double, fingerprint="", ca=double.ca) as session:
        assert session.power() is PowerState.OFF


def test_an_unknown_certificate_is_shown_and_nothing_sent(double):
    with pytest.raises(BmcCertificateUnknown, match=double.fingerprint) as unknown:
        opened(double, fingerprint="")
    shown = unknown.value.certificate
    assert (shown.fingerprint, "trustme" in shown.issuer) == (double.fingerprint, True)
    assert shown.ends_at is not None
    assert not double.calls


def test_a_changed_certificate_stops_before_anything_is_sent(double):
    with pytest.raises(BmcCertificateChanged, match=f"{double.fingerprint}, but {'ab' * 32} is pinned"):
        opened(double, fingerprint="AB:" * 31 + "AB")
    assert not double.calls


def test_an_authority_that_signed_it_does_not_help_a_changed_certificate(double):
    with pytest.raises(BmcCertificateChanged):
        opened(double, fingerprint="00" * 32, ca=double.ca)


PAST = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)


@pytest.mark.parametrize(
    ("made", "reason"),
    [({"certified": "10.0.0.1"}, "IP address mismatch"), ({"certified_until": PAST}, "certificate has expired")],
)
def test_a_certificate_of_another_bmc_or_another_time_is_not_trusted_but_can_be_pinned(made, reason):
    with redfish_double(**made) as double:
        with pytest.raises(BmcCertificateUnknown, match=reason):
            opened(double, fingerprint="", ca=double.ca)
        assert not double.calls
        with opened(double) as session:
            assert session.power() is PowerState.OFF


def test_the_driver_imports_its_library_when_it_is_used():
    told = "import sys, blueprints.bmc.redfish; print(sorted({'sushy', 'requests'} & set(sys.modules)))"
    run = subprocess.run([sys.executable, "-c", told], capture_output=True, text=True, check=True, cwd=ROOT, timeout=60)
    assert run.stdout.strip() == "[]"


def test_the_certificate_can_be_read_without_a_credential(double):
    found = Redfish().certificate(Redfish.Access(**double.access(fingerprint="")), deadline=10)
    assert found is not None
    assert found.fingerprint == double.fingerprint
    assert not double.calls


def test_plain_http_works_where_it_is_asked_for():
    with redfish_double(tls=False) as double:
        access = Redfish.Access(**double.access())
        assert Redfish().certificate(access, deadline=1) is None
        with opened(double) as session:
            assert session.power() is PowerState.OFF


def test_plain_http_is_never_used_by_default():
    with redfish_double(tls=False) as double, pytest.raises(BmcError, match="does not speak TLS"):
        opened(double, tls="on")
    assert not double.calls


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"address": "https://10.0.0.1"}, "without https://"),
        ({"address": "10.0.0.1/redfish"}, "without https://"),
        ({"address": "a b"}, "name or an IP address"),
        ({"address": ""}, "at least 1 character"),
        ({"address": 5}, "valid string"),
        ({"port": 0}, "greater than or equal to 1"),
        ({"port": 70000}, "less than or equal to 65535"),
        ({"fingerprint": "abc"}, "64 hexadecimal digits"),
        ({"ca": "no certificate"}, "no certificate as PEM"),
        ({"tls": "off"}, "only for a BMC on this machine"),
        ({"tls": "maybe"}, "'on' or 'off'"),
        ({"password": "x"}, "Extra inputs"),
    ],
)
def test_a_registration_that_makes_no_sense_is_refused(changes, message):
    with pytest.raises(ValidationError, match=message):
        Redfish.Access(**{"address": "10.0.0.1", **changes})


@pytest.mark.parametrize(
    ("access", "identity"),
    [
        ({"address": "BMC-1.Example.org"}, "bmc-1.example.org:443"),
        ({"address": "10.0.0.1", "port": 8443}, "10.0.0.1:8443"),
        ({"address": "[FD00::0:1]"}, "[fd00::1]:443"),
        ({"address": "10.0.0.1", "system": "Node2"}, "10.0.0.1:443/Node2"),
    ],
)
def test_a_bmc_has_one_identity_however_it_is_spelled(access, identity):
    assert Redfish().identity(Redfish.Access(**access)) == identity


# Systems


def test_of_several_systems_one_must_be_named():
    with redfish_double(Machine(name="a"), Machine(name="b", power_state="On")) as double:
        first, second = double.machines
        with (
            opened(double) as session,
            pytest.raises(BmcLacks, match=f"has 2 systems: {first.uuid}, {second.uuid}. Name one"),
        ):
            session.power()
        with opened(double, system=second.uuid) as session:
            assert session.power() is PowerState.ON
        with opened(double, system=f"{V1}/Systems/{first.uuid}") as session:
            assert session.power() is PowerState.OFF
        with (
            opened(double, system="third") as session,
            pytest.raises(BmcLacks, match=r"no system 'third'. Its systems"),
        ):
            session.power()


# Power


def test_power_is_switched_and_read(double):
    with opened(double) as session:
        session.switch(PowerAction.ON)
        assert session.power() is PowerState.ON
        session.switch(PowerAction.NMI)
        session.switch(PowerAction.RESET)
        session.switch(PowerAction.CYCLE)
        session.switch(PowerAction.SHUTDOWN)
        assert session.power() is PowerState.OFF
    assert double.machine.asked == ["On", "Nmi", "ForceRestart", "PowerCycle", "GracefulShutdown"]


def test_power_on_its_way_is_told_from_on_and_off():
    with redfish_double(power_delay=600) as double, opened(double) as session:
        session.switch(PowerAction.ON)
        assert session.power() is PowerState.CHANGING


def test_a_power_that_the_machine_has_is_not_asked_for(double):
    double.machine.refuses_same_power = True
    with opened(double) as session:
        session.switch(PowerAction.OFF)
        session.switch(PowerAction.SHUTDOWN)
    assert not double.machine.asked


def test_a_machine_that_is_switched_by_another_in_between_is_no_error(double):
    double.machine.refuses_same_power = True
    double.resources.changes[path(double)] = once({"PowerState": "On"})
    with opened(double) as session:
        session.switch(PowerAction.OFF)


def once(changes: dict[str, object]):
    """Change a resource the first time it is read."""
    left = [changes]
    return lambda body: {**body, **left.pop()} if left else body


def test_power_that_lies_is_visible(double):
    double.machine.lies = True
    with opened(double) as session:
        session.switch(PowerAction.ON)
        assert session.power() is PowerState.OFF


@pytest.mark.parametrize("hidden", [False, True])
def test_actions_are_those_that_the_bmc_lists_also_behind_action_info(double, hidden):
    double.resources.action_info = hidden
    double.machine.resets = ("ForceOn", "ForceOff")
    with opened(double) as session:
        assert session.power_actions() == {PowerAction.ON, PowerAction.OFF}
        with pytest.raises(BmcLacks, match=r"does not offer the action cycle. It offers: on, off"):
            session.switch(PowerAction.CYCLE)
        session.switch(PowerAction.ON)
    assert double.machine.asked == ["ForceOn"]


def test_a_bmc_that_lists_no_resets_is_taken_to_offer_the_usual_ones(double):
    double.machine.resets = ()
    with opened(double) as session:
        usual = {PowerAction.ON, PowerAction.OFF, PowerAction.SHUTDOWN, PowerAction.RESET}
        assert session.power_actions() == usual


def test_a_power_cycle_may_be_the_one_of_the_chassis(double):
    double.machine.resets = RESETS[:-1]
    (chassis,) = chassis_of(double)
    reset = {"target": f"{chassis}/Actions/Chassis.Reset", "ResetType@Redfish.AllowableValues": ["PowerCycle"]}
    double.resources.changes[chassis] = lambda body: {**body, "Actions": {"#Chassis.Reset": reset}}
    with opened(double) as session:
        assert PowerAction.CYCLE in session.power_actions()
        with pytest.raises(BmcLacks):
            session.switch(PowerAction.CYCLE)
    assert double.called("POST")[-1].path == reset["target"]


def test_the_power_cycle_of_a_chassis_with_other_systems_is_not_used():
    with redfish_double(Machine(resets=RESETS[:-1]), Machine()) as double:
        (chassis,) = chassis_of(double)
        reset = {"target": f"{chassis}/Actions/Chassis.Reset", "ResetType@Redfish.AllowableValues": ["PowerCycle"]}
        double.resources.changes[chassis] = lambda body: {**body, "Actions": {"#Chassis.Reset": reset}}
        with opened(double, system=double.machine.uuid) as session:
            assert PowerAction.CYCLE not in session.power_actions()


def chassis_of(double: RedfishDouble) -> list[str]:
    found = double.application.chassis.chassis
    return [f"{V1}/Chassis/{one}" for one in found]


# Boot


@pytest.mark.parametrize("device", [BootDevice.NETWORK, BootDevice.DISK, BootDevice.MEDIUM, BootDevice.SETUP])
@pytest.mark.parametrize("once", [True, False])
def test_a_boot_device_is_set_and_read(double, device, once):
    with opened(double) as session:
        assert session.boot() is None
        session.set_boot(BootOverride(device=device, once=once))
        assert session.boot() == BootOverride(device=device, once=once)
        session.set_boot(BootOverride(device=BootDevice.DEFAULT))
        assert session.boot() is None


def test_uefi_http_has_an_address(double):
    wanted = BootOverride(device=BootDevice.HTTP, uri="http://127.0.0.1/boot.efi")
    with opened(double) as session:
        session.set_boot(wanted)
        assert session.boot() == wanted
        session.set_boot(BootOverride(device=BootDevice.DISK))
    assert not double.machine.boot["HttpBootUri"]


def test_an_override_for_one_boot_may_read_back_as_lasting(double):
    double.resources.continuous = True
    with opened(double) as session:
        session.set_boot(BootOverride(device=BootDevice.NETWORK))
        assert session.boot() == BootOverride(device=BootDevice.NETWORK, once=False)


def test_a_boot_device_that_the_bmc_ignores_is_an_error(double):
    double.resources.changes[path(double)] = lambda body: body | {"Boot": {**body["Boot"], **ignored}}
    ignored = {"BootSourceOverrideTarget": "Hdd", "BootSourceOverrideEnabled": "Once"}
    with (
        opened(double) as session,
        pytest.raises(BmcRefused, match=r"accepted network as the boot device, but .* disk"),
    ):
        session.set_boot(BootOverride(device=BootDevice.NETWORK))


def test_a_boot_device_that_the_bmc_lacks_is_named_with_those_that_it_has(double):
    targets = {"BootSourceOverrideTarget@Redfish.AllowableValues": ["None", "Pxe"]}
    double.resources.changes[path(double)] = lambda body: body | {"Boot": {**body["Boot"], **targets}}
    with opened(double) as session, pytest.raises(BmcLacks, match=r"boot device disk. It offers: None, Pxe"):
        session.set_boot(BootOverride(device=BootDevice.DISK))
    assert not double.called("PATCH")


def test_a_machine_that_boots_from_something_else_is_not_taken_for_one_without_override(double):
    double.machine.boot = {"BootSourceOverrideEnabled": "Once", "BootSourceOverrideTarget": "UefiShell"}
    with opened(double) as session, pytest.raises(BmcAnswerInvalid, match="boots from UefiShell"):
        session.boot()


# Virtual media


def test_media_are_inserted_replaced_and_ejected_however_often(double):
    with opened(double) as session:
        session.eject("Cd")
        for image in ("a.iso", "a.iso", "b.iso"):
            session.insert("Cd", f"http://127.0.0.1/{image}")
        assert session.media() == [
            Medium(slot="Cd", cd=True, image="http://127.0.0.1/b.iso", inserted=True), Medium(slot="Usb", cd=False)
        ]  # fmt: skip
        session.eject("Cd")
        session.eject("Cd")
        assert not session.media()[0].inserted
    assert [call.path.rsplit(".", 1)[-1] for call in double.called("POST", ".*/VirtualMedia/.*")] == [
        "InsertMedia", "EjectMedia", "InsertMedia", "EjectMedia"
    ]  # fmt: skip


def test_an_address_is_shown_without_its_secrets(double):
    with opened(double) as session:
        session.insert("Cd", "http://alice:pass%2Fword@127.0.0.1/a.iso?signature=abc")
        assert session.media()[0].image == "http://127.0.0.1/a.iso"
    sent = double.called("POST", ".*InsertMedia")[0].body
    assert sent == {"Image": "http://127.0.0.1/a.iso?signature=abc", "UserName": "alice", "Password": "pass/word"}


def test_the_drives_may_be_those_of_the_manager(double):
    double.resources.changes[path(double)] = lambda body: {k: v for k, v in body.items() if k != "VirtualMedia"}
    with opened(double) as session:
        assert [drive.slot for drive in session.media()] == ["Cd", "Usb"]


def test_an_image_that_stays_is_an_error(double):
    with opened(double) as session:
        session.insert("Cd", "http://127.0.0.1/a.iso")
        double.fault("error", ".*EjectMedia", value="The drive is in use.")
        with pytest.raises(BmcRefused, match=r"refused to eject the image: The drive is in use."):
            session.eject("Cd")
        double.faults.clear()
        double.fault("unauthorized", ".*EjectMedia")  # which sushy does not report
        with pytest.raises(BmcRefused, match="did not eject the image in Cd"):
            session.eject("Cd")


def test_a_drive_that_is_not_there_is_named_with_those_that_are(double):
    with opened(double) as session, pytest.raises(BmcLacks, match=r"no virtual drive 'Dvd'. It has: Cd, Usb"):
        session.insert("Dvd", "http://127.0.0.1/a.iso")


# Sensors and events


def test_sensors_are_read_without_those_that_are_absent(double):
    with opened(double) as session:
        found = {one.name: (one.value, one.unit, one.state) for one in session.sensors()}
    assert found == {
        "CPU1": (41, "Cel", "ok"), "Fan 1": (300, "RPM", "critical"), "Total Power": (214.5, "W", "ok")
    }  # fmt: skip


def test_sensors_of_older_bmcs_are_in_thermal_and_power(double):
    double.resources.new_sensors = False
    with opened(double) as session:
        found = {one.name: (one.value, one.unit, one.state) for one in session.sensors()}
    assert found["System Power"] == (214, "W", "ok")
    assert found["Chassis Intake Temp"] == (25, "Cel", "ok")
    assert found["BaseBoard System Fan"] == (2100, "RPM", "ok")
    assert found["12V"] == (12.1, "V", "ok")


def power_of_whole(double: RedfishDouble, **access: object) -> list[tuple[str, float | None]]:
    """The sensors that measure the whole machine."""
    with opened(double, **access) as session:
        return [(one.name, one.value) for one in session.sensors() if one.whole]


def without_context(body: dict[str, Any]) -> dict[str, Any]:
    return {**body, "PhysicalContext": "PowerSupply"}


def test_the_power_of_the_machine_is_that_of_its_chassis(double):
    assert power_of_whole(double) == [("Total Power", 214.5)]
    double.resources.new_sensors = False
    assert power_of_whole(double) == [("System Power", 214)]


@pytest.mark.parametrize(
    ("watts", "found"),
    [
        ({"Reading": 307.5}, [("Power", 307.5)]),
        ({"Reading": 0}, [("Power", 0.0)]),
        ({"Reading": -3}, []),
        ({"Reading": "307"}, []),
        ({"Reading": True}, []),
        ({"Reading": None}, []),
        ({}, []),
        (None, []),
        ([307], []),
    ],
)  # fmt: skip
def test_the_power_of_the_machine_may_be_among_the_metrics_of_its_environment(double, watts, found):
    (chassis,) = chassis_of(double)
    double.resources.changes[f"{chassis}/Sensors/TotalPower"] = without_context
    link = {"@odata.id": f"{chassis}/EnvironmentMetrics"}
    double.resources.changes[chassis] = lambda body: body | {"EnvironmentMetrics": link}
    double.resources.metrics = {"PowerWatts": watts}
    assert power_of_whole(double) == found
    assert len(double.called("GET", f"{chassis}/EnvironmentMetrics")) == 1


def test_the_power_of_a_machine_with_new_sensors_may_be_in_the_old_resource(double):
    (chassis,) = chassis_of(double)
    double.resources.changes[f"{chassis}/Sensors/TotalPower"] = without_context
    assert power_of_whole(double) == []
    double.resources.changes[chassis] = lambda body: body | {"Power": {"@odata.id": f"{chassis}/Power"}}
    assert power_of_whole(double) == [("System Power", 214.0)]


def test_two_sensors_that_claim_the_whole_machine_are_none(double):
    (chassis,) = chassis_of(double)
    double.resources.changes[f"{chassis}/Sensors/CPU1Temp"] = lambda body: (
        body | {"ReadingType": "Power", "ReadingUnits": "W", "PhysicalContext": "Chassis"}
    )
    assert power_of_whole(double) == []


def test_the_power_of_a_chassis_with_several_machines_is_that_of_none():
    with redfish_double(Machine(), Machine()) as double:
        for new in (True, False):
            double.resources.new_sensors = new
            assert power_of_whole(double, system=double.machine.uuid) == []


@pytest.mark.parametrize(
    ("controls", "found"),
    [
        ([{"PowerConsumedWatts": None}, {"PowerConsumedWatts": 90, "PhysicalContext": "CPU"}], None),
        ([{"PowerConsumedWatts": 90, "PhysicalContext": "CPU"}, {"PowerConsumedWatts": 300}], 300),
        ([{"PowerConsumedWatts": 300, "PhysicalContext": "Chassis"}, {"PowerConsumedWatts": 90}], 300),
        ([{"PowerConsumedWatts": -1}], None),
        (["x", None, {"PowerConsumedWatts": math.nan}], None),
        ({}, None),
    ],
)
def test_the_power_of_the_machine_is_the_first_control_of_no_component(controls, found):
    draw = redfish_readings.draw({"PowerControl": controls})
    assert (None if draw is None else draw.value) == found
    old = redfish_readings.old_sensors({"PowerControl": controls}, of_machine=True)
    assert [one.value for one in old if one.whole] == ([] if found is None else [found])


def test_a_chassis_inside_another_one_is_not_the_whole_machine():
    def place(id, *, inside="", systems=1):
        links = {"ComputerSystems": [{"@odata.id": f"/S/{n}"} for n in range(systems)]}
        return {"@odata.id": id, "Links": links | ({"ContainedBy": {"@odata.id": inside}} if inside else {})}

    card, board, rack = place("/C/card"), place("/C/board", inside="/C/card"), place("/C/rack", systems=2)
    alone = place("/C/blade", inside="/C/enclosure")
    assert outermost([card, board, rack, alone]) == [card, alone]


def logged(numbers: range) -> list[dict[str, object]]:
    start = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)
    return [
        {
            "@odata.id": f"/log/{n}", "Id": str(n), "Message": f"Event {n}", "Severity": "Warning" if n % 2 else "OK",
            "Created": (start + dt.timedelta(minutes=n)).isoformat(),
        }
        for n in numbers
    ]  # fmt: skip


@pytest.mark.parametrize("numbers", [range(500), range(499, -1, -1)], ids=["oldest first", "newest first"])
def test_the_newest_events_are_read_oldest_first(double, numbers):
    double.resources.log = logged(numbers)
    with opened(double) as session:
        found = session.entries()
    assert [one.id for one in found] == [str(n) for n in range(300, 500)]
    assert found[-1].severity == "warning"
    assert len(double.called("GET", ".*/Sel/Entries")) <= 5


def test_events_before_a_time_are_left_out(double):
    double.resources.log = logged(range(20))
    with opened(double) as session:
        found = session.entries(dt.datetime(2026, 1, 1, 0, 18, tzinfo=dt.UTC))
    assert [one.message for one in found] == ["Event 18", "Event 19"]


# The account


def test_the_privileges_of_the_account_are_listed(double):
    double.resources.role = "Operator"
    double.resources.privileges = ["Login", "ConfigureComponents"]
    with opened(double) as session:
        found = session.login()
    assert (found.user, found.role, found.missing) == ("drydock", "Operator", ("ConfigureManager",))


def test_an_account_that_may_not_read_accounts_is_at_least_named(double):
    double.fault("error", f"{V1}/AccountService.*", value="no")
    with opened(double) as session:
        found = session.login()
    assert (found.user, found.role, found.missing) == ("drydock", "", ())


# Firmware


def test_an_update_is_started_and_read_by_a_later_session(double):
    double.resources.task_seconds = math.inf
    with opened(double) as session:
        task = session.start_update("http://127.0.0.1/bios.bin", ["BIOS"])
    assert task.state == "running"
    assert double.resources.updates == [
        {
            "ImageURI": "http://127.0.0.1/bios.bin", "TransferProtocol": "HTTP",
            "Targets": [f"{V1}/UpdateService/FirmwareInventory/BIOS"],
        }
    ]  # fmt: skip
    double.resources.tasks["1"].seconds = 0
    with opened(double) as session:
        assert session.task(task.id).state == "done"


def test_a_task_that_never_ends_is_read_as_running_at_once(double):
    double.resources.task_seconds = math.inf
    with opened(double) as session:
        task = session.start_update("http://127.0.0.1/bios.bin")
        assert session.task(task.id) == BmcTask(
            id=f"{V1}/TaskService/Tasks/1", state="running", percent=0, message="The update is under way."
        )


def test_a_task_is_read_by_its_monitor_if_that_is_all_there_is(double):
    double.resources.task_seconds = math.inf
    with opened(double) as session:
        session.start_update("http://127.0.0.1/bios.bin")
        monitor = f"{V1}/TaskService/TaskMonitors/1"
        assert session.task(monitor).state == "running"
        double.resources.tasks["1"].seconds = 0
        assert session.task(monitor).state == "done"


def test_a_failed_task_says_why(double):
    double.resources.task_fails = "The image has a wrong signature."
    with opened(double) as session:
        task = session.start_update("http://127.0.0.1/bios.bin")
        assert (task.state, task.message) == ("failed", "The image has a wrong signature.")


def test_a_task_that_the_bmc_has_forgotten_is_unknown(double):
    with opened(double) as session:
        found = session.task(f"{V1}/TaskService/Tasks/9")
    assert (found.state, found.message) == ("unknown", "The BMC does not know the task.")


@pytest.mark.parametrize("kind", ["lost", "truncated"])
def test_a_start_whose_answer_is_lost_is_told_apart_and_its_task_is_found(double, kind):
    double.resources.task_seconds = math.inf
    with opened(double) as session:
        before = session.tasks()
        double.fault(kind, ".*SimpleUpdate", "POST", times=1)
        if kind == "lost":
            with pytest.raises(BmcAnswerLost, match=r"not known whether the BMC has begun .*SimpleUpdate"):
                session.start_update("http://127.0.0.1/bios.bin")
        else:
            session.start_update("http://127.0.0.1/bios.bin")
    with opened(double) as session:
        (new,) = [one for one in session.tasks() if one not in before]
        assert (session.task(new).state, len(double.resources.updates)) == ("running", 1)


def test_a_start_that_was_refused_has_not_begun(double):
    double.fault("unavailable", ".*SimpleUpdate", "POST", times=1)
    double.fault("error", ".*SimpleUpdate", "POST", value="No image there.")
    with opened(double) as session:
        with pytest.raises(BmcBusy):
            session.start_update("http://127.0.0.1/bios.bin")
        with pytest.raises(BmcRefused, match="No image there"):
            session.start_update("http://127.0.0.1/bios.bin")
    assert not double.resources.updates


def test_what_cannot_be_updated_is_refused_without_a_call(double):
    with opened(double) as session:
        with pytest.raises(BmcLacks, match="fetches firmware by HTTP, HTTPS, not by NFS"):
            session.start_update("nfs://127.0.0.1/bios.bin")
        with pytest.raises(BmcLacks, match=r"no firmware component 'NIC'. It has: BIOS, BMC"):
            session.start_update("http://127.0.0.1/bios.bin", ["NIC"])
    assert not double.resources.updates


# Settings of the firmware


def test_bios_attributes_change_with_the_next_boot(double):
    with opened(double) as session:
        session.set_settings({"NumCores": 8})
        assert session.settings()["NumCores"] == 10
        session.switch(PowerAction.ON)
        assert session.settings()["NumCores"] == 8
        with pytest.raises(BmcLacks, match="no BIOS attributes Fans, Lights"):
            session.set_settings({"Lights": 1, "Fans": 1})


def test_passwords_among_the_attributes_are_not_read(double):
    double.machine.bios["SysPassword"] = "a-secret"
    with opened(double) as session:
        assert "SysPassword" not in session.settings()


def test_a_machine_without_bios_resource_has_no_settings(double):
    double.machine.bios = {}
    with opened(double) as session, pytest.raises(BmcLacks, match="does not show settings"):
        session.settings()


def test_secure_boot_is_switched(double):
    with opened(double) as session:
        session.set_secure_boot(True)
        assert session.secure_boot() == SecureBoot(enabled=True, in_force=True, mode="DeployedMode")


def test_a_machine_without_secure_boot_has_none(double):
    double.machine.secure_boot = None
    with opened(double) as session:
        assert session.secure_boot() is None
        with pytest.raises(BmcLacks, match="Secure Boot"):
            session.set_secure_boot(True)


# Inspection


def test_a_machine_is_inspected(double):
    with opened(double) as session:
        found = session.inspect()
    machine = double.machine
    assert (found.vendor, found.model, found.serial) == (machine.vendor, machine.model, machine.serial)
    assert (found.cpus, found.threads, found.memory_mib, found.arch) == (2, 64, 64 << 10, "x86_64")
    assert [nic.mac for nic in found.nics] == list(machine.macs)
    assert [(disk.serial, disk.size_bytes) for disk in found.disks] == [("S4EWNX0M702341", 960_197_124_096)]
    assert [(one.component, one.version) for one in found.firmware] == [("BIOS", "1.3.1"), ("BMC", "1.00")]
    assert not found.missing


def test_what_cannot_be_read_is_named_and_the_rest_is_there(double):
    double.fault("error", f"{V1}/UpdateService/FirmwareInventory/BIOS", value="The component is busy.")
    double.fault("truncated", ".*/Processors")
    with opened(double) as session:
        found = session.inspect()
    assert [one.component for one in found.firmware] == ["BMC"]
    assert found.cpus == 2
    assert any("The component is busy." in one for one in found.missing)
    assert any("/Processors" in one for one in found.missing)
