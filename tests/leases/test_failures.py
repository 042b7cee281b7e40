"""What keeps failing of the acts on a machine is shown where people look, until an act succeeds or it is gone."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User

from blueprints.models import Blueprint
from leases.messaging.inline import settle
from leases.models import Event, Failure, Resource, Run
from leases.operations import attention, leases, machines, resources
from leases.operations.callers import caller
from leases.reports import figures

REFUSED = "You are not authorized to perform: ec2:TerminateInstances"
PRICED = {"offers": [{"offer": "m.large", "price": 0.6}]}


def _refusing(at: str, **fault):
    struck = {"does": "fail", "at": at, "scope": "operator", "code": "UnauthorizedOperation", "message": REFUSED}
    return {**PRICED, "faults": [{**struck, "times": None, **fault}]}


@pytest.fixture
def held(blueprint, ask, until):
    def make(config):
        blueprint(config=config)
        return until(ask(exclusive=True), state="active")

    return make


@pytest.fixture
def ada(owner):
    return caller(owner)


@pytest.fixture
def chief():
    return caller(User.objects.create_superuser("chief"))


def _again():
    Run.objects.update(due_at="2020-01-01T00:00Z")
    settle()


def _until_refused_twice(lease, ada):
    Resource.objects.update(drained=True)
    leases.release(ada, lease.pk)
    settle()
    while not Failure.objects.filter(act="destroy", attempts__gte=2).exists():
        _again()


def _values(name):
    return next(rows for figure, rows in figures.measure(5) if figure.name == name)


def test_a_refused_destruction_keeps_the_resource_and_says_so_everywhere(held, ada, chief):
    lease = held(_refusing("destroy.delete"))
    _until_refused_twice(lease, ada)
    info = resources.get(chief, lease.resource_id)
    assert (info.state, info.gone_at, info.price) == ("released", None, 0.6)
    assert (info.failure.act, info.failure.code, info.failure.message) == ("destroy", "UnauthorizedOperation", REFUSED)
    assert info.failure.attempts >= 2
    told = Event.objects.get(kind="resource.destroy_failed")
    assert (told.resource_id, told.lease_id, told.details["hourly"]) == (lease.resource_id, lease.pk, 0.6)
    assert REFUSED in told.message
    for who, kind in ((chief, "resource"), (ada, "lease")):
        (needed,) = [one for one in attention.needed(who) if one.what == "destroy_failed"]
        assert (needed.kind, REFUSED in needed.message, "$0.6000 per hour" in needed.message) == (kind, True, True)
    bob = caller(User.objects.create_user("bob"))
    assert not [one for one in attention.needed(bob) if one.what == "destroy_failed"]
    assert _values("undestroyed") == [("pool", 1)]
    assert _values("undestroyed_dollars") == [("pool", 0.6)]
    assert _values("resource_dollars") == [("pool", "ending", 0.6)]


def test_one_refusal_is_no_alarm_and_nothing_is_left_of_it_when_it_is_gone(held, ada, chief, until):
    lease = held(_refusing("destroy.delete", times=1))
    Resource.objects.update(drained=True)
    leases.release(ada, lease.pk)
    settle()
    _again()
    until(lease.resource, state="destroyed")
    assert not Failure.objects.exists()
    assert not Event.objects.filter(kind="resource.destroy_failed").exists()
    assert _values("undestroyed") == []


def test_a_destruction_that_is_accepted_and_never_done_is_reported_at_its_deadline(held, ada, chief, until):
    lease = held({**PRICED, "destroy_polls": 1_000_000, "poll_seconds": 0.01})
    Resource.objects.update(drained=True)
    leases.release(ada, lease.pk)
    settle()
    while not Run.objects.filter(phase="destroy", sentence="The provider is deleting it.").exists():
        _again()
    assert not [one for one in attention.needed(chief) if one.what == "destroy_failed"]
    for _ in range(2):
        Run.objects.update(step_since="2020-01-01T00:00Z")
        _again()
        told = Event.objects.get(kind="resource.destroy_failed")
        assert (told.resource_id, told.lease_id, told.details["code"]) == (lease.resource_id, lease.pk, "deadline")
        assert "did not finish within" in told.message
        for who in (chief, ada):
            (needed,) = [one for one in attention.needed(who) if one.what == "destroy_failed"]
            assert "did not finish within" in needed.message
        assert _values("undestroyed") == [("pool", 1)]
        assert _values("undestroyed_dollars") == [("pool", 0.6)]
    Blueprint.objects.update(config=PRICED)
    _again()
    until(lease.resource, state="destroyed")
    assert _values("undestroyed") == []


def test_a_refused_destruction_goes_on_when_it_is_mended(held, ada, until):
    lease = held(_refusing("destroy.delete"))
    _until_refused_twice(lease, ada)
    Blueprint.objects.update(config=PRICED)
    _again()
    until(lease.resource, state="destroyed")
    assert not Failure.objects.exists()


@pytest.mark.parametrize(
    ("act", "at", "asked"),
    [
        ("stop", "power.*", {}), ("reboot", "reboot.*", {}), ("resize", "resize.*", {"disk_gib": 99}),
        ("tags", "tag.*", {"tags": {"a": "b"}}),
    ],
)  # fmt: skip
def test_an_act_that_fails_in_the_background_is_shown_until_one_succeeds(held, ada, chief, act, at, asked):
    lease = held(_refusing(at, times=1))
    machines.act_on_lease(ada, lease.pk, act, **asked)
    while Run.objects.exists():
        _again()
    info = machines.get(ada, lease.pk)
    name = "tag" if act == "tags" else act
    assert (info.failure.act, info.failure.code, info.failure.message) == (name, "UnauthorizedOperation", REFUSED)
    failed = Event.objects.get(kind__in=["machine.failed", "resource.power_failed"])
    assert (failed.lease_id, failed.message) == (lease.pk, REFUSED)
    for who in (ada, chief):
        assert [one.message for one in attention.needed(who) if one.what == "act_failed"]
    assert _values("failed_acts") == [("pool", name, 1)]
    machines.act_on_lease(ada, lease.pk, act, **asked)
    while Run.objects.exists():
        _again()
    assert machines.get(ada, lease.pk).failure is None
    assert not [one for one in attention.needed(ada) if one.what == "act_failed"]
