"""The double of a Redfish BMC is what tests of drivers and of kinds take it for."""

from __future__ import annotations

import base64
import json
import ssl
import threading
import urllib.error
import urllib.request

import pytest

from blueprints.bmc.values import PowerState
from tests.bmc.double import PASSWORD, USERNAME, RedfishDouble, redfish_double
from tests.bmc.machine import Machine

SYSTEMS = "/redfish/v1/Systems"


def ask(double: RedfishDouble, path: str, body: object = None, *, password: str = PASSWORD, method: str = ""):
    context = ssl.create_default_context(cadata=double.ca) if double.ca else None
    basic = base64.b64encode(f"{USERNAME}:{password}".encode()).decode()
    request = urllib.request.Request(
        double.url + path, data=None if body is None else json.dumps(body).encode(), method=method or None,
        headers={"Authorization": f"Basic {basic}", "Content-Type": "application/json"},
    )  # fmt: skip
    with urllib.request.urlopen(request, context=context, timeout=20) as answer:
        text = answer.read()
    return json.loads(text) if text else None


def reset(double: RedfishDouble, kind: str, machine: Machine | None = None) -> None:
    path = f"{SYSTEMS}/{(machine or double.machine).uuid}/Actions/ComputerSystem.Reset"
    ask(double, path, {"ResetType": kind})


def test_a_machine_is_switched_and_its_guest_told():
    told = []
    with redfish_double(on_power=told.append) as double:
        for kind in ("On", "GracefulRestart", "ForceOff"):
            reset(double, kind)
        assert ask(double, f"{SYSTEMS}/{double.machine.uuid}")["PowerState"] == "Off"
    assert told == [PowerState.ON, PowerState.OFF, PowerState.ON, PowerState.OFF]


def test_a_change_of_power_takes_the_time_that_it_is_given():
    on = threading.Event()
    with redfish_double(on_power=lambda state: on.set(), power_delay=0.05, tls=False) as double:
        reset(double, "On")
        assert on.wait(20)
        assert double.machine.power_state == "On"


def test_what_is_under_way_ends_with_the_double():
    with redfish_double(on_power=print, power_delay=600, tls=False) as double:
        reset(double, "On")
        assert double.machine.power_state == "PoweringOn"
    assert double.machine.power_state == "PoweringOn"


def test_two_doubles_do_not_share_machines():
    with redfish_double(tls=False) as one, redfish_double(Machine(name="a"), Machine(name="b"), tls=False) as other:
        reset(one, "On")
        reset(other, "On", other.machines[1])
        assert len(ask(one, SYSTEMS)["Members"]) == 1
        assert len(ask(other, SYSTEMS)["Members"]) == 2
        assert [machine.power_state for machine in (*one.machines, *other.machines)] == ["On", "Off", "On"]


def test_a_wrong_password_is_refused(double):
    with pytest.raises(urllib.error.HTTPError, match="401") as refused:
        ask(double, SYSTEMS, password="wrong")
    refused.value.close()


def test_a_boot_override_for_one_start_is_used_once(double):
    path = f"{SYSTEMS}/{double.machine.uuid}"
    boot = {"BootSourceOverrideTarget": "Pxe", "BootSourceOverrideEnabled": "Once"}
    ask(double, path, {"Boot": boot}, method="PATCH")
    assert ask(double, path)["Boot"].items() >= boot.items()
    reset(double, "On")
    reset(double, "ForceRestart")
    assert [one["BootSourceOverrideTarget"] for one in double.machine.boots] == ["Pxe", "None"]


def test_a_fault_happens_as_often_as_asked(double):
    double.fault("unavailable", SYSTEMS, "GET", times=1, value="7")
    with pytest.raises(urllib.error.HTTPError, match="503") as refused:
        ask(double, SYSTEMS)
    assert refused.value.headers["Retry-After"] == "7"
    refused.value.close()
    assert ask(double, SYSTEMS)["Members"]
    assert [call.credential for call in double.calls] == ["basic", "basic"]


def test_a_lost_answer_has_its_effect(double):
    double.fault("lost", method="POST", times=1)
    with pytest.raises(OSError, match=r"(?i)closed|reset|eof|end of"):
        reset(double, "On")
    assert double.machine.power_state == "On"
