"""Pools of resources: idle timeouts, ready minimums, drains, disabled blueprints, end of life, updates."""

from __future__ import annotations

import datetime as dt

import pytest
from django.contrib.auth.models import User

from blueprints.models import Blueprint
from leases.engine.lifecycle import release
from leases.messaging.inline import settle
from leases.models import Event, Resource
from leases.operations import attention, blueprints, leases
from leases.operations.callers import caller
from leases.reasons import Reason

LONG_AGO = "2020-01-01T00:00Z"


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
    assert "live 2:00:00, but the lease would last 3:00:00" in never.message


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
    assert leases.explain(caller(ask().owner), {"type": "fake", "slots": 4}).outcome == "refuse"
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
