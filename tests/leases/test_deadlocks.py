"""Locks are taken in one order everywhere: PostgreSQL itself counts no deadlock, whatever is done at the same time."""

from __future__ import annotations

import random
from concurrent.futures import ThreadPoolExecutor

import psycopg
import pytest
from django.contrib.auth.models import User
from django.db import connection, transaction

from blueprints.models import Blueprint
from chaos.proof import tree_violations
from drydock.core import clock
from leases.engine.core.database import bound_lock_waits, rows
from leases.engine.placement import claims
from leases.engine.queue import groups
from leases.engine.scheduling import request
from leases.engine.scheduling.place import Outcome
from leases.engine.upkeep import lease_checks, sweep
from leases.messaging.inline import settle
from leases.models import Budget, Event, Lease, Quota, Resource
from leases.validation.requests import read
from tests.leases.clients import Clients


def deadlocks() -> int:
    """How many deadlocks PostgreSQL has resolved in this database. Processes report theirs when they end."""
    rows("SELECT pg_stat_force_next_flush()")
    rows("SELECT 1")
    return int(rows("SELECT deadlocks FROM pg_stat_database WHERE datname = current_database()")[0][0])


@pytest.fixture
def no_deadlock():
    before = deadlocks()
    yield
    connection.close()
    assert deadlocks() == before


@pytest.fixture
def eight_slots(blueprint):
    blueprint(config={"capacity": {"slots": 8}}, max_resources=1, min_ready=1)
    settle()


@pytest.mark.parametrize("inside", [False, True], ids=["one by one", "in one transaction"])
def test_a_waiting_group_released_by_several_processes_ends_without_deadlocks(eight_slots, owner, inside, no_deadlock):
    _, ids = request.request_group([read({"type": "fake"})] * 40, owner.pk, actor="ada")
    settle()
    assert set(Lease.objects.values_list("state", flat=True)) == {"pending"}
    parts = [random.Random(n).sample(ids, len(ids)) for n in range(4)]
    with Clients("release_many", [{"leases": part, "inside": inside} for part in parts]) as clients:
        clients.go()
    settle()
    assert set(Lease.objects.values_list("state", flat=True)) == {"destroyed"}
    assert not Resource.objects.filter(reserved_for__isnull=False).exists()


def test_one_release_ends_the_whole_group_that_waits(eight_slots, owner):
    _, ids = request.request_group([read({"type": "fake"})] * 10, owner.pk, actor="ada")
    settle()
    with Clients("release_many", [{"leases": ids[4:5], "inside": False}]) as clients:
        clients.go()
    settle()
    found = dict(Lease.objects.values_list("id", "reason"))
    assert set(Lease.objects.values_list("state", flat=True)) == {"destroyed"}
    assert len(found) == 10


def test_what_a_dead_process_left_of_a_group_is_neither_granted_nor_forgotten(eight_slots, owner):
    _, ids = request.request_group([read({"type": "fake"})] * 4, owner.pk, actor="ada")
    Lease.objects.filter(pk=ids[0]).update(state="broken", reason="refused")
    settle()
    assert lease_checks.left_in_groups() == 0, "the sweep found them already"
    assert set(Lease.objects.filter(pk__in=ids[1:]).values_list("state", flat=True)) == {"destroyed"}
    assert Resource.objects.get().used_slots == 0


@pytest.mark.slow
def test_everything_at_once_causes_no_deadlock(blueprint, owner, no_deadlock):
    User.objects.create_superuser("root")
    for name in ("left", "right"):
        blueprint(name, config={"capacity": {"slots": 8}}, max_resources=3)
    host = {"type": "fake", "lifetime": "life", "name": "host"}
    needs = [
        {"does": "need_leases", "at": "build.reserve", "leases": [host]},
        {"does": "need_leases", "at": "activate.account", "leases": [{"type": "fake", "name": "beside"}]},
    ]
    blueprint("sites", kind="fake_activated", config={"capacity": {"slots": 3}, "faults": needs}, max_resources=3)
    with Clients("meddle", [{"owner": owner.pk, "seed": seed, "times": 60} for seed in range(4)]) as clients:
        clients.go()
    Quota.objects.all().delete()
    Budget.objects.all().delete()
    Blueprint.objects.update(enabled=True, drained=True)
    unfinished = Lease.objects.filter(state__in=["pending", "acquired", "active", "released"])
    until = clock.monotonic() + 90
    while unfinished.exists() or Resource.objects.filter(gone_at=None).exists():
        assert clock.monotonic() < until, list(unfinished.values_list("id", "type", "state", "reason", "message"))
        unfinished.exclude(state="released").filter(need="").update(release_wanted="released_by_owner")
        sweep.sweep()
        settle()
    assert sum(r.used_slots for r in Resource.objects.all()) == 0


@pytest.mark.slow
def test_wholes_and_parts_leased_at_random_exclude_each_other_and_cause_no_deadlock(blueprint, owner, no_deadlock):
    hosts = blueprint("hosts", max_resources=0)
    parts = blueprint("parts", kind="fake_cloud", config={"credential": "none"}, max_resources=0)
    there = {"state": "active", "origin": "discovered"}
    for n in range(3):
        host = Resource.objects.create(blueprint=hosts, type="fake", name=f"h{n}", total_slots=4, **there)
        for m in range(2):
            card = Resource.objects.create(blueprint=parts, type="fake_cloud", name=f"h{n}c{m}", part_of=host, **there)
            Resource.objects.create(blueprint=parts, type="fake_cloud", name=f"h{n}c{m}s", part_of=card, **there)
    storm = Clients("share_trees", [{"owner": owner.pk, "seed": seed, "times": 150} for seed in range(4)])
    watch = Clients("watch_trees", [{"times": 150}])
    with storm, watch:
        watch.start()
        storm.go()
        assert watch.answers() == [[]]
    assert Event.objects.filter(kind="lease.acquired", lease__type="fake").count() > 5
    assert Event.objects.filter(kind="lease.acquired", lease__type="fake_cloud").count() > 5
    Resource.objects.update(drained=False, quarantined=False)
    unfinished = Lease.objects.filter(state__in=["pending", "acquired", "active", "released"])
    end = clock.monotonic() + 60
    while unfinished.exists() or Resource.objects.filter(tree_stale=True).exists():
        assert clock.monotonic() < end, list(unfinished.values_list("id", "type", "state", "reason", "message"))
        unfinished.exclude(state="released").update(release_wanted="released_by_owner")
        sweep.sweep()
        settle()
    assert tree_violations() == []
    assert not Resource.objects.exclude(busy_below=0, closed_by=[], whole_lease_id=None).exists()


def test_a_group_that_builds_in_a_host_waits_for_a_card_before_it_locks_the_host(blueprint, owner):
    hosts = blueprint("hosts", max_resources=0)
    pool = blueprint("cards", kind="fake_activated", max_resources=0)
    carrier = {"name": "card", "type": "fake_activated"}
    blueprint("dpus", kind="fake_reported", config={"provider": "dpus", "carrier": carrier})
    there = {"state": "active", "origin": "discovered"}
    host = Resource.objects.create(blueprint=hosts, type="fake", name="lab", **there)
    first, second = (
        Resource.objects.create(blueprint=pool, type="fake_activated", name=name, part_of=host, **there)
        for name in ("first", "second")
    )
    asked = [read({"type": "fake_reported"})] * 2
    _, ids = request.request_group(asked, owner.pk, actor="ada", same="whole")
    group = Lease.objects.get(pk=ids[0]).group_id
    with psycopg.connect(**_connection()) as claim, ThreadPoolExecutor(1) as worker:
        claim.execute("SELECT 1 FROM leases_resource WHERE id = %s FOR NO KEY UPDATE", (second.pk,))
        advanced = worker.submit(_advance, group)
        waiting = "SELECT 1 FROM pg_stat_activity WHERE datname = current_database() AND wait_event_type = 'Lock'"
        end = clock.monotonic() + 30
        while not rows(waiting):
            assert clock.monotonic() < end
            assert not advanced.done()
            clock.sleep(0.01)
        claim.execute("SELECT 1 FROM leases_resource WHERE id = %s FOR NO KEY UPDATE NOWAIT", (host.pk,))
        claim.rollback()
        assert advanced.result(30) is Outcome.NO_ROOM
    assert set(Resource.objects.filter(type="fake_reported").values_list("part_of", flat=True)) == {first.pk, second.pk}


def _advance(group_id):
    try:
        return groups.advance(group_id)
    finally:
        connection.close()


def _connection():
    given = connection.get_connection_params()
    return {key: given[key] for key in ("host", "port", "user", "password", "dbname") if given.get(key)}


def test_reservations_are_given_up_without_waiting_for_a_lock(eight_slots, ask):
    resource, lease = Resource.objects.get(), ask(slots=8)
    waits = ask(slots=8)
    Resource.objects.filter(pk=resource.pk).update(reserved_for=waits)
    with psycopg.connect(**_connection()) as other:
        other.execute("SELECT 1 FROM leases_resource WHERE id = %s FOR NO KEY UPDATE", (resource.pk,))
        with transaction.atomic():
            bound_lock_waits()
            assert claims.unreserve(waits.pk) == 0
    Lease.objects.filter(pk=waits.pk).update(parked=True)
    assert lease_checks.idle_reservations() == 1
    assert lease.state == "active"
