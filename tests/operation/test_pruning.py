"""What is over is forgotten in its time: in small batches, past locked rows, and nothing that is still needed."""

from __future__ import annotations

import threading

import pytest
from django.db import connection, transaction

from leases.engine.core.database import run
from leases.engine.lifecycle import release
from leases.engine.upkeep import pruning
from leases.messaging.inline import settle
from leases.models import Event, Job, Lease, LeaseGroup, Resource
from tests.operation.rows import ended


@pytest.fixture(autouse=True)
def _from_the_start():
    """Each test walks from the first row on."""
    awake()
    yield
    awake()


def awake() -> None:
    """Nothing rests, and walks begin at the first row."""
    pruning.EVENTS.until = 0.0
    for walk in pruning.WALKS:
        walk.place, walk.rest.until = 0, 0.0


def long_ago(*tables: str) -> None:
    """Everything in these tables happened a hundred days earlier."""
    columns = {"leases_event": ("at",), "leases_leasegroup": ("created_at",),
               "leases_lease": ("created_at", "ended_at"), "leases_resource": ("created_at", "gone_at")}  # fmt: skip
    for table in tables or columns:
        run(f"UPDATE {table} SET " + ", ".join(f"{one} = {one} - interval '100 days'" for one in columns[table]))


def again() -> int:
    """A walk after the rest."""
    for walk in pruning.WALKS:
        walk.rest.until = 0.0
    return pruning.prune_ended()


def test_events_go_in_bounded_batches(monkeypatch):
    monkeypatch.setattr(pruning, "_BATCH", 10)
    ended(73)
    run("UPDATE leases_event SET at = at - interval '91 days' WHERE id NOT IN (SELECT max(id) FROM leases_event)")
    assert [pruning.prune_events(), pruning.prune_events(), pruning.prune_events()] == [50, 22, 0]
    assert Event.objects.count() == 1


def test_a_whole_story_is_forgotten_and_what_lives_stays(blueprint, ask, until):
    blueprint(idle_timeout="1 microsecond")
    over, kept = until(ask(), state="active"), until(ask(), state="active")
    Job.objects.create(lease=over, command="true", state="ended")
    release.release(over.pk, actor="ada")
    until(over, state="destroyed")
    until(over.resource, state="destroyed")
    long_ago()
    settle()
    again()
    assert not Job.objects.exists()
    assert list(Lease.objects.values_list("pk", flat=True)) == [kept.pk]
    assert list(Resource.objects.values_list("pk", flat=True)) == [kept.resource_id]
    kept.refresh_from_db()
    assert kept.state == "active", "however long ago it was asked for"
    release.release(kept.pk, actor="ada")
    until(kept, state="destroyed")


def test_what_ended_yesterday_stays_with_its_idempotency_key(blueprint, ask, until):
    blueprint()
    lease = until(ask(idempotency_key="mine"), state="active")
    release.release(lease.pk, actor="ada")
    until(lease, state="destroyed")
    run("UPDATE leases_lease SET created_at = created_at - interval '100 days'")
    assert again() == 0
    assert ask(idempotency_key="mine").pk == lease.pk


def test_what_is_referred_to_stays_until_that_is_gone(owner):
    ended(3)
    first, second, third = Lease.objects.order_by("id")
    Lease.objects.filter(pk=second.pk).update(root=first)
    Lease.objects.filter(pk=third.pk).update(group=LeaseGroup.objects.create(owner=owner), for_lease=first)
    Lease.objects.update(ended_at=connection.ops.adapt_datetimefield_value(first.created_at))
    long_ago()
    assert pruning.prune_ended() == 3, "those that referred to it, and their group"
    assert again() == 1
    assert not Lease.objects.exists()
    assert not LeaseGroup.objects.exists()


def test_batches_are_bounded_and_the_walk_comes_to_its_end(monkeypatch):
    monkeypatch.setattr(pruning, "_BATCH", 10)
    ended(130)
    run("UPDATE leases_lease SET ended_at = created_at")
    long_ago("leases_lease")
    assert [pruning.prune_ended() for _ in range(3)] == [50, 50, 30]
    assert pruning.prune_ended() == 0, "it rests"
    assert not Lease.objects.exists()


def test_it_waits_for_no_lock_and_nobody_waits_for_it(blueprint, ask, until):
    """A locked row is passed over; while a batch is not committed yet, leases are asked for, served and released."""
    blueprint()
    ended(5)
    run("UPDATE leases_lease SET ended_at = created_at")
    long_ago("leases_lease", "leases_event")
    locked = Lease.objects.order_by("id").first().pk
    pruned, carry_on = threading.Event(), threading.Event()
    found: list[int] = []

    def elsewhere() -> None:
        try:
            with transaction.atomic():
                run("SET LOCAL lock_timeout = '1s'")
                found.append(pruning.forget.__wrapped__(pruning.WALKS[0], range(locked, locked + 5)))
                found.append(pruning._prune_events.__wrapped__())
                pruned.set()
                carry_on.wait(60)
        finally:
            pruned.set()
            connection.close()

    thread = threading.Thread(target=elsewhere)
    with transaction.atomic():
        run("SELECT FROM leases_lease WHERE id = %s FOR UPDATE", (locked,))
        thread.start()
        assert pruned.wait(60)
    assert found == [4, 5], "all but the one that was locked; the events of all"
    run("SET lock_timeout = '1s'")
    try:
        lease = until(ask(), state="active")
        release.release(lease.pk, actor="ada")
        until(lease, state="destroyed")
    finally:
        carry_on.set()
        thread.join()
        run("RESET lock_timeout")
    assert not Lease.objects.exclude(pk__in=[locked, lease.pk]).exists()
