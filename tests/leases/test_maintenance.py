"""What is held on others: maintenance that is lifted whatever happens, and leases that wait for one another."""

from __future__ import annotations

import pytest

from blueprints.fake.cloud import Cloud
from leases.engine.lifecycle import release
from leases.messaging.inline import settle
from leases.models import Lease, Resource, Run


def faulty(*faults, **config):
    return {"provider": "t", "poll_seconds": 0.01, "faults": list(faults), **config}


@pytest.fixture
def cloud():
    return Cloud("t")


NEEDS = {"does": "need_leases", "at": "build.create", "leases": [{"name": "host", "type": "fake_activated"}]}


def maintenance(action, **given):
    return {"does": "need_maintenance", "at": "build.verify", "relation": "host", "action": action, **given}


def test_maintenance_is_lifted_when_who_asked_for_it_is_gone(blueprint, ask, until):
    blueprint("below", kind="fake_activated", config={"capacity": {"slots": 3}}, max_resources=1)
    blueprint("above", config=faulty(NEEDS, maintenance("alone")))
    until(ask("fake_activated"), state="active")
    lease = ask()
    settle()
    assert Run.objects.get(phase="build").waits_for == "maintenance"
    late = ask("fake_activated")
    release.release(lease.pk, actor="ada")
    until(late, state="active")
    assert not Resource.objects.filter(in_maintenance=True).exists()


def test_two_that_hold_the_same_and_want_it_alone_get_it_one_after_the_other(blueprint, ask, until):
    blueprint("below", kind="fake_activated", config={"capacity": {"slots": 2}}, max_resources=1)
    host = NEEDS["leases"][0] | {"lifetime": "phase"}
    blueprint("above", config=faulty(NEEDS | {"leases": [host]}, maintenance("alone"), boot_polls=2, poll_seconds=60))
    leases = [ask(), ask()]
    for _ in range(3):
        settle()
    assert set(Run.objects.filter(phase="build").values_list("step", flat=True)) >= {"boot"}
    assert Resource.objects.get(type="fake_activated").used_slots == 2
    Run.objects.filter(step="boot").update(due_at="2020-01-01T00:00Z")
    for lease in leases:
        until(lease, state="active")


def test_a_power_cycle_that_failed_is_no_power_cycle(blueprint, ask, until, settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"step_retry_limit": 2})
    fault = {"does": "fail", "at": "power.off", "scope": "step", "times": None}
    blueprint("below", kind="fake_activated", config=faulty(fault), max_resources=1)
    blueprint("above", config={"provider": "u", "poll_seconds": 0.01, "faults": [NEEDS, maintenance("power_cycle")]})
    ask()
    settle()
    broken = until(Resource.objects.get(type="fake"), state="broken")
    assert "could not be power-cycled" in broken.message


def test_needed_leases_of_an_activation_end_when_it_is_tried_elsewhere(blueprint, ask, until, settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"step_retry_limit": 1})
    needs = {"does": "need_leases", "at": "activate.account", "leases": [{"name": "port", "type": "fake"}]}
    fault = {"does": "fail", "at": "activate.access", "scope": "offer", "times": 1}
    blueprint("below", config={"capacity": {"slots": 9}})
    blueprint("above", kind="fake_activated", config=faulty(needs, fault))
    lease = until(ask("fake_activated"), state="active")
    held = Lease.objects.filter(for_lease=lease).order_by("id")
    assert [x.state for x in held] == ["destroyed", "active"]


def test_builders_that_hold_what_the_other_needs_do_not_wait_for_ever(blueprint, ask, until, settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"head_reservation_seconds": 0.0})
    below = {"capacity": {"slots": 1}}
    blueprint("below", kind="fake_activated", config=below, max_resources=2)
    second = {"does": "need_leases", "at": "build.verify", "leases": [{"name": "second", "type": "fake_activated"}]}
    blueprint("above", config=faulty(NEEDS, second))
    leases = [ask(), ask()]
    settle()
    until(leases[0], state="active")
    below = Lease.objects.filter(for_resource=Lease.objects.get(pk=leases[0].pk).resource, state="active")
    assert below.count() == 2


def test_a_kind_that_needs_its_own_blueprint_is_a_failure_and_no_endless_row_of_builds(blueprint, ask, until):
    needs = {"does": "need_leases", "at": "build.create", "leases": [{"name": "self", "type": "fake"}]}
    blueprint(config=faulty(needs))
    ask()
    for _ in range(3):
        settle()
    assert Resource.objects.count() <= 2
    assert "itself" in until(Resource.objects.last(), state="broken").message


def test_activations_that_hold_what_the_other_needs_do_not_wait_for_ever(blueprint, ask, until, settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"head_reservation_seconds": 0.0})
    blueprint("below", config={"capacity": {"slots": 1}}, max_resources=2)
    first, second = (
        {"does": "need_leases", "at": at, "leases": [{"name": name, "type": "fake"}]}
        for at, name in (("activate.account", "first"), ("activate.access", "second"))
    )
    blueprint("above", kind="fake_activated", config=faulty(first, second))
    leases = [ask("fake_activated"), ask("fake_activated")]
    settle()
    until(leases[0], state="active")
    held = Lease.objects.filter(for_lease=leases[0], state="active")
    assert sorted(held.values_list("need", flat=True)) == ["first", "second"]
    younger = Lease.objects.get(pk=leases[1].pk)
    assert younger.state != "active"
    release.release(leases[0].pk, actor="ada")
    until(leases[1], state="active")
