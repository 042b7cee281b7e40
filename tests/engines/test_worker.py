"""A real worker on the test database."""

from __future__ import annotations

import time

import pytest
from django.apps import apps

from drydock.celery import app
from tests.engines.users import eventually

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_sweep_sent_through_the_broker_reaches_the_test_database(worker):
    swept = apps.get_model("leases", "Installation").objects.exclude(swept_at=None)
    assert not swept.exists()
    sent = 0.0

    def swept_when_asked():
        """As the schedule does: one that is lost, or finds another under way, is followed by the next."""
        nonlocal sent
        if time.monotonic() - sent > 5:
            app.send_task("leases.sweep", queue="periodic")
            sent = time.monotonic()
        return swept.exists()

    eventually(swept_when_asked)


def test_a_killed_worker_leaves_nothing_behind(worker):
    worker.kill()
    assert worker.process.returncode < 0
