"""Ends of leases: what may go to another owner, and what is not ours to destroy."""

from __future__ import annotations

import pytest
from django.db import transaction

from blueprints.contract import Builds, Kind, Registers
from blueprints.fake import config
from blueprints.fake.kind import Fake, FakeActivated
from blueprints.specs import Draft
from leases.engine.lifecycle import release
from leases.engine.resources import provision
from leases.messaging.inline import settle
from leases.models import Lease, Resource
from leases.reasons import Reason
from tests.leases import kinds


class Spoiled(Fake):
    """Whoever uses it may change it for good."""

    name = "spoiled"
    resource_type = "spoiled"
    reusable = False


class SpoiledActivated(FakeActivated):
    name = "spoiled_activated"
    resource_type = "spoiled_activated"
    reusable = False


class Plain(Kind, Registers, Builds):
    """Registered, and never updated in place."""

    name = "plain"
    resource_type = "plain"
    Config, Requirements, Registration = config.Config, config.Requirements, config.Registration

    def drafts(self, config, asked):
        return ()

    def register(self, config, registration):
        return Draft()

    def build(self):
        return ()

    def destroy(self):
        return ()


@pytest.fixture(autouse=True)
def _kinds():
    with kinds.installed(Spoiled(), SpoiledActivated(), Plain()):
        yield


def registered(blueprint):
    with transaction.atomic():
        room = provision.insert(
            blueprint, Draft(identity="rack-7", name="rack-7"), actor="op", message="Registered.", origin="registered"
        )
    return Resource.objects.get(pk=room.resource_id)


@pytest.mark.parametrize("kind", ["spoiled", "spoiled_activated"])
def test_what_cannot_be_cleaned_is_free_for_nobody_even_if_the_worker_dies_at_the_lease_s_end(
    blueprint, ask, until, monkeypatch, kind
):
    blueprint(kind=kind)
    first = until(ask(kind), state="active")
    with monkeypatch.context() as dead:
        dead.setattr(release, "follow_up", lambda ending: None)
        release.release(first.pk, actor="ada")
        until(first, state="destroyed")
        second = ask(kind)
    assert second.resource_id != first.resource_id
    until(second, state="active")
    until(first.resource, state="destroyed")
    assert second.resource_id != first.resource_id


@pytest.mark.parametrize("change", [{"generation": 2}, {"enabled": False}, {"drained": True}])
@pytest.mark.parametrize("kind", ["fake", "plain"])
def test_a_registered_resource_outlives_every_change_of_its_blueprint(blueprint, ask, until, kind, change):
    made = blueprint(kind=kind)
    host = until(registered(made), state="active")
    lease = until(ask(kind), state="active")
    type(made).objects.update(**change)
    release.release(lease.pk, actor="ada")
    for _ in range(3):
        settle()
    host.refresh_from_db()
    assert (host.state, host.used_slots) == ("active", 0)


def test_a_registered_resource_whose_first_waiter_gives_up_is_registered_nevertheless(blueprint, ask, until):
    made = blueprint(config={"boot_polls": 3, "poll_seconds": 0.01}, max_resources=1)
    host = registered(made)
    lease = ask()
    assert (lease.state, lease.resource_id) == ("acquired", host.pk)
    release.release(lease.pk, actor="ada")
    until(host, state="active")


def test_a_lease_that_waited_longer_than_its_heartbeat_limit_is_not_silent_when_it_is_granted(blueprint, ask, until):
    blueprint(config={"boot_polls": 50, "poll_seconds": 5}, max_resources=0)
    lease = ask(heartbeat_limit="30s")
    settle()
    Lease.objects.update(heartbeat_at="2020-01-01T00:00Z")
    from blueprints.models import Blueprint

    Blueprint.objects.update(max_resources=1)
    for _ in range(3):
        settle()
    lease.refresh_from_db()
    assert (lease.state, lease.reason) == ("acquired", Reason.BUILDING)


def test_a_lease_never_lasts_longer_than_what_it_is_on(blueprint, ask, until):
    import datetime as dt

    blueprint(config={"boot_polls": 2, "poll_seconds": 0.01}, max_lifetime=dt.timedelta(hours=2))
    lease = until(ask(ttl="2h"), state="active")
    assert lease.until <= lease.resource.dies_at
