"""Cleaning apart from the lease: the lease ends after its deactivation, and the resource is leased again once clean."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import IntegrityError, transaction

from blueprints.answers import Failed, Ready, Scope
from blueprints.contract import Cleans, Step
from blueprints.fake.cloud import Cloud
from blueprints.fake.kind import Fake, FakeActivated
from blueprints.models import Blueprint
from drydock.core.errors import Conflict
from interfaces.errors import LeaseEnded
from leases.engine.core import specs
from leases.engine.lifecycle import release
from leases.engine.resources import eviction, retirement
from leases.engine.scheduling import request
from leases.engine.upkeep import pools, pruning
from leases.messaging.inline import settle
from leases.models import Budget, Debt, Event, Lease, Quota, Resource, Run, Share, Usage
from leases.operations import leases, resources
from leases.operations.callers import caller
from leases.reasons import Reason
from leases.validation.requests import read
from tests.leases import kinds

PAST = "2020-01-01T00:00Z"
LATER = 3600.0


class Slab(Fake, Cleans):
    """Has no account for each lease, and is cleaned in two steps, of which the second needs what the first found."""

    name = "slab"
    resource_type = "slab"

    def clean(self):
        return (Step(name="prepare", act=_prepare), Step(name="erase", act=_erase))

    def cleans_apart(self, config):
        return True


def _prepare(spec, memo):
    return Ready(facts={"task": 7}, secrets={"pin": "1234"})


def _erase(spec, memo):
    view = spec.lease
    if (view.facts.get("task"), view.secrets.get("pin"), view.parents) != (7, "1234", {}):
        return Failed(scope=Scope.OPERATOR, message=f"wrong view: {view.facts}", code="wrong")
    try:
        view.interface("command").run(["true"])
    except LeaseEnded:
        return Ready()
    return Failed(scope=Scope.OPERATOR, message="The interfaces of the ended lease still work.", code="wrong")


class Mortal(FakeActivated):
    """A machine that no other owner may use."""

    name = "mortal"
    resource_type = "mortal"
    reusable = False


@pytest.fixture(autouse=True)
def _kinds():
    with kinds.installed(Slab(), Mortal()):
        yield


@pytest.fixture
def cloud():
    return Cloud("t")


@pytest.fixture
def operator(django_user_model):
    return caller(django_user_model.objects.create_superuser("root"))


def config(*faults, **more):
    return {
        "provider": "t",
        "poll_seconds": LATER,
        "clean_apart": True,
        "clean_polls": 4,
        "faults": list(faults),
        **more,
    }


def broken(times=None, **more):
    return {"does": "fail", "at": "clean.wipe", "scope": "offer", "times": times, "message": "disk 2 is busy", **more}


@pytest.fixture
def pool(blueprint):
    """A blueprint whose resources are cleaned apart, in one poll that takes an hour."""

    def make(*faults, kind="fake_activated", max_resources=1, **more):
        columns = {name: more.pop(name) for name in ("idle_timeout", "min_ready") if name in more}
        return blueprint(kind=kind, config=config(*faults, **more), max_resources=max_resources, **columns)

    return make


@pytest.fixture
def racks(pool, operator, until):
    """Registered racks by name. No others are built."""

    def make(*names, faults=(), **more):
        made = pool(*faults, max_resources=len(names), **more)
        found = [resources.register(operator, made.name, {"name": name}).id for name in names]
        return [until(Resource.objects.get(pk=pk), state="active") for pk in found]

    return make


def ended(lease: Lease, cloud: Cloud) -> Lease:
    """Let the lease leave something, and release it. It has ended when this returns; its resource is not clean."""
    assert lease.resource is not None
    cloud.leave(specs.name_of(lease.resource), specs.key("l", lease.pk), "file")
    release.release(lease.pk, actor="ada")
    settle()
    lease.refresh_from_db()
    assert (lease.state, lease.reason) == ("destroyed", Reason.RETURNED), lease.message
    return lease


def poll() -> None:
    """Let the next poll of every cleaning be due."""
    Run.objects.filter(phase="clean").update(due_at=PAST)
    settle()


def cleaned() -> None:
    """Poll until every resource is clean."""
    for _ in range(10):
        if not Debt.objects.exists():
            break
        poll()
    assert not Debt.objects.exists()


def test_the_lease_ends_before_the_resource_is_clean_and_the_next_one_waits_for_that(pool, ask, until, cloud, operator):
    pool(clean_polls=4)
    lease = ended(until(ask("fake_activated"), state="active"), cloud)
    resource = Resource.objects.get()
    assert [one.what for one in cloud.left()] == ["file"], "deactivated, but not clean"
    assert (resource.in_maintenance, resource.claimable, resource.reason) == (True, False, Reason.CLEANING)
    assert (resource.state, resource.used_slots, Share.objects.count()) == ("active", 0, 0)
    run = Run.objects.get()
    assert (run.phase, run.lease_id, run.resource_id) == ("clean", None, resource.pk)
    following = ask("fake_activated")
    for percent in (25, 50, 75):
        poll()
        following.refresh_from_db()
        assert (following.state, Run.objects.get().percent) == ("pending", percent)
    poll()
    until(following, state="active", resource_id=resource.pk)
    assert not [one for one in cloud.left() if one.lease == specs.key("l", lease.pk)]
    assert not Debt.objects.exists()
    told = Event.objects.filter(resource=resource, lease=lease, kind__startswith="resource.").order_by("id")
    assert list(told.values_list("kind", flat=True)) == ["resource.owes", "resource.cleaning", "resource.cleaned"]


def test_a_kind_that_does_not_say_so_keeps_its_lease_until_it_is_clean(blueprint, ask, until):
    blueprint(kind="fake_activated", config={"provider": "t", "poll_seconds": LATER, "clean_polls": 2})
    lease = until(ask("fake_activated"), state="active")
    release.release(lease.pk, actor="ada")
    settle()
    lease.refresh_from_db()
    assert (lease.state, Run.objects.get().lease_id, Debt.objects.count()) == ("released", lease.pk, 0)


def test_quota_budget_and_usage_end_with_the_lease(pool, ask, until, cloud, owner):
    Quota.objects.create(user=owner, max_leases=1)
    Budget.objects.create(user=owner, max_hourly=2.0)
    pool(offers=[{"offer": "big", "price": 2.0}], max_resources=2)
    lease = ended(until(ask("fake_activated"), state="active"), cloud)
    (record,) = Usage.objects.filter(lease_id=lease.pk)
    assert record.ended_at is not None
    assert abs(record.ended_at - lease.ended_at) < dt.timedelta(seconds=5)
    other = until(ask("fake_activated"), state="active")
    assert other.resource_id != lease.resource_id
    assert Debt.objects.exists(), "the first is not clean yet"


def test_a_kind_without_activation_cleans_with_what_its_steps_find_out(blueprint, ask, until):
    blueprint(kind="slab", config={"provider": "t"}, max_resources=1)
    lease = until(ask("slab"), state="active")
    following = ask("slab")
    release.release(lease.pk, actor="ada")
    lease.refresh_from_db()
    assert (lease.state, Run.objects.get().phase) == ("destroyed", "clean"), "in the same transaction"
    until(following, state="active", resource_id=lease.resource_id)
    assert not Event.objects.filter(kind="resource.cleaning_failed").exists()
    assert Event.objects.filter(kind="resource.cleaned", lease=lease).exists()


def test_the_view_of_the_lease_is_frozen_at_its_end(pool, ask, until, cloud):
    pool()
    lease = until(ask("fake_activated"), state="active")
    lease = ended(lease, cloud)
    facts = dict(lease.facts)
    Lease.objects.filter(pk=lease.pk).update(facts={}, secrets={})
    debt = Debt.objects.select_related("lease__owner", "resource__blueprint").get()
    view = specs.owed_view(debt)
    assert (view.facts, view.secrets, view.owner) == (facts, lease.secrets, "ada")
    assert facts["user"] == f"fake-{lease.pk}"
    with pytest.raises(LeaseEnded):
        view.interface("command").run(["true"])


def test_the_database_refuses_a_share_of_something_that_must_be_cleaned(pool, ask, until, cloud):
    pool()
    lease = ended(until(ask("fake_activated"), state="active"), cloud)
    stranger = ask("fake_activated", name="stranger")
    with pytest.raises(IntegrityError, match="must be cleaned"), transaction.atomic():
        Share.objects.create(lease=stranger, resource=lease.resource, slots=1)


def test_a_failed_cleaning_is_repeated_with_growing_delays_until_it_succeeds(racks, ask, until, cloud, settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(
        update={"step_backoff_seconds": 1000.0, "step_backoff_limit_seconds": 100_000.0}
    )
    (rack,) = racks("rack-7", faults=[broken(times=3)], clean_polls=0)
    lease = ended(until(ask("fake_activated"), state="active"), cloud)
    waits = []
    for attempt in (1, 2, 3):
        settle()
        debt = Debt.objects.get()
        assert (debt.tries, debt.message) == (attempt, "clean.wipe: disk 2 is busy")
        assert not Run.objects.exists()
        waits.append((debt.due_at - dt.datetime.now(dt.UTC)).total_seconds())
        Debt.objects.update(due_at=PAST)
    assert [round(seconds, -3) for seconds in waits] == [1000, 2000, 4000]
    rack.refresh_from_db()
    assert (rack.in_maintenance, rack.quarantined, rack.claimable) == (True, False, False)
    assert rack.message.endswith("The last attempt failed: clean.wipe: disk 2 is busy")
    until(rack, in_maintenance=False, reason=Reason.READY, message="", claimable=True)
    assert Event.objects.filter(kind="resource.cleaning_failed", lease=lease).count() == 3
    assert not cloud.left()


def test_something_built_that_cannot_be_cleaned_is_replaced(pool, ask, until, cloud):
    pool(broken(), clean_polls=0)
    lease = ended(until(ask("fake_activated"), state="active"), cloud)
    until(lease.resource, state="destroyed")
    following = until(ask("fake_activated"), state="active")
    assert following.resource_id != lease.resource_id
    assert {one.lease for one in cloud.left()} == {specs.key("l", following.pk)}


def test_what_nobody_else_may_use_is_destroyed_and_not_cleaned(pool, ask, until, cloud):
    pool(kind="mortal")
    lease = ended(until(ask("mortal"), state="active"), cloud)
    until(lease.resource, state="destroyed")
    assert not Event.objects.filter(kind="resource.owes").exists()
    assert not cloud.left()


def test_a_failed_activation_is_cleaned_apart_while_the_lease_goes_elsewhere(racks, ask, until, cloud):
    fault = {"does": "fail", "at": "activate.access", "scope": "offer", "times": 1}
    first, second = racks("rack-1", "rack-2", faults=[fault])
    lease = until(ask("fake_activated"), state="active")
    left = Debt.objects.get()
    assert {left.resource_id, lease.resource_id} == {first.pk, second.pk}
    assert left.phase == "clean"
    cleaned()
    assert {one.lease for one in cloud.left()} == {specs.key("l", lease.pk)}


def test_members_of_a_group_end_together_and_each_resource_is_cleaned(racks, owner, ask, until, cloud):
    racks("rack-1", "rack-2")
    _, ids = request.request_group(
        [read({"type": "fake_activated"}), read({"type": "fake_activated"})], owner.pk, actor="ada"
    )
    members = [until(Lease.objects.get(pk=pk), state="active") for pk in ids]
    for one in members:
        ended(one, cloud)
    assert Debt.objects.count() == 2
    _, ids = request.request_group(
        [read({"type": "fake_activated"}), read({"type": "fake_activated"})], owner.pk, actor="ada"
    )
    settle()
    assert {Lease.objects.get(pk=pk).state for pk in ids} == {"pending"}
    cleaned()
    assert {until(Lease.objects.get(pk=pk), state="active").state for pk in ids} == {"active"}


def test_other_leases_on_a_shared_resource_go_on(racks, ask, until, cloud):
    (rack,) = racks("rack-7", capacity={"slots": 2})
    stays, leaves = (until(ask("fake_activated"), state="active") for _ in range(2))
    ended(leaves, cloud)
    stays.refresh_from_db()
    rack.refresh_from_db()
    assert (stays.state, rack.used_slots, rack.claimable) == ("active", 1, False)
    third = ask("fake_activated")
    settle()
    third.refresh_from_db()
    assert third.state == "pending"
    ended(stays, cloud)
    assert Debt.objects.count() == 2
    cleaned()
    until(third, state="active")
    assert not Debt.objects.exists()


def test_an_ended_lease_is_not_pruned_before_its_resource_is_clean(pool, ask, until, cloud):
    pool()
    lease = ended(until(ask("fake_activated"), state="active"), cloud)
    Lease.objects.update(created_at=PAST, ended_at=PAST)
    walk = pruning.Walk(model=Lease, over=pruning.WALKS[0].over, with_it=pruning.WALKS[0].with_it, column="lease_id")
    assert walk.go_on() == 0
    cleaned()
    walk = pruning.Walk(model=Lease, over=pruning.WALKS[0].over, with_it=pruning.WALKS[0].with_it, column="lease_id")
    assert walk.go_on() == 1
    assert not Lease.objects.filter(pk=lease.pk).exists()


def test_a_cleaning_whose_worker_died_goes_on_elsewhere(pool, ask, until, cloud):
    pool()
    lease = ended(until(ask("fake_activated"), state="active"), cloud)
    dead = "00000000-0000-4000-8000-000000000000"
    Run.objects.update(token=dead, token_until=PAST, in_call=True, due_at=PAST)
    cleaned()
    until(lease.resource, in_maintenance=False)
    assert not cloud.left()


def test_a_cleaning_that_lost_its_run_is_started_again(pool, ask, until, cloud):
    """As after a restore, or if a run was removed by hand."""
    pool()
    lease = ended(until(ask("fake_activated"), state="active"), cloud)
    Run.objects.all().delete()
    settle()
    assert Run.objects.get().phase == "clean"
    Resource.objects.update(in_maintenance=True)
    cleaned()
    until(lease.resource, in_maintenance=False)
    assert not cloud.left()


def test_a_check_that_runs_at_the_end_of_the_lease_delays_the_cleaning_only(pool, ask, until, cloud):
    pool({"does": "slow", "at": "check.look", "polls": 1, "after": LATER})
    lease = until(ask("fake_activated"), state="active")
    with transaction.atomic():
        Run.objects.create(resource=lease.resource, phase="check")
    settle()
    ended(lease, cloud)
    assert Run.objects.get().phase == "check"
    assert Debt.objects.get().tries == 0
    Run.objects.update(due_at=PAST)
    settle()
    settle()
    assert Run.objects.get().phase == "clean"


@pytest.mark.parametrize("column", ["drained", "dies_at"])
def test_something_built_that_must_go_is_destroyed_without_being_cleaned(pool, ask, until, cloud, operator, column):
    pool()
    lease = ended(until(ask("fake_activated"), state="active"), cloud)
    if column == "drained":
        resources.drain(operator, lease.resource_id)
    else:
        Resource.objects.update(dies_at=PAST)
    until(lease.resource, state="destroyed")
    assert not Event.objects.filter(kind="resource.cleaned").exists()
    assert (Debt.objects.count(), Run.objects.count(), cloud.left()) == (0, 0, [])


def test_a_drained_blueprint_and_a_retirement_do_not_wait_for_the_cleaning(pool, ask, until, cloud, operator):
    made = pool(max_resources=2)
    first, second = (until(ask("fake_activated"), state="active") for _ in range(2))
    ended(first, cloud)
    resources.retire(operator, first.resource_id)
    until(first.resource, state="destroyed")
    ended(second, cloud)
    Blueprint.objects.filter(pk=made.pk).update(drained=True)
    until(second.resource, state="destroyed")
    assert not cloud.left()


def test_idleness_begins_when_the_resource_is_clean(pool, ask, until, cloud):
    pool(idle_timeout=dt.timedelta(minutes=10))
    lease = ended(until(ask("fake_activated"), state="active"), cloud)
    Resource.objects.update(idle_since=PAST)
    settle()
    assert Resource.objects.get().state == "active", "no idle resource is destroyed while it is cleaned"
    cleaned()
    until(lease.resource, in_maintenance=False)
    settle()
    assert Resource.objects.get().state == "active"


def test_a_registered_resource_is_handed_back_only_once_it_is_clean(racks, ask, until, cloud, operator):
    (rack,) = racks("rack-7")
    ended(until(ask("fake_activated"), state="active"), cloud)
    with pytest.raises(Conflict, match="must be cleaned after lease"):
        resources.retire(operator, rack.pk)
    assert not retirement.retire_idle(rack.pk, reason=Reason.LOST, message="missed")
    assert Run.objects.get().phase == "clean"
    cleaned()
    resources.retire(operator, rack.pk)
    until(rack, state="destroyed")
    assert Event.objects.filter(kind="resource.cleaned").exists()


def test_a_resource_that_can_never_be_cleaned_can_be_written_off(racks, ask, until, cloud, operator):
    (rack,) = racks("rack-7", faults=[broken()])
    ended(until(ask("fake_activated"), state="active"), cloud)
    resources.force_destroy(operator, rack.pk, reason="sold")
    rack.refresh_from_db()
    assert rack.gone_at is not None
    assert (Debt.objects.count(), Run.objects.count()) == (0, 0)


def test_quarantine_and_its_end_do_not_disturb_the_cleaning(racks, ask, until, cloud, operator):
    (rack,) = racks("rack-7")
    ended(until(ask("fake_activated"), state="active"), cloud)
    resources.quarantine(operator, rack.pk, message="look at the fans")
    settle()
    assert Run.objects.get().phase == "clean"
    resources.unquarantine(operator, rack.pk)
    following = ask("fake_activated")
    settle()
    following.refresh_from_db()
    assert following.state == "pending"
    resources.quarantine(operator, rack.pk, message="look at the fans")
    cleaned()
    until(rack, in_maintenance=False, quarantined=True, note="look at the fans")
    resources.unquarantine(operator, rack.pk)
    until(following, state="active")


def test_a_lost_lease_on_a_resource_that_is_cleaned_apart_is_cleaned_too(racks, ask, until, cloud, operator):
    (rack,) = racks("rack-7", clean_polls=0)
    lease = until(ask("fake_activated"), state="active")
    eviction.orphan(lease.pk, message="lost")
    debt = Debt.objects.get()
    assert (debt.phase, debt.apart) == ("deactivate", True)
    with pytest.raises(Conflict):
        resources.retire(operator, rack.pk)
    until(rack, in_maintenance=False)
    assert not cloud.left()


def test_a_silent_resource_is_cleaned_when_it_answers_again(racks, ask, until, cloud):
    (rack,) = racks("rack-7", clean_polls=0)
    lease = until(ask("fake_activated"), state="active")
    Blueprint.objects.update(config=config({"does": "slow", "at": "clean.wipe", "polls": 1, "after": LATER}))
    ended(lease, cloud)
    cloud.cut_off(specs.name_of(rack))
    poll()
    rack.refresh_from_db()
    assert rack.suspect_since is not None
    assert Debt.objects.get().tries == 1
    cloud.connect(specs.name_of(rack))
    Blueprint.objects.update(config=config(clean_polls=0))
    Resource.objects.update(check_at=PAST)
    until(rack, in_maintenance=False, suspect_since=None)
    assert not cloud.left()


@pytest.mark.parametrize("first", ["whole", "part"])
def test_a_part_that_must_be_cleaned_and_its_whole_exclude_each_other(racks, ask, until, cloud, operator, first):
    whole, part = racks("whole", "part", capacity={"slots": 1})
    for rack in (whole, part):
        Resource.objects.filter(pk=rack.pk).update(attributes={"color": rack.name})
    Resource.objects.filter(pk=part.pk).update(part_of=whole.pk)
    second = {"whole": "part", "part": "whole"}[first]
    ended(until(ask("fake_activated", requirements={"color": first}), state="active"), cloud)
    following = ask("fake_activated", requirements={"color": second}, exclusive=True)
    settle()
    following.refresh_from_db()
    assert following.state == "pending"
    (verdict,) = leases.get(operator, following.pk).verdicts
    assert "is in maintenance" in verdict.sentence
    cleaned()
    until(following, state="active")


def test_nothing_is_updated_while_a_part_of_it_must_be_cleaned(racks, ask, until, cloud):
    whole, part = racks("rack-1", "rack-2", capacity={"slots": 1})
    Resource.objects.filter(pk=part.pk).update(part_of=whole.pk)
    Debt.objects.create(resource=part, lease=_ended_lease(ask), phase="clean", apart=True, due_at="2100-01-01T00:00Z")
    Blueprint.objects.update(generation=2)
    with transaction.atomic():
        assert not retirement.begin_update(whole.pk)
    Debt.objects.all().delete()
    with transaction.atomic():
        assert retirement.begin_update(whole.pk)


def _ended_lease(ask) -> Lease:
    lease = ask("fake_activated", exclusive=True)
    release.release(lease.pk, actor="ada")
    settle()
    cleaned()
    return Lease.objects.get(pk=lease.pk)


def test_many_cleanings_at_once_delay_no_check_of_other_resources(pool):
    made = pool(max_resources=None)
    Blueprint.objects.filter(pk=made.pk).update(check_interval=dt.timedelta(minutes=1))
    given = {"blueprint": made, "type": made.resource_type, "state": "active"}
    unclean = Resource.objects.bulk_create(Resource(**given, check_at=PAST) for _ in range(200))
    Run.objects.bulk_create(Run(resource=one, phase="clean", due_at=None) for one in unclean)
    other = Resource.objects.create(**given, check_at="2020-01-01T00:01Z")
    assert pools.check_due() == 1
    assert Run.objects.get(phase="check").resource_id == other.pk


def test_a_check_tries_again_at_once_only_if_somebody_asked_for_it(racks, ask, until, cloud, operator):
    (rack,) = racks("rack-7", faults=[broken(times=1)], clean_polls=0)
    ended(until(ask("fake_activated"), state="active"), cloud)
    Run.objects.all().delete()
    Debt.objects.update(due_at="2100-01-01T00:00Z", tries=1)
    Blueprint.objects.update(check_interval=dt.timedelta(days=1))
    Resource.objects.update(check_at=PAST)
    settle()
    assert Event.objects.filter(kind="step.done", resource=rack, message="check: look").exists()
    assert Debt.objects.get().due_at.year == 2100, "a routine check keeps the delay"
    resources.check(operator, rack.pk)
    until(rack, in_maintenance=False)
