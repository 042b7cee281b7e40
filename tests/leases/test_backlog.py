"""Hints that nobody reads do not pile up, and what cannot be helped does not stand in the way."""

from __future__ import annotations

import celery
import pytest
from celery import current_app

from leases.engine.lifecycle import release
from leases.engine.upkeep import lease_checks, run_checks
from leases.messaging import hint_dedup, hints
from leases.messaging.inline import settle
from leases.models import Lease, Run
from leases.schedule import BEAT, Scheduler


@pytest.fixture
def broker():
    """The broker with nothing in the queues; what this test sends is sent indeed."""
    with current_app.connection_for_write() as connection, hints.collected():
        hints._local.collected = None
        client = connection.default_channel.client
        client.delete(*set(hints.QUEUES.values()))
        for hint in hints.QUEUES:
            hint_dedup.take(client, hint, (9,))
            hint_dedup.end(client, hint, (9,))
        yield client
        client.delete(*set(hints.QUEUES.values()))


@pytest.mark.parametrize("hint", hints.QUEUES)
def test_a_hint_that_waits_in_its_queue_is_not_sent_again(broker, hint):
    queue = hints.QUEUES[hint]
    assert [hints.send(hint, 9) for _ in range(3)] == [True] * 3
    assert broker.llen(queue) == 1
    assert hints.send(hint, 10)
    assert broker.llen(queue) == 2
    with hints.read(hint, 9) as mine:
        assert mine
    hints.send(hint, 9)
    assert broker.llen(queue) == 3, "what is sent after it was read says something new"


def test_hints_whose_queue_was_lost_are_sent_again(broker):
    hints.send("step", 9)
    broker.delete("steps")
    hints.send("step", 9)
    assert broker.llen("steps") == 1


def test_one_process_at_a_time_serves_a_type_and_looks_once_more_when_it_was_asked_to(broker):
    with hints.read("serve", 9) as first:
        for _ in range(3):
            hints.send("serve", 9)
            broker.rpop("claims")
            with hints.read("serve", 9) as second:
                assert (first, second) == (True, False)
        with hints.read("serve", 10) as other:
            assert other
        assert broker.llen("claims") == 0
    assert broker.llen("claims") == 1
    with hints.read("serve", 9) as again:
        assert again


def test_steps_of_one_run_are_fenced_by_their_token_and_not_here(broker):
    with hints.read("step", 9) as first, hints.read("step", 9) as second:
        assert first is second is True


def test_one_look_is_made_at_a_lease_at_a_time_and_only_some_at_those_of_one_owner(broker, settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"worker_concurrency": 4})
    with hints.looking(1, 7) as first, hints.looking(1, 7) as again, hints.looking(2, 7) as second:
        assert (first, again, second) == (True, False, True)
        with hints.looking(3, 7) as third, hints.looking(3, 8) as of_another:
            assert (third, of_another) == (False, True)
    with hints.looking(1, 7) as later:
        assert later


def test_a_broker_that_does_not_answer_keeps_nobody_from_carrying_out_what_was_read(monkeypatch):
    def refuse(*_: object) -> None:
        raise OSError("gone")

    monkeypatch.setattr(celery.current_app, "producer_or_acquire", refuse)
    monkeypatch.setattr(hints, "_silent_until", 0.0)
    monkeypatch.setattr(hints._local, "collected", None)
    with hints.read("serve", 9) as mine, hints.looking(1, 7) as looks:
        assert mine
        assert looks
    monkeypatch.setattr(hints, "_silent_until", 0.0)
    assert not hints.send("serve", 9)


def test_due_steps_that_nobody_reads_are_found_again_and_again_and_sent_once(broker, blueprint, ask):
    blueprint(config={"boot_polls": 5, "poll_seconds": 60})
    with hints.collected():
        ask()
        settle()
    Run.objects.update(due_at="2020-01-01T00:00Z")
    for _ in range(3):
        assert run_checks.steps() == 1
    assert broker.llen("steps") == 1


def test_what_cannot_be_helped_keeps_nothing_else_from_being_looked_at(
    blueprint, ask, monkeypatch, settings, swallowed
):
    blueprint(config={"capacity": {"slots": 9}})
    stuck, other = ask(ttl="1h"), ask(ttl="1h")
    settle()
    Lease.objects.update(until="2020-01-01T00:00Z")
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"sweep_batch": 1})
    end = release.end

    def refuse(lease_id, **given):
        if lease_id == stuck.pk:
            raise RuntimeError("the provider's answer makes no sense")
        end(lease_id, **given)

    monkeypatch.setattr(release, "end", refuse)
    for _ in range(60):
        lease_checks.expired()
    assert set(Lease.objects.values_list("pk", "state")) == {(stuck.pk, "active"), (other.pk, "destroyed")}


def test_sweeps_do_not_pile_up_while_no_worker_reads_them(broker):
    beat = Scheduler(app=current_app, lazy=True)
    entry = beat.Entry(name="sweep", app=current_app, **BEAT["sweep"])
    for _ in range(3):
        beat.apply_entry(entry)
    assert broker.llen("periodic") == 1
    assert "expires" not in BEAT["sweep"]["options"]
