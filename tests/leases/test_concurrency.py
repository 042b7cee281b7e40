"""The concurrency rules, each with several processes on a real PostgreSQL."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest
from django.db import connection, transaction
from django.db.models import Sum

from drydock.core import clock
from leases.engine.core.database import bound_lock_waits, rows
from leases.engine.lifecycle import release
from leases.engine.queue import serve
from leases.engine.scheduling import request
from leases.messaging import hints
from leases.messaging.inline import settle
from leases.models import Event, Lease, Quota, Resource, Run, Share
from leases.operations import callers, permissions
from leases.validation.requests import read
from tests.leases.clients import Clients


def held_is_used() -> bool:
    """What is used of every resource is the sum of its shares, and not more than there is."""
    return all(
        r.used_slots == (r.shares.aggregate(n=Sum("slots"))["n"] or 0) and r.used_slots <= r.total_slots
        for r in Resource.objects.all()
    )


@pytest.fixture
def pool(blueprint, ask):
    """Make warm resources: `pool(n, slots=k)`."""

    def make(count: int = 1, slots: int = 1, **columns):
        made = blueprint(config={"capacity": {"slots": slots}}, max_resources=count, min_ready=count, **columns)
        settle()
        assert Resource.objects.filter(state="active").count() == count
        return made

    return make


def test_eight_clients_get_all_of_one_resource_and_nothing_is_built(pool, owner):
    pool(1, slots=100)
    each = {"owner": owner.pk, "request": {"type": "fake"}}
    with Clients("allocate", [each | {"times": 13 if n < 4 else 12} for n in range(8)]) as clients:
        granted = [lease for ids in clients.go() for lease in ids]
    assert len(set(granted)) == 100
    settle()
    assert set(Lease.objects.values_list("state", "reason")) == {("active", "ready")}
    assert not Event.objects.filter(kind__startswith="lease.waiting").exists(), "nobody was told there is no room"
    assert Resource.objects.get().used_slots == 100
    assert held_is_used()


def test_eight_waiters_on_eight_slot_hosts_cause_one_build(blueprint, owner):
    blueprint(config={"capacity": {"slots": 8}})
    each = {"owner": owner.pk, "times": 1, "request": {"type": "fake"}}
    with Clients("allocate_and_serve", [each] * 8) as clients:
        clients.go()
    settle()
    assert Resource.objects.count() == 1
    assert Lease.objects.filter(state="active").count() == 8


def test_a_big_waiter_among_endless_small_newcomers_is_served(pool, owner, ask, settings):
    pool(1, slots=8)
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"head_reservation_seconds": 0.0})
    small = [ask(slots=1) for _ in range(8)]
    big = ask(slots=8)
    settle()
    each = {"owner": owner.pk, "times": 40, "request": {"type": "fake", "slots": 1}}
    with Clients("churn", [each] * 3) as clients:
        for lease in small:
            release.release(lease.pk, actor="ada")
        clients.go()
    settle()
    big.refresh_from_db()
    assert big.state == "active"
    assert held_is_used()


def test_without_a_reservation_small_ones_fill_what_the_big_one_cannot_use(pool, ask):
    pool(1, slots=8)
    ask(slots=4)
    assert ask(slots=8).state == "pending"
    assert ask(slots=4).state == "active"


@pytest.mark.parametrize("round_", [0, *(pytest.param(later, marks=pytest.mark.slow) for later in (1, 2))])
def test_release_and_arrival_at_the_same_instant_leave_no_room_idle(pool, owner, ask, round_):
    pool(4)
    held = [ask() for _ in range(4)]
    waiting = [ask() for _ in range(2)]
    arrive = [{"owner": owner.pk, "times": 2, "request": {"type": "fake"}}] * 2
    with (
        Clients("release", [{"leases": [lease.pk]} for lease in held]) as leaving,
        Clients("allocate", arrive) as coming,
    ):
        for clients in (leaving, coming):
            clients.start()
        for clients in (leaving, coming):
            clients.answers()
    serve.serve("fake")
    assert Share.objects.count() == 4, "all room is taken while leases wait"
    assert Lease.objects.filter(pk__in=[w.pk for w in waiting], state="active").count() == 2, "older ones first"
    assert held_is_used()


def test_a_rolled_back_caller_wakes_and_holds_nobody(pool, owner):
    pool(1)

    class Undo(Exception):
        pass

    with hints.collected() as sent:
        with suppress(Undo), transaction.atomic():
            done = request.request(read({"type": "fake"}), owner.pk, actor="ada")
            assert Lease.objects.get(pk=done.id).state == "pending"
            assert not Share.objects.exists()
            raise Undo
        assert not sent
    assert not Lease.objects.exists()
    assert Resource.objects.get().used_slots == 0


def test_inside_a_callers_transaction_only_the_row_is_written_and_the_claim_follows_its_commit(pool, owner):
    pool(1)
    with hints.collected() as sent:
        with transaction.atomic():
            done = request.request(read({"type": "fake"}), owner.pk, actor="ada")
            assert not sent
        assert list(sent) == [("serve", ("fake",))]
    serve.serve("fake")
    assert Lease.objects.get(pk=done.id).state == "active"


def test_a_release_inside_a_callers_transaction_is_a_wish_until_its_commit(pool, ask):
    pool(1)
    lease = ask()
    with transaction.atomic():
        release.release(lease.pk, actor="ada")
        lease.refresh_from_db()
        assert (lease.state, lease.release_wanted) == ("active", "released_by_owner")
    settle()
    lease.refresh_from_db()
    assert (lease.state, Share.objects.count()) == ("destroyed", 0)


def test_the_same_idempotency_key_from_eight_clients_is_one_lease(pool, owner):
    pool(4)
    each = {"owner": owner.pk, "times": 3, "request": {"type": "fake"}, "key": "build-7"}
    with Clients("allocate", [each] * 8) as clients:
        ids = {lease for found in clients.go() for lease in found}
    assert len(ids) == Lease.objects.count() == Share.objects.count() == 1


def test_groups_that_cross_each_other_end_without_deadlock(pool, owner):
    pool(3)
    two = [{"type": "fake"}, {"type": "fake"}]
    each = {"owner": owner.pk, "times": 10, "requests": two, "different": "resource"}
    with Clients("group", [each] * 4) as clients:
        granted = sum(clients.go())
    settle()
    assert granted > 0
    assert not Share.objects.exists()
    assert held_is_used()
    assert set(Lease.objects.values_list("state", flat=True)) == {"destroyed"}


def test_nothing_is_left_when_all_is_released(pool, ask):
    pool(2, slots=3)
    leases = [ask() for _ in range(6)]
    for lease in leases:
        release.release(lease.pk, actor="ada")
    assert (Share.objects.count(), Run.objects.count()) == (0, 0)
    assert held_is_used()


def test_a_lock_is_waited_for_as_long_as_the_settings_say(settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"lock_timeout_ms": 1234})
    with transaction.atomic():
        bound_lock_waits()
        assert rows("SHOW lock_timeout") == [("1234ms",)]
    assert rows("SHOW lock_timeout") != [("1234ms",)]


def test_a_quota_is_set_without_holding_it_while_leases_are_waited_for(pool, ask, owner, django_user_model):
    """A claim locks the lease first and then the quota: an operator who did it the other way round would deadlock."""
    pool(2)
    operator = callers.caller(django_user_model.objects.create_superuser("root"))
    permissions.set_quota(operator, user=owner.username, limits={"max_leases": 1})
    ask()
    assert ask().reason == "waiting_quota" or settle()
    waiter = Lease.objects.get(state="pending")

    def set_higher() -> None:
        try:
            permissions.set_quota(operator, user=owner.username, limits={"max_leases": 2})
        finally:
            connection.close()

    with ThreadPoolExecutor(1) as beside:
        with transaction.atomic():
            Lease.objects.select_for_update(no_key=True).get(pk=waiter.pk)
            setting = beside.submit(set_higher)
            until(lambda: Quota.objects.get().max_leases == 2 or setting.done())
            Quota.objects.select_for_update(no_key=True, nowait=True).get()
        setting.result(30)
    settle()
    assert Lease.objects.filter(state="active").count() == 2


def until(there) -> None:
    """Wait until it is there; what never comes fails by the look that follows."""
    end = clock.monotonic() + 3
    while not there() and clock.monotonic() < end:
        clock.sleep(0.02)
