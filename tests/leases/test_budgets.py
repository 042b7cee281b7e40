"""Budgets: what leases and blueprints may cost an hour; never passed, whatever asks at the same time."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, User
from django.db import IntegrityError, connection
from django.test.utils import CaptureQueriesContext

from drydock.core.errors import Conflict, InvalidRequest, NotAllowed, NotFound
from leases.engine.lifecycle import release
from leases.engine.scheduling import request
from leases.engine.upkeep import renewals
from leases.messaging.inline import settle
from leases.models import Budget, Event, Lease, Resource, Share, Usage
from leases.operations import attention, costs, leases, lifetimes
from leases.operations.callers import caller
from leases.reasons import Reason
from leases.validation.requests import read
from tests.leases.clients import Clients


def sold(*prices: float, slots: int = 1, **config):
    """A fake provider that sells at these prices, tried in this order."""
    offers = [{"offer": f"m.{n}", "price": price} for n, price in enumerate(prices)]
    return {"offers": offers, "capacity": {"slots": slots}, **config}


@pytest.fixture
def boss():
    return caller(User.objects.create_superuser("boss"))


def spends(owner) -> float:
    """What the shares of an owner cost an hour."""
    found = Share.objects.filter(lease__owner=owner).select_related("resource")
    return sum((one.resource.price or 0) * one.slots / one.resource.total_slots for one in found)


def test_a_lease_that_would_pass_the_budget_waits_with_the_figures_and_holds_up_nobody(blueprint, ask, owner, until):
    blueprint(config=sold(2.0))
    Budget.objects.create(user=owner, max_hourly=3)
    first = until(ask(), state="active")
    second = ask()
    settle()
    second.refresh_from_db()
    assert (second.state, second.reason, second.parked) == ("pending", Reason.WAITING_BUDGET, True)
    assert "the budget of ada is $3.00/h, of which $2.00/h is in use; m.0 costs $2.00/h" in second.message
    assert [one["answer"] for one in second.verdicts] == ["wait"]
    until(ask(by=User.objects.create_user("bob")), state="active")
    release.release(first.pk, actor="ada")
    until(second, state="active")
    assert spends(owner) == 2.0


def test_of_offers_the_first_that_the_budget_allows_is_built(blueprint, ask, owner, until):
    blueprint(config=sold(5.0, 2.0, 1.0))
    Budget.objects.create(user=owner, max_hourly=3)
    assert until(ask(), state="active").resource.offer == "m.1"
    assert until(ask(), state="active").resource.offer == "m.2"
    third = ask()
    settle()
    third.refresh_from_db()
    assert third.reason == Reason.WAITING_BUDGET
    assert "m.2 costs $1.00" in third.message


def test_what_is_there_is_taken_only_where_the_budget_allows_it(blueprint, ask, owner, until, boss):
    dear = blueprint("dear", config=sold(4.0, slots=2), min_ready=1, max_resources=1)
    cheap = blueprint("cheap", config=sold(1.0), min_ready=1, max_resources=1, order=9)
    settle()
    Budget.objects.create(user=owner, max_hourly=1)
    first = until(ask(), state="active")
    assert first.resource.blueprint == cheap
    assert first.resource.created_at < first.created_at, "it was there"
    second = ask()
    settle()
    second.refresh_from_db()
    assert second.state == "pending"
    costs.set_budget(boss, user=owner, max_hourly=3)
    until(second, state="active")
    assert second.resource.blueprint == dear, "its half costs 2"


def test_a_slot_costs_its_part_and_the_whole_costs_all(blueprint, ask, owner, until):
    blueprint(config=sold(4.0, slots=4))
    Budget.objects.create(user=owner, max_hourly=3)
    for _ in range(3):
        until(ask(), state="active")
    fourth = ask(slots=2)
    whole = ask(exclusive=True)
    settle()
    assert set(Lease.objects.filter(pk__in=[fourth.pk, whole.pk]).values_list("reason", flat=True)) == {
        Reason.WAITING_BUDGET
    }


def test_what_costs_nothing_needs_no_budget_and_what_has_no_known_price_is_left_out(blueprint, ask, owner, until):
    Budget.objects.create(user=owner, max_hourly=0)
    blueprint("own", config={})
    until(ask(), state="active")
    other = blueprint("offers", config={"offers": [{"offer": "odd"}]})
    waits = ask(allowed_blueprints=["offers"])
    settle()
    waits.refresh_from_db()
    assert (waits.reason, other.resources.count()) == (Reason.WAITING_BUDGET, 0)
    assert "odd has no known price" in waits.message


def test_a_groups_budget_counts_for_all_who_are_charged_to_it(blueprint, ask, owner, until):
    blueprint(config=sold(1.0))
    team = Group.objects.create(name="team")
    bob = User.objects.create_user("bob")
    for user in (owner, bob):
        user.groups.add(team)
    Budget.objects.create(group=team, max_hourly=1)
    first = until(ask(charged_group="team"), state="active")
    second = ask(charged_group="team", by=bob)
    settle()
    second.refresh_from_db()
    assert (second.reason, "the budget of team" in second.message) == (Reason.WAITING_BUDGET, True)
    until(ask(by=bob), state="active")
    release.release(first.pk, actor="ada")
    until(second, state="active")


def test_leases_of_a_group_are_granted_within_the_budget_or_not_at_all(blueprint, owner, until):
    blueprint(config=sold(1.0))
    Budget.objects.create(user=owner, max_hourly=2)
    ada = caller(owner)
    ids = leases.request_group(ada, [{"type": "fake"}] * 3)
    settle()
    settle()
    assert not Share.objects.exists()
    assert set(Lease.objects.filter(pk__in=ids).values_list("state", flat=True)) == {"pending"}
    assert Reason.WAITING_BUDGET in Lease.objects.filter(pk__in=ids).values_list("reason", flat=True)
    Budget.objects.update(max_hourly=3)
    Lease.objects.update(due_at="2020-01-01T00:00Z")
    for pk in ids:
        until(Lease.objects.get(pk=pk), state="active")
    assert spends(owner) == 3


def test_a_blueprint_builds_no_more_than_its_budget_and_gives_up_what_is_idle_for_it(blueprint, ask, until):
    made = blueprint(config=sold(2.0, slots=2), idle_timeout=None)
    Budget.objects.create(blueprint=made, max_hourly=5)
    held = [until(ask(exclusive=True), state="active") for _ in range(2)]
    third = ask(exclusive=True)
    settle()
    third.refresh_from_db()
    assert (third.reason, third.parked) == (Reason.WAITING_BUDGET, False)
    assert "the budget of blueprint pool is $5.00/h, of which $4.00/h is in use" in third.message
    release.release(third.pk, actor="ada")
    release.release(held[0].pk, actor="ada")
    settle()
    assert Resource.objects.filter(state="active").count() == 2, "one is idle"
    type(made).objects.update(config=sold(3.0, slots=8))
    until(ask(slots=8), state="active")
    assert sum(Resource.objects.filter(gone_at=None).values_list("price", flat=True)) == 5


def test_a_minimum_is_kept_ready_only_within_the_blueprint_s_budget(blueprint):
    made = blueprint(config=sold(2.0), min_ready=3)
    Budget.objects.create(blueprint=made, max_hourly=4.5)
    settle()
    assert Resource.objects.count() == 2
    Budget.objects.update(max_hourly=2)
    settle()
    assert Resource.objects.filter(state="active").count() == 1, "what is idle goes"


def test_explain_says_what_the_budget_would_say(blueprint, owner):
    blueprint(config=sold(2.0))
    Budget.objects.create(user=owner, max_hourly=1)
    found = leases.explain(caller(owner), {"type": "fake"})
    assert (found.outcome, found.reason) == ("wait", Reason.WAITING_BUDGET)
    assert "$1.00/h" in found.message
    assert not Lease.objects.exists()


@pytest.mark.parametrize("given", [{}, {"user": "owner", "blueprint": "made"}])
def test_the_database_takes_a_budget_of_one_only(blueprint, owner, given):
    there = {"user": {"user": owner}, "blueprint": {"blueprint": blueprint()}}
    with pytest.raises(IntegrityError):
        Budget.objects.create(max_hourly=1, **{k: v for name in given for k, v in there[name].items()})


def test_a_budget_that_is_raised_or_removed_wakes_who_waits(blueprint, ask, owner, until, boss):
    blueprint(config=sold(2.0))
    costs.set_budget(boss, user=owner, max_hourly=1)
    first, second = ask(), ask()
    settle()
    costs.set_budget(boss, user=owner, max_hourly=2)
    until(first, state="active")
    (info,) = costs.list_budgets(caller(owner))
    assert (info.user, info.max_hourly, info.used, info.left, info.waiting) == ("ada", 2, 2, 0, 1)
    (short,) = (one for one in attention.needed(caller(owner)) if one.what == "budget")
    second.refresh_from_db()
    assert (short.since, second.reason) == (second.since, Reason.WAITING_BUDGET), "since the first lease waits for more"
    assert short.message.startswith("$2.00/h of the budget of $2.00/h is in use.")
    costs.remove_budget(boss, user=owner)
    until(second, state="active")


def test_a_budget_without_anything_left_is_short_since_its_newest_cost(blueprint, ask, owner, until, boss):
    made = blueprint(config=sold(2.0))
    assert costs.short_budgets(boss) == []
    costs.set_budget(boss, user=owner, max_hourly=2)
    costs.set_budget(boss, blueprint=made.name, max_hourly=2)
    lease = until(ask(), state="active")
    since = {one.user or one.blueprint: began for one, began in costs.short_budgets(boss)}
    assert since == {
        "ada": Usage.objects.get(lease_id=lease.pk, ended_at=None).started_at, made.name: lease.resource.created_at,
    }  # fmt: skip
    costs.set_budget(boss, user=owner, max_hourly=3)
    assert [one.blueprint for one, _ in costs.short_budgets(boss)] == [made.name]


def test_only_operators_set_budgets_and_only_sensible_ones(blueprint, owner, boss):
    with pytest.raises(NotAllowed):
        costs.set_budget(caller(owner), user=owner, max_hourly=1)
    for given in ({"max_hourly": -1}, {"max_hourly": float("nan")}, {"max_hourly": float("inf")}):
        with pytest.raises(InvalidRequest):
            costs.set_budget(boss, user=owner, **given)
    with pytest.raises(InvalidRequest):
        costs.set_budget(boss, max_hourly=1, user=owner, group="team")
    with pytest.raises(NotFound):
        costs.set_budget(boss, max_hourly=1, blueprint="none")
    assert not Budget.objects.exists()


def test_processes_that_ask_at_the_same_time_never_pass_a_budget(blueprint, owner, boss):
    """Twelve slots at a quarter of a dollar are there, and the budget is for five of them."""
    blueprint(config=sold(1.0, slots=4), min_ready=3, max_resources=3)
    settle()
    costs.set_budget(boss, user=owner, max_hourly=1.25)
    each = {"owner": owner.pk, "times": 3, "request": {"type": "fake"}}
    with Clients("allocate_and_serve", [each] * 4) as clients:
        assert len({pk for ids in clients.go() for pk in ids}) == 12
    settle()
    assert spends(owner) == 1.25
    assert Lease.objects.filter(state="active").count() == 5
    assert set(Lease.objects.exclude(state="active").values_list("reason", flat=True)) == {Reason.WAITING_BUDGET}


@pytest.fixture
def short_hours(settings):
    """An hour that is over at once, and little notice."""

    def set_(hour: float, notice: float) -> None:
        changed = {"budget_hour_seconds": hour, "budget_notice_seconds": notice}
        settings.DRYDOCK = settings.DRYDOCK.model_copy(update=changed)

    return set_


def test_a_lease_without_an_end_is_reserved_again_and_ends_with_notice_when_it_cannot_be(
    blueprint, ask, owner, until, boss, short_hours
):
    blueprint(config=sold(2.0))
    costs.set_budget(boss, user=owner, max_hourly=4)
    older, younger = until(ask(), state="active"), until(ask(), state="active")
    assert renewals.renew() == 0, "an hour is not over"
    short_hours(60, 3600)
    assert renewals.renew() == 2
    assert Usage.objects.filter(reserved_until=None).count() == 0
    costs.set_budget(boss, user=owner, max_hourly=2)
    renewals.renew()
    younger.refresh_from_db()
    assert (younger.state, younger.reason) == ("active", Reason.BUDGET_ENDS)
    assert "unless the budget covers its renewal: the budget of ada is $2.00/h" in younger.message
    assert Event.objects.filter(lease=younger, kind="lease.budget_ends").count() == 1
    older.refresh_from_db()
    assert older.reason == Reason.READY, "who holds longest stays"
    costs.set_budget(boss, user=owner, max_hourly=4)
    renewals.renew()
    younger.refresh_from_db()
    assert (younger.reason, Usage.objects.filter(ends_at=None).count()) == (Reason.READY, 2)
    costs.set_budget(boss, user=owner, max_hourly=2)
    renewals.renew()
    Usage.objects.filter(lease_id=younger.pk).update(ends_at="2020-01-01T00:00Z")
    renewals.renew()
    until(younger, state="destroyed")
    assert Event.objects.filter(lease=younger, to_state="released").get().reason == Reason.OVER_BUDGET
    assert spends(owner) == 2


def test_a_lease_with_an_end_keeps_it_but_is_not_extended_beyond_a_lowered_budget(blueprint, ask, owner, until, boss):
    blueprint(config=sold(2.0))
    lease = until(ask(ttl="1h"), state="active")
    costs.set_budget(boss, user=owner, max_hourly=1)
    assert renewals.renew() == 0
    with pytest.raises(Conflict, match="the budget of ada is"):
        lifetimes.extend(caller(owner), lease.pk, ttl="2h")


def test_a_blueprint_s_lowered_budget_ends_what_was_built_last(blueprint, ask, until, boss, short_hours):
    blueprint(config=sold(2.0))
    first, second = until(ask(), state="active"), until(ask(), state="active")
    costs.set_budget(boss, blueprint="pool", max_hourly=2)
    short_hours(60, 3600)
    renewals.renew()
    reasons = dict(Lease.objects.values_list("id", "reason"))
    assert reasons == {first.pk: Reason.READY, second.pk: Reason.BUDGET_ENDS}


def test_budgets_cost_a_warm_cycle_nothing_where_there_are_none(blueprint, owner, django_user_model):
    blueprint(config={"capacity": {"slots": 8}}, max_resources=1, min_ready=1)
    settle()

    def asked() -> list[str]:
        with CaptureQueriesContext(connection) as sent:
            lease = request.request(read({"type": "fake"}), owner.pk, actor="ada")
            release.release(lease.id, actor="ada")
        return [one["sql"] for one in sent.captured_queries]

    without = asked()
    assert [sql for sql in without if "leases_budget" in sql] == [without[0]], "whether there is any, and no more"
    Budget.objects.create(user=django_user_model.objects.create_user("bob"), max_hourly=1)
    assert len(asked()) == len(without) + 1
