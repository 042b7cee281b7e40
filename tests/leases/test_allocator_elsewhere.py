"""The Allocator in somebody else's Django project, with workers of that project."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from urllib.parse import quote

import pytest
from django.conf import settings
from django.db import connection

from drydock.engines import BROKER, ensure
from tests.settings import KEYS

HERE = Path(__file__).parent / "second_project"
NAME = "second_project"


@pytest.fixture
def environment():
    """A database of the project's own on the server of the tests, and its broker under a prefix of its own."""
    if settings.DRYDOCK.private_broker:
        ensure(settings.ENGINES, BROKER)
    with connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {NAME}")
        cursor.execute(f"CREATE DATABASE {NAME}")
    given = connection.settings_dict
    login = f"{quote(given['USER'])}:{quote(given.get('PASSWORD') or '')}".rstrip(":")
    place = (
        f"/{NAME}?host={quote(given['HOST'])}"
        if given["HOST"].startswith("/")
        else f"{given['HOST']}:{given['PORT'] or 5432}/{NAME}"
    )
    yield {
        **{name: value for name, value in os.environ.items() if not name.startswith("DRYDOCK_")},
        **KEYS,
        "DJANGO_SETTINGS_MODULE": "shop.settings",
        "DATABASE_URL": f"postgresql://{login}@{place}",
        "BROKER_URL": settings.CELERY_BROKER_URL,
        "DRYDOCK_BROKER_PREFIX": f"{settings.DRYDOCK.broker_prefix}shop:",
        "PYTHONPATH": os.pathsep.join([str(HERE), str(HERE.parents[2])]),
        "PYTHONWARNINGS": "ignore",
    }
    with connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE {NAME} WITH (FORCE)")


@pytest.fixture
def workers(environment, tmp_path):
    command = [sys.executable, "-m", "celery", "-A", "shop.celery", "worker", "-Q", "claims,steps,periodic", "-c", "2"]
    command += ["--beat", "--scheduler", "celery.beat:Scheduler", "--without-mingle", "--without-gossip"]
    environment["DRYDOCK_FAKE_CLOUD"] = str(tmp_path)
    subprocess.run([sys.executable, "manage.py", "migrate", "-v0"], cwd=HERE, env=environment, check=True)
    with (tmp_path / "worker.log").open("wb") as log:
        worker = subprocess.Popen(command, cwd=HERE, env=environment, stdout=log, stderr=log)
    yield
    worker.terminate()
    worker.wait(20)


def test_another_project_leases_with_its_own_transactions_and_workers(environment, workers):
    done = subprocess.run(
        [sys.executable, "manage.py", "work"], cwd=HERE, env=environment, capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 0, done.stderr
    said = json.loads(done.stdout)
    assert said["rolled back"] == 0
    assert said["inside"] == "refused"
    assert said["state"] == "active"
    assert said["command"] == 0
    assert said["afterwards"] in ("released", "destroyed")
