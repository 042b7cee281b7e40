"""A lease that is not active yet may be asked for longer; one that is lasts longer."""

from __future__ import annotations

import datetime as dt

import pytest

from drydock.core import clock
from drydock.core.errors import Conflict, InvalidRequest
from leases.engine.lifecycle import release
from leases.messaging.inline import settle
from leases.models import Lease
from leases.operations import lifetimes
from leases.operations.callers import caller


@pytest.fixture
def full(blueprint, ask, until):
    """One resource, taken by a lease."""
    blueprint(max_resources=1, max_lifetime=dt.timedelta(hours=5))
    return until(ask(ttl="10m"), state="active")


def test_a_waiting_lease_asks_for_a_longer_time_from_active(full, ask, until, owner):
    lease = ask(ttl="1h")
    assert lifetimes.extend(caller(owner), lease.pk, ttl="2h") is None
    release.release(full.pk, actor="ada")
    until(lease, state="active", ttl=dt.timedelta(hours=2))
    assert abs(lease.until - lease.active_at - dt.timedelta(hours=2)) < dt.timedelta(seconds=1)
    assert lease.events.filter(kind="lease.extended").exists()


def test_a_waiting_lease_asks_for_a_later_end(full, ask, until, owner):
    lease = ask(until=clock.now() + dt.timedelta(hours=1))
    later = clock.now() + dt.timedelta(hours=3)
    assert lifetimes.extend(caller(owner), lease.pk, until=later) == later
    release.release(full.pk, actor="ada")
    until(lease, state="active", until=later)


def test_a_waiting_lease_that_asks_for_more_waits_as_one_of_another_shape(full, ask, until, owner):
    longer, other = ask(ttl="1h"), ask(ttl="1h")
    assert longer.shape == other.shape
    lifetimes.extend(caller(owner), longer.pk, ttl="100d")
    longer.refresh_from_db()
    assert longer.shape != other.shape
    settle()
    release.release(full.pk, actor="ada")
    until(other, state="active")
    longer.refresh_from_db()
    assert "live 5:00:00" in longer.message


def test_nothing_is_shortened_and_nothing_without_an_end_is_extended(full, ask, owner):
    who, lease, endless = caller(owner), ask(ttl="1h"), ask()
    with pytest.raises(Conflict, match="requested for 1 h"):
        lifetimes.extend(who, lease.pk, ttl="30m")
    with pytest.raises(Conflict, match="which is later"):
        lifetimes.extend(who, lease.pk, until=clock.now() + dt.timedelta(minutes=30))
    with pytest.raises(InvalidRequest, match="in the past"):
        lifetimes.extend(who, lease.pk, until=clock.now() - dt.timedelta(minutes=30))
    with pytest.raises(Conflict, match="no end"):
        lifetimes.extend(who, endless.pk, ttl="2h")
    assert Lease.objects.get(pk=lease.pk).ttl == dt.timedelta(hours=1)


def test_a_lease_whose_resource_is_still_built_asks_for_no_more_than_that_lasts(blueprint, ask, until, owner):
    blueprint(config={"boot_polls": 9, "poll_seconds": 60}, max_lifetime=dt.timedelta(hours=2))
    lease = ask(ttl="1h")
    settle()
    with pytest.raises(Conflict, match="no lease on it can last longer"):
        lifetimes.extend(caller(owner), lease.pk, ttl="3h")
    assert lifetimes.extend(caller(owner), lease.pk, ttl="90m") is None
    lease.refresh_from_db()
    assert (lease.state, lease.ttl) == ("acquired", dt.timedelta(minutes=90))
