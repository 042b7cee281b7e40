"""Runs that must get out of every state: deadlines, cancels at any moment, answers that cannot be kept."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import transaction

from blueprints import registry
from blueprints.answers import Failed, Ready, Scope
from blueprints.contract import Step
from blueprints.fake.cloud import Cloud
from blueprints.fake.kind import Fake
from drydock.core import clock
from leases.engine.core import database
from leases.engine.lifecycle import release
from leases.engine.resources import retirement
from leases.messaging.inline import settle
from leases.models import Event, Lease, Resource, Run
from leases.reasons import Reason

LONG_AGO = "2020-01-01T00:00Z"


def faulty(*faults, **config):
    return {"provider": "t", "poll_seconds": 0.01, "faults": list(faults), **config}


@pytest.fixture
def cloud():
    return Cloud("t")


@pytest.fixture
def kind():
    """Make a kind known for this test."""
    added = []

    def add(new):
        registry.register(new)
        added.append(new.name)

    yield add
    for name in added:
        registry._registered.pop(name, None)
    registry.forget()


@pytest.fixture
def during_call():
    """Do something while a kind's call is under way."""

    def arrange(step, act):
        def at(name):
            if name == "run.called" and Run.objects.filter(step="", position=step).exists():
                database.hook(None)
                act()

        database.hook(at)

    yield arrange
    database.hook(None)


def late():
    return Run.objects.exclude(step_since=None).update(step_since=LONG_AGO)


def test_a_destruction_that_is_later_than_its_deadline_goes_on_until_it_is_confirmed(blueprint, ask, until, cloud):
    blueprint(config=faulty(destroy_polls=3, poll_seconds=60))
    lease = until(ask(), state="active")
    release.release(lease.pk, actor="ada")
    retirement.retire_idle(lease.resource_id, reason=Reason.OPERATOR, message="enough")
    settle()
    assert Run.objects.get().step == "confirm"
    for _ in range(8):
        late()
        Run.objects.update(due_at=LONG_AGO)
        settle()
    until(lease.resource, state="destroyed")
    assert cloud.is_empty()


def test_a_delete_that_had_no_effect_is_sent_again(blueprint, ask, until, cloud, monkeypatch):
    blueprint(config=faulty(destroy_polls=1))
    lease = until(ask(), state="active")
    release.release(lease.pk, actor="ada")
    fault = {"does": "fail", "at": "destroy.confirm", "scope": "offer", "times": 2}
    type(lease.resource.blueprint).objects.update(config=faulty(fault, destroy_polls=1))
    retirement.retire_idle(lease.resource_id, reason=Reason.OPERATOR, message="enough")
    until(lease.resource, state="destroyed")
    assert cloud.count("delete") >= 3


def test_time_without_a_worker_before_the_first_call_does_not_count_against_its_deadline(blueprint, ask, until):
    blueprint(config=faulty())
    lease = ask()
    from leases.engine.queue import serve

    serve.serve("fake")
    assert late() == 0
    until(lease, state="active")


def test_a_poll_that_comes_late_is_asked_before_it_is_given_up(blueprint, ask, until):
    blueprint(config=faulty(boot_polls=2, poll_seconds=60))
    lease = ask()
    settle()
    assert Run.objects.get().step == "boot"
    late()
    Run.objects.update(due_at=LONG_AGO)
    until(lease, state="active")


def test_waiting_for_a_needed_lease_does_not_count_against_the_step_s_deadline(blueprint, ask, until):
    blueprint("below", kind="fake_activated", max_resources=1)
    needs = {"does": "need_leases", "at": "build.create", "leases": [{"name": "host", "type": "fake_activated"}]}
    blueprint("above", config=faulty(needs))
    other = until(ask("fake_activated"), state="active")
    lease = ask()
    settle()
    assert Run.objects.get(phase="build").waits_for == "leases"
    late()
    release.release(other.pk, actor="ada")
    until(lease, state="active")
    assert not Resource.objects.filter(state="broken").exists()


@pytest.mark.parametrize(
    "fault",
    [
        {"does": "hold", "at": "build.create", "what": "plug it in"},
        {"does": "need_leases", "at": "build.create", "leases": [{"name": "host", "type": "fake_activated"}]},
        {"does": "slow", "at": "build.create", "polls": 3, "after": 3000},
    ],
)
def test_a_cancel_during_the_call_that_begins_to_wait_is_honoured(blueprint, ask, until, during_call, fault):
    blueprint("below", kind="fake_activated", max_resources=0)
    blueprint(config=faulty(fault))
    lease = ask()
    during_call(1, lambda: release.release(lease.pk, actor="ada"))
    settle()
    until(lease, state="destroyed")
    until(Resource.objects.get(), state="destroyed")
    assert not Run.objects.exists()


def test_an_uninterruptible_call_whose_worker_died_is_not_cut_off(blueprint, ask, until, cloud):
    blueprint(config=faulty(flash_polls=4, poll_seconds=60))
    lease = ask()

    class Death(BaseException):
        pass

    def die(name):
        if name == "run.called" and Run.objects.filter(position=2, token__isnull=False).exists():
            database.hook(None)
            raise Death

    database.hook(die)
    with pytest.raises(Death):
        settle()
    database.hook(None)
    release.release(lease.pk, actor="ada")
    Run.objects.update(token_until=LONG_AGO)
    settle()
    run = Run.objects.get()
    assert (run.phase, run.step, run.cancel_wanted) == ("build", "flash", True)
    while Run.objects.filter(step="flash").update(due_at=LONG_AGO):
        settle()
    until(Resource.objects.get(), state="destroyed")


def test_what_a_step_needs_of_a_type_that_no_blueprint_gives_fails_its_build(blueprint, ask, until):
    needs = {"does": "need_leases", "at": "build.create", "leases": [{"name": "host", "type": "fake_activated"}]}
    blueprint("above", config=faulty(needs))
    ask()
    settle()
    assert "No blueprint provides" in until(Resource.objects.first(), state="broken").message


class Odd(Fake):
    """Its answers cannot be written."""

    name = "odd"
    resource_type = "odd"
    facts = {"said": "a\0b"}

    def build(self):
        return (Step(name="say", act=lambda spec, memo: Ready(facts=self.facts)),)


def test_an_answer_that_the_database_refuses_fails_the_phase_after_bounded_tries(blueprint, ask, until, kind, settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"step_retry_limit": 2})
    kind(Odd())
    blueprint(kind="odd")
    ask("odd")
    settle()
    assert "could not be stored" in until(Resource.objects.first(), state="broken").message


class Chatty(Fake):
    name = "chatty"
    resource_type = "chatty"

    def build(self):
        return (Step(name="say", act=lambda spec, memo: Ready(log="a\0b")),)


def test_a_log_with_a_zero_byte_is_no_failure(blueprint, ask, until, kind):
    kind(Chatty())
    blueprint(kind="chatty")
    until(ask("chatty"), state="active")
    assert Event.objects.get(kind="step.log").message == "ab"


class Hasty(Fake):
    """Its look for what it made fails, and it answers so."""

    name = "hasty"
    resource_type = "hasty"
    made: list[str] = []

    def build(self):
        return (Step(name="make", act=self.make, find=self.find),)

    def make(self, spec, memo):
        self.made.append(spec.key)
        raise TimeoutError

    def find(self, spec, memo):
        self.made.append("looked")
        return Ready() if self.made.count("looked") > 1 else Failed(scope=Scope.STEP, message="API is down")


def test_a_look_that_fails_is_no_leave_to_act_again(blueprint, ask, until, kind):
    Hasty.made.clear()
    kind(Hasty())
    blueprint(kind="hasty")
    until(ask("hasty"), state="active")
    assert [one for one in Hasty.made if one != "looked"] == [Hasty.made[0]]


def test_a_resource_that_we_switched_off_is_not_dead(blueprint, ask, until, cloud, settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"step_retry_limit": 1})
    blueprint(config=faulty(), check_interval=dt.timedelta(milliseconds=1))
    lease = until(ask(), state="active")
    Resource.objects.update(power_wanted="off", power="off")
    cloud.kill(cloud.instances()[0].key)
    for _ in range(8):
        Resource.objects.update(check_at=LONG_AGO)
        settle()
    lease.refresh_from_db()
    assert lease.state == "active"


@pytest.mark.parametrize("hours", [-1, 1])
def test_a_worker_whose_clock_is_wrong_works_like_any_other(blueprint, ask, until, monkeypatch, hours):
    right = clock.now
    blueprint(config=faulty({"does": "fail", "at": "build.verify", "scope": "step", "times": 1}, boot_polls=1))
    lease = ask()
    settle()
    monkeypatch.setattr(clock, "now", lambda: right() + dt.timedelta(hours=hours))
    until(lease, state="active")


def test_a_kind_that_is_not_installed_here_fails_nothing_and_stops_nobody(blueprint, ask, until, kind, swallowed):
    kind(Odd())
    Odd.facts = {}
    blueprint("odd", kind="odd", config=faulty(boot_polls=1), min_ready=1)
    other = blueprint("other", kind="fake")
    lost = ask("odd")
    settle()
    lost.refresh_from_db()
    assert lost.state == "active"
    type(other).objects.filter(name="odd").update(
        generation=2, check_interval=dt.timedelta(milliseconds=1), min_ready=3
    )
    with transaction.atomic():
        from leases.engine.core.runs import start

        start(resource_id=lost.resource_id, phase="check")
    gone = registry._registered.pop("odd")
    registry.forget()
    Lease.objects.filter(pk=lost.pk).update(until=LONG_AGO)
    try:
        until(ask(), state="active")
    finally:
        registry._registered["odd"] = gone
        registry.forget()
        Odd.facts = {"said": "a\0b"}
    Run.objects.update(due_at=LONG_AGO)
    until(lost, state="destroyed")
    assert not Resource.objects.filter(state="broken").exists()
