"""What leases and resources can do: time, heartbeats, holds, quotas, authorizations, groups, upkeep."""

from __future__ import annotations

import datetime as dt

import pytest
from django.contrib.auth.models import Group, User
from django.db import DatabaseError, IntegrityError, connection, transaction

from blueprints.models import Blueprint
from drydock.core import clock
from drydock.core.errors import Conflict, InvalidRequest
from leases.engine.core.database import InsideTransaction
from leases.engine.core.transitions import StaleTransition, move_lease
from leases.engine.lifecycle import release
from leases.engine.placement import claims, pending
from leases.engine.resources import retirement
from leases.engine.scheduling import allocate, request
from leases.inline import settle
from leases.models import Authorization, Event, Lease, Quota, Resource, Share
from leases.operations import asking, attention, blueprints, reading
from leases.operations.callers import caller
from leases.reasons import Reason
from leases.requests import read
from leases.states import LEASE, RESOURCE, LeaseState

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


def test_priority_comes_first_and_age_counts(blueprint, ask, until, settings):
    blueprint(max_resources=1)
    holder = until(ask(), state="active")
    low, old, urgent = ask(priority=-1), ask(), ask(priority=5)
    assert [w.id for w in pending.heads("fake")] == [urgent.pk]
    assert [reading.lease(x).place for x in (urgent, old, low)] == [1, 2, 3]
    release.release(holder.pk, actor="ada")
    urgent.refresh_from_db()
    assert urgent.state == "active"
    Lease.objects.filter(pk=low.pk).update(rank=low.rank - 3 * settings.DRYDOCK.ageing_seconds)
    release.release(urgent.pk, actor="ada")
    low.refresh_from_db()
    assert low.state == "active", "having waited three spans of ageing, it comes before one of higher priority"


def test_an_exclusive_lease_takes_the_whole_and_only_an_empty_one(blueprint, ask, until):
    blueprint(config={"capacity": {"slots": 4, "ram_mib": 100, "extra": {"gpu": 2}}}, max_resources=1)
    small = until(ask(extra={"gpu": 1}), state="active")
    whole = ask(exclusive=True)
    assert whole.state == "pending"
    release.release(small.pk, actor="ada")
    whole.refresh_from_db()
    assert whole.state == "active"
    assert (whole.share.slots, whole.share.ram_mib, whole.share.extra) == (4, 100, {"gpu": 2})
    assert whole.resource.capacities.get().used == 2


def test_traits_are_required_forbidden_and_preferred(blueprint, ask, until):
    blueprint("plain", min_ready=2, max_resources=2, order=1)
    blueprint("fast", config={"traits": ["ssd"]}, min_ready=2, max_resources=2, order=2)
    settle()
    assert ask(traits=["ssd"]).resource.blueprint.name == "fast"
    assert ask(forbidden_traits=["ssd"]).resource.blueprint.name == "plain"
    assert ask(preferred_traits=["ssd"]).resource.blueprint.name == "fast"
    assert ask(preferred_traits=["ssd"]).resource.blueprint.name == "plain"


def test_allowed_and_excluded_blueprints(blueprint, ask, until):
    blueprint("a", order=1)
    blueprint("b", order=2)
    assert until(ask(allowed_blueprints=["b"]), state="active").resource.blueprint.name == "b"
    assert until(ask(excluded_blueprints=["a"]), state="active").resource.blueprint.name == "b"
    with pytest.raises(InvalidRequest, match="no blueprint 'c'"):
        ask(allowed_blueprints=["c"])


def test_an_owner_without_authorization_is_refused_or_waits_for_it(blueprint, ask, owner, until):
    made = blueprint(audience="authorized")
    settle_refused = ask()
    settle()
    settle_refused.refresh_from_db()
    assert "you may not use it; ask: drydock authorizations ask pool" in settle_refused.message
    mine = Authorization.objects.create(blueprint=made, user=owner)
    lease = ask()
    settle()
    lease.refresh_from_db()
    assert (lease.state, lease.reason) == ("pending", Reason.WAITING_AUTHORIZATION)
    mine.state = "authorized"
    mine.save()
    until(lease, state="active")


def test_a_group_of_users_is_authorized_as_one(blueprint, ask, owner, until):
    made = blueprint(audience="authorized")
    team = Group.objects.create(name="team")
    Authorization.objects.create(blueprint=made, group=team, state="authorized")
    owner.groups.add(team)
    until(ask(), state="active")
    stranger = User.objects.create_user("eve")
    refused = ask(by=stranger)
    settle()
    refused.refresh_from_db()
    assert refused.state == "broken"


def test_a_quota_parks_its_owner_and_nobody_else(blueprint, ask, owner, until):
    blueprint(config={"capacity": {"slots": 10}}, max_resources=1)
    Quota.objects.create(user=owner, max_slots=2)
    first = until(ask(slots=2), state="active")
    mine = ask()
    settle()
    mine.refresh_from_db()
    assert (mine.state, mine.reason) == ("pending", Reason.WAITING_QUOTA)
    assert "ada's quota is 2 slots: 2 held, 1 more requested." in mine.message
    other = ask(by=User.objects.create_user("bob"))
    assert other.state == "active"
    release.release(first.pk, actor="ada")
    until(mine, state="active")


def test_a_groups_quota_counts_for_all_who_are_charged_to_it(blueprint, ask, owner, until):
    blueprint(config={"capacity": {"slots": 10}})
    team, bob = Group.objects.create(name="team"), User.objects.create_user("bob")
    owner.groups.add(team)
    bob.groups.add(team)
    Quota.objects.create(group=team, max_leases=1)
    until(ask(charged_group="team"), state="active")
    second = ask(by=bob, charged_group="team")
    settle()
    second.refresh_from_db()
    assert second.reason == Reason.WAITING_QUOTA
    with pytest.raises(InvalidRequest, match="in no group"):
        ask(charged_group="other")


@pytest.mark.parametrize("different", ["", "resource"])
def test_a_group_is_built_and_granted_as_one(blueprint, owner, different):
    blueprint(config={"capacity": {"slots": 1}})
    _, ids = request.request_group([read({"type": "fake"})] * 3, owner.pk, actor="ada", different=different)
    settle()
    assert set(Lease.objects.filter(pk__in=ids).values_list("state", flat=True)) == {"active"}
    assert Resource.objects.count() == 3


def test_a_group_on_the_same_resource_shares_one(blueprint, owner):
    blueprint(config={"capacity": {"slots": 3}})
    _, ids = request.request_group([read({"type": "fake"})] * 3, owner.pk, actor="ada", same="resource")
    settle()
    assert len(set(Lease.objects.filter(pk__in=ids, state="active").values_list("resource", flat=True))) == 1


def test_a_group_holds_nothing_before_it_has_all(blueprint, owner, ask, until):
    blueprint(max_resources=2)
    first = until(ask(), state="active")
    _, ids = request.request_group([read({"type": "fake"})] * 2, owner.pk, actor="ada")
    settle()
    assert set(Lease.objects.filter(pk__in=ids).values_list("state", flat=True)) == {"pending"}
    assert Share.objects.count() == 1
    release.release(first.pk, actor="ada")
    settle()
    assert set(Lease.objects.filter(pk__in=ids).values_list("state", flat=True)) == {"active"}


def test_releasing_one_of_a_waiting_group_ends_the_group(blueprint, owner, ask, until):
    blueprint(max_resources=1)
    until(ask(), state="active")
    _, ids = request.request_group([read({"type": "fake"})] * 2, owner.pk, actor="ada")
    release.release(ids[0], actor="ada")
    settle()
    assert set(Lease.objects.filter(pk__in=ids).values_list("state", flat=True)) == {"destroyed"}


def test_an_idle_resource_of_the_wrong_sort_is_reclaimed_at_the_limit(blueprint, ask, until):
    offers = [{"offer": "r", "attributes": {"color": "red"}}, {"offer": "b", "attributes": {"color": "blue"}}]
    blueprint(config={"offers": offers}, max_resources=1)
    red = until(ask(requirements={"color": "red"}), state="active")
    release.release(red.pk, actor="ada")
    blue = until(ask(requirements={"color": "blue"}), state="active")
    assert blue.resource.attributes["color"] == "blue"
    red.resource.refresh_from_db()
    assert (red.resource.state, Event.objects.get(resource=red.resource, kind="resource.released").reason) == (
        "destroyed",
        Reason.RECLAIMED,
    )


def test_an_idle_child_is_given_up_when_what_it_holds_is_asked_for(blueprint, ask, until):
    blueprint("below", kind="fake_activated", max_resources=1)
    needs = {"does": "need_leases", "at": "build.create", "leases": [{"name": "host", "type": "fake_activated"}]}
    blueprint("above", config={"faults": [needs]})
    lease = until(ask(), state="active")
    release.release(lease.pk, actor="ada")
    until(ask("fake_activated"), state="active")
    lease.resource.refresh_from_db()
    assert lease.resource.state == "destroyed"


def test_what_is_idle_too_long_goes_but_a_minimum_stays(blueprint, ask, until):
    blueprint(min_ready=1, idle_timeout=dt.timedelta(minutes=5))
    leases = [until(ask(), state="active") for _ in range(3)]
    for lease in leases:
        release.release(lease.pk, actor="ada")
    Resource.objects.update(idle_since=LONG_AGO)
    for _ in range(4):
        settle()
    assert Resource.objects.filter(state="active").count() == 1


def test_a_minimum_is_kept_ready(blueprint, ask):
    blueprint(min_ready=2)
    settle()
    assert Resource.objects.filter(state="active").count() == 2
    assert ask().state == "active"
    settle()
    assert Resource.objects.filter(state="active", used_slots=0).count() == 2


def test_a_resource_at_the_end_of_its_life_takes_no_lease_that_would_outlive_it(blueprint, ask, until):
    blueprint(max_lifetime=dt.timedelta(hours=2))
    first = until(ask(ttl="10m"), state="active")
    longer = ask(ttl="1h59m59s")
    assert longer.state == "pending"
    until(longer, state="active")
    assert longer.resource_id != first.resource_id
    never = ask(ttl="3h")
    settle()
    never.refresh_from_db()
    assert "lives 2:00:00" in never.message


def test_drained_and_quarantined_resources_serve_nobody(blueprint, ask, until):
    blueprint(config={"capacity": {"slots": 4}}, max_resources=1)
    first = until(ask(), state="active")
    Resource.objects.update(drained=True)
    second = ask()
    settle()
    assert second.state == "pending"
    release.release(first.pk, actor="ada")
    until(second, state="active")
    assert second.resource_id != first.resource_id
    Resource.objects.update(quarantined=True)
    assert ask().state == "pending"


def test_a_disabled_blueprint_makes_its_leases_wait(blueprint, ask, until):
    made = blueprint(enabled=False)
    lease = ask()
    settle()
    lease.refresh_from_db()
    assert (lease.state, lease.reason) == ("pending", Reason.NEEDS_OPERATOR)
    made.enabled = True
    made.save()
    until(lease, state="active")


@pytest.mark.parametrize(
    ("off", "word", "cure"),
    [({"enabled": False}, "disabled", "enable pool"), ({"drained": True}, "drained", "undrain pool")],
)
def test_a_blueprint_that_is_switched_off_says_how_to_switch_it_on(blueprint, ask, until, off, word, cure):
    made = blueprint(**off)
    root = caller(User.objects.create_superuser("root"))
    lease = until(ask(), state="pending", reason=Reason.NEEDS_OPERATOR)
    assert f"it is {word}; " in lease.message
    assert f"drydock blueprints {cure}" in lease.message
    found = [one for one in attention.needed(root) if one.kind == "blueprint"]
    assert [(one.what, one.id, one.mend) for one in found] == [(word, made.pk, f"drydock blueprints {cure}")]
    blueprints.enable(root, "pool")
    blueprints.drain(root, "pool", drained=False)
    until(lease, state="active")
    assert not [one for one in attention.needed(root) if one.kind == "blueprint"]


def test_nobody_waits_for_a_disabled_blueprint_where_another_says_no(blueprint, ask, until):
    """Unless the request asks for the disabled one alone."""
    blueprint("small", config={"capacity": {"slots": 1}})
    blueprint("lab", config={"capacity": {"slots": 8}}, enabled=False)
    assert asking.explain(caller(ask().owner), {"type": "fake", "slots": 4}).outcome == "refuse"
    lease = until(ask(slots=4), state="broken", reason=Reason.REFUSED)
    assert "drydock blueprints enable lab" in lease.message
    only = until(ask(slots=4, allowed_blueprints=["lab"]), state="pending", reason=Reason.NEEDS_OPERATOR)
    Blueprint.objects.update(enabled=True)
    until(only, state="active")


def test_outdated_resources_are_updated_in_place_a_few_at_a_time(blueprint, ask):
    made = blueprint(min_ready=3, max_outdated=1)
    settle()
    made.generation = 2
    made.save()
    for _ in range(6):
        settle()
    assert set(Resource.objects.filter(state="active").values_list("generation", flat=True)) == {2}
    assert Event.objects.filter(kind="resource.updated").count() == 3


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
    with pytest.raises(Conflict, match="another request"):
        ask(idempotency_key="k", slots=2)


def test_the_database_refuses_what_the_code_must_not_do(blueprint, ask, until):
    blueprint(config={"capacity": {"slots": 2}})
    lease = until(ask(), state="active")
    for sql in (
        "UPDATE leases_resource SET used_slots = 0",
        "UPDATE leases_share SET slots = 2",
        "UPDATE leases_lease SET state = 'pending'",
        "UPDATE leases_resource SET state = 'destroyed'",
        "UPDATE leases_capacity SET used = used + 1",
        f"INSERT INTO leases_share (lease_id, resource_id, slots) SELECT id, {lease.resource_id}, 2 FROM leases_lease",
    ):
        if sql.startswith("UPDATE leases_capacity"):
            lease.resource.capacities.create(name="gpu", total=1)
        with pytest.raises((DatabaseError, IntegrityError)), transaction.atomic(), connection.cursor() as cursor:
            cursor.execute(sql)


def test_a_total_may_shrink_below_what_is_used_and_then_only_stops_growth(blueprint, ask, until):
    blueprint(config={"capacity": {"slots": 3}}, max_resources=1)
    leases = [until(ask(), state="active") for _ in range(2)]
    Resource.objects.update(total_slots=1)
    late = ask()
    settle()
    late.refresh_from_db()
    assert late.state == "pending"
    release.release(leases[0].pk, actor="ada")
    assert Resource.objects.get().used_slots == 1


def test_a_transition_from_the_wrong_state_is_an_error(blueprint, ask, until):
    blueprint()
    lease = until(ask(), state="active")
    with pytest.raises(StaleTransition):
        move_lease(lease.pk, LeaseState.PENDING, reason=Reason.NONE)


def test_the_triggers_hold_the_tables_of_the_code():
    with connection.cursor() as cursor:
        cursor.execute("SELECT tgname, encode(tgargs, 'escape') FROM pg_trigger WHERE tgname LIKE '%_transition'")
        found = {
            name: set(arguments.removesuffix("\\000").strip("{}").split(",")) for name, arguments in cursor.fetchall()
        }
    assert found == {
        "lease_transition": {f"{a}>{b}" for a, b in LEASE.pairs()},
        "resource_transition": {f"{a}>{b}" for a, b in RESOURCE.pairs()},
    }


def test_no_state_changes_without_an_event(blueprint, ask, until):
    blueprint(kind="fake_activated")
    lease = until(ask("fake_activated"), state="active")
    release.release(lease.pk, actor="ada")
    until(lease, state="destroyed")
    told = Event.objects.filter(lease=lease).exclude(to_state="").order_by("id")
    assert [(e.from_state, e.to_state) for e in told] == [
        ("", "pending"),
        ("pending", "acquired"),
        ("acquired", "active"),
        ("active", "released"),
        ("released", "destroyed"),
    ]
    assert all(e.actor and e.duration is not None for e in told if e.from_state)


def test_waiting_inside_a_transaction_is_a_clear_error():
    with transaction.atomic(), pytest.raises(InsideTransaction):
        allocate.build(1, 1, None, [])  # type: ignore[arg-type]


def test_sql_and_python_agree_on_what_fits(blueprint, ask, until):
    """The claim's SQL finds exactly the resources that the declaration says fit."""
    blueprint(config={"attributes": {"color": "red", "size": 5, "zone": "n", "labels": ["a", "b"]}}, min_ready=1)
    settle()
    for asked, fit in (
        ({"color": "red"}, True), ({"color": "blue"}, False), ({"size": 5}, True), ({"size": 6}, False),
        ({"zones": ["s", "n"]}, True), ({"zones": []}, False), ({"labels": ["b"]}, True), ({"labels": ["c"]}, False),
        ({"labels": []}, True), ({"color": "red", "size": 1, "zones": ["n"]}, True),
    ):  # fmt: skip
        from leases.engine.placement.constraints import PlacementRequest

        with transaction.atomic():
            assert bool(claims.look(PlacementRequest(type="fake", requirements=asked))) is fit, asked
