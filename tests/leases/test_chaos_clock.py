"""Found by chaos: a process whose clock is off by a minute writes no wrong times and decides nothing by them."""

from __future__ import annotations

import datetime as dt

import pytest

from drydock.core import clock
from leases.engine.lifecycle import release
from leases.engine.resources import retirement
from leases.messaging.inline import settle
from leases.models import Lease, Resource
from leases.reasons import Reason

MINUTE = dt.timedelta(minutes=1)
NEAR = dt.timedelta(seconds=20)


@pytest.fixture(params=[-MINUTE, MINUTE], ids=["late", "early"])
def wrong(request, monkeypatch):
    """This process's clock is wrong from here on; the time as it really is."""
    right = clock.now
    monkeypatch.setattr(clock, "now", lambda: right() + request.param)
    return right


def near(moment: dt.datetime | None, real: dt.datetime) -> bool:
    return moment is not None and abs(moment - real) < NEAR


def test_the_end_of_a_lease_is_written_in_the_databases_time(blueprint, ask, until, wrong):
    blueprint()
    ended, refused, lost = until(ask(), state="active"), ask(requirements={"color": "blue"}), ask(slots=1)
    until(refused, state="broken")
    until(lost, state="active")
    release.release(ended.pk, actor="ada")
    retirement.lose(lost.resource_id, reason=Reason.UNHEALTHY, message="dead")
    until(lost, state="broken")
    for lease in Lease.objects.all():
        assert near(lease.ended_at, wrong()), lease.state
        assert lease.ended_at >= lease.created_at


def test_what_may_live_for_a_while_dies_by_the_databases_clock(blueprint, ask, until, wrong):
    blueprint(max_lifetime=dt.timedelta(hours=1))
    until(ask(), state="active")
    assert near(Resource.objects.get().dies_at - dt.timedelta(hours=1), wrong())


def test_a_lease_that_fits_into_the_life_of_what_is_built_is_not_refused(blueprint, ask, until, wrong):
    blueprint(max_lifetime=dt.timedelta(hours=1))
    until(ask(until=wrong() + dt.timedelta(minutes=59.5)), state="active")


def test_a_lease_that_does_not_fit_is_refused(blueprint, ask, until, wrong):
    blueprint(max_lifetime=dt.timedelta(hours=1))
    refused = until(ask(until=wrong() + dt.timedelta(minutes=60.5)), state="broken")
    assert refused.reason == Reason.REFUSED


def test_a_failure_is_remembered_by_the_databases_clock(blueprint, ask, wrong):
    fault = {"does": "fail", "at": "build.reserve", "scope": "blueprint", "remember": 30}
    blueprint(config={"provider": "t", "faults": [fault]})
    lease = ask()
    for _ in range(3):
        settle()
    lease.refresh_from_db()
    assert Resource.objects.count() == 1, "what failed is not tried again while it is remembered"
    assert lease.state == "pending"
