"""How long leases last that name no end, and how long they may."""

from __future__ import annotations

import datetime as dt

import pytest
from django.contrib.auth.models import User

from drydock.core import clock
from drydock.core.errors import InvalidRequest
from leases.allocator import Allocator
from leases.models import Lease
from leases.operations import asking, holding
from leases.operations.callers import caller


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
    return Lease.objects.get(pk=asking.request(who, {"type": "fake", **given}))


def test_a_lease_without_an_end_is_given_one(blueprint, ada, hours, until):
    blueprint(config={"capacity": {"slots": 20}})
    hours(2, 0)
    lease = until(asked(ada), state="active")
    assert dt.timedelta(hours=1, minutes=59) < lease.until - clock.now() <= dt.timedelta(hours=2)
    assert Lease.objects.get(pk=Allocator("fake", owner="ada").allocate().id).ttl == dt.timedelta(hours=2)
    for given in ({"heartbeat_limit": "60s"}, {"until": clock.now() + dt.timedelta(days=1)}):
        assert asked(ada, **given).ttl is None, given
    assert asked(ada, ttl="1m").ttl == dt.timedelta(minutes=1)
    (grouped,) = asking.request_group(ada, [{"type": "fake"}])
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
        with pytest.raises(InvalidRequest, match="at most 10 h here") as refused:
            asked(ada, **{field: value})
        assert refused.value.field == field
    assert asked(root, ttl="900d").ttl == dt.timedelta(days=900)
    lease = until(asked(ada, ttl="1h"), state="active")
    with pytest.raises(InvalidRequest, match="at most 10 h here"):
        holding.extend(ada, lease.pk, ttl="900d")
    holding.extend(ada, lease.pk, ttl="9h")
    Lease.objects.filter(pk=lease.pk).update(active_at=clock.now() - dt.timedelta(hours=5))
    with pytest.raises(InvalidRequest, match="at most 10 h here"):
        holding.extend(ada, lease.pk, ttl="9h30m")
    holding.extend(root, lease.pk, ttl="900d")
