"""Real worker processes on a real broker: hints make it quick, the sweep makes it sure."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import celery
import pytest
from django.db import connection
from kombu.exceptions import OperationalError

from drydock.core import clock
from leases import tasks
from leases.engine.lifecycle import release
from leases.engine.resources.retirement import retire_idle
from leases.engine.scheduling import request
from leases.messaging import hints
from leases.models import Lease, Resource, Share
from leases.models import Worker as Live
from leases.reasons import Reason
from leases.validation.requests import read
from tests.leases.clients import ROOT
from tests.settings import DATABASE
from tests.workers import Worker


def wait_for(what, seconds=40):
    end = clock.monotonic() + seconds
    while not what():
        if clock.monotonic() > end:
            pytest.fail(f"not in time: {list(Lease.objects.values('id', 'state', 'reason', 'message'))}")
        clock.sleep(0.05)


def ended():
    return not Lease.objects.exclude(state__in=["destroyed", "broken"]).exists()


@pytest.fixture
def life(blueprint, owner):
    """Ten leases on three resources with activation and cleaning, from request to the last return."""

    def live() -> None:
        blueprint(
            kind="fake_activated", config={"provider": "t", "boot_polls": 1, "poll_seconds": 0.1}, max_resources=3
        )
        ids = [request.request(read({"type": "fake_activated"}), owner.pk, actor="ada").id for _ in range(10)]
        for _ in range(40):
            wait_for(lambda: Lease.objects.filter(state="active").exists() or ended())
            for lease in Lease.objects.filter(state="active"):
                release.release(lease.pk, actor="ada")
            if ended():
                break
        wait_for(ended)
        assert set(Lease.objects.filter(pk__in=ids).values_list("state", flat=True)) == {"destroyed"}
        for resource in Resource.objects.filter(state="active"):
            retire_idle(resource.pk, reason=Reason.OPERATOR, message="enough")
        wait_for(lambda: not Resource.objects.filter(gone_at=None).exists())
        assert not Share.objects.exists()

    return live


@contextmanager
def running(**environment: str) -> Iterator[Worker]:
    """A worker with beat on the test database."""
    quick = {"DRYDOCK_SWEEP_INTERVAL_SECONDS": "0.5", "DRYDOCK_STEP_TOKEN_SECONDS": "3"}
    worker = Worker({DATABASE: str(connection.settings_dict["NAME"]), **quick, **environment}, beat=True)
    try:
        yield worker
    finally:
        worker.stop()


@pytest.fixture
def _hints_are_sent():
    with hints.collected():
        hints._local.collected = None
        yield


@pytest.mark.usefixtures("_hints_are_sent")
def test_workers_serve_everything(life):
    with running() as worker:
        worker.wait_ready()
        life()
        assert Live.objects.exists()
    assert not Live.objects.exists(), "a worker that ended in an orderly way is no longer listed"


@pytest.mark.usefixtures("_hints_are_sent")
@pytest.mark.slow
def test_a_worker_that_is_killed_is_replaced_by_another(life):
    with running() as first:
        first.wait_ready()
        killer = threading.Timer(1.5, first.kill)
        killer.start()
        with running() as second:
            second.wait_ready()
            life()
        killer.join()


@pytest.mark.slow
def test_with_the_broker_stopped_beat_serves_everything(life, tmp_path):
    """No hint reaches anybody: not from here, and beat's own go to a broker that is not there."""
    environment = os.environ | {
        DATABASE: str(connection.settings_dict["NAME"]), "DJANGO_SETTINGS_MODULE": "tests.settings",
        "BROKER_URL": "redis://127.0.0.1:1/0", "DRYDOCK_SWEEP_INTERVAL_SECONDS": "0.3",
    }  # fmt: skip
    command = [
        sys.executable,
        "-m",
        "celery",
        "-A",
        "drydock.celery",
        "beat",
        "--scheduler",
        "leases.schedule:Scheduler",
    ]
    with (tmp_path / "beat.log").open("wb") as log:
        beat = subprocess.Popen([*command, "--pidfile", ""], env=environment, stdout=log, stderr=log, cwd=ROOT)
        try:
            life()
        finally:
            beat.terminate()
            beat.wait(15)
    assert b"does not accept hints" in (tmp_path / "beat.log").read_bytes()


def test_sending_a_hint_to_a_stopped_broker_is_no_error_and_the_request_stands(blueprint, ask, monkeypatch, until):
    blueprint()

    def refuse(*args: object, **kwargs: object) -> None:
        raise OperationalError("connection refused")

    monkeypatch.setattr(celery.current_app, "send_task", refuse)
    monkeypatch.setattr(hints, "_silent_until", 0.0)
    monkeypatch.setattr(hints._local, "collected", None)
    lease = ask()
    assert lease.state == "pending"
    until(lease, state="active")


def test_tasks_may_run_twice_or_for_what_is_gone(blueprint, ask, until):
    blueprint()
    lease = until(ask(), state="active")
    for _ in range(2):
        tasks.serve("fake")
        tasks.serve("no such type")
        tasks.end(10**9)
        tasks.step(10**9)
    lease.refresh_from_db()
    assert lease.state == "active"
    for _ in range(2):
        release.release(lease.pk, actor="ada")
        tasks.end(lease.pk)
    lease.refresh_from_db()
    assert lease.state == "destroyed"
