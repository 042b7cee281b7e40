"""A bare-metal host behind a real Redfish service: enrolled, leased, used, released, and off."""

from __future__ import annotations

import getpass
from collections.abc import Callable, Iterator

import pytest
from django.contrib.auth.models import User

from blueprints.bmc.values import PowerState
from blueprints.models import Blueprint, Credential
from interfaces.ssh.pool import POOL
from leases.engine.lifecycle import release
from leases.messaging.inline import settle
from leases.models import Event, Resource, Run
from leases.operations import installation, interfaces, resources
from leases.operations.callers import Caller, caller
from tests.blueprints import host_peers as peers
from tests.blueprints.host_peers import WORKER, Server
from tests.bmc.double import PASSWORD, RedfishDouble, redfish_double
from tests.leases.conftest import _database, _quick, ask, blueprint, owner, soon, until

__all__ = ["_database", "_quick", "ask", "blueprint", "owner", "soon", "until"]

# Waiting for others who use the accounts of this machine does not count.
pytestmark = [pytest.mark.timeout(240, func_only=True), pytest.mark.usefixtures("soon")]


@pytest.fixture(scope="module")
def guest() -> Iterator[Server]:
    peers.needs_root()
    with peers.server(f"127.9.7.{WORKER + 1}") as running:
        yield running


@pytest.fixture
def double(guest: Server) -> Iterator[RedfishDouble]:
    """A BMC whose machine is off, and whose guest runs while it is on."""
    guest.stop()
    POOL.close_idle(0)

    def switched(state: PowerState) -> None:
        guest.again() if state is PowerState.ON else guest.stop()

    with redfish_double(on_power=switched) as running:
        yield running
        on = running.machine.power_state == "On"
    if not on:
        guest.again()


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    with peers.unchanged_accounts():
        yield


@pytest.fixture
def operator() -> Caller:
    return caller(User.objects.create_superuser("root"))


@pytest.fixture
def register(
    guest: Server, double: RedfishDouble, blueprint: Callable[..., Blueprint], operator: Caller
) -> Callable[..., Resource]:
    """Register the machine, with some other fields of its BMC."""
    Credential.objects.create(name="control", secrets={"private_key": guest.control.private})
    Credential.objects.create(name="bmc", secrets=double.credential())
    config = {
        "credential": "control", "bmc_credential": "bmc", "min_free_mib": 1, "compare": "report", "idle_power": "off",
    }  # fmt: skip
    blueprint("rack", kind="bare_metal", resource_type="host", config=config)

    def make(**bmc: object) -> Resource:
        given = {**guest.registration(getpass.getuser()), "bmc": {"driver": "redfish", **double.access(), **bmc}}
        return Resource.objects.get(pk=resources.register(operator, "rack", given).id)

    return make


def test_a_lease_on_a_machine_that_only_its_bmc_can_switch(register, double, ask, owner, until, operator):
    host = until(register(), state="active", seconds=60)
    assert (host.power, double.machine.power_state) == ("off", "Off")
    assert (host.attributes["vendor"], host.attributes["serial"]) == ("Contoso", double.machine.serial)
    lease = until(ask("host", requirements={"vendor": "Contoso"}), state="active", seconds=60)
    host.refresh_from_db()
    assert (host.power, double.machine.power_state) == ("on", "On")
    assert interfaces.run_command(caller(owner), lease.pk, ["echo", "hello"]).stdout == "hello\n"
    resources.check(operator, host.pk)
    until(host, observed="ok", health="degraded", health_reason="Fan 1 is critical (300 RPM).")
    release.release(lease.pk, actor="ada")
    until(lease, state="destroyed", seconds=60)
    until(host, power="off")
    assert double.machine.power_state == "Off"
    resources.retire(operator, host.pk)
    until(host, state="destroyed", seconds=60)
    assert (double.machine.power_state, double.sessions) == ("Off", 0)
    assert PASSWORD not in str(list(Event.objects.values_list("message", "details")))


def test_nothing_is_sent_to_a_bmc_before_its_certificate_is_confirmed(register, double, until, operator):
    host = register(fingerprint="")
    settle()
    held = Run.objects.get(resource=host)
    pairs = ":".join(double.fingerprint[at : at + 2].upper() for at in range(0, 64, 2))
    assert (held.waits_for, pairs in held.sentence) == ("operator", True)
    assert not double.calls
    installation.resolve(operator, resource_id=host.pk, yes=True)
    until(host, state="active", seconds=60)
    assert host.facts["bmc_pin"]["sha256"] == double.fingerprint
    resources.retire(operator, host.pk)
    until(host, state="destroyed", seconds=60)
