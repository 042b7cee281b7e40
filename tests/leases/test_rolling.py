"""Outdated resources leave a few at a time, also those that become free at the end of a lease."""

from __future__ import annotations

import pytest

from blueprints.contract import Builds, Kind
from blueprints.fake.kind import Fake
from blueprints.models import Blueprint
from leases.engine.lifecycle import release
from leases.messaging.inline import settle
from leases.models import Event, Resource, Run
from leases.reasons import Reason
from tests.leases import kinds


class Fixed(Kind, Builds):
    """Built, and never updated in place."""

    name = "fixed"
    resource_type = "fixed"
    Config, Requirements, Attributes = Fake.Config, Fake.Requirements, Fake.Attributes

    def drafts(self, config, asked):
        return Fake().drafts(config, asked)

    def build(self):
        return Fake().build()

    def destroy(self):
        return Fake().destroy()


@pytest.fixture(autouse=True)
def _kinds():
    with kinds.installed(Fixed()):
        yield


def outdated(blueprint, ask, until, kind, **columns):
    """Three leased resources, all built from the blueprint as it was: their leases."""
    made = blueprint(kind=kind, config={"destroy_polls": 2, "poll_seconds": 60, "provider": "t"}, **columns)
    leases = [until(ask(kind), state="active") for _ in range(3)]
    Blueprint.objects.filter(pk=made.pk).update(generation=2)
    return leases


def leaving():
    return Resource.objects.filter(state="released", gone_at=None).count()


def test_a_release_replaces_no_more_outdated_resources_than_may_be_at_the_same_time(blueprint, ask, until):
    leases = outdated(blueprint, ask, until, "fixed", max_outdated=1)
    for lease in leases:
        release.release(lease.pk, actor="ada")
        settle()
        assert leaving() <= 1
    assert (leaving(), Resource.objects.filter(state="active").count()) == (1, 2)
    for _ in range(12):
        Run.objects.update(due_at="2020-01-01T00:00Z")
        settle()
        assert leaving() <= 1
    assert not Resource.objects.filter(gone_at=None, generation=1).exists()


@pytest.mark.parametrize(
    ("change", "reason", "message"),
    [
        ({"drained": True}, Reason.DRAINED, "Drained."),
        ({"enabled": False}, Reason.DRAINED, "The blueprint is disabled."),
        ({"dies_at": "2020-01-01T00:00Z"}, Reason.TOO_OLD, "Older than the blueprint allows."),
        ({"generation": 2}, Reason.OUTDATED, "Built from an older blueprint."),
    ],
)
def test_what_goes_at_the_end_of_its_lease_says_why(blueprint, ask, until, change, reason, message):
    made = blueprint(kind="fixed", config={"destroy_polls": 2, "poll_seconds": 60, "provider": "t"})
    lease = until(ask("fixed"), state="active")
    changed = Resource.objects if "dies_at" in change else Blueprint.objects.filter(pk=made.pk)
    changed.update(**change)
    release.release(lease.pk, actor="ada")
    event = Event.objects.get(resource=lease.resource, kind="resource.released")
    assert (event.reason, event.message) == (reason, message)


def test_none_is_replaced_where_none_may_be(blueprint, ask, until):
    for lease in outdated(blueprint, ask, until, "fixed", max_outdated=0):
        release.release(lease.pk, actor="ada")
    for _ in range(3):
        settle()
    assert Resource.objects.filter(state="active", generation=1).count() == 3


def test_what_can_be_updated_in_place_is_not_destroyed_at_the_end_of_its_lease(blueprint, ask, until):
    for lease in outdated(blueprint, ask, until, "fake", max_outdated=1):
        release.release(lease.pk, actor="ada")
    for _ in range(6):
        settle()
    assert set(Resource.objects.values_list("state", "generation")) == {("active", 2)}
    assert Event.objects.filter(kind="resource.updated").count() == 3


def test_a_drained_resource_goes_with_the_reason_for_which_it_was_drained(blueprint, ask, until):
    blueprint(kind="fixed", config={"destroy_polls": 2, "poll_seconds": 60, "provider": "t"})
    lease = until(ask("fixed"), state="active")
    Resource.objects.update(drained=True, note="Its files could not be removed.")
    release.release(lease.pk, actor="ada")
    event = Event.objects.get(resource=lease.resource, kind="resource.released")
    assert (event.reason, event.message) == (Reason.DRAINED, "Drained: Its files could not be removed.")


def test_an_idle_resource_that_is_drained_goes_with_the_reason_too(blueprint, ask, until):
    blueprint(min_ready=1, max_resources=1)
    settle()
    Resource.objects.update(drained=True, note="New disks.")
    settle()
    assert "Drained: New disks." in Event.objects.filter(kind="resource.released").values_list("message", flat=True)
