"""The queue: groups with a member that falls out, reservations that nobody can use, quotas, many shapes."""

from __future__ import annotations

import datetime as dt

import pytest

from leases.engine.lifecycle import release
from leases.engine.placement import pending
from leases.engine.resources import retirement
from leases.engine.scheduling import place as placing
from leases.engine.scheduling import request
from leases.messaging.inline import settle
from leases.models import Lease, Quota, Resource, Share
from leases.operations import permissions
from leases.operations.callers import caller
from leases.reasons import Reason
from leases.validation.requests import read

LONG_AGO = "2020-01-01T00:00Z"


def group(owner, *asked, **given):
    _, ids = request.request_group([read({"type": "fake", **one}) for one in asked], owner.pk, actor="ada", **given)
    return list(Lease.objects.filter(pk__in=ids).order_by("id"))


def states(leases):
    return list(Lease.objects.filter(pk__in=[x.pk for x in leases]).order_by("id").values_list("state", flat=True))


def sweeps(times=4):
    for _ in range(times):
        Lease.objects.filter(parked=True).update(due_at=LONG_AGO)
        settle()


@pytest.mark.parametrize("rule", [{"different": "resource"}, {"same": "resource"}, {}])
def test_members_of_a_group_whose_resource_fails_are_served_again_by_the_group_s_rule(blueprint, owner, rule):
    fault = {"does": "fail", "at": "build.verify", "scope": "offer", "remember": 0.0, "skip": 1, "times": 1}
    faults = [fault | {"skip": 0 if "same" in rule else 1}]
    blueprint(config={"capacity": {"slots": 2}, "boot_polls": 2, "poll_seconds": 0.01, "faults": faults})
    leases = group(owner, {}, {}, **rule)
    sweeps(12)
    assert states(leases) == ["active", "active"]
    there = {Lease.objects.get(pk=x.pk).resource_id for x in leases}
    assert len(there) == {"different": 2, "same": 1}.get(next(iter(rule), ""), len(there))


def test_a_member_that_gives_up_ends_those_that_wait_with_it(blueprint, owner, ask, until):
    blueprint(max_resources=1)
    until(ask(), state="active")
    leases = group(owner, {"wait_limit": "1m"}, {})
    settle()
    Lease.objects.filter(pk=leases[0].pk).update(give_up_at=LONG_AGO)
    sweeps(2)
    assert states(leases) == ["broken", "destroyed"]


def test_a_member_that_failed_too_often_ends_those_that_wait_with_it(blueprint, owner, settings):
    blueprint(config={"boot_polls": 50, "poll_seconds": 60})
    leases = group(owner, {}, {}, different="resource")
    sweeps(2)
    assert states(leases) == ["acquired", "acquired"]
    retirement.lose(Lease.objects.get(pk=leases[1].pk).resource_id, reason=Reason.LOST, message="it burns")
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"bounce_limit": 0})
    retirement.lose(Lease.objects.get(pk=leases[0].pk).resource_id, reason=Reason.LOST, message="it burns")
    sweeps(2)
    assert states(leases) == ["broken", "destroyed"]


def test_a_resource_for_a_group_on_the_same_one_is_built_for_the_sum(blueprint, owner):
    offers = [{"offer": "s", "capacity": {"slots": 1}}, {"offer": "l", "capacity": {"slots": 4}}]
    blueprint(config={"offers": offers})
    leases = group(owner, {"slots": 1}, {"slots": 2}, same="resource")
    sweeps(3)
    assert states(leases) == ["active", "active"]
    assert Resource.objects.get().offer == "l"


def test_further_classes_count_for_all_members_on_one_resource(blueprint, owner):
    blueprint(config={"capacity": {"slots": 4, "extra": {"gpu": 1}}}, max_resources=2)
    leases = group(owner, {"extra": {"gpu": 1}}, {"extra": {"gpu": 1}})
    sweeps(3)
    assert states(leases) == ["active", "active"]
    assert Resource.objects.count() == 2


def test_a_group_counts_against_the_number_of_leases_that_its_owner_may_have(blueprint, owner):
    blueprint(config={"capacity": {"slots": 9}})
    Quota.objects.create(user=owner, max_leases=2)
    leases = group(owner, {}, {}, {})
    sweeps(2)
    assert not Share.objects.exists()
    assert Lease.objects.get(pk=leases[0].pk).reason == Reason.WAITING_QUOTA


@pytest.mark.parametrize("change", [{"drained": True}, {"quarantined": True}, {"dies_at": LONG_AGO}])
def test_a_reservation_of_what_can_serve_nobody_is_given_up(blueprint, ask, until, settings, change):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"head_reservation_seconds": 0.0})
    blueprint(config={"capacity": {"slots": 2}}, max_resources=2)
    held = [until(ask(slots=2), state="active") for _ in range(2)]
    big = ask(slots=2)
    settle()
    reserved = Resource.objects.get(reserved_for=big)
    Resource.objects.filter(pk=reserved.pk).update(**change)
    for _ in range(2):
        settle()
    other = Resource.objects.get(reserved_for=big)
    assert other.pk != reserved.pk
    release.release(next(x.pk for x in held if x.resource_id == other.pk), actor="ada")
    until(big, state="active")


def test_a_waiter_held_back_by_its_owner_s_quota_reserves_nothing(blueprint, ask, owner, until, settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"head_reservation_seconds": 0.0})
    blueprint(config={"capacity": {"slots": 2}}, max_resources=1)
    until(ask(), state="active")
    big = ask(slots=2)
    settle()
    assert Resource.objects.get().reserved_for_id == big.pk
    Quota.objects.create(user=owner, max_slots=1)
    sweeps(2)
    assert Resource.objects.get().reserved_for_id is None


def test_who_waits_for_another_try_is_not_hurried_when_its_owner_releases_or_gets_a_quota(
    blueprint, ask, owner, until, django_user_model
):
    blueprint()
    spare = until(ask(), state="active")
    blueprint("slow", kind="fake_activated", config={"boot_polls": 50, "poll_seconds": 60})
    unlucky = until(ask("fake_activated"), state="acquired")
    Lease.objects.filter(pk=unlucky.pk).update(bounces=4)
    retirement.lose(unlucky.resource_id, reason=Reason.LOST, message="it burns")
    release.release(spare.pk, actor="ada")
    root = caller(django_user_model.objects.create_superuser("root"))
    permissions.set_quota(root, user=owner, limits={"max_leases": 9})
    permissions.remove_quota(root, user=owner)
    unlucky.refresh_from_db()
    assert (unlucky.state, unlucky.reason, unlucky.parked) == ("pending", Reason.WAITING_RETRY, True)


def test_the_loss_of_a_lease_wakes_whom_its_owner_s_quota_held_back(blueprint, ask, owner, until):
    blueprint()
    Quota.objects.create(user=owner, max_leases=1)
    lost, parked = until(ask(), state="active"), ask()
    settle()
    parked.refresh_from_db()
    assert parked.parked
    retirement.lose(lost.resource_id, reason=Reason.LOST, message="it burns")
    parked.refresh_from_db()
    assert not parked.parked
    until(parked, state="active")


def test_what_quotas_hold_back_is_not_looked_at_in_every_sweep(blueprint, ask, owner, until, monkeypatch):
    blueprint(config={"capacity": {"slots": 100}})
    Quota.objects.create(user=owner, max_leases=1)
    until(ask(), state="active")
    for _ in range(30):
        ask()
    settle()
    looked = []
    place = placing._place
    monkeypatch.setattr(placing, "_place", lambda *given: looked.append(given) or place(*given))
    for _ in range(3):
        Lease.objects.filter(state="pending").update(since=LONG_AGO)
        settle()
    assert not looked


def test_the_sixtieth_shape_is_served_though_fifty_others_wait_before_it(blueprint, ask, until):
    blueprint(config={"capacity": {"slots": 100}}, max_resources=1)
    full = until(ask(slots=50), state="active")
    stuck = [ask(slots=60, name=f"{n}", ttl=f"{n + 1}h") for n in range(55)]
    last = Lease.objects.get(pk=ask(slots=51).pk)
    settle()
    assert last.state == "pending"
    Lease.objects.filter(pk=last.pk).update(slots=40, due_at=LONG_AGO)
    settle()
    last.refresh_from_db()
    assert last.state == "active"
    assert {x.id for x in pending.heads("fake", limit=100)} == {x.pk for x in stuck}
    assert full.state == "active"


def test_only_what_is_more_than_the_minimum_goes_when_idle(blueprint):
    blueprint(min_ready=4, max_resources=4)
    settle()
    Resource.objects.update(idle_since=LONG_AGO)
    Blueprint = Resource._meta.get_field("blueprint").related_model
    Blueprint.objects.update(min_ready=2, idle_timeout=dt.timedelta(minutes=1))
    for _ in range(3):
        settle()
    assert Resource.objects.filter(state="active").count() == 2
    assert Resource.objects.count() == 4
