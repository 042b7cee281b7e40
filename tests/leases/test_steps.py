"""The step runner on the fake kind: every answer, every fault, and what follows."""

from __future__ import annotations

import pytest

from blueprints.fake.cloud import Cloud
from blueprints.models import RememberedError
from drydock.core.errors import Conflict
from leases.engine.lifecycle import release, runner
from leases.engine.resources import retirement
from leases.messaging.inline import settle
from leases.models import Event, Lease, Resource, Run, Share, SlotLock
from leases.operations import installation
from leases.operations.callers import caller
from leases.reasons import Reason


def faulty(*faults, **config):
    return {"provider": "t", "poll_seconds": 0.01, "faults": list(faults), **config}


@pytest.fixture
def cloud():
    return Cloud("t")


@pytest.fixture
def root(django_user_model):
    return caller(django_user_model.objects.create_superuser("root"))


def left(cloud: Cloud) -> list[str]:
    return [one.key for one in cloud.instances()]


def test_a_build_with_waits_shows_its_percent_and_ends(blueprint, ask, until, cloud):
    blueprint(config=faulty(boot_polls=3, poll_seconds=30))
    lease = ask()
    settle()
    run = Run.objects.get()
    assert (run.phase, run.step) == ("build", "boot")
    assert run.percent is not None
    Run.objects.update(due_at="2020-01-01T00:00Z")
    settle()
    assert Run.objects.get().percent > run.percent
    while Run.objects.filter(phase="build").update(due_at="2020-01-01T00:00Z"):
        settle()
    until(lease, state="active")


@pytest.mark.parametrize("happened", [True, False])
def test_a_lost_answer_is_looked_for_and_never_repeated_blindly(blueprint, ask, until, cloud, happened):
    blueprint(config=faulty({"does": "lose", "at": "create", "happened": happened}))
    until(ask(), state="active")
    assert [one.created for one in cloud.instances()] == [1]


def test_a_failing_step_is_tried_again_and_succeeds(blueprint, ask, until):
    blueprint(config=faulty({"does": "fail", "at": "build.verify", "scope": "step", "times": 2}))
    lease = until(ask(), state="active")
    assert Event.objects.filter(kind="step.failed", resource=lease.resource).count() == 2


def test_a_refused_offer_is_remembered_and_the_next_one_built(blueprint, ask, until, cloud):
    offers = [{"offer": "small", "zone": "n"}, {"offer": "big", "zone": "s"}]
    blueprint(
        config=faulty(
            {"does": "refuse", "at": "create", "scope": "offer", "offers": "small", "times": None}, offers=offers
        )
    )
    lease = until(ask(), state="active")
    assert lease.resource.offer == "big"
    error = RememberedError.objects.get()
    assert (error.scope, error.key, error.code) == ("offer", "small", "capacity")
    broken = Resource.objects.get(state="broken")
    assert "Build failed" in broken.message
    assert broken.gone_at is not None
    assert len(left(cloud)) == 1


def test_a_zone_that_is_out_rules_out_its_other_offers(blueprint, ask, until):
    offers = [{"offer": "a", "zone": "n"}, {"offer": "b", "zone": "n"}, {"offer": "c", "zone": "s"}]
    blueprint(
        config=faulty({"does": "refuse", "at": "create", "scope": "zone", "offers": "a", "times": None}, offers=offers)
    )
    assert until(ask(), state="active").resource.offer == "c"
    assert Resource.objects.count() == 2


@pytest.mark.parametrize("scope", ["blueprint", "operator"])
def test_a_failing_blueprint_gives_way_to_the_next(blueprint, ask, until, scope):
    blueprint("first", config=faulty({"does": "fail", "at": "create", "scope": scope, "times": None}), order=1)
    blueprint("second", order=2)
    lease = until(ask(), state="active")
    assert lease.resource.blueprint.name == "second"
    assert RememberedError.objects.get().until is None or scope == "blueprint"
    assert [v["answer"] for v in lease.verdicts] == ["wait", "build"]


def test_when_nothing_is_left_to_try_it_waits_and_says_what_failed(blueprint, ask, until):
    blueprint(
        config=faulty({"does": "fail", "at": "create", "scope": "blueprint", "times": None, "message": "no stock"})
    )
    lease = until(ask(), state="pending", reason=Reason.WAITING_OFFER)
    assert "no stock" in lease.message
    assert lease.due_at is not None


def test_a_step_that_never_works_is_given_up_after_a_bounded_number_of_tries(blueprint, ask, until, cloud, settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"step_retry_limit": 3})
    blueprint(config=faulty({"does": "fail", "at": "build.verify", "scope": "step", "times": None}))
    lease = until(ask(), state="pending", reason=Reason.WAITING_OFFER)
    assert cloud.count("create") == 1
    until(Resource.objects.get(), state="broken")
    assert not left(cloud)
    assert lease.bounces == 1


def test_a_hold_waits_for_a_person(blueprint, ask, until, cloud):
    blueprint(config=faulty({"does": "hold", "at": "create", "who": "operator", "what": "plug it in"}))
    lease = ask()
    settle()
    run = Run.objects.get()
    assert (run.waits_for, run.hold_who, run.sentence) == ("operator", "operator", "plug it in")
    cloud.resolve()
    Run.objects.update(due_at="2020-01-01T00:00Z", waits_for="")
    until(lease, state="active")


QUESTION = {"does": "hold", "at": "build.boot", "who": "ops", "what": "Erase it?", "resolved_by": "operator"}


def test_the_operators_answer_and_the_memo_reach_the_held_step(blueprint, ask, until, root):
    blueprint(config=faulty(QUESTION))
    lease = ask()
    settle()
    run = Run.objects.get()
    assert (run.waits_for, run.sentence, run.resolution) == ("operator", "Erase it?", None)
    assert run.memo
    installation.resolve(root, resource_id=run.resource_id, message="it is empty")
    until(lease, state="active")
    event = Event.objects.get(kind="step.resolved")
    assert event.message == "Answered yes (it is empty): Erase it?"
    assert (event.actor, event.details) == ("root", {"yes": True, "text": "it is empty"})
    assert not Run.objects.exists()


def test_no_reaches_the_held_step(blueprint, ask, until, root):
    blueprint(config=faulty(QUESTION))
    lease = ask()
    settle()
    installation.resolve(root, resource_id=Run.objects.get().resource_id, yes=False, message="it is in use")
    lease = until(lease, state="pending", reason=Reason.NEEDS_OPERATOR)
    assert "root answered no: it is in use" in lease.message
    assert Event.objects.get(kind="step.resolved").message == "Answered no (it is in use): Erase it?"


class _Died(BaseException):
    """The end of a worker."""


def _die_when_called(name: str) -> None:
    if name == "run.called":
        raise _Died


def test_an_answer_outlives_a_worker_that_dies_and_answers_no_other_question(blueprint, ask, root, monkeypatch):
    blueprint(config=faulty(QUESTION, QUESTION | {"name": "second", "what": "Flash it?", "times": None}))
    ask()
    settle()
    run = Run.objects.get()
    installation.resolve(root, resource_id=run.resource_id)
    with pytest.raises(Conflict):
        installation.resolve(root, resource_id=run.resource_id)
    with monkeypatch.context() as patch:
        patch.setattr(runner, "failpoint", _die_when_called)
        with pytest.raises(_Died):
            runner.carry_on(run.pk)
    run.refresh_from_db()
    assert run.resolution == {"yes": True, "text": "", "actor": "root"}
    Run.objects.update(token_until="2020-01-01T00:00Z")
    settle()
    run.refresh_from_db()
    assert (run.waits_for, run.sentence, run.resolution) == ("operator", "Flash it?", None)


def test_a_build_that_needs_leases_gets_them_and_gives_them_back_at_its_end(blueprint, ask, until):
    blueprint("below", kind="fake_activated", config={"capacity": {"slots": 4}})
    needs = [
        {"name": "host", "type": "fake_activated"},
        {"name": "disk", "type": "fake_activated", "same_resource_as": "host"},
    ]
    blueprint("above", config=faulty({"does": "need_leases", "at": "build.verify", "leases": needs}))
    lease = until(ask(), state="active")
    held = Lease.objects.filter(for_resource=lease.resource)
    assert sorted(held.values_list("need", "state")) == [("disk", "active"), ("host", "active")]
    assert len({h.resource_id for h in held}) == 1
    assert {h.rank for h in held} == {lease.rank}
    release.release(lease.pk, actor="ada")
    retirement.retire_idle(lease.resource_id, reason=Reason.OPERATOR, message="enough")
    until(lease.resource, state="destroyed")
    settle()
    assert not Share.objects.exists()
    assert set(Lease.objects.values_list("state", flat=True)) == {"destroyed"}


def test_a_lease_needed_for_a_phase_ends_with_it(blueprint, ask, until):
    blueprint("below", kind="fake_activated")
    needs = [{"name": "helper", "type": "fake_activated", "lifetime": "phase"}]
    blueprint("above", config=faulty({"does": "need_leases", "at": "build.verify", "leases": needs}))
    until(ask(), state="active")
    settle()
    assert Lease.objects.get(need="helper").state == "destroyed"


def test_what_a_build_needs_but_cannot_be_had_fails_it_with_the_reason(blueprint, ask, until):
    blueprint("below", kind="fake_activated", config={"capacity": {"slots": 1}})
    needs = [{"name": "host", "type": "fake_activated", "amounts": {"slots": 5}}]
    blueprint("above", config=faulty({"does": "need_leases", "at": "build.verify", "leases": needs}))
    ask()
    settle()
    assert "cannot be granted" in until(Resource.objects.filter(type="fake").first(), state="broken").message


def test_slot_locks_are_given_once(blueprint, ask, until):
    locks = [{"name": "port", "scope": "host/a", "candidates": ["1", "2"]}]
    blueprint(config=faulty({"does": "need_locks", "at": "build.verify", "locks": locks}), max_resources=3)
    first, second = until(ask(), state="active"), until(ask(), state="active")
    assert sorted(SlotLock.objects.values_list("value", flat=True)) == ["1", "2"]
    third = until(ask(), state="pending", reason=Reason.WAITING_OFFER)
    assert "are in use" in third.message
    assert first.resource_id != second.resource_id


def test_a_dead_resource_is_found_taken_out_and_its_lease_served_again(blueprint, ask, until, cloud):
    import datetime as dt

    blueprint(config=faulty(), check_interval=dt.timedelta(milliseconds=10))
    lease = until(ask(serve_again=True), state="active")
    dead = lease.resource
    cloud.kill(cloud.instances()[0].key)
    until(dead, state="broken")
    lease.refresh_from_db()
    assert (lease.state, lease.reason) == ("broken", Reason.UNHEALTHY)
    assert lease.replaced_by is not None
    until(lease.replaced_by, state="active")
    assert lease.replaced_by.resource_id != dead.pk


def test_cancelling_while_it_is_built_leaves_nothing(blueprint, ask, until, cloud):
    blueprint(config=faulty(boot_polls=50, poll_seconds=5))
    lease = ask()
    settle()
    assert left(cloud)
    release.release(lease.pk, actor="ada")
    until(lease, state="destroyed")
    until(Resource.objects.get(), state="destroyed")
    assert not left(cloud)
    assert not Run.objects.exists()


def test_an_uninterruptible_step_ends_before_the_cancel_is_honoured(blueprint, ask, until, cloud):
    blueprint(config=faulty(flash_polls=2, poll_seconds=60))
    lease = ask()
    settle()
    release.release(lease.pk, actor="ada")
    settle()
    run = Run.objects.get()
    assert (run.step, run.cancel_wanted, run.uninterruptible) == ("flash", True, True)
    while Run.objects.filter(step="flash").update(due_at="2020-01-01T00:00Z"):
        settle()
    until(Resource.objects.get(), state="destroyed")
    assert cloud.count("boot") == 0


def test_an_activation_that_fails_is_undone_and_tried_elsewhere_then_given_up(blueprint, ask, until, cloud, settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"step_retry_limit": 2, "bounce_limit": 1})
    blueprint(
        kind="fake_activated",
        config=faulty({"does": "fail", "at": "activate.access", "scope": "step", "times": None}),
        max_resources=1,
    )
    lease = until(ask("fake_activated"), state="broken")
    assert "Could not be set up" in lease.message
    assert not cloud.left()
    assert not Share.objects.exists()


def test_what_cannot_be_cleaned_goes_to_nobody_else(blueprint, ask, until, settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"step_retry_limit": 2})
    blueprint(
        kind="fake_activated", config=faulty({"does": "fail", "at": "clean.wipe", "scope": "step", "times": None})
    )
    lease = until(ask("fake_activated"), state="active")
    release.release(lease.pk, actor="ada")
    until(lease, state="destroyed")
    until(lease.resource, state="destroyed", drained=True)
    assert "Could not be cleaned" in lease.resource.note


def test_a_delete_is_repeated_until_the_absence_is_confirmed(blueprint, ask, until, cloud):
    blueprint(
        config=faulty({"does": "fail", "at": "destroy.delete", "scope": "blueprint", "times": 12}, destroy_polls=2)
    )
    lease = until(ask(), state="active")
    release.release(lease.pk, actor="ada")
    retirement.retire_idle(lease.resource_id, reason=Reason.OPERATOR, message="enough")
    until(lease.resource, state="destroyed")
    assert cloud.is_empty()


def test_a_neighbour_is_drained_for_maintenance_and_given_back(blueprint, ask, until):
    blueprint("below", kind="fake_activated", config={"capacity": {"slots": 2}}, max_resources=1)
    needs = {"does": "need_leases", "at": "build.create", "leases": [{"name": "host", "type": "fake_activated"}]}
    alone = {"does": "need_maintenance", "at": "build.verify", "relation": "host", "action": "alone"}
    blueprint("above", config=faulty(needs, alone))
    other = until(ask("fake_activated"), state="active")
    lease = ask()
    settle()
    run = Run.objects.get(phase="build")
    assert run.waits_for == "maintenance"
    assert Event.objects.filter(lease=other, kind="lease.maintenance").exists()
    late = ask("fake_activated")
    settle()
    late.refresh_from_db()
    assert late.state == "pending"
    release.release(other.pk, actor="ada")
    until(lease, state="active")
    until(late, state="active")


def test_one_power_cycle_serves_all_who_asked(blueprint, ask, until, cloud):
    blueprint("below", kind="fake_activated", config=faulty(capacity={"slots": 4}), max_resources=1)
    needs = {"does": "need_leases", "at": "build.create", "leases": [{"name": "host", "type": "fake_activated"}]}
    cycle = {"does": "need_maintenance", "at": "build.verify", "relation": "host", "action": "power_cycle"}
    blueprint("above", config={"provider": "u", "poll_seconds": 0.01, "faults": [needs, cycle]})
    leases = [ask(), ask()]
    for lease in leases:
        until(lease, state="active")
    (host,) = [one for one in cloud.instances()]
    assert 1 <= host.cycles <= 2


def test_a_step_that_ends_its_phase_leaves_the_following_steps_uncalled(blueprint, ask, until, cloud):
    """The engine must not call `verify`, which would fail for good."""
    ends = {"does": "ends_phase", "at": "build.boot"}
    blueprint(config=faulty(ends, {"does": "fail", "at": "build.verify", "times": None}))
    lease = until(ask(), state="active")
    done = Event.objects.filter(kind="step.done", resource=lease.resource).values_list("message", flat=True)
    assert [one for one in done if one.startswith("build")][-1] == "build: boot"
