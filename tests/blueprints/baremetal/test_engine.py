"""Bare-metal hosts through the engine: enrolment with a hold, leases that switch hosts, and power drift."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User

from blueprints.baremetal.kind import BareMetal
from blueprints.bmc.values import PowerState, Sensor
from blueprints.models import Blueprint, Credential
from drydock.core import clock
from interfaces.ssh.pool import POOL
from leases import sensors
from leases.engine.actions import grants
from leases.engine.lifecycle import release
from leases.engine.resources import maintenance
from leases.messaging.inline import settle
from leases.models import Event, Resource, ResourceIdentity, Run
from leases.operations import attention, costs, installation, interfaces, machines, resources
from leases.operations.callers import Caller, caller
from tests.blueprints import host_peers as peers
from tests.blueprints.baremetal.scripted import PASSWORD, Machine, certificate, changed, machine, scripted
from tests.blueprints.host_peers import WORKER, Server
from tests.leases.conftest import _database, _quick, ask, blueprint, owner, soon, until

__all__ = ["_database", "_quick", "ask", "blueprint", "owner", "scripted", "soon", "until"]

# Waiting for others who use the accounts of this machine does not count.
pytestmark = [pytest.mark.timeout(240, func_only=True), pytest.mark.usefixtures("soon", "scripted")]


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    peers.needs_root()
    with peers.server(f"127.9.5.{WORKER + 1}") as running:
        yield running


@pytest.fixture
def bmc(server: Server, scripted: None) -> Iterator[Machine]:
    with machine("bmc-1.test", server) as made:
        yield made
    assert made.most_open <= 1


@pytest.fixture(autouse=True)
def _alone() -> Iterator[None]:
    with peers.unchanged_accounts():
        yield


@pytest.fixture
def operator() -> Caller:
    return caller(User.objects.create_superuser("root"))


@pytest.fixture
def rack(server: Server, blueprint: Callable[..., Blueprint], operator: Caller) -> Callable[..., Resource]:
    """Register hosts in a blueprint whose config gets some more fields."""
    Credential.objects.create(name="control", secrets={"private_key": server.control.private})
    Credential.objects.create(name="bmc", secrets={"username": "admin", "password": PASSWORD})

    def register(config: dict[str, Any] | None = None, **more: Any) -> Resource:
        if not Blueprint.objects.exists():
            given = {"credential": "control", "bmc_credential": "bmc", "min_free_mib": 1, "compare": "report"}
            blueprint("rack", kind="bare_metal", resource_type="host", config=given | (config or {}))
        said = {"name": "alpha", "slots": 2, "bmc": {"driver": "scripted", "address": "bmc-1.test"}, **more}
        made = resources.register(operator, "rack", {**server.registration(), **said})
        return Resource.objects.get(pk=made.id)

    return register


def retire(operator: Caller, *hosts: Resource) -> None:
    for host in hosts:
        resources.retire(operator, host.pk)
    settle()


def check_now(operator: Caller, host: Resource) -> None:
    resources.check(operator, host.pk)
    settle()
    host.refresh_from_db()


def test_an_unknown_certificate_is_held_for_an_operator_and_identities_are_kept(rack, bmc, until, operator):
    bmc.shows = certificate("a")
    alpha = rack()
    settle()
    held = Run.objects.get(resource=alpha)
    assert (held.waits_for, held.step) == ("operator", "certificate")
    assert "AA:AA:" in held.sentence
    assert not bmc.asked
    installation.resolve(operator, resource_id=alpha.pk, yes=True)
    until(alpha, state="active", power="on")
    assert alpha.attributes["vendor"] == "Contoso"
    assert sorted(ResourceIdentity.objects.values_list("namespace", "value")) == [
        ("bmc", "scripted bmc-1.test:443"),
        ("serial:Contoso", "SN1"),
    ]
    assert PASSWORD not in str(alpha.facts) + str(list(Event.objects.values_list("message", "details")))
    bmc.shows = certificate("b")
    check_now(operator, alpha)
    assert (alpha.observed, alpha.suspect_since is not None) == ("unreachable", True)
    assert "is pinned" in alpha.message
    bmc.shows = certificate("a")
    check_now(operator, alpha)
    until(alpha, suspect_since=None)
    retire(operator, alpha)


def test_a_refused_certificate_is_not_asked_about_again_until_the_registration_names_it(rack, bmc, until, operator):
    bmc.shows = certificate("a")
    alpha = rack({"bmc_credential": ""}, credential={"username": "admin", "password": PASSWORD})
    settle()
    installation.resolve(operator, resource_id=alpha.pk, yes=False, message="not ours")
    until(alpha, observed="failing")
    assert "root refused the certificate of the BMC" in alpha.message
    assert [one.what for one in attention.needed(operator) if one.id == alpha.pk] == ["first_check"]
    there = {"driver": "scripted", "address": "bmc-1.test", "fingerprint": "a" * 64}
    resources.change_registration(operator, alpha.pk, {"bmc": there})
    until(alpha, state="active")
    retire(operator, alpha)


def test_two_registrations_of_one_machine_are_a_conflict(rack, server, bmc, until, operator):
    alpha = until(rack(), state="active")
    with peers.server(f"127.9.5.{WORKER + 101}") as other, machine("bmc-2.test", other):
        (other.folder / "control").write_text(server.control.public + "\n")
        more = {**other.registration(), "bmc": {"driver": "scripted", "address": "bmc-2.test"}}
        beta = until(rack(name="beta", **more), state="active", quarantined=True)
        assert f"serial:Contoso SN1 also identifies resource {alpha.pk}" in beta.note
        retire(operator, beta)
        until(beta, state="destroyed")
    retire(operator, alpha)


def test_a_lease_switches_its_host_on_and_its_end_off(rack, bmc, ask, owner, until, operator):
    alpha = until(rack({"idle_power": "off", "accounts": "shared", "trusted": True}, slots=1), state="active")
    assert (alpha.power, bmc.state) == ("off", PowerState.OFF)
    lease = until(ask("host", requirements={"vendor": "Contoso"}, exclusive=True), state="active")
    alpha.refresh_from_db()
    assert (alpha.power, bmc.state) == ("on", PowerState.ON)
    assert interfaces.run_command(caller(owner), lease.pk, ["echo", "hello"]).stdout == "hello\n"
    assert "bmc_user" in resources.get(operator, alpha.pk).facts
    seen = resources.get(caller(owner), alpha.pk).facts
    assert "hardware" in seen
    assert not {"bmc_user", "bmc_problem"} & seen.keys()
    machines.stop(caller(owner), lease.pk)
    until(alpha, power="off")
    assert bmc.state is PowerState.OFF
    machines.start(caller(owner), lease.pk)
    until(alpha, power="on", power_wanted="on")
    release.release(lease.pk, actor="ada")
    until(lease, state="destroyed")
    until(alpha, power="off", power_wanted="")
    settle()
    assert bmc.state is PowerState.OFF, "the request of the former owner is over"
    retire(operator, alpha)
    until(alpha, state="destroyed")
    assert bmc.state is PowerState.OFF


def test_the_energy_of_a_whole_host_is_on_record_with_what_its_sensors_measured(rack, bmc, ask, owner, until, operator):
    bmc.sensors = (
        Sensor(name="Total", value=200.0, unit="W", state="ok", whole=True),
        Sensor(name="Fan 1", value=0.0, unit="RPM", state="critical"),
    )
    alpha = until(rack({"accounts": "shared", "trusted": True, "inspect_interval": 0}, slots=1), state="active")
    Blueprint.objects.update(check_interval=dt.timedelta(hours=1))
    lease = until(ask("host", exclusive=True), state="active")
    check_now(operator, alpha)
    check_now(operator, alpha)
    (before,) = costs.usage_records(operator, {"lease": lease.pk})
    check_now(operator, alpha)
    (record,) = costs.usage_records(operator, {"lease": lease.pk})
    _, first, last = sensors.sensors(caller(owner), alpha.pk, since=lease.acquired_at)
    assert [(one.name, one.value, one.state) for one in last.readings] == [
        ("Total", 200.0, "ok"), ("Fan 1", 0.0, "critical")
    ]  # fmt: skip
    assert 0 < before.energy_wh < record.energy_wh
    between = (last.at - first.at).total_seconds()
    assert record.energy_wh - before.energy_wh == pytest.approx(200 * between / 3600)
    release.release(lease.pk, actor="ada")
    until(lease, state="destroyed")
    retire(operator, alpha)


def test_a_host_that_its_owner_left_off_is_cleaned(rack, bmc, ask, owner, until, operator):
    alpha = until(rack(slots=1), state="active")
    lease = until(ask("host", exclusive=True), state="active")
    machines.stop(caller(owner), lease.pk)
    until(alpha, power="off")
    POOL.close_idle(0)
    release.release(lease.pk, actor="ada")
    until(lease, state="destroyed")
    until(alpha, power="on", power_wanted="", in_maintenance=False)
    retire(operator, alpha)


def test_a_host_that_lost_its_power_is_noticed_by_one_check_and_serves_nobody(rack, bmc, ask, until, operator):
    alpha = until(rack(), state="active")
    bmc.to(PowerState.OFF)
    POOL.close_idle(0)
    check_now(operator, alpha)
    assert (alpha.power, alpha.observed) == ("off", "unreachable")
    assert "lost its power" in alpha.message
    resources.power(operator, alpha.pk, "on")
    until(alpha, power="on")
    check_now(operator, alpha)
    until(alpha, suspect_since=None)
    assert bmc.state is PowerState.ON
    retire(operator, alpha)


def test_a_host_whose_bmc_reports_a_failure_is_quarantined_after_three_checks(rack, bmc, until, operator):
    alpha = until(rack({"inspect_interval": 0}), state="active")
    changed(bmc, health="failed")
    for _ in range(3):
        check_now(operator, alpha)
    until(alpha, health="failed", quarantined=True)
    assert alpha.health_reason == "The BMC reports the machine as failed."
    retire(operator, alpha)


def test_an_owner_interrupts_a_host_and_an_operator_chooses_what_it_boots(rack, bmc, ask, owner, until, operator):
    alpha = until(rack(slots=1), state="active")
    machines.start_act(operator, alpha.pk, "boot-device", arguments={"device": "network"})
    settle()
    assert bmc.override is not None
    lease = until(ask("host", exclusive=True), state="active")
    machines.start_act(caller(owner), alpha.pk, "nmi")
    settle()
    assert bmc.asked[-1] == "nmi"
    assert Event.objects.filter(kind="act.done", resource=alpha).count() == 2
    release.release(lease.pk, actor="ada")
    until(lease, state="destroyed")
    retire(operator, alpha)


def test_a_bmc_is_called_by_one_run_at_a_time(rack, bmc, ask, until, operator):
    alpha = until(rack(slots=1), state="active")
    ahead = clock.now().replace(year=2090)
    check = Run.objects.create(
        resource=alpha, phase="check", in_call=True, token=uuid.uuid4(), token_until=ahead, due_at=ahead
    )
    lease = ask("host")
    settle()
    waiting = Run.objects.get(lease=lease)
    steps = BareMetal().activate()
    assert (steps[waiting.position].name, waiting.in_call) == ("reach", False)
    assert waiting.sentence == "Waits until a call of check has ended."
    Run.objects.filter(pk=check.pk).update(position=3)
    steps = BareMetal().check()
    assert [one.exclusive for one in steps] == [True, True, True, False, False, False]
    assert not grants.why_not_beside(waiting, BareMetal().activate()[0]), "a step over SSH is in nobody's way"
    check.delete()
    until(lease, state="active")
    release.release(lease.pk, actor="ada")
    until(lease, state="destroyed")
    assert maintenance.is_wanted_off(alpha.pk) is False
    retire(operator, alpha)
