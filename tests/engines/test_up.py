"""`make up`: everything in the foreground, everything gone after Ctrl-C, everything found again."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path

import psutil
import pytest

from drydock.engines import Config, wait_until_stopped
from tests.engines.users import eventually, running

ROOT = Path(__file__).parents[2]


@pytest.fixture
def environment(folders):
    kept = {name: value for name, value in os.environ.items() if not name.startswith("DRYDOCK_")}
    for name in ("DATABASE_URL", "BROKER_URL", "DJANGO_SETTINGS_MODULE"):
        kept.pop(name, None)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    ours = {"STATE": str(folders() / "state"), "WEB_PORT": str(port), "WORKER_CONCURRENCY": "1"}
    return {**kept, **{f"DRYDOCK_{name}": value for name, value in ours.items()}}


def start(environment):
    log = Path(environment["DRYDOCK_STATE"] + ".log")
    command = [sys.executable, "-m", "drydock.up"]
    with log.open("w") as output:
        return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=output, stderr=subprocess.STDOUT), log


def got(environment, path: str) -> str:
    """What the web process answers, whatever its status."""
    address = f"http://127.0.0.1:{environment['DRYDOCK_WEB_PORT']}{path}"
    try:
        with urllib.request.urlopen(address, timeout=30) as answer:
            return answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.read().decode()


def page(environment) -> str:
    address = f"http://127.0.0.1:{environment['DRYDOCK_WEB_PORT']}/admin/login/"
    try:
        with urllib.request.urlopen(address, timeout=30) as answer:
            return answer.read().decode()
    except OSError:
        return ""


def test_up_and_down_and_up_again(environment):
    process, log = start(environment)
    try:
        eventually(lambda: "csrfmiddlewaretoken" in page(environment) or process.poll() is not None)
        assert process.poll() is None, log.read_text()
        assert json.loads(got(environment, "/api/schema/?format=json"))["info"]["title"] == "Drydock"
        assert "swagger" in got(environment, "/api/docs/")
        assert json.loads(got(environment, "/api/v1/me"))["status"] == 401
        assert json.loads(got(environment, "/readyz"))["ready"] is True
        assert re.search(r"sign in as admin with \S{12,}", log.read_text())
        family = psutil.Process(process.pid).children(recursive=True)
        assert len(family) >= 5
    finally:
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0, log.read_text()
    config = Config(state=Path(environment["DRYDOCK_STATE"]))
    assert wait_until_stopped(config)
    assert running(config) == []
    eventually(lambda: not [one for one in family if one.is_running() and one.status() != psutil.STATUS_ZOMBIE])

    process, log = start(environment)
    try:
        eventually(lambda: page(environment))
        assert re.search(r"sign in as admin .*drydock users password admin", log.read_text())
        assert "first run" not in log.read_text()
    finally:
        process.terminate()
        assert process.wait(60) == 0, log.read_text()
        assert wait_until_stopped(config)


def test_a_taken_port_is_said_in_one_line_and_nothing_is_started(environment):
    with socket.socket() as other:
        other.bind(("127.0.0.1", int(environment["DRYDOCK_WEB_PORT"])))
        other.listen()
        process, log = start(environment)
        assert process.wait(60) == 1
    assert len(log.read_text().splitlines()) == 1
    assert "taken" in log.read_text()
    assert "DRYDOCK_WEB_PORT=" in log.read_text()
    assert not Path(environment["DRYDOCK_STATE"]).exists()
