"""How long leases last that name no end, and how long they may."""

from __future__ import annotations

import datetime as dt

import pytest
from django.contrib.auth.models import Group, User

from drydock.core import clock
from drydock.core.errors import InvalidRequest
from drydock_client.values import BlueprintChange
from leases.allocator import Allocator
from leases.engine.resources import eviction
from leases.engine.scheduling import request
from leases.engine.scheduling.request import Cause
from leases.messaging.inline import settle
from leases.models import Event, Lease
from leases.operations import blueprints, leases, lifetimes, permissions
from leases.operations.callers import caller
from leases.validation.requests import read


@pytest.fixture
def ada(owner):
    return caller(owner)


@pytest.fixture
def root():
    return caller(User.objects.create_superuser("root"))


@pytest.fixture
def hours(settings):
    def give(default: float, limit: float) -> None:
        changed = {"lease_hours": default, "lease_hours_limit": limit}
        settings.DRYDOCK = settings.DRYDOCK.model_copy(update=changed)

    return give


def asked(who, **given):
    return Lease.objects.get(pk=leases.request(who, {"type": "fake", **given}))


def test_a_lease_without_an_end_is_given_one(blueprint, ada, hours, until):
    blueprint(config={"capacity": {"slots": 20}})
    hours(2, 0)
    lease = until(asked(ada), state="active")
    assert dt.timedelta(hours=1, minutes=59) < lease.until - clock.now() <= dt.timedelta(hours=2)
    assert Lease.objects.get(pk=Allocator("fake", owner="ada").allocate().id).ttl == dt.timedelta(hours=2)
    for given in ({"heartbeat_limit": "60s"}, {"until": clock.now() + dt.timedelta(days=1)}):
        assert asked(ada, **given).ttl is None, given
    assert asked(ada, ttl="1m").ttl == dt.timedelta(minutes=1)
    (grouped,) = leases.request_group(ada, [{"type": "fake"}])
    assert Lease.objects.get(pk=grouped).ttl == dt.timedelta(hours=2)
    hours(0, 0)
    assert asked(ada).ttl is None


def test_a_replay_is_one_also_after_the_default_was_changed(blueprint, ada, hours):
    blueprint()
    hours(0, 0)
    first = asked(ada, idempotency_key="k")
    hours(2, 0)
    assert asked(ada, idempotency_key="k").pk == first.pk
    second = asked(ada, idempotency_key="l")
    hours(3, 0)
    assert asked(ada, idempotency_key="l").pk == second.pk


def test_only_an_operator_passes_the_limit(blueprint, ada, root, hours, until):
    blueprint(config={"capacity": {"slots": 20}})
    hours(0, 10)
    assert asked(ada).ttl == dt.timedelta(hours=10), "the limit is a default too"
    for field, value in (("ttl", "11h"), ("until", clock.now() + dt.timedelta(hours=11))):
        with pytest.raises(InvalidRequest, match=r"at most 10h, because of .*DRYDOCK_LEASE_HOURS_LIMIT") as refused:
            asked(ada, **{field: value})
        assert refused.value.field == field
    assert asked(root, ttl="900d").ttl == dt.timedelta(days=900)
    lease = until(asked(ada, ttl="1h"), state="active")
    with pytest.raises(InvalidRequest, match=r"at most 10h, because of .*DRYDOCK_LEASE_HOURS_LIMIT"):
        lifetimes.extend(ada, lease.pk, ttl="900d")
    lifetimes.extend(ada, lease.pk, ttl="9h")
    Lease.objects.filter(pk=lease.pk).update(active_at=clock.now() - dt.timedelta(hours=5))
    with pytest.raises(InvalidRequest, match=r"at most 10h, because of .*DRYDOCK_LEASE_HOURS_LIMIT"):
        lifetimes.extend(ada, lease.pk, ttl="9h30m")
    lifetimes.extend(root, lease.pk, ttl="900d")


HOUR = dt.timedelta(hours=1)


def lasts(lease):
    """For how long after it became active; None: without an end."""
    lease.refresh_from_db()
    assert lease.state == "active", (lease.state, lease.message)
    return None if lease.until is None else dt.timedelta(seconds=round((lease.until - lease.active_at).total_seconds()))


def shortened(lease):
    return [event.message for event in Event.objects.filter(kind="lease.shortened", lease_id=lease.pk)]


def test_nothing_but_an_operator_lasts_beyond_the_limit_however_it_was_asked_for(blueprint, ada, root, hours, until):
    blueprint(config={"capacity": {"slots": 20}})
    hours(0, 10)
    beating = until(asked(ada, heartbeat_limit="60s"), state="active")
    working = until(asked(ada, workload={"command": ["sleep", "60"]}), state="active")
    endless = until(Lease.objects.get(pk=leases.request(ada, {"type": "fake"}, endless=True)), state="active")
    assert [lasts(one) for one in (beating, working, endless)] == [10 * HOUR] * 3
    assert not Event.objects.filter(kind="lease.shortened").exists(), "no end was asked for"
    with pytest.raises(InvalidRequest, match="at most 10h"):
        lifetimes.extend(ada, beating.pk, ttl="11h")
    assert lasts(until(asked(root, heartbeat_limit="60s"), state="active")) is None


def test_a_quota_has_a_default_and_a_limit_and_the_shortest_applies(blueprint, ada, root, hours, until, owner):
    blueprint(config={"capacity": {"slots": 20}})
    hours(9, 10)
    permissions.set_quota(root, user="ada", limits={"default_ttl": "2h", "max_ttl": "5h"})
    assert asked(ada).ttl == 2 * HOUR
    assert asked(root).ttl == 9 * HOUR, "of its own owner"
    with pytest.raises(InvalidRequest, match="at most 5h, because of the quota of the user ada"):
        asked(ada, ttl="6h")
    lease = until(asked(ada, ttl="5h"), state="active")
    with pytest.raises(InvalidRequest, match="the quota of the user ada"):
        lifetimes.extend(ada, lease.pk, ttl="6h")
    assert lasts(until(asked(ada, heartbeat_limit="60s"), state="active")) == 5 * HOUR
    for_ada = Lease.objects.get(pk=leases.request(root, {"type": "fake"}, owner="ada"))
    assert for_ada.ttl == 2 * HOUR, "the owner's default, whoever asks"
    for_ada = Lease.objects.get(pk=leases.request(root, {"type": "fake", "ttl": "20h"}, owner="ada"))
    assert lasts(until(for_ada, state="active")) == 20 * HOUR
    owner.groups.add(Group.objects.create(name="lab"))
    permissions.set_quota(root, group="lab", limits={"max_ttl": "3h"})
    asked(ada, ttl="4h")
    with pytest.raises(InvalidRequest, match="at most 3h, because of the quota of the group lab"):
        asked(ada, ttl="4h", charged_group="lab")
    lease = until(asked(ada, ttl="3h", charged_group="lab"), state="active")
    with pytest.raises(InvalidRequest, match="the quota of the group lab"):
        lifetimes.extend(ada, lease.pk, ttl="4h")
    permissions.set_quota(root, user="ada", limits={"default_ttl": None, "max_ttl": None})
    assert asked(ada).ttl == 9 * HOUR


def test_a_blueprint_that_is_named_refuses_and_one_that_is_not_shortens(blueprint, ada, root, hours, until):
    made = blueprint(config={"capacity": {"slots": 20}})
    hours(0, 0)
    blueprints.change(root, made.name, BlueprintChange(max_ttl="3h"))
    named = {"allowed_blueprints": [made.name]}
    for field, value in (("ttl", "4h"), ("until", clock.now() + 4 * HOUR)):
        with pytest.raises(InvalidRequest, match=f"at most 3h, because of the .* {made.name}") as said:
            asked(ada, **named, **{field: value})
        assert said.value.field == field
    lease = until(asked(ada, ttl="4h"), state="active")
    assert lasts(lease) == 3 * HOUR
    (message,) = shortened(lease)
    assert message == f"The lease lasts 3h instead of 4h, because of the limit of the blueprint {made.name}."
    assert leases.get(ada, lease.pk).message == message
    assert lasts(until(asked(ada, heartbeat_limit="60s"), state="active")) == 3 * HOUR
    with pytest.raises(InvalidRequest, match=f"the limit of the blueprint {made.name}"):
        lifetimes.extend(ada, lease.pk, ttl="4h")
    lifetimes.extend(root, lease.pk, ttl="9h")
    assert lasts(until(asked(root, ttl="9h", **named), state="active")) == 9 * HOUR
    other = blueprint("other", enabled=False)
    asked(ada, ttl="9h", allowed_blueprints=[made.name, other.name])


def test_a_blueprint_has_a_default(blueprint, ada, root, hours, until):
    made = blueprint(config={"capacity": {"slots": 20}})
    hours(9, 0)
    blueprints.change(root, made.name, BlueprintChange(default_ttl="2h"))
    lease = until(asked(ada), state="active")
    assert lasts(lease) == 2 * HOUR
    assert shortened(lease) == []
    assert lasts(until(asked(root), state="active")) == 2 * HOUR
    assert lasts(until(asked(ada, ttl="4h"), state="active")) == 4 * HOUR
    assert lasts(until(asked(ada, heartbeat_limit="60s"), state="active")) is None
    with pytest.raises(InvalidRequest, match="The default duration of 2h exceeds the maximum duration of 1h"):
        blueprints.change(root, made.name, BlueprintChange(max_ttl="1h"))
    with pytest.raises(InvalidRequest, match="The default duration of 2h exceeds the maximum duration of 1h"):
        permissions.set_quota(root, user="ada", limits={"default_ttl": "2h", "max_ttl": "1h"})
    with pytest.raises(InvalidRequest, match="'soon' is not a valid duration"):
        permissions.set_quota(root, user="ada", limits={"max_ttl": "soon"})


def test_an_operator_lets_a_waiting_lease_last_longer_than_its_limits(blueprint, ada, root, hours, until):
    made = blueprint(config={"capacity": {"slots": 20}}, enabled=False, max_ttl=2 * HOUR)
    hours(0, 3)
    first, second = asked(ada, ttl="2h"), asked(ada, ttl="2h")
    lifetimes.extend(ada, first.pk, ttl="3h")
    lifetimes.extend(root, second.pk, ttl="9h")
    blueprints.enable(root, made.name)
    assert lasts(until(first, state="active")) == 2 * HOUR
    assert lasts(until(second, state="active")) == 9 * HOUR


def test_a_default_rules_nothing_out(blueprint, ada, hours, until):
    """What lives shorter than the default serves a lease that names no end, and the lease ends with it."""
    blueprint(max_lifetime=2 * HOUR)
    hours(9, 0)
    lease = until(asked(ada), state="active")
    assert lease.until == lease.resource.dies_at
    wished = asked(ada, ttl="9h")
    settle()
    wished.refresh_from_db()
    assert (wished.state, wished.reason) == ("broken", "refused")


def test_a_lease_that_is_served_again_keeps_its_limits(blueprint, ada, hours, until):
    blueprint(config={"capacity": {"slots": 2}}, max_ttl=2 * HOUR)
    hours(0, 0)
    lease = until(asked(ada, serve_again=True, heartbeat_limit="1h"), state="active")
    assert eviction.orphan(lease.pk, message="Its host is gone.")
    lease.refresh_from_db()
    again = until(lease.replaced_by, state="active")
    assert (again.limited, lasts(again) <= 2 * HOUR) == (True, True)


def test_what_leases_and_resources_need_is_not_limited(blueprint, ada, hours, until):
    """A limit on the hosts shortens no lease that something on them holds for itself."""
    blueprint("hosts", kind="fake", config={"capacity": {"slots": 9}}, max_ttl=2 * HOUR)
    hours(1, 3)
    holder = until(asked(ada, ttl="1h"), state="active")
    needed = request.request(
        read({"type": "fake"}), holder.owner_id, actor="x", cause=Cause(for_lease=holder.pk, need="host")
    )
    assert lasts(until(Lease.objects.get(pk=needed.id), state="active")) is None
