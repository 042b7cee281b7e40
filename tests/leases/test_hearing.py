"""Workers that do not hear the broker any more."""

from __future__ import annotations

import signal
import threading

import pytest
from celery import worker
from django.db import connection

from leases.engine.core import database
from leases.messaging import broker_watchdog, hints
from tests.settings import DATABASE
from tests.workers import Worker


@pytest.mark.parametrize(
    ("looks", "deaf"),
    [
        ([(0, 2)] * 20, False),
        ([(5, 0)] * 20, False),
        ([(5, 1)] * 5, False),
        ([(5, 1)] * 20, True),
        ([(5, 1)] * 5 + [(0, 1)] + [(5, 1)] * 5, False),
        ([(5, 1)] * 5 + [(5, 0)] + [(5, 1)] * 5, False),
    ],
    ids=["nothing waits", "none is free", "not for long", "deaf", "read meanwhile", "busy meanwhile"],
)
def test_a_worker_is_deaf_that_could_take_what_waits_and_does_not(looks, deaf):
    heard = broker_watchdog.BrokerContact()
    assert any([heard.deaf(waiting=waiting, free=free) for waiting, free in looks]) is deaf


def test_a_message_received_is_heard():
    heard = broker_watchdog.BrokerContact()
    for _ in range(broker_watchdog.DEAF_CHECKS + 3):
        assert not heard.deaf(waiting=5, free=1)
        heard.heard()


@pytest.mark.django_db(transaction=True)
@pytest.mark.slow
def test_a_deaf_worker_ends_itself_and_says_why():
    with hints.collected():
        hints._local.collected = None
        worker = Worker({DATABASE: str(connection.settings_dict["NAME"])}, app="tests.leases.deaf")
        try:
            worker.wait_ready()
            assert hints.send("serve", "fake")
            assert worker.process.wait(60) == 0
        finally:
            worker.stop()
    assert "does not receive messages from the broker although messages are waiting" in worker.text()


@pytest.fixture
def killed(monkeypatch):
    """What a watch sends to its process, and it looks all the time."""
    sent = []
    monkeypatch.setattr(broker_watchdog, "CHECK_SECONDS", 0.001)
    monkeypatch.setattr(broker_watchdog, "END_CHECK_SECONDS", 0.001)
    monkeypatch.setattr(broker_watchdog, "_waiting", lambda queues: 5)
    monkeypatch.setattr(broker_watchdog.os, "kill", lambda pid, number: sent.append(number))
    return sent


def test_a_worker_that_is_told_to_end_is_not_deaf(killed, monkeypatch):
    """It takes nothing more while it finishes what it has at hand, however much waits."""
    monkeypatch.setattr(worker.state, "active_requests", {"one"})
    monkeypatch.setattr(database, "is_draining", lambda: True)
    watch = broker_watchdog.BrokerWatchdog(["claims"], 2)
    watch._thread.join(0.2)
    watch.end()
    watch._thread.join(60)
    assert not watch._thread.is_alive()
    assert killed == []


@pytest.mark.parametrize("at_hand", [set(), {"one"}], ids=["nothing at hand", "longer than any step counts"])
def test_one_that_was_told_to_end_and_does_not_is_ended_by_force(at_hand, killed, monkeypatch, settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"step_token_seconds": 0.05})
    monkeypatch.setattr(worker.state, "active_requests", at_hand)
    monkeypatch.setattr(database, "is_draining", lambda: True)
    watch = broker_watchdog.BrokerWatchdog(["claims"], 2)
    watch._thread.join(60)
    watch.end()
    assert killed == [signal.SIGKILL]


def test_one_that_hangs_with_the_log_s_lock_is_ended_all_the_same(killed, monkeypatch, settings, capfd):
    monkeypatch.setattr(broker_watchdog, "_LOG_SECONDS", 0.05)
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"step_token_seconds": 0.05})
    monkeypatch.setattr(database, "is_draining", lambda: True)
    free = threading.Event()
    monkeypatch.setattr(broker_watchdog.log, "critical", lambda message: free.wait(60))
    watch = broker_watchdog.BrokerWatchdog(["claims"], 2)
    watch._thread.join(60)
    watch.end()
    free.set()
    assert killed == [signal.SIGKILL]
    assert "did not stop in time" in capfd.readouterr().err


@pytest.mark.django_db(transaction=True)
def test_a_worker_whose_main_process_hangs_ends_when_it_is_told_to():
    # A message that was still in its queue may be at hand then, and nobody hears any more that it is done.
    brief = {"DRYDOCK_STEP_TOKEN_SECONDS": "5"}
    database = {DATABASE: str(connection.settings_dict["NAME"])}
    worker = Worker({**brief, **database}, app="tests.leases.hanging")
    try:
        worker.wait_ready()
        worker.process.terminate()
        assert worker.process.wait(60) == -signal.SIGKILL
    finally:
        worker.stop()
    assert "did not stop in time" in worker.text()
    assert "hang_for_ever" in worker.text(), "its log does not say where it hung"
