"""Hosts at rest behind real Redfish services are checked together, with one request to the BMC of each."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.db.models.functions import Now

from bench import population
from blueprints.baremetal.kind import BareMetal
from blueprints.bmc.redfish import Redfish
from blueprints.bmc.values import PowerState
from blueprints.contract import BulkChecked
from blueprints.models import Blueprint, Credential
from blueprints.specs import ResourceView
from interfaces.keys import new_key_pair
from leases.engine.core.specs import config
from leases.messaging.inline import settle
from leases.models import Resource, Run
from tests.bmc.double import Call, RedfishDouble, redfish_double
from tests.bmc.machine import Machine
from tests.bmc.resources import SENSORS
from tests.leases.conftest import _database, _quick, blueprint, soon

__all__ = ["_database", "_quick", "blueprint", "soon"]

pytestmark = pytest.mark.usefixtures("soon")

HOSTS = 3


@pytest.fixture
def double(monkeypatch: pytest.MonkeyPatch) -> Iterator[RedfishDouble]:
    # The fan of the double is critical otherwise, and degraded hosts are checked one by one.
    monkeypatch.setitem(SENSORS, "Fan1", {**SENSORS["Fan1"], "Status": {"State": "Enabled", "Health": "OK"}})
    with redfish_double(*(Machine() for _ in range(HOSTS))) as running:
        yield running


@pytest.fixture
def rack(double: RedfishDouble, blueprint: Callable[..., Blueprint]) -> Callable[..., Blueprint]:
    """Make a blueprint with a host for each machine, all of them off and idle, and check them for the first time."""

    def make(**changes: object) -> Blueprint:
        control = new_key_pair("control")
        Credential.objects.create(name="control", secrets={"private_key": control.private})
        Credential.objects.create(name="bmc", secrets=double.credential())
        given = {
            "credential": "control", "bmc_credential": "bmc", "min_free_mib": 1, "compare": "report",
            "idle_power": "off", "accounts": "shared", "trusted": True, **changes,
        }  # fmt: skip
        made: Blueprint = blueprint(
            "rack", kind="bare_metal", resource_type="host", config=given, check_interval=dt.timedelta(hours=1)
        )
        kind, drafts = BareMetal(), []
        for number, machine in enumerate(double.machines):
            bmc = {"driver": "redfish", **double.access(system=machine.uuid)}
            stored = {"address": f"192.0.2.{number + 1}", "host_keys": [control.public], "user": "drydock", "bmc": bmc}
            registration = kind.Registration.model_validate(stored)
            drafts.append((kind.register(config("bare_metal", given), registration), stored))
        population.registered(made.pk, drafts)
        check(double)
        return made

    return make


def check(double: RedfishDouble) -> list[Call]:
    """Let all hosts be due, and check them. Return the calls of their BMCs."""
    before = len(double.calls)
    Resource.objects.update(check_at=Now() - dt.timedelta(seconds=1))
    settle()
    return double.calls[before:]


def all_checked() -> bool:
    return not Run.objects.exists() and not Resource.objects.filter(check_at__lt=Now()).exists()


def test_the_check_of_a_host_at_rest_is_one_request(rack, double):
    rack()
    seen = set(Resource.objects.values_list("observed_at", flat=True))
    calls = check(double)
    paths = {f"/redfish/v1/Systems/{machine.uuid}" for machine in double.machines}
    assert {(one.method, one.path, one.credential) for one in calls} == {("GET", path, "basic") for path in paths}
    assert (len(calls), double.sessions, all_checked()) == (HOSTS, 0, True)
    assert not seen & set(Resource.objects.values_list("observed_at", flat=True))
    assert set(Resource.objects.values_list("observed", "health", "check_failures")) == {("ok", "ok", 0)}


def test_a_host_that_was_switched_on_by_hand_gets_a_check_of_its_own(rack, double):
    rack()
    double.machine.power_state = "On"
    calls = check(double)
    assert len([one for one in calls if one.credential == "basic"]) == HOSTS
    assert len([one for one in calls if (one.method, one.credential) == ("POST", "")]) >= 1, "a session was opened"
    powers = Resource.objects.order_by("pk").values_list("facts__power", flat=True)
    assert (list(powers), all_checked()) == (["on", "off", "off"], True)


def test_an_inspection_that_is_due_is_made(rack, double):
    rack(idle_inspect_interval=0)
    calls = check(double)
    assert "basic" not in {one.credential for one in calls}
    assert len([one for one in calls if one.path.endswith("/Systems")]) >= HOSTS


def test_a_bmc_without_basic_authentication_is_asked_for_it_once(rack, double):
    double.resources.auth = frozenset({"session"})
    rack()
    first = [one for one in double.calls if one.credential == "basic"]
    assert len(first) == HOSTS
    for _ in range(2):
        assert "basic" not in {one.credential for one in check(double)}
    assert set(Resource.objects.values_list("observed", flat=True)) == {"ok"}


def test_a_login_that_is_refused_later_is_not_repeated(rack, double):
    rack()
    double.resources.auth = frozenset({"session"})
    refused = [one for one in check(double) if one.credential == "basic"]
    assert len(refused) == HOSTS
    assert "basic" not in {one.credential for one in check(double)}
    assert set(Resource.objects.values_list("observed", flat=True)) == {"ok"}
    double.resources.auth = frozenset({"session", "basic"})
    for host in Resource.objects.all():
        host.facts |= {"inspected_at": "2020-01-01T00:00:00+00:00"}
        host.save(update_fields=["facts"])
    check(double)
    assert {one.credential for one in check(double)} == {"basic"}, "the next inspection has tried it again"


def test_an_exception_of_the_kind_leaves_all_hosts_to_checks_of_their_own(rack, double, monkeypatch):
    rack()

    def broken(*_: object, **__: object) -> BulkChecked:
        raise ValueError("out of order")

    monkeypatch.setattr(BareMetal, "check_in_bulk", broken)
    calls = check(double)
    assert len([one for one in calls if one.method == "DELETE"]) == HOSTS, "sessions were closed"
    assert all_checked()


def test_nothing_else_is_called_meanwhile_and_a_dead_worker_costs_nothing(rack, double, monkeypatch):
    rack()

    def dies(self: BareMetal, resources: list[object], *, deadline: float) -> BulkChecked:
        assert set(Run.objects.values_list("phase", "in_call")) == {("check", True)}
        assert Run.objects.filter(token_until__gt=Now() + dt.timedelta(seconds=deadline)).count() == HOSTS
        raise SystemExit

    with monkeypatch.context() as patch:
        patch.setattr(BareMetal, "check_in_bulk", dies)
        with pytest.raises(SystemExit):
            check(double)
    assert Run.objects.count() == HOSTS
    assert check(double) == [], "others leave them alone while the token is valid"
    Run.objects.update(token_until=Now() - dt.timedelta(seconds=1), due_at=Now())
    calls = check(double)
    assert len([one for one in calls if one.method == "DELETE"]) == HOSTS
    assert all_checked()


def test_a_host_that_is_suspected_meanwhile_gets_a_check_of_its_own(rack, double, monkeypatch):
    rack()
    bulk = BareMetal.check_in_bulk

    def suspected(self: BareMetal, resources: list[ResourceView], *, deadline: float) -> BulkChecked:
        Resource.objects.filter(pk=resources[0].id).update(suspect_since=Now())
        return bulk(self, resources, deadline=deadline)

    monkeypatch.setattr(BareMetal, "check_in_bulk", suspected)
    calls = check(double)
    assert len([one for one in calls if one.method == "DELETE"]) == 1, "one session was closed"
    assert (all_checked(), Resource.objects.exclude(suspect_since=None).exists()) == (True, False)


def test_facts_of_a_worker_that_lost_its_token_are_not_stored(rack, double, monkeypatch):
    rack()

    def late(self: BareMetal, resources: list[ResourceView], *, deadline: float) -> BulkChecked:
        Run.objects.update(token=uuid.uuid4())
        return BulkChecked(sound=[one.id for one in resources], facts={one.id: {"late": 1} for one in resources})

    monkeypatch.setattr(BareMetal, "check_in_bulk", late)
    check(double)
    assert Run.objects.count() == HOSTS
    assert not Resource.objects.filter(facts__has_key="late").exists()


def test_one_bmc_that_lies_does_not_cost_the_others_a_check_of_their_own(rack, double, monkeypatch):
    rack()
    poll = Redfish.poll_power

    def odd(self: Redfish, access: Any, credential: Any, known: str, *, deadline: float) -> PowerState:
        if known.endswith(double.machine.uuid):
            raise TypeError("unforeseen")
        return poll(self, access, credential, known, deadline=deadline)

    monkeypatch.setattr(Redfish, "poll_power", odd)
    calls = check(double)
    assert len([one for one in calls if one.method == "DELETE"]) == 1
    assert all_checked()


def test_a_run_that_is_cancelled_meanwhile_ends_as_cancelled(rack, double, monkeypatch):
    rack()

    def cancelled(self: BareMetal, resources: list[object], *, deadline: float) -> BulkChecked:
        Run.objects.update(cancel_wanted=True)
        return BulkChecked(sound=list(Resource.objects.values_list("pk", flat=True)))

    monkeypatch.setattr(BareMetal, "check_in_bulk", cancelled)
    assert check(double) == []
    assert not Run.objects.exists()
