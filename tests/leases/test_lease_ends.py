"""Ends of leases: expiry, heartbeats, wait limits, holds, and replays after the end."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest

from drydock.core import clock
from drydock.core.errors import Conflict
from leases.engine.core import specs
from leases.engine.lifecycle import release
from leases.engine.resources import retirement
from leases.messaging.inline import settle
from leases.models import Event, Lease, Share
from leases.reasons import Reason

LONG_AGO = "2020-01-01T00:00Z"


def test_a_lease_ends_when_its_time_is_over(blueprint, ask, until):
    blueprint()
    lease = until(ask(ttl="1h"), state="active")
    assert dt.timedelta(minutes=59) < lease.until - clock.now() <= dt.timedelta(hours=1)
    Lease.objects.update(until=LONG_AGO)
    settle()
    lease.refresh_from_db()
    assert (lease.state, Event.objects.get(lease=lease, to_state="released").reason) == ("destroyed", Reason.EXPIRED)


def test_a_lease_whose_heart_stops_is_released(blueprint, ask, until):
    blueprint()
    lease = until(ask(heartbeat_limit="30s"), state="active")
    settle()
    assert Lease.objects.get().state == "active"
    Lease.objects.update(heartbeat_at=LONG_AGO)
    settle()
    assert Event.objects.get(lease=lease, to_state="released").reason == Reason.HEARTBEAT_LOST


def test_a_waiter_gives_up_in_its_time_and_says_what_was_the_matter(blueprint, ask):
    blueprint(max_resources=1)
    ask()
    settle()
    late = ask(wait_limit="1m")
    settle()
    Lease.objects.filter(pk=late.pk).update(give_up_at=LONG_AGO)
    settle()
    late.refresh_from_db()
    assert (late.state, late.reason) == ("broken", Reason.GAVE_UP_WAITING)
    assert "its only resource is full (1 of 1 slot)" in late.message


def test_a_held_lease_is_not_cleaned_before_its_hold_ends(blueprint, ask, until):
    blueprint(kind="fake_activated")
    lease = until(ask("fake_activated"), state="active")
    Lease.objects.update(held=True, hold_until=clock.now() + dt.timedelta(hours=1))
    release.release(lease.pk, actor="ada")
    settle()
    lease.refresh_from_db()
    assert (lease.state, lease.reason) == ("released", Reason.HELD)
    assert Share.objects.exists()
    Lease.objects.update(hold_until=LONG_AGO)
    until(lease, state="destroyed")


def test_kinds_are_told_which_leases_hold_a_resource_also_while_a_lease_is_held(blueprint, ask, until):
    blueprint(kind="fake_activated")
    lease = until(ask("fake_activated"), state="active")
    view, ours = specs.resource_view(lease.resource), (specs.key("l", lease.pk),)
    assert view.holders() == ours
    Lease.objects.update(held=True, hold_until=clock.now() + dt.timedelta(hours=1))
    release.release(lease.pk, actor="ada")
    settle()
    assert (view.lease_facts(), view.holders()) == ((), ours)
    Lease.objects.update(hold_until=LONG_AGO)
    until(lease, state="destroyed")
    assert view.holders() == ()


def test_kinds_are_told_whether_a_resource_was_built_for_its_only_lease(blueprint, ask, until):
    hold = {"does": "hold", "at": "activate.access", "each": True, "resolved_by": "operator"}
    blueprint(kind="fake_activated", max_resources=1, config={"faults": [hold], "capacity": {"slots": 1}})
    first = until(ask("fake_activated"), state="acquired")
    resource = first.resource
    until(resource, state="active")

    def fresh() -> bool:
        resource.refresh_from_db()
        return specs.resource_view(resource).fresh()

    assert fresh()
    resource.total_slots = 2
    assert not specs.resource_view(resource).fresh(), "another lease may have been there at the same time"
    Lease.objects.filter(pk=first.pk).update(active_at=clock.now())
    assert not fresh(), "it is activated again, and may have left something itself"
    Lease.objects.filter(pk=first.pk).update(active_at=None, acquired_at=resource.since + dt.timedelta(seconds=1))
    assert not fresh(), "a lease that has gone to another resource since may have been there before"


def test_what_is_in_a_restored_database_may_have_had_leases_that_it_does_not_know(blueprint, ask, until, monkeypatch):
    hold = {"does": "hold", "at": "activate.access", "each": True, "resolved_by": "operator"}
    blueprint(kind="fake_activated", config={"faults": [hold], "capacity": {"slots": 1}})
    resource = until(ask("fake_activated"), state="acquired").resource
    view = specs.resource_view(until(resource, state="active"))
    assert view.fresh()
    here = specs.installation.current()
    newer = replace(here.epochs[-1], number=here.epoch + 1, r=resource.pk + 1)
    monkeypatch.setattr(specs.installation, "current", lambda: replace(here, epochs=(*here.epochs, newer)))
    assert not view.fresh()


def test_a_resource_that_was_discovered_may_have_been_used_before(blueprint, ask, until):
    blueprint(kind="fake_activated")
    resource = until(ask("fake_activated"), state="active").resource
    resource.origin = resource.Origin.DISCOVERED
    assert not specs.resource_view(resource).fresh()


def test_losing_a_resource_tells_every_holder(blueprint, ask, until):
    blueprint(config={"capacity": {"slots": 3}})
    used, again = until(ask(), state="active"), until(ask(serve_again=True), state="active")
    retirement.lose(used.resource_id, reason=Reason.LOST, message="it burns")
    for lease in (used, again):
        lease.refresh_from_db()
        assert (lease.state, lease.reason, lease.message) == ("broken", Reason.LOST, "it burns")
    until(again.replaced_by, state="active")
    assert used.replaced_by is None


def test_a_replay_after_the_end_returns_the_ended_lease_and_another_request_is_a_conflict(blueprint, ask):
    blueprint()
    first = ask(idempotency_key="k")
    release.release(first.pk, actor="ada")
    assert ask(idempotency_key="k").pk == first.pk
    with pytest.raises(Conflict, match="a different request"):
        ask(idempotency_key="k", slots=2)
