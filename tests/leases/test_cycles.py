"""Blueprints that need one another are refused when they are checked."""

from __future__ import annotations

import pytest

from drydock.core.errors import Conflict
from drydock_client.values import BlueprintChange
from leases.operations import blueprints
from leases.operations.blueprints import cycle
from leases.operations.callers import caller


@pytest.fixture
def operator(django_user_model):
    return caller(django_user_model.objects.create_superuser("root"))


def needing(type_):
    return {"faults": [{"does": "need_leases", "leases": [{"name": "below", "type": type_}]}]}


def test_a_blueprint_that_needs_what_it_gives_stays_disabled(operator):
    made = blueprints.add(operator, "turtle", "fake", needing("fake"))
    assert not made.enabled
    assert [p["message"] for p in made.problems if p["fatal"]] == [
        "turtle needs a lease of resource type 'fake', which it provides itself."
    ]


def test_two_that_need_each_other_do_not_serve_together(operator):
    assert blueprints.add(operator, "egg", "fake", needing("fake_activated")).enabled
    hen = blueprints.add(operator, "hen", "fake_activated", needing("fake"))
    assert not hen.enabled
    assert "hen -> egg -> hen" in hen.problems[0]["message"]
    blueprints.disable(operator, "egg")
    assert blueprints.enable(operator, "hen").enabled


def test_a_change_that_would_close_a_circle_is_refused(operator):
    blueprints.add(operator, "egg", "fake", needing("fake_activated"))
    assert blueprints.add(operator, "hen", "fake_activated").enabled
    with pytest.raises(Conflict, match="hen -> egg -> hen"):
        blueprints.change(operator, "hen", BlueprintChange(config=needing("fake")))
    assert blueprints.get(operator, "hen").config == {}


def test_the_shortest_circle_is_named():
    none = frozenset[str]()
    needs = {"a": frozenset({"x"}), "b": frozenset({"y"}), "c": frozenset({"z", "t"}), "d": none}
    gives = {"a": "t", "b": "x", "c": "y", "d": "z"}
    assert cycle("a", needs, gives) == ["a", "b", "c", "a"]
    assert cycle("d", needs, gives) == []
    assert cycle("a", {**needs, "c": frozenset({"z"})}, gives) == []
