"""A worker that is told to end: SIGTERM to a real one."""

from __future__ import annotations

import collections
import os
import signal

import psutil
import pytest
from django.db import connection

from blueprints.fake.cloud import Cloud
from drydock.core import clock
from leases.engine.core import database
from leases.engine.lifecycle import runner
from leases.engine.queue import serve
from leases.messaging import hints
from leases.messaging.inline import settle
from leases.models import Lease, Run
from leases.models import Worker as Live
from tests.settings import DATABASE
from tests.workers import Worker

SLOW = {"provider": "slow", "faults": [{"does": "slow", "at": "build.create", "seconds": 4}]}


def wait_for(what, seconds=40):
    end = clock.monotonic() + seconds
    while not (found := what()):
        if clock.monotonic() > end:
            pytest.fail(f"not in time: {list(Lease.objects.values('id', 'state', 'reason', 'message'))}")
        clock.sleep(0.05)
    return found


@pytest.fixture
def real():
    """A worker whose queue is its own; hints are sent."""
    worker = Worker({DATABASE: str(connection.settings_dict["NAME"]), "DRYDOCK_STEP_TOKEN_SECONDS": "120"})
    with hints.collected():
        hints._local.collected = None
        try:
            worker.wait_ready()
            yield worker
        finally:
            worker.stop()


@pytest.mark.parametrize("send", [os.kill, os.killpg], ids=["worker", "job"])
def test_the_step_at_hand_is_finished_and_no_other_is_begun(blueprint, ask, real, send):
    """Also when a shell's `kill %1` sends the signal to the worker's children too."""
    blueprint(config=SLOW)
    wait_for(Live.objects.exists)
    assert Live.objects.get().queues == ["claims", "periodic", "steps"]
    assert Live.objects.get().name.endswith(f":{real.process.pid}")
    lease = ask()
    wait_for(lambda: Run.objects.filter(in_call=True, position=1).exclude(token=None).exists())
    send(real.process.pid, signal.SIGTERM)
    assert real.process.wait(40) == 0
    assert "Traceback" not in real.text()
    assert not Live.objects.exists()
    run = Run.objects.get()
    assert (run.position, run.token, run.in_call) == (2, None, False), "its token is given back"
    (made,) = Cloud("slow").instances()
    assert (made.state, made.created) == ("starting", 1)
    hints._local.collected = collections.deque()
    settle()
    lease.refresh_from_db()
    assert lease.state == "active", "another worker goes on at once"
    (made,) = Cloud("slow").instances()
    assert made.created == 1


def test_a_worker_without_work_says_that_it_lives(real):
    first = wait_for(Live.objects.first)
    assert first.name.endswith(f":{real.process.pid}")
    os.kill(real.process.pid, signal.SIGTERM)
    assert real.process.wait(40) == 0
    assert not Live.objects.exists()


def test_a_draining_process_hands_its_run_on(blueprint, ask):
    blueprint()
    ask()
    serve.serve("fake")
    with hints.collected() as sent:
        database.begin_draining()
        try:
            (run,) = Run.objects.all()
            assert runner.carry_on(run.pk) is False
        finally:
            database.forget_draining()
    assert ("step", (run.pk,)) in sent
    assert Run.objects.get().token is None


def test_a_cold_shutdown_leaves_no_child(blueprint, ask, real):
    """Children ignore SIGTERM, which is how Celery ends them at SIGQUIT."""
    blueprint(config=SLOW)
    wait_for(Live.objects.exists)
    ask()
    wait_for(lambda: Run.objects.filter(in_call=True, position=1).exclude(token=None).exists())
    children = psutil.Process(real.process.pid).children(recursive=True)
    assert children
    os.kill(real.process.pid, signal.SIGQUIT)
    real.process.wait(40)
    wait_for(lambda: not [one for one in children if one.is_running() and one.status() != psutil.STATUS_ZOMBIE])
