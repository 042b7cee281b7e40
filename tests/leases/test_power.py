"""Power as it is wanted, and what becomes of holders when a resource is power-cycled or drained for another."""

from __future__ import annotations

import datetime as dt

import pytest

from blueprints.answers import Maintenance
from blueprints.fake.cloud import Cloud
from blueprints.fake.provider import Provider
from blueprints.models import Blueprint
from leases.engine.lifecycle import release
from leases.messaging.inline import settle
from leases.models import Event, Resource, Run
from leases.operations import resources
from leases.operations.callers import caller


def faulty(provider, *faults, **config):
    return {"provider": provider, "poll_seconds": 0.01, "faults": list(faults), "capacity": {"slots": 4}, **config}


@pytest.fixture
def operator(django_user_model):
    return caller(django_user_model.objects.create_superuser("root"))


def only():
    return Cloud("t").instances()[0]


def test_a_resource_that_is_found_off_is_switched_on_as_it_is_wanted(blueprint, ask, until, operator):
    made = blueprint(config=faulty("t"))
    host = until(ask(), state="active").resource
    resources.power(operator, host.pk, "on")
    until(host, power="on")
    Provider("t").switch(only().key, "off")
    Blueprint.objects.filter(pk=made.pk).update(check_interval=dt.timedelta(minutes=1))
    Resource.objects.update(check_at="2020-01-01T00:00Z")
    settle()
    until(host, power="on")
    assert only().power == "on"


def test_a_stop_that_was_asked_for_is_no_death(blueprint, ask, until, operator):
    dead = {"does": "fail", "at": "check.look", "scope": "step", "times": None}
    blueprint(config=faulty("t", dead))
    lease = until(ask(), state="active")
    host = lease.resource
    resources.power(operator, host.pk, "off")
    until(host, power="off")
    assert only().power == "off"
    for _ in range(4):
        resources.check(operator, host.pk)
        while Run.objects.exists():
            settle()
    lease.refresh_from_db()
    host.refresh_from_db()
    assert (lease.state, host.state, host.check_failures) == ("active", "active", 0)


def test_what_is_asked_for_while_it_is_busy_is_done_after_that(blueprint, ask, until, operator):
    slow = {"does": "slow", "at": "check.look", "polls": 3, "after": 0.01}
    blueprint(config=faulty("t", slow))
    host = until(ask(), state="active").resource
    resources.check(operator, host.pk)
    resources.power(operator, host.pk, "off")
    until(host, power="off")
    assert only().power == "off"


def test_power_that_cannot_be_switched_is_tried_again_later(blueprint, ask, until, operator, settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"step_retry_limit": 1})
    fault = {"does": "fail", "at": "power.off", "scope": "step", "times": 2}
    blueprint(config=faulty("t", fault))
    host = until(ask(), state="active").resource
    resources.power(operator, host.pk, "off")
    until(host, power="off")
    assert Event.objects.filter(kind="resource.power_failed", resource=host).count() == 2


NEEDS = {"does": "need_leases", "at": "build.create", "leases": [{"name": "host", "type": "fake_activated"}]}


@pytest.fixture
def stage(blueprint, ask, until):
    """Somebody else holds the host that a build wants in maintenance: (the other's lease, the build's lease)."""

    def make(action, holders):
        blueprint("below", kind="fake_activated", config=faulty("t"), max_resources=1)
        wish = {"does": "need_maintenance", "at": "build.verify", "relation": "host", "action": action}
        blueprint("above", config=faulty("u", NEEDS, {**wish, "holders": holders}))
        other = until(ask("fake_activated"), state="active")
        lease = ask()
        for _ in range(3):
            settle()
        return other, lease

    return make


@pytest.mark.parametrize("action", ["power_cycle", "drain", "alone"])
def test_maintenance_waits_for_other_holders_and_tells_them(stage, until, action):
    other, lease = stage(action, "wait")
    assert Run.objects.get(phase="build").waits_for == "maintenance"
    assert only().cycles == 0
    assert Event.objects.filter(kind="lease.maintenance", lease=other).exists()
    release.release(other.pk, actor="ada")
    until(lease, state="active")
    assert only().cycles == (action == "power_cycle")


@pytest.mark.parametrize("action", ["power_cycle", "drain"])
def test_maintenance_goes_ahead_when_holders_are_only_told(stage, until, action):
    other, lease = stage(action, "tell")
    until(lease, state="active")
    assert only().cycles == (action == "power_cycle")
    other.refresh_from_db()
    assert other.state == "active"
    assert Event.objects.filter(kind="lease.maintenance", lease=other).exists()


@pytest.mark.parametrize("action", ["power_cycle", "drain", "alone"])
def test_maintenance_that_may_not_wait_is_refused_while_others_hold(stage, until, action):
    stage(action, "refuse")
    broken = until(Resource.objects.filter(type="fake").first(), state="broken")
    assert "must not wait for leases to end" in broken.message
    assert only().cycles == 0


def test_nobody_is_alone_with_holders_that_were_only_told():
    with pytest.raises(ValueError, match="alone"):
        Maintenance(relation="parent", action="alone", holders="tell")
