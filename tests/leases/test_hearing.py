"""Workers that do not hear the broker any more."""

from __future__ import annotations

import pytest
from django.db import connection

from leases import hearing, hints
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
    heard = hearing.Hearing()
    assert any([heard.deaf(waiting=waiting, free=free) for waiting, free in looks]) is deaf


def test_a_message_received_is_heard():
    heard = hearing.Hearing()
    for _ in range(hearing.DEAF_LOOKS + 3):
        assert not heard.deaf(waiting=5, free=1)
        heard.heard()


@pytest.mark.django_db(transaction=True)
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
    assert "hears nothing from the broker while messages wait" in worker.text()


def test_a_worker_that_is_told_to_end_is_not_deaf(monkeypatch):
    """It takes nothing more while it finishes what it has at hand, however much waits and however long that takes."""
    ended = []
    monkeypatch.setattr(hearing, "LOOK_SECONDS", 0.001)
    monkeypatch.setattr(hearing, "_waiting", lambda queues: 5)
    monkeypatch.setattr(hearing, "_end", lambda: ended.append(True))
    for begun in (True, False):
        monkeypatch.setattr(hearing.draining, "begun", lambda begun=begun: begun)
        watch = hearing.Watch(["claims"], 2)
        watch._thread.join(60)
        watch.end()
        assert not watch._thread.is_alive()
        assert bool(ended) is not begun
