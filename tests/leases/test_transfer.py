"""Transfer of a lease: what goes with it, what the new owner must be allowed, and what cannot be transferred."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, User

from blueprints.models import Blueprint
from blueprints.registry import kind
from drydock.core.errors import Busy, Conflict, InvalidRequest, NotAllowed, NotFound, NotSupported
from leases.engine.lifecycle import lease_phases, release
from leases.messaging.inline import settle
from leases.models import Authorization, Budget, Event, Job, Lease, Quota, Run, Usage
from leases.operations import interfaces, jobs, leases
from leases.operations.callers import caller


@pytest.fixture
def bob(owner):
    """A user of a group of the owner's."""
    bob, team = User.objects.create_user("bob"), Group.objects.create(name="team")
    team.user_set.add(owner, bob)
    return bob


@pytest.fixture
def chief():
    return caller(User.objects.create_superuser("root"))


def unchanged(lease, owner) -> bool:
    """Nothing of a refused transfer stays."""
    lease.refresh_from_db()
    return lease.owner == owner and not Event.objects.filter(lease=lease, kind="lease.transferred").exists()


def test_the_new_owner_has_it_and_the_former_one_no_more(blueprint, ask, owner, bob, until):
    blueprint()
    lease = until(ask(name="rig", public_keys=[], idempotency_key="once", heartbeat_limit="1h"), state="active")
    leases.transfer(caller(owner), lease.pk, to="bob", message="The rig is yours.")
    settle()
    info = leases.get(caller(bob), lease.pk)
    assert (info.owner, info.state, info.name) == ("bob", "active", "rig")
    assert info.heartbeat_limit is None, "bob did not say that he sends any"
    with pytest.raises(NotFound):
        leases.get(caller(owner), lease.pk)
    told = Event.objects.get(lease=lease, kind="lease.transferred")
    assert (told.message, told.actor) == ("From ada to bob. The rig is yours.", caller(owner).actor)
    again = ask(name="rig", idempotency_key="once")
    assert again.pk != lease.pk
    release.release(lease.pk, actor="bob")
    until(lease, state="destroyed")


def test_operators_transfer_the_leases_of_others_and_strangers_none(blueprint, ask, owner, bob, until):
    blueprint()
    lease = until(ask(), state="active")
    with pytest.raises(NotFound):
        leases.transfer(caller(bob), lease.pk, to="bob")
    assert unchanged(lease, owner)
    leases.transfer(caller(User.objects.create_superuser("root")), lease.pk, to="bob")
    lease.refresh_from_db()
    assert lease.owner == bob


def test_owners_give_to_users_of_their_groups_and_learn_of_no_others(blueprint, ask, owner, bob, until):
    blueprint()
    lease = until(ask(), state="active")
    User.objects.create_user("carl")
    for to in ("carl", "nobody"):
        with pytest.raises(InvalidRequest, match=f"only to members of your groups, and {to!r} is not one"):
            leases.transfer(caller(owner), lease.pk, to=to)
    assert unchanged(lease, owner)


def test_it_counts_against_the_quota_of_the_new_owner(blueprint, ask, owner, bob, chief, until):
    blueprint(config={"capacity": {"slots": 4}})
    Quota.objects.create(user=bob, max_slots=3)
    Quota.objects.create(user=owner, max_leases=1)
    until(ask(by=bob, slots=2), state="active")
    lease = until(ask(slots=2), state="active")
    waits = ask()
    settle()
    with pytest.raises(Conflict, match="bob's quota is 3 slots: 2 held, 2 more requested") as refused:
        leases.transfer(chief, lease.pk, to="bob")
    assert refused.value.field == "to"
    with pytest.raises(Conflict, match="bob cannot take over lease") as refused:
        leases.transfer(caller(owner), lease.pk, to="bob")
    assert "slots" not in str(refused.value), "how much another holds is not theirs to know"
    assert unchanged(lease, owner)
    Quota.objects.filter(user=bob).update(max_slots=4)
    leases.transfer(caller(owner), lease.pk, to="bob")
    lease.refresh_from_db()
    assert lease.owner == bob
    release.release(lease.pk, actor="bob")
    until(waits, state="active")


def test_it_counts_against_the_budget_of_the_new_owner_from_then_on(blueprint, ask, owner, bob, chief, until):
    offers = [{"offer": "m", "price": 2.0}]
    blueprint(config={"offers": offers, "capacity": {"slots": 1}})
    lease = until(ask(), state="active")
    budget = Budget.objects.create(user=bob, max_hourly=1)
    with pytest.raises(Conflict, match="budget of bob is"):
        leases.transfer(chief, lease.pk, to="bob")
    with pytest.raises(Conflict, match="bob cannot take over lease"):
        leases.transfer(caller(owner), lease.pk, to="bob")
    assert unchanged(lease, owner)
    Budget.objects.filter(pk=budget.pk).update(max_hourly=2)
    leases.transfer(caller(owner), lease.pk, to="bob")
    spent = list(Usage.objects.filter(lease_id=lease.pk).order_by("started_at").values_list("owner", "ended_at"))
    assert [name for name, _ in spent] == ["ada", "bob"]
    assert [ended is None for _, ended in spent] == [False, True]


def test_the_new_owner_must_be_allowed_to_use_the_blueprint(blueprint, ask, owner, bob, chief, until):
    pool: Blueprint = blueprint(audience="authorized")
    Authorization.objects.create(blueprint=pool, user=owner, state="authorized")
    lease = until(ask(), state="active")
    with pytest.raises(NotAllowed, match="bob may not use pool"):
        leases.transfer(chief, lease.pk, to="bob")
    with pytest.raises(Conflict, match="bob cannot take over lease"):
        leases.transfer(caller(owner), lease.pk, to="bob")
    assert unchanged(lease, owner)
    Authorization.objects.create(blueprint=pool, user=bob, state="authorized")
    leases.transfer(caller(owner), lease.pk, to="bob")
    lease.refresh_from_db()
    assert lease.owner == bob


def test_a_name_that_the_new_owner_uses_is_not_used_twice(blueprint, ask, owner, bob, chief, until):
    blueprint(config={"capacity": {"slots": 2}})
    until(ask(by=bob, name="rig"), state="active")
    lease = until(ask(name="rig"), state="active")
    with pytest.raises(Conflict, match="already has the name 'rig'"):
        leases.transfer(chief, lease.pk, to="bob")
    with pytest.raises(Conflict, match="bob cannot take over lease"):
        leases.transfer(caller(owner), lease.pk, to="bob")
    assert unchanged(lease, owner)


def test_what_is_not_active_or_belongs_together_stays(blueprint, owner, bob, ask, until):
    blueprint(config={"capacity": {"slots": 2}})
    who = caller(owner)
    first, _ = leases.request_group(who, [{"type": "fake"}, {"type": "fake"}])
    with pytest.raises(Conflict, match="belongs to a group"):
        leases.transfer(who, until(Lease.objects.get(pk=first), state="active").pk, to="bob")
    ended = ask()
    release.release(ended.pk, actor="ada")
    with pytest.raises(Conflict, match="only active leases"):
        leases.transfer(who, until(ended, state="destroyed").pk, to="bob")
    with pytest.raises(Conflict, match="already belongs to this user"):
        leases.transfer(who, first, to="ada")


@pytest.mark.parametrize("to", ["nobody", "eve"])
def test_only_those_who_may_sign_in_are_given_leases(blueprint, ask, owner, until, to):
    blueprint()
    User.objects.create_user("eve", is_active=False)
    lease = until(ask(), state="active")
    with pytest.raises(InvalidRequest, match="only to members of your groups"):
        leases.transfer(caller(owner), lease.pk, to=to)
    assert unchanged(lease, owner)


def test_kinds_that_set_a_lease_up_must_know_how_to_hand_it_over(blueprint, ask, owner, bob, until):
    blueprint(kind="fake_activated", resource_type="fake_activated")
    lease = until(ask("fake_activated"), state="active")
    with pytest.raises(NotSupported, match="cannot be transferred"):
        leases.transfer(caller(owner), lease.pk, to="bob")
    assert unchanged(lease, owner)


def test_what_may_not_serve_another_owner_after_a_lease_is_not_transferred(
    blueprint, ask, owner, bob, until, monkeypatch
):
    blueprint()
    lease = until(ask(), state="active")
    monkeypatch.setattr(type(kind("fake")), "reusable", False)
    with pytest.raises(NotSupported, match="its present owner could keep access"):
        leases.transfer(caller(owner), lease.pk, to="bob")
    assert unchanged(lease, owner)


def test_of_two_transfers_at_the_same_time_the_second_finds_another_owner(blueprint, ask, owner, bob, until):
    blueprint()
    lease = until(ask(), state="active")
    carol = User.objects.create_user("carol")
    leases.transfer(caller(owner), lease.pk, to="bob")
    with pytest.raises(Conflict, match="meanwhile"):
        lease_phases.transfer(lease.pk, of=owner.pk, to=carol.pk, to_name="carol", actor="ada", message="")
    lease.refresh_from_db()
    assert lease.owner == bob


def test_neither_a_hold_nor_a_job_of_the_former_owner_goes_with_it(blueprint, ask, owner, bob, until):
    blueprint()
    lease = until(ask(), state="active")
    shape = lease.shape
    leases.hold(caller(owner), lease.pk, ttl="7d")
    job = Job.objects.create(lease=lease, command="spy", env={"TOKEN": "of ada"}, stdin="c3B5")
    leases.transfer(caller(owner), lease.pk, to="bob")
    lease.refresh_from_db()
    job.refresh_from_db()
    assert (lease.held, lease.hold_until) == (False, None)
    assert (job.state, job.env, job.stdin) == ("cancelled", None, None)
    assert lease.shape != shape, "one in its place waits among the leases of its owner"


def test_a_lease_that_a_job_ends_is_not_transferred(blueprint, ask, owner, bob, until):
    blueprint()
    lease = until(ask(), state="active")
    jobs.start(caller(owner), lease.pk, ["make"], ends_lease=True)
    with pytest.raises(Conflict, match="ends when a job"):
        leases.transfer(caller(owner), lease.pk, to="bob")
    assert unchanged(lease, owner)


def test_a_job_that_is_requested_while_its_lease_is_transferred_never_runs(
    blueprint, ask, owner, bob, until, monkeypatch
):
    blueprint()
    lease = until(ask(), state="active")
    who = caller(owner)
    monkeypatch.setattr(interfaces, "command", lambda *_: leases.transfer(who, lease.pk, to="bob"))
    with pytest.raises(NotFound):
        jobs.start(who, lease.pk, ["spy"])
    assert not Job.objects.exists()


def test_the_new_owner_works_on_it_only_when_the_former_one_is_out(blueprint, ask, owner, bob, until):
    blueprint()
    lease = until(ask(), state="active")
    leases.transfer(caller(owner), lease.pk, to="bob")
    command = interfaces.command(caller(bob), lease.pk)
    under_way = Run.objects.create(lease=lease, resource=lease.resource, phase="hand_over")
    with pytest.raises(Busy, match="being transferred"):
        command.run(["true"])
    under_way.delete()
    command.run(["true"])
