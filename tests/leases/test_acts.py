"""Acts that a kind declares: who may start them, what is in the way, how they run, and what they leave."""

from __future__ import annotations

import json
from unittest import mock

import pytest
from django.contrib.auth.models import User

from blueprints.contract import DeclaredAct, acts_of
from blueprints.fake.cloud import Cloud
from blueprints.fake.kind import Fake
from blueprints.models import Blueprint
from blueprints.registry import kind
from drydock.core.errors import Conflict, InvalidRequest, NotAllowed, NotFound
from leases.engine.lifecycle import runner
from leases.engine.upkeep import run_checks
from leases.messaging.inline import settle
from leases.models import Event, Failure, Lease, Resource, Run
from leases.operations import blueprints, leases, machines, resources
from leases.operations.callers import caller

IMAGE = {"image": "blinky", "passes": 3}


def faulty(*faults, **config):
    return {"provider": "t", "poll_seconds": 0.01, "faults": list(faults), **config}


@pytest.fixture
def cloud():
    return Cloud("t")


@pytest.fixture
def ada(owner):
    return caller(owner)


@pytest.fixture
def bob():
    return caller(User.objects.create_user("bob"))


@pytest.fixture
def operator():
    return caller(User.objects.create_superuser("root"))


@pytest.fixture
def held(blueprint, ask, until):
    """A resource that ada holds alone."""
    blueprint(config=faulty(capacity={"slots": 2}))
    return until(ask(exclusive=True), state="active")


def status(who, resource_id, name="program"):
    return next(one for one in machines.acts(who, resource_id) if one.name == name)


def finish():
    while Run.objects.exists():
        settle()


def asleep():
    """Let the run wait for hours, so that it is under way."""
    settle()
    return Run.objects.get(phase="act")


def test_an_act_is_a_run_that_workers_carry_out(held, ada, cloud):
    resource_id = held.resource_id
    info = machines.start_act(ada, resource_id, "program", arguments=IMAGE)
    assert (info.outcome, info.progress.phase, info.progress.act) == ("asked", "act", "program")
    assert Resource.objects.get().in_maintenance
    finish()
    info = status(ada, resource_id)
    assert (info.outcome, info.message, info.progress, info.refused) == ("done", "program is done.", None, "")
    (there,) = cloud.instances()
    assert cloud.settings(there.key)["image"] == "blinky"
    resource = Resource.objects.get()
    assert (resource.facts["image"], resource.in_maintenance, resource.quarantined) == ("blinky", False, False)


def test_events_say_who_did_what(held, ada):
    machines.start_act(ada, held.resource_id, "program", arguments=IMAGE)
    finish()
    asked, done = Event.objects.filter(kind__startswith="act.").order_by("id")
    assert (asked.kind, asked.actor, asked.lease_id, asked.resource_id) == (
        "act.asked", "ada", held.pk, held.resource_id,
    )  # fmt: skip
    assert asked.details == done.details == {"act": "program", "arguments": IMAGE}
    assert (done.kind, done.lease_id) == ("act.done", held.pk)


def test_progress_is_shown_in_percent_with_a_sentence(blueprint, ask, until, ada):
    blueprint(config=faulty(poll_seconds=3600))
    lease = until(ask(), state="active")
    machines.start_act(ada, lease.resource_id, "program", arguments=IMAGE)
    asleep()
    progress = status(ada, lease.resource_id).progress
    assert (progress.act, progress.step, progress.percent, progress.sentence, progress.uninterruptible) == (
        "program", "write", 33, "Wrote pass 1 of 3.", True,
    )  # fmt: skip
    assert resources.get(ada, lease.resource_id).progress == progress


def test_the_same_act_again_is_the_same_run_and_another_is_refused(held, ada):
    machines.start_act(ada, held.resource_id, "program", arguments=IMAGE)
    machines.start_act(ada, held.resource_id, "program", arguments=IMAGE)
    assert Run.objects.count() == 1
    assert Event.objects.filter(kind="act.asked").count() == 1
    with pytest.raises(Conflict, match="is busy with program"):
        machines.start_act(ada, held.resource_id, "label", arguments={"text": "a"})
    with pytest.raises(Conflict, match="is busy with program"):
        machines.reboot(ada, held.pk)
    assert "is busy with program" in status(ada, held.resource_id, "label").refused


def test_a_health_check_gives_way(held, ada):
    Run.objects.create(resource=held.resource, phase="check", in_call=True)
    machines.start_act(ada, held.resource_id, "label", arguments={"text": "a"})
    assert list(Run.objects.values_list("phase", flat=True)) == ["act"]


def test_only_operators_may_start_what_is_declared_for_them(held, ada, bob, operator):
    with pytest.raises(NotAllowed, match="Only an operator may start service"):
        machines.start_act(ada, held.resource_id, "service")
    assert "Only an operator" in status(ada, held.resource_id, "service").refused
    assert Run.objects.count() == 0
    for call in (
        lambda: machines.acts(bob, held.resource_id),
        lambda: machines.start_act(bob, held.resource_id, "program", arguments=IMAGE),
        lambda: machines.cancel_act(bob, held.resource_id, "program"),
    ):
        with pytest.raises(NotFound, match="does not exist, or you have no lease on it"):
            call()


def test_the_owner_of_a_part_of_a_resource_may_not_act_on_all_of_it(blueprint, ask, until, ada):
    blueprint(config=faulty(capacity={"slots": 2}))
    lease = until(ask(), state="active")
    with pytest.raises(NotAllowed, match="needs an active lease on the whole resource"):
        machines.start_act(ada, lease.resource_id, "program", arguments=IMAGE)
    assert status(ada, lease.resource_id).refused.startswith("program needs an active lease")


def test_an_owner_may_not_act_after_the_lease_has_ended(held, ada, operator):
    Lease.objects.update(held=True)
    leases.release(ada, held.pk)
    with pytest.raises(NotAllowed):
        machines.start_act(ada, held.resource_id, "program", arguments=IMAGE)
    with pytest.raises(Conflict, match=f"Lease {held.pk} holds"):
        machines.start_act(operator, held.resource_id, "program", arguments=IMAGE)


HOSTILE = [
    ({}, "arguments.image"),
    ({"image": "blinky", "passes": 0}, "arguments.passes"),
    ({"image": "blinky", "passes": "many"}, "arguments.passes"),
    ({"image": "blinky", "passes": [1]}, "arguments.passes"),
    ({"image": "blinky", "passes": float("nan")}, "arguments.passes"),
    ({"image": "../../etc/passwd"}, "arguments.image"),
    ({"image": "blinky\0"}, "arguments.image"),
    ({"image": "x" * 64}, "arguments.image"),
    ({"image": "blinky", "force": True}, "arguments.force"),
    ({"image": {"$ne": 1}}, "arguments.image"),
    ({"image": "blinky", "__class__": "x"}, "arguments.__class__"),
    ({"image": "blinky", "passes": 10**30}, "arguments.passes"),
    ({"image": "blinky", "passes": {"a": [{}] * 300_000}}, "arguments"),
]


def test_hostile_arguments_are_refused_with_their_field(held, ada):
    for given, field in HOSTILE:
        with pytest.raises(InvalidRequest) as caught:
            machines.start_act(ada, held.resource_id, "program", arguments=given)
        assert field in {caught.value.field, *(problem.field for problem in caught.value.problems)}, str(given)[:80]
    assert not Run.objects.exists()
    assert not Event.objects.filter(kind__startswith="act.").exists()
    assert not Resource.objects.get().in_maintenance


def test_an_act_that_the_kind_does_not_declare_is_not_found(held, ada):
    with pytest.raises(NotFound, match="has no act 'explode'") as caught:
        machines.start_act(ada, held.resource_id, "explode")
    assert "program, service, label" in caught.value.hint


def test_what_a_config_removes_has_no_acts(blueprint, ask, until, operator):
    blueprint(config=faulty(lacks=["acts"]))
    lease = until(ask(), state="active")
    assert machines.acts(operator, lease.resource_id) == []
    with pytest.raises(NotFound, match="has no act"):
        machines.start_act(operator, lease.resource_id, "label")


def test_other_leases_are_in_the_way_and_named(held, operator, ada):
    with pytest.raises(Conflict, match=f"Lease {held.pk} holds .*; program requires that no other lease does"):
        machines.start_act(operator, held.resource_id, "program", arguments=IMAGE)
    assert f"Lease {held.pk} holds" in status(operator, held.resource_id).refused
    assert status(ada, held.resource_id).refused == ""
    assert not Resource.objects.get().in_maintenance
    assert not Run.objects.exists()


def test_beside_leases_an_act_runs_and_new_ones_are_granted(blueprint, ask, until, operator, cloud):
    blueprint(config=faulty(capacity={"slots": 2}, poll_seconds=3600))
    lease = until(ask(), state="active")
    machines.start_act(operator, lease.resource_id, "label", arguments={"text": "hello"})
    assert not Resource.objects.get().in_maintenance
    assert until(ask(), state="active").resource_id == lease.resource_id
    finish()
    assert Resource.objects.get().facts["label"] == "hello"


def test_an_act_that_waits_begins_when_the_lease_has_ended(held, ada, operator, ask, until, cloud):
    resources.power(operator, held.resource_id, "off")
    finish()
    info = machines.start_act(operator, held.resource_id, "service")
    assert info.progress.waits_for == "maintenance"
    assert f"It waits until Lease {held.pk} has ended" in info.message
    assert Event.objects.filter(kind="lease.maintenance", lease=held.pk).exists()
    settle()
    assert "serviced" not in cloud.settings(cloud.instances()[0].key)
    later = ask()
    settle()
    assert Lease.objects.get(pk=later.pk).resource_id != held.resource_id
    leases.release(ada, held.pk)
    until(held, state="destroyed")
    run = Run.objects.filter(phase="act").first()
    while run is not None and Run.objects.filter(pk=run.pk).exists():
        settle()
    assert status(operator, held.resource_id, "service").outcome == "done"
    assert not Resource.objects.get(pk=held.resource_id).in_maintenance


def test_the_power_that_an_act_needs_is_checked(blueprint, operator, until, ask, ada):
    blueprint(config=faulty())
    lease = until(ask(), state="active")
    resources.power(operator, lease.resource_id, "on")
    finish()
    with pytest.raises(Conflict, match="is on; service requires it to be off"):
        machines.start_act(operator, lease.resource_id, "service")


def test_what_happens_below_and_above_a_resource_is_in_the_way(blueprint, ask, until, operator, ada, cloud, bob):
    blueprint(name="tree", config=faulty(capacity={"slots": 2}), max_resources=0)
    made = {}
    for name, above in (("host", None), ("card", "host"), ("vf", "card")):
        made[name] = Resource.objects.create(
            blueprint_id=Blueprint.objects.get().pk, type="fake", name=name, state="pending",
            origin="discovered", identity=name, part_of=made.get(above), total_slots=2,
        )  # fmt: skip
        Resource.objects.filter(pk=made[name].pk).update(state="active")
    below = until(ask(requirements={}, exclusive=False), state="active")
    holder = below.resource
    relatives = [one for one in made.values() if one.pk != holder.pk]
    for one in relatives:
        if one.pk in _above(holder):
            with pytest.raises(Conflict, match=f"Lease {below.pk} holds {holder.name}"):
                machines.start_act(operator, one.pk, "program", arguments=IMAGE)
    leases.release(ada, below.pk)
    until(below, state="destroyed")
    host = until(ask(exclusive=True, by=User.objects.get(username="bob")), state="active")
    assert host.resource.name == "host"
    with pytest.raises(Conflict, match=f"Lease {host.pk} holds host"):
        machines.start_act(operator, made["vf"].pk, "program", arguments=IMAGE)
    assert status(bob, made["vf"].pk).refused == ""
    with pytest.raises(NotFound):
        machines.acts(ada, made["vf"].pk)


def _above(resource):
    found = set()
    while resource.part_of_id is not None:
        found.add(resource.part_of_id)
        resource = resource.part_of
    return found


def test_a_cancelled_act_ends_after_the_step_that_cannot_be_interrupted(blueprint, ask, until, ada):
    blueprint(config=faulty(poll_seconds=3600))
    lease = until(ask(), state="active")
    machines.start_act(ada, lease.resource_id, "program", arguments=IMAGE)
    run = asleep()
    info = machines.cancel_act(ada, lease.resource_id, "program")
    assert info.outcome == "cancelling"
    assert "cannot be interrupted" in info.message
    assert Run.objects.filter(pk=run.pk, cancel_wanted=True).exists()
    while Run.objects.update(due_at="2020-01-01T00:00Z"):
        settle()
    assert status(ada, lease.resource_id).outcome == "cancelled"
    resource = Resource.objects.get()
    assert (resource.quarantined, resource.state) == (True, "active")
    assert resource.note == "The act program was cancelled."
    lease.refresh_from_db()
    assert lease.state == "active"


def test_what_waits_is_cancelled_at_once_and_not_quarantined(held, operator, ada):
    resources.power(operator, held.resource_id, "off")
    finish()
    machines.start_act(operator, held.resource_id, "service")
    with pytest.raises(NotAllowed):
        machines.cancel_act(ada, held.resource_id, "service")
    machines.cancel_act(operator, held.resource_id, "service")
    finish()
    assert status(operator, held.resource_id, "service").outcome == "cancelled"
    resource = Resource.objects.get()
    assert (resource.quarantined, resource.in_maintenance, resource.state) == (False, False, "active")
    with pytest.raises(NotFound, match="no running act 'service'"):
        machines.cancel_act(operator, held.resource_id, "service")


def test_owners_cancel_only_what_was_started_for_their_lease(blueprint, ask, until, ada, operator):
    blueprint(config=faulty({"does": "hold", "at": "label.set"}))
    lease = until(ask(), state="active")
    machines.start_act(operator, lease.resource_id, "label")
    settle()
    with pytest.raises(NotAllowed, match="was not started for your lease"):
        machines.cancel_act(ada, lease.resource_id, "label")


def test_a_failed_act_is_shown_and_quarantines_if_declared(blueprint, ask, until, ada):
    blueprint(config=faulty({"does": "fail", "at": "program.verify", "scope": "operator", "message": "bad image"}))
    lease = until(ask(), state="active")
    machines.start_act(ada, lease.resource_id, "program", arguments=IMAGE)
    finish()
    info = status(ada, lease.resource_id)
    assert (info.outcome, info.message) == ("failed", "bad image")
    failure = Failure.objects.get()
    assert (failure.act, failure.message) == ("program", "bad image")
    resource = Resource.objects.get()
    assert (resource.quarantined, resource.in_maintenance) == (True, False)
    assert "bad image" in resource.note


def test_an_act_that_does_not_quarantine_leaves_the_resource_in_service(blueprint, ask, until, ada):
    blueprint(config=faulty({"does": "fail", "at": "label.set", "scope": "operator"}))
    lease = until(ask(), state="active")
    machines.start_act(ada, lease.resource_id, "label")
    finish()
    assert status(ada, lease.resource_id, "label").outcome == "failed"
    assert not Resource.objects.get().quarantined


@pytest.mark.parametrize("fault", [{"does": "lose", "at": "program.write"}, {"does": "fail", "at": "program.erase"}])
def test_a_lost_answer_or_a_failed_attempt_is_repeated(blueprint, ask, until, ada, cloud, fault):
    blueprint(config=faulty(fault))
    lease = until(ask(), state="active")
    machines.start_act(ada, lease.resource_id, "program", arguments=IMAGE)
    finish()
    assert status(ada, lease.resource_id).outcome == "done"
    assert cloud.settings(cloud.instances()[0].key)["image"] == "blinky"


def test_an_act_goes_on_after_the_death_of_its_worker_and_is_fenced(held, ada, cloud):
    machines.start_act(ada, held.resource_id, "program", arguments=IMAGE)
    run = Run.objects.get()
    dead = "00000000-0000-0000-0000-000000000001"
    Run.objects.update(token=dead, token_until="2020-01-01T00:00Z", in_call=True)
    assert runner.carry_on(run.pk)
    finish()
    assert status(ada, held.resource_id).outcome == "done"
    assert [event.kind for event in Event.objects.filter(kind="act.done")] == ["act.done"]


def test_a_lease_is_not_cleaned_while_its_act_runs(blueprint, ask, until, ada, cloud):
    blueprint(kind="fake_activated", config=faulty(poll_seconds=3600))
    lease = until(ask("fake_activated"), state="active")
    machines.start_act(ada, lease.resource_id, "program", arguments=IMAGE)
    asleep()
    leases.release(ada, lease.pk)
    settle()
    lease.refresh_from_db()
    assert (lease.state, list(Run.objects.values_list("phase", flat=True))) == ("released", ["act"])
    while Run.objects.filter(phase="act").update(due_at="2020-01-01T00:00Z"):
        settle()
    until(lease, state="destroyed")
    assert Event.objects.filter(kind="act.cancelled", lease=lease.pk).exists()


def test_a_resource_is_not_retired_while_an_act_runs(blueprint, ask, until, ada, operator):
    blueprint(config=faulty({"does": "hold", "at": "program.erase"}))
    lease = until(ask(), state="active")
    leases.release(ada, lease.pk)
    until(lease, state="destroyed")
    machines.start_act(operator, lease.resource_id, "program", arguments=IMAGE)
    settle()
    with pytest.raises(Conflict, match="leased or busy"):
        resources.retire(operator, lease.resource_id)
    assert Run.objects.filter(phase="act").exists()


def test_a_step_of_an_act_may_need_maintenance_of_another_resource(blueprint, ask, until, operator):
    blueprint(name="tree", config=faulty(
        {"does": "need_maintenance", "at": "program.erase", "relation": "parent", "action": "alone"}
    ), max_resources=0)  # fmt: skip
    pool = Blueprint.objects.get()
    host = Resource.objects.create(blueprint=pool, type="fake", name="host", origin="discovered", identity="h")
    card = Resource.objects.create(
        blueprint=pool, type="fake", name="card", origin="discovered", identity="c", part_of=host
    )
    Resource.objects.update(state="active")
    machines.start_act(operator, card.pk, "program", arguments=IMAGE)
    run = Run.objects.get()
    for _ in range(5):
        settle()
    held = Resource.objects.get(pk=host.pk)
    assert not Run.objects.filter(pk=run.pk, waits_for="maintenance").exists()
    assert Event.objects.filter(kind="resource.maintenance", resource=host.pk).exists()
    finish()
    held.refresh_from_db()
    assert (held.in_maintenance, Resource.objects.get(pk=card.pk).in_maintenance) == (False, False)


def test_an_act_that_the_kind_no_longer_declares_waits_and_can_be_cancelled(held, ada):
    machines.start_act(ada, held.resource_id, "label", arguments={"text": "a"})
    with mock.patch.object(Fake, "acts", return_value=()):
        settle()
        assert "has no act 'label'" in Run.objects.get().sentence
        Run.objects.update(cancel_wanted=True, due_at="2020-01-01T00:00Z")
        finish()
    assert Event.objects.filter(kind="act.cancelled").exists()


def test_maintenance_of_the_resource_and_its_act_exclude_each_other(held, operator, ada):
    Resource.objects.update(in_maintenance=True)
    with pytest.raises(Conflict, match="in maintenance"):
        machines.start_act(operator, held.resource_id, "label")
    Resource.objects.update(in_maintenance=False)
    machines.start_act(ada, held.resource_id, "program", arguments=IMAGE)
    run_checks.undisturbed()
    assert Resource.objects.get().in_maintenance


def test_kinds_show_their_acts_with_the_schema_of_the_arguments():
    program, service, label = blueprints.schema("fake").acts
    assert (program.name, program.by, program.holders, program.dangerous) == ("program", "holder", "refuse", True)
    assert program.arguments["properties"]["passes"]["maximum"] == 20
    assert (service.power, service.holders, label.holders) == ("off", "wait", "keep")
    json.dumps(program.arguments)
    assert isinstance(acts_of(kind("fake"))["program"], DeclaredAct)
