"""What a claim may take: the whole of a resource, what quotas leave of it, and what a group gathers."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, transaction

from leases.engine.lifecycle import release
from leases.engine.scheduling import request
from leases.messaging.inline import settle
from leases.models import Event, Lease, Quota, Resource, Share
from leases.operations import callers, leases
from leases.reasons import Reason
from leases.validation.requests import read


@pytest.fixture
def group(owner):
    """Ask for a group; its leases."""

    def make(*asked, **given):
        requests = [read({"type": "fake", **one}) for one in asked]
        _, ids = request.request_group(requests, owner.pk, actor="ada", **given)
        return list(Lease.objects.filter(pk__in=ids).order_by("id"))

    return make


def states(leases):
    return list(Lease.objects.filter(pk__in=[x.pk for x in leases]).order_by("id").values_list("state", flat=True))


def test_what_grows_under_an_exclusive_lease_is_not_given_to_others(blueprint, ask, until):
    blueprint(config={"capacity": {"slots": 2}}, max_resources=1)
    whole = until(ask(exclusive=True), state="active")
    Resource.objects.update(total_slots=8)
    other = ask()
    settle()
    other.refresh_from_db()
    assert other.state == "pending"
    assert Share.objects.count() == 1
    release.release(whole.pk, actor="ada")
    until(other, state="active")
    assert not Resource.objects.get().held_alone
    assert ask(slots=7).state == "active"


def test_the_database_itself_gives_nothing_of_what_is_held_alone_and_nothing_alone_of_what_is_held(
    blueprint, ask, until
):
    blueprint(config={"capacity": {"slots": 2}}, max_resources=1)
    whole = until(ask(exclusive=True), state="active")
    Resource.objects.update(total_slots=8)
    other, resource = ask(), Resource.objects.get()
    with pytest.raises(IntegrityError), transaction.atomic():
        Share.objects.create(lease=other, resource=resource, slots=1)
    release.release(whole.pk, actor="ada")
    until(other, state="active")
    with pytest.raises(IntegrityError), transaction.atomic():
        Share.objects.create(lease=whole, resource=resource, slots=1, exclusive=True)


def test_a_quota_is_charged_the_whole_that_an_exclusive_lease_takes(blueprint, ask, owner):
    blueprint(config={"capacity": {"slots": 4}}, max_resources=1, min_ready=1)
    settle()
    Quota.objects.create(user=owner, max_slots=3)
    lease = ask(exclusive=True)
    settle()
    lease.refresh_from_db()
    assert not Share.objects.exists()
    assert lease.state == "pending"
    Quota.objects.update(max_slots=4)
    Lease.objects.update(parked=False)
    settle()
    lease.refresh_from_db()
    assert lease.state == "active"
    assert Share.objects.get().slots == 4


def test_of_two_resources_an_exclusive_lease_gets_the_one_that_its_owner_s_quota_allows(blueprint, ask, owner):
    blueprint("big", config={"capacity": {"slots": 4}}, max_resources=1, min_ready=1, order=1)
    small = blueprint("small", config={"capacity": {"slots": 2}}, max_resources=1, min_ready=1, order=2)
    settle()
    Quota.objects.create(user=owner, max_slots=3)
    lease = ask(exclusive=True)
    assert lease.state == "active"
    assert lease.resource.blueprint == small


def test_who_builds_for_an_exclusive_lease_takes_no_larger_one_on_the_way(blueprint, ask, owner):
    blueprint("big", config={"capacity": {"slots": 8}}, max_resources=1, min_ready=1, order=1)
    settle()
    small = blueprint("small", config={"capacity": {"slots": 4}}, order=2)
    Quota.objects.create(user=owner, max_slots=4)
    lease = ask(exclusive=True)
    settle()
    lease.refresh_from_db()
    assert (lease.state, lease.resource.blueprint, Share.objects.get().slots) == ("active", small, 4)


def test_a_quota_limits_a_class_of_capacity_by_its_name(blueprint, ask, owner, until):
    blueprint(config={"capacity": {"slots": 8, "extra": {"gpu": 4}}}, max_resources=1)
    Quota.objects.create(user=owner, max_extra={"gpu": 3})
    first = until(ask(extra={"gpu": 2}), state="active")
    over, plain = ask(extra={"gpu": 2}), ask()
    settle()
    over.refresh_from_db()
    assert (over.state, over.reason) == ("pending", Reason.WAITING_QUOTA)
    assert over.message == "ada's quota is 3 gpu: 2 held, 2 more requested."
    assert leases.get(callers.caller(owner), over.pk).waiting.message == over.message
    until(plain, state="active")
    release.release(first.pk, actor="ada")
    until(over, state="active")


def test_a_quota_of_a_class_bounds_groups_and_exclusive_leases(blueprint, ask, owner, until):
    blueprint(config={"capacity": {"slots": 2, "extra": {"gpu": 4}}}, max_resources=2, min_ready=2)
    settle()
    Quota.objects.create(user=owner, max_extra={"gpu": 3})
    whole = ask(exclusive=True)
    _, ids = request.request_group([read({"type": "fake", "extra": {"gpu": 2}})] * 2, owner.pk, actor="ada")
    settle()
    assert not Share.objects.exists()
    Quota.objects.update(max_extra={"gpu": 8})
    Lease.objects.update(parked=False)
    for one in (whole, *Lease.objects.filter(pk__in=ids)):
        until(one, state="active")


def test_nothing_is_built_for_an_exclusive_lease_beyond_its_owner_s_quota(blueprint, ask, owner):
    blueprint(config={"capacity": {"slots": 4}})
    Quota.objects.create(user=owner, max_slots=3)
    lease = ask(exclusive=True)
    settle()
    lease.refresh_from_db()
    assert (lease.state, lease.reason) == ("pending", Reason.WAITING_QUOTA)
    assert "quota is 3 slots" in lease.message
    assert not Resource.objects.exists()


def test_exclusive_members_of_a_group_are_charged_their_wholes_together(blueprint, group, owner):
    blueprint(config={"capacity": {"slots": 2}}, max_resources=2, min_ready=2)
    settle()
    Quota.objects.create(user=owner, max_slots=3)
    leases = group({"exclusive": True}, {"exclusive": True})
    settle()
    assert states(leases) == ["pending", "pending"]
    assert not Share.objects.exists()
    assert {x.reason for x in Lease.objects.all()} == {Reason.WAITING_QUOTA}


def test_where_nothing_can_be_built_one_resource_fills_for_a_group_that_must_be_together(
    blueprint, ask, group, settings
):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"head_reservation_seconds": 0.0})
    blueprint(config={"capacity": {"slots": 2}}, max_resources=2, min_ready=2)
    settle()
    small = [ask() for _ in range(4)]
    assert {x.state for x in small} == {"active"}
    together = group({}, {}, same="resource")
    settle()
    reserved = Resource.objects.get(reserved_for__in=together)
    mine = [x for x in small if x.resource_id == reserved.pk]
    others = [x for x in small if x.resource_id != reserved.pk]
    release.release(mine[0].pk, actor="ada")
    assert ask().state == "pending", "it fills for the group alone"
    release.release(others[0].pk, actor="ada")
    settle()
    assert states(together) == ["pending", "pending"]
    release.release(mine[1].pk, actor="ada")
    settle()
    assert states(together) == ["active", "active"]
    assert {Lease.objects.get(pk=x.pk).resource_id for x in together} == {reserved.pk}
    assert not Resource.objects.exclude(reserved_for=None).exists()


def test_members_that_fit_together_are_built_one_resource(blueprint, group):
    blueprint(config={"capacity": {"slots": 4}})
    leases = group({}, {"slots": 2}, {})
    settle()
    assert states(leases) == ["active"] * 3
    assert Resource.objects.count() == 1


def test_members_that_do_not_fit_together_are_built_as_many_resources_as_they_need(blueprint, group):
    blueprint(config={"capacity": {"slots": 2}})
    leases = group({}, {"slots": 2}, {}, {"exclusive": True})
    settle()
    assert states(leases) == ["active"] * 4
    assert Resource.objects.count() == 3


def test_of_groups_whose_members_have_priorities_of_their_own_one_is_always_the_oldest(blueprint, group):
    blueprint()
    blueprint("sites", kind="fake_activated")
    first = group({"priority": 10}, {"type": "fake_activated"})
    second = group({"type": "fake_activated", "priority": 10}, {})
    settle()
    assert states(first) == states(second) == ["active", "active"]


@pytest.mark.parametrize("rule", [{}, {"same": "resource"}, {"different": "resource"}, {"same": "parent"}])
def test_a_group_with_a_member_that_nothing_could_serve_is_refused_and_stands_in_nobody_s_way(blueprint, group, rule):
    blueprint(config={"attributes": {"color": "blue"}, "capacity": {"slots": 4}})
    hopeless = group({"priority": 10}, {"requirements": {"color": "red"}}, **rule)
    other = group({}, {})
    settle()
    assert sorted(states(hopeless)) == ["broken", "destroyed"]
    assert Lease.objects.get(state="broken").reason == Reason.REFUSED
    assert states(other) == ["active", "active"]
    assert not Resource.objects.exclude(reserved_for=None).exists()


def test_members_on_one_resource_get_one_that_meets_what_each_of_them_asks(blueprint, group):
    blueprint("plain", config={"capacity": {"slots": 4}}, min_ready=1)
    blueprint("red", config={"attributes": {"color": "red"}, "capacity": {"slots": 4}}, order=20)
    settle()
    leases = group({}, {"requirements": {"color": "red"}}, same="resource")
    settle()
    assert states(leases) == ["active", "active"]
    assert {Lease.objects.get(pk=x.pk).resource.blueprint.name for x in leases} == {"red"}


def test_a_group_that_waits_for_something_else_than_room_holds_nothing_and_lets_others_go_first(
    blueprint, group, until
):
    pool = blueprint(config={"capacity": {"slots": 1}}, max_resources=2, min_ready=1)
    closed = blueprint("closed", kind="fake_activated", enabled=False)
    settle()
    stalled = group({"priority": 10}, {"type": "fake_activated"})
    other = group({}, {})
    for _ in range(3):
        settle()
    assert states(other) == ["active", "active"], pool
    assert {Lease.objects.get(pk=x.pk).reason for x in stalled} == {Reason.WAITING_ROOM, Reason.NEEDS_OPERATOR}
    assert Event.objects.filter(lease=stalled[1], kind="lease.needs_operator").count() == 1, "said once"
    for lease in other:
        release.release(lease.pk, actor="ada")
    closed.enabled = True
    closed.save()
    Lease.objects.filter(state="pending").update(due_at=None)
    settle()
    assert states(stalled) == ["active", "active"]


def test_a_younger_group_gives_back_what_it_gathered_when_an_older_one_can_go_on(blueprint, group, ask, until):
    blueprint(config={"attributes": {"color": "blue"}, "capacity": {"slots": 1}}, max_resources=2, min_ready=2)
    closed = blueprint("closed", kind="fake_activated", enabled=False, max_resources=1)
    settle()
    busy = until(ask(), state="active")
    older = group({"priority": 10, "requirements": {"color": "blue"}}, {"type": "fake_activated"})
    younger = group({}, {})
    settle()
    assert Resource.objects.get(reserved_for__isnull=False).reserved_for.group_id == younger[0].group_id
    closed.enabled = True
    closed.save()
    Lease.objects.filter(state="pending").update(due_at=None)
    settle()
    assert states(older) == ["active", "active"]
    assert states(younger) == ["pending", "pending"]
    release.release(busy.pk, actor="ada")
    for lease in older:
        release.release(lease.pk, actor="ada")
    settle()
    assert states(younger) == ["active", "active"]


@pytest.mark.parametrize("asked", [{"requirements": {"color": "red"}}, {"traits": ["quick"]}, {"cpu_millicores": 7}])
def test_what_only_the_last_of_many_has_is_found(blueprint, ask, until, settings, asked):
    """More are there than are looked at before all are."""
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"candidate_limit": 1})
    blueprint(max_resources=7, min_ready=7, max_builds=7)
    settle()
    last = Resource.objects.order_by("-id").first()
    Resource.objects.filter(pk=last.pk).update(attributes={"color": "red"}, traits=["quick"], total_cpu_millicores=7)
    assert until(ask(**asked), state="active").resource_id == last.pk
    assert ask().resource_id != last.pk, "the first that is not full, for who asks for nothing else"
