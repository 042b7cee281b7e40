"""Requests for a resource that is built on another one, its carrier: what is chosen if there is no carrier."""

from __future__ import annotations

import pytest

from leases.messaging.inline import settle
from leases.models import Lease, Resource
from tests.leases.test_group_wholes import CARRIER, dpus, hosts

__all__ = ["dpus", "hosts"]

LACKING = {**CARRIER, "requirements": {"color": "red"}}


@pytest.fixture
def unable(blueprint):
    """The blueprint that is tried first, and builds on a card that nobody has."""
    config = {"provider": "unable", "carrier": LACKING, "poll_seconds": 0}
    return blueprint("unable", kind="fake_reported", config=config, order=1)


def test_a_blueprint_without_a_carrier_leaves_the_request_to_the_next_one(hosts, dpus, unable, ask, until):
    hosts()
    dpus(order=2)
    lease = until(ask("fake_reported"), state="active")
    assert lease.resource.blueprint.name == "dpus"
    assert not Resource.objects.filter(blueprint=unable).exists()


def test_a_request_waits_for_a_carrier_and_says_for_which(hosts, unable, ask, until):
    host = hosts()
    lease = ask("fake_reported")
    settle()
    lease.refresh_from_db()
    assert (lease.state, lease.reason) == ("pending", "waiting_catalogue")
    assert "it builds on a fake_activated with color=red, and none is known" in lease.message
    assert not Resource.objects.filter(blueprint=unable).exists()

    Resource.objects.filter(part_of=host).update(attributes={"color": "red"})
    Lease.objects.filter(pk=lease.pk).update(due_at=None)
    until(lease, state="active")


def test_blueprints_that_name_each_other_as_carriers_end_the_search(blueprint, ask):
    for name, kind, carrier in (("one", "fake_reported", "fake_activated"), ("two", "fake_activated", "fake_reported")):
        config = {"provider": name, "carrier": {"name": "card", "type": carrier}, "poll_seconds": 0}
        blueprint(name, kind=kind, config=config)
    lease = ask("fake_reported")
    settle()
    lease.refresh_from_db()
    assert (lease.state, lease.reason) == ("pending", "waiting_catalogue")
    assert "none is known" in lease.message
