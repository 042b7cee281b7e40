"""A real worker on the test database."""

from __future__ import annotations

import pytest
from django.apps import apps

from drydock.celery import app
from tests.engines.users import eventually

pytestmark = pytest.mark.django_db(transaction=True)


def test_a_sweep_sent_through_the_broker_reaches_the_test_database(worker):
    swept = apps.get_model("leases", "Installation").objects.exclude(swept_at=None)
    assert not swept.exists()
    app.send_task("leases.sweep", queue="periodic")
    eventually(swept.exists)


def test_a_killed_worker_leaves_nothing_behind(worker):
    worker.kill()
    assert worker.process.returncode < 0
