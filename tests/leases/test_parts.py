"""Parts have a state of their own: a dead one is given to nobody, and the resource lives on without it."""

from __future__ import annotations

import pytest

from blueprints.amounts import Amounts
from blueprints.answers import NeededLock, Ready
from blueprints.fake.cloud import Cloud
from blueprints.models import Blueprint
from blueprints.specs import Part as PartSpec
from leases.engine.lifecycle import release
from leases.engine.resources import provision
from leases.engine.sync import discovery
from leases.messaging.inline import settle
from leases.models import Event, Part, Resource, SlotLock, Sync
from leases.operations import resources
from leases.operations.callers import caller
from leases.reasons import Reason

LOCK = {"does": "need_locks", "at": "activate.account", "locks": [{"name": "gpu", "part_class": "gpu"}]}


def config(*faults):
    parts = [{"part_class": "gpu", "count": 2}]
    return {"provider": "t", "capacity": {"slots": 4, "extra": {"gpu": 2}}, "parts": parts, "faults": [LOCK, *faults]}


@pytest.fixture
def operator(django_user_model):
    return caller(django_user_model.objects.create_superuser("root"))


@pytest.fixture
def look(operator):
    """Check a resource with these faults in its blueprint's plan."""

    def make(host, *faults):
        Blueprint.objects.update(config=config(*faults))
        resources.check(operator, host.pk)
        settle()
        settle()

    return make


def dies(identity):
    return {"does": "part_dies", "part": identity}


def states():
    return dict(Part.objects.values_list("identity", "state"))


def test_every_lease_gets_a_part_of_its_own_by_name(blueprint, ask, until):
    blueprint(kind="fake_activated", config=config(), max_resources=1)
    leases = [until(ask("fake_activated", extra={"gpu": 1}), state="active") for _ in range(2)]
    assert sorted(SlotLock.objects.values_list("lease", "value")) == [
        (leases[0].pk, "gpu-0"),
        (leases[1].pk, "gpu-1"),
    ]


def test_a_dead_part_is_given_to_nobody_and_the_resource_lives_on(blueprint, ask, until, look):
    blueprint(kind="fake_activated", config=config(), max_resources=1)
    first = until(ask("fake_activated", extra={"gpu": 1}), state="active")
    host = first.resource
    release.release(first.pk, actor="ada")
    until(first, state="destroyed")
    look(host, dies("gpu-0"))
    assert states() == {"gpu-0": "dead", "gpu-1": "ok"}
    until(host, state="active", observed="ok")
    assert host.capacities.get().total == 1
    second = until(ask("fake_activated", extra={"gpu": 1}), state="active")
    assert SlotLock.objects.get(lease=second).value == "gpu-1"
    third = ask("fake_activated", extra={"gpu": 1})
    settle()
    until(third, state="pending", reason=Reason.WAITING_ROOM)
    look(host)
    assert states() == {"gpu-0": "ok", "gpu-1": "ok"}
    until(third, state="active")
    assert SlotLock.objects.get(lease=third).value == "gpu-0"


def test_whoever_holds_a_part_that_dies_is_told_and_keeps_its_lease(blueprint, ask, until, look):
    blueprint(kind="fake_activated", config=config(), max_resources=1)
    lease = until(ask("fake_activated", extra={"gpu": 1}), state="active")
    look(lease.resource, dies("gpu-0"))
    told = Event.objects.get(kind="resource.part", lease=lease)
    assert told.message == "gpu gpu-0 changed from ok to dead."
    lease.refresh_from_db()
    assert lease.state == "active"
    look(lease.resource, dies("gpu-0"))
    assert Event.objects.filter(kind="resource.part").count() == 1, "it is told once"


def test_a_part_that_is_not_discovered_any_more_is_missing_and_counts_no_more(blueprint, until):
    made = blueprint(config={"provider": "t"})
    cloud, parts = Cloud("t"), [PartSpec(part_class="gpu", identity=f"GPU-{n}") for n in range(2)]

    def see(*there):
        cloud.plant("rack", capacity=Amounts(extra={"gpu": 2}), parts=there)
        Sync.objects.update(due_at="2020-01-01T00:00Z")
        settle()
        discovery.discover(made.pk)

    see(*parts)
    see(*parts)
    host = until(Resource.objects.get(), state="active")
    see(parts[1])
    assert states() == {"GPU-0": "missing", "GPU-1": "ok"}
    assert host.capacities.get().total == 1
    see(*parts)
    assert states() == {"GPU-0": "ok", "GPU-1": "ok"}
    assert host.capacities.get().total == 2


def test_an_emptied_list_of_parts_takes_effect(blueprint, until):
    made = blueprint(config={"provider": "t"})
    cloud = Cloud("t")

    def see(*there, **more):
        cloud.plant("rack", parts=there, **more)
        Sync.objects.update(due_at="2020-01-01T00:00Z")
        settle()
        discovery.discover(made.pk)

    gpu = PartSpec(part_class="gpu", identity="GPU-0")
    see(gpu, capacity=Amounts(extra={"gpu": 1}))
    host = until(Resource.objects.get(), state="active")
    see(capacity=Amounts(extra={"gpu": 1}))
    assert states() == {"GPU-0": "missing"}
    assert host.capacities.get().total == 0
    see(gpu, capacity=Amounts(extra={"gpu": 1}))
    assert states() == {"GPU-0": "ok"}
    provision.amend(host.pk, Ready())
    assert states() == {"GPU-0": "ok"}
    provision.amend(host.pk, Ready(parts=()))
    assert states() == {"GPU-0": "missing"}


def test_parts_that_are_not_named_stay_as_they_are_where_their_class_is_not(blueprint, ask, until):
    blueprint(kind="fake_activated", config=config())
    lease = until(ask("fake_activated"), state="active")
    provision.set_parts(lease.resource_id, [PartSpec(part_class="port", identity="p0")])
    assert states() == {"gpu-0": "ok", "gpu-1": "ok", "p0": "ok"}


@pytest.mark.parametrize("given", [{}, {"scope": "host", "part_class": "gpu"}])
def test_a_lock_is_in_a_scope_or_on_a_part(given):
    with pytest.raises(ValueError, match="either a scope or a part class"):
        NeededLock(name="gpu", **given)
