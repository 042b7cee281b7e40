"""Giving up what is idle for who waits: as much as is needed and no more, however long its destruction takes."""

from __future__ import annotations

import pytest

from blueprints.specs import Draft
from leases.engine.lifecycle import release
from leases.engine.scheduling import candidates, place, request
from leases.engine.scheduling.decision import Candidate, Reclaim, Wait, decide
from leases.messaging.inline import settle
from leases.models import Lease, Resource, Run
from leases.reasons import Reason
from leases.validation.requests import read

LONG_AGO = "2020-01-01T00:00Z"
SLOW = {"destroy_polls": 2, "poll_seconds": 60}
COLORS = ("red", "blue", "green")


def looks(times=4):
    """Sweeps that look at every waiting lease; what is being destroyed stays so."""
    for _ in range(times):
        Lease.objects.filter(state="pending").update(due_at=LONG_AGO)
        settle()


def out():
    return Resource.objects.filter(state="released", gone_at=None).count()


@pytest.fixture
def warm(blueprint, ask, until):
    """Four idle red resources at their blueprint's limit, each of which takes long to destroy."""
    offers = [{"offer": color, "attributes": {"color": color}} for color in COLORS]
    blueprint(config={"offers": offers, **SLOW}, max_resources=4)
    leases = [until(ask(requirements={"color": "red"}), state="active") for _ in range(4)]
    for lease in leases:
        release.release(lease.pk, actor="ada")
    settle()
    assert Resource.objects.filter(state="active", used_slots=0).count() == 4


def test_one_waiter_costs_one_of_the_warm_ones_and_every_further_one_another(warm, ask, until):
    blue = ask(requirements={"color": "blue"})
    looks()
    assert out() == 1
    blue.refresh_from_db()
    assert blue.reason == Reason.WAITING_RECLAIM
    green = ask(requirements={"color": "green"})
    looks()
    assert out() == 2
    alike = ask(requirements={"color": "blue"})
    looks()
    assert out() == 3
    for _ in range(8):
        Run.objects.update(due_at=LONG_AGO)
        looks(1)
    for lease in (blue, green, alike):
        until(lease, state="active")
    assert Resource.objects.filter(state="active", attributes__color="red").count() == 1


def test_what_cannot_be_destroyed_is_not_waited_for(warm, ask, until):
    blue = ask(requirements={"color": "blue"})
    looks(2)
    assert out() == 1
    Run.objects.update(due_at=None, waits_for="operator")
    looks()
    assert out() == 2
    for _ in range(4):
        Run.objects.filter(waits_for="").update(due_at=LONG_AGO)
        looks(1)
    until(blue, state="active")


def test_of_those_that_hold_what_is_asked_no_more_is_given_up_than_waits(blueprint, ask, until):
    blueprint("below", kind="fake_activated", config={"capacity": {"slots": 3}}, max_resources=1)
    needs = {"does": "need_leases", "at": "build.create"}
    needs["leases"] = [{"name": "host", "type": "fake_activated"}]
    blueprint("above", config={"faults": [needs], **SLOW})
    for lease in [until(ask(), state="active") for _ in range(3)]:
        release.release(lease.pk, actor="ada")
    settle()
    waiter = ask("fake_activated")
    looks()
    assert out() == 1
    waiter.refresh_from_db()
    assert waiter.reason == Reason.WAITING_RECLAIM
    for _ in range(4):
        Run.objects.update(due_at=LONG_AGO)
        looks(1)
    until(waiter, state="active")
    assert Resource.objects.filter(type="fake", state="active").count() == 2


def test_idle_ones_that_hold_or_are_part_of_something_are_given_up_first(warm, ask, until):
    eldest, _, part, holder = Resource.objects.order_by("idle_since")
    Lease.objects.filter(pk=Lease.objects.first().pk).update(for_resource=holder)
    whole = Resource.objects.create(blueprint=eldest.blueprint, type="fake", state="broken", gone_at=LONG_AGO)
    Resource.objects.filter(pk=part.pk).update(part_of=whole)
    ask(requirements={"color": "blue"})
    looks(2)
    part.refresh_from_db()
    eldest.refresh_from_db()
    assert (part.state, eldest.state) == ("released", "active")


def full(name="pool", **given):
    return Candidate(id=1, name=name, drafts=(Draft(),), maximum=2, there=2, idle=(7, 8), **given)


def test_the_decision_waits_while_enough_leaves_and_gives_up_one_more_while_it_does_not():
    assert isinstance(decide([full()]), Reclaim)
    assert decide([full(leaving=1)]).reason == Reason.WAITING_RECLAIM
    assert isinstance(decide([full(leaving=1, wanted=2)]), Reclaim)
    both = decide([full(), full("other", leaving=1)], held_idle=(9,))
    assert isinstance(both, Wait)
    assert both.message == "other: at its limit of 2 resources, 1 of which are being removed"
    assert decide([full()], held_idle=(9,), held_leaving=1).reason == Reason.WAITING_RECLAIM
    assert decide([full()], held_idle=(9,), held_leaving=1, wanted=2).resource_ids == (9,)


@pytest.fixture
def ends_while_deciding(monkeypatch):
    """Let a lease end after no room was found for another one, and before it is read what could be given up."""
    real = candidates.candidates

    def arrange(lease):
        def read(*asked):
            release.release(lease.pk, actor="ada")
            return real(*asked)

        # Whoever returns the share hands it over, unless the one who waits is locked by whoever decides for it.
        monkeypatch.setattr(place, "hand_over", lambda *asked: None)
        monkeypatch.setattr(candidates, "candidates", read)

    return arrange


def test_what_comes_free_while_it_is_decided_serves_the_lease_and_is_not_given_up(
    blueprint, ask, until, ends_while_deciding
):
    blueprint(max_resources=1)
    first = until(ask(), state="active")
    waiter = ask()
    ends_while_deciding(first)
    settle()
    until(waiter, state="active")
    assert waiter.resource_id == first.resource_id


def test_what_comes_free_while_it_is_decided_serves_the_group_and_is_not_given_up(
    blueprint, ask, until, owner, ends_while_deciding
):
    blueprint(max_resources=2)
    first, second = (until(ask(), state="active") for _ in range(2))
    _, ids = request.request_group([read({"type": "fake"})] * 2, owner.pk, actor="ada")
    release.release(first.pk, actor="ada")
    ends_while_deciding(second)
    settle()
    members = [until(lease, state="active") for lease in Lease.objects.filter(pk__in=ids)]
    assert {member.resource_id for member in members} == {first.resource_id, second.resource_id}
