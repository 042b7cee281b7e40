"""What leases cost: written with their shares, whatever becomes of leases, resources and users; and the report."""

from __future__ import annotations

import datetime as dt

import pytest
from django.contrib.auth.models import Group, User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from blueprints.models import Blueprint
from drydock.core import clock
from drydock.core.errors import InvalidRequest
from leases import tables
from leases.engine.lifecycle import release
from leases.engine.resources import retirement
from leases.engine.scheduling import request
from leases.engine.upkeep import pruning
from leases.messaging.inline import settle
from leases.models import Budget, Capacity, Event, Lease, Part, Resource, Run, Share, Usage
from leases.operations import costs
from leases.operations.callers import caller
from leases.reasons import Reason
from leases.validation.requests import read

DEAR = {"offers": [{"offer": "m.large", "zone": "east-1", "price": 0.6}], "capacity": {"slots": 4}}


def exact() -> bool:
    """As much is open as is held of what has a price and is there."""
    held = Share.objects.filter(resource__price__gt=-1).exclude(resource__state="pending")
    return sorted(held.values_list("lease_id", flat=True)) == sorted(
        Usage.objects.filter(ended_at=None).values_list("lease_id", flat=True)
    )


def test_a_share_of_something_with_a_price_is_on_record_with_all_that_it_was(blueprint, ask, owner, until):
    made = blueprint(config=DEAR, max_resources=1)
    owner.groups.add(Group.objects.create(name="team"))
    lease = until(ask(charged_group="team", slots=1, name="mine"), state="active")
    found = Usage.objects.get()
    assert (found.lease_id, found.lease_name, found.owner, found.group) == (lease.pk, "mine", "ada", "team")
    assert (found.blueprint, found.kind, found.type) == (made.name, "fake", "fake")
    assert (found.resource_id, found.offer, found.place) == (lease.resource_id, "m.large", "east-1")
    assert (found.price, found.part, found.ended_at) == (0.6, 0.25, None)
    assert exact()
    release.release(lease.pk, actor="ada")
    until(lease, state="destroyed")
    found.refresh_from_db()
    assert found.started_at <= found.ended_at
    assert Usage.objects.count() == 1


def test_who_takes_the_whole_pays_the_whole(blueprint, ask, until):
    blueprint(config=DEAR)
    until(ask(exclusive=True), state="active")
    assert Usage.objects.get().part == 1


def test_what_has_no_price_is_not_on_record(blueprint, ask, until):
    blueprint()
    lease = until(ask(), state="active")
    release.release(lease.pk, actor="ada")
    assert not Usage.objects.exists()


def test_it_begins_when_what_is_built_is_there(blueprint, ask, until):
    blueprint(config=DEAR | {"boot_polls": 3, "poll_seconds": 0.05})
    lease = ask()
    settle()
    lease.refresh_from_db()
    assert Share.objects.filter(lease=lease).exists()
    assert not Usage.objects.exists()
    until(lease, state="active")
    resource = Resource.objects.get()
    assert Usage.objects.get().started_at >= resource.created_at
    assert abs((Usage.objects.get().started_at - resource.since).total_seconds()) < 1
    later = until(ask(), state="active")
    assert Usage.objects.get(lease_id=later.pk).started_at >= later.acquired_at
    assert exact()


def test_a_try_that_failed_costs_its_owner_nothing(blueprint, ask, until):
    sold_out = {"does": "fail", "at": "build.boot", "scope": "offer", "offers": "m.large", "times": None}
    other = {"offer": "m.small", "price": 0.1}
    blueprint(config=DEAR | {"offers": [*DEAR["offers"], other], "faults": [sold_out]})
    until(ask(), state="active")
    assert [one.offer for one in Usage.objects.all()] == ["m.small"]
    assert Resource.objects.count() == 2
    assert exact()


def test_a_price_that_changes_is_charged_from_then_on(blueprint, ask, until):
    blueprint(config=DEAR)
    lease = until(ask(slots=2), state="active")
    Resource.objects.update(price=1.2)
    first, second = Usage.objects.order_by("id")
    assert (first.price, second.price, second.part) == (0.6, 1.2, 0.5)
    assert first.ended_at is not None
    assert first.ended_at <= second.started_at
    Resource.objects.update(price=None)
    assert not Usage.objects.filter(ended_at=None).exists()
    Resource.objects.update(price=2.0)
    assert Usage.objects.filter(ended_at=None, price=2.0).count() == 1
    release.release(lease.pk, actor="ada")
    assert not Usage.objects.filter(ended_at=None).exists()


def test_what_is_lost_ends_then_and_there(blueprint, ask, until):
    blueprint(config=DEAR)
    lease = until(ask(), state="active")
    retirement.lose(lease.resource_id, reason=Reason.LOST, message="The instance failed.")
    lease.refresh_from_db()
    assert lease.state == "broken"
    held, leaving = Usage.objects.order_by("id")
    assert held.ended_at is not None
    assert leaving.ended_at is None, "the machine may still be there"
    until(lease.resource, state="broken")
    while Run.objects.exists():
        settle()
    assert exact()


def test_a_machine_that_is_destroyed_after_its_lease_costs_until_it_is_gone(blueprint, ask, owner, until):
    refused = {"does": "fail", "at": "destroy.delete", "times": None}
    made = blueprint(config=DEAR | {"faults": [refused]})
    Budget.objects.create(user=owner, max_hourly=0.6)
    lease = until(ask(exclusive=True), state="active")
    Resource.objects.update(drained=True)
    release.release(lease.pk, actor="ada")
    until(lease, state="destroyed")
    until(lease.resource, state="released")
    held, leaving = Usage.objects.order_by("id")
    assert (leaving.lease_id, leaving.owner, leaving.price, leaving.part) == (lease.pk, "ada", 0.6, 1)
    assert held.ended_at <= leaving.started_at
    assert leaving.ended_at is None
    assert [one.used for one in costs.list_budgets(caller(owner))] == [0.6]
    waits = ask(exclusive=True)
    settle()
    waits.refresh_from_db()
    assert waits.reason == "waiting_budget"
    Blueprint.objects.filter(pk=made.pk).update(config=DEAR)
    Run.objects.update(due_at="2020-01-01T00:00Z")
    until(lease.resource, state="destroyed")
    until(waits, state="active")
    leaving.refresh_from_db()
    assert leaving.ended_at is not None
    assert exact()


def test_what_stands_idle_and_is_given_up_later_costs_its_last_owner_nothing(blueprint, ask, until):
    blueprint(config=DEAR | {"destroy_polls": 3}, idle_timeout="1 microsecond")
    lease = until(ask(exclusive=True), state="active")
    release.release(lease.pk, actor="ada")
    until(lease.resource, state="released")
    assert Usage.objects.get().ended_at is not None
    until(lease.resource, state="destroyed")


def test_it_outlives_lease_resource_and_owner(blueprint, ask, until):
    made = blueprint(config=DEAR, idle_timeout="1 microsecond")
    bob = User.objects.create_user("bob")
    lease = until(ask(by=bob), state="active")
    release.release(lease.pk, actor="bob")
    resource = Resource.objects.get()
    until(resource, state="destroyed")
    for model in (Event, Run, Lease, Capacity, Part, Resource):
        model.objects.all().delete()
    made.delete()
    bob.delete()
    found = Usage.objects.get()
    assert (found.owner, found.blueprint, found.resource) == ("bob", "pool", resource.name)


def test_the_record_needs_no_further_statement(blueprint, owner):
    made = blueprint(config={"capacity": {"slots": 8}}, max_resources=1, min_ready=1)
    settle()
    counts = []
    for price in (None, 0.5):
        Resource.objects.filter(blueprint=made).update(price=price)
        with CaptureQueriesContext(connection) as sent:
            lease = request.request(read({"type": "fake"}), owner.pk, actor="ada")
            release.release(lease.id, actor="ada")
        counts.append(len(sent.captured_queries))
    assert counts[0] == counts[1]
    assert [(one.price, one.part) for one in Usage.objects.all()] == [(0.5, 0.125)]


def at(hours: float) -> str:
    return (dt.datetime(2026, 3, 1, tzinfo=dt.UTC) + dt.timedelta(hours=hours)).isoformat()


@pytest.fixture
def spent(owner):
    """Records of two owners: 4, 1 and 2 dollars."""

    def record(number, who, price, begin, end, **more):
        Usage.objects.create(
            lease_id=number, owner_id=who.pk, owner=who.username, blueprint_id=1, blueprint="aws", kind="ec2",
            type="host", resource_id=number, price=price, part=0.5, started_at=at(begin), ended_at=at(end), **more,
        )  # fmt: skip

    bob = User.objects.create_user("bob")
    record(1, owner, 2.0, 0, 4, place="east", instance_type="m.big", lease_name="=SUM(A1)")
    record(2, owner, 1.0, 2, 4, place="west", market="spot")
    record(3, bob, 4.0, 3, 4, place="east")
    return bob


def test_the_report_sums_what_falls_into_a_span(spent, owner):
    boss = caller(User.objects.create_superuser("boss"))
    span = {"since": at(0), "until": at(10)}
    found = costs.usage_report(boss, span)
    assert [(one.name, one.leases, one.seconds, one.cost) for one in found.groups] == [
        ("ada", 2, 21600, 5.0), ("bob", 1, 3600, 2.0),
    ]  # fmt: skip
    assert (found.total.leases, found.total.cost, found.total.hourly) == (3, 7.0, 0)
    assert costs.usage_report(boss, {"since": at(3), "until": at(3.5)}).total.cost == 0.5 + 0.25 + 1.0
    by_place = costs.usage_report(boss, span, by="place").groups
    assert {one.name: one.cost for one in by_place} == {"east": 6.0, "west": 1.0}
    assert [one.name for one in costs.usage_report(boss, span | {"market": "spot"}, by="lease").groups] == [""]
    assert costs.usage_report(boss, {"since": at(-9), "until": at(-1)}).total.cost == 0
    for by in costs.usage_dimensions():
        assert costs.usage_report(boss, span, by=by).total.cost == 7.0


def test_owners_see_their_own_and_operators_all(spent, owner):
    span = {"since": at(0), "until": at(10)}
    assert [one.name for one in costs.usage_report(caller(spent), span).groups] == ["bob"]
    assert costs.usage_report(caller(spent), span | {"owner": "ada"}).groups == ()
    assert [one.lease_id for one in costs.usage_records(caller(owner), span)] == [1, 2]
    assert [
        one.lease_id for one in costs.usage_records(caller(owner), span, after=Usage.objects.get(lease_id=1).pk)
    ] == [2]


def test_what_goes_on_is_counted_up_to_now(blueprint, ask, owner, until):
    blueprint(config=DEAR)
    until(ask(), state="active")
    Usage.objects.update(started_at=clock.now() - dt.timedelta(hours=2))
    (found,) = costs.usage_report(caller(owner)).groups
    assert found.cost == pytest.approx(0.3, abs=0.001)
    assert found.hourly == pytest.approx(0.15)


@pytest.mark.parametrize(
    ("wanted", "field"),
    [({"since": at(3), "until": at(1)}, "since"), ({"since": "yesterday"}, "since"), ({"wings": 2}, "wings")],
)
def test_a_wrong_filter_is_told_by_its_field(owner, wanted, field):
    with pytest.raises(InvalidRequest) as refused:
        costs.usage_report(caller(owner), wanted)
    assert refused.value.field == field


def test_old_records_are_pruned_by_the_policy(spent, settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"usage_retention_days": 10})
    Usage.objects.filter(lease_id=2).update(ended_at=clock.now())
    pruning.USAGE.until = 0.0
    assert pruning.prune_usage() == 2
    assert Usage.objects.get().lease_id == 2


def test_a_table_has_no_formulas_and_short_numbers():
    lines = list(tables.lines(["name", "cost"], [("=1+1", 0.5), ("@x", 2.0), ("plain, text", None)]))
    assert lines == ["name,cost\r\n", "'=1+1,0.5\r\n", "'@x,2\r\n", '"plain, text",\r\n']
