"""The worker inside a program that waits for a lease."""

from __future__ import annotations

import threading

import pytest

from leases.messaging import handlers, hints
from leases.messaging.private_worker import PrivateWorker

CHAIN = 5
pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture
def handled(monkeypatch):
    """The lengths that were left of a chain of hints, each of which is sent when the one before is handled."""
    left, begun = [], threading.Event()

    def step(length):
        begun.wait(10)
        left.append(length)
        if length:
            hints.after_commit("step", length - 1)

    monkeypatch.setitem(handlers.HANDLERS, "step", step)
    return left, begun


def test_what_a_release_leads_to_is_done_before_the_program_ends(handled):
    left, begun = handled
    with PrivateWorker() as worker:
        hints.after_commit("step", CHAIN)
        assert worker.look()
        assert worker.private
        begun.set()
    assert left == list(range(CHAIN, -1, -1))
