"""The double itself: it refuses what Google would, and leaves nothing."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import requests

from blueprints.cloud.faults import Meaning
from blueprints.cloud.values import Underway
from blueprints.gce.api import token
from blueprints.gce.client import Gce
from blueprints.gce.config import Credential
from tests.clouds.gce.conftest import USUAL, made, refused, until
from tests.clouds.gce.double import Double, Machine

ROOT = Path(__file__).parents[3]
Ask = Callable[..., requests.Response]


@pytest.fixture
def ask(double: Double) -> Ask:
    """A bare request with a good token."""
    account = token(Credential(**double.credential))
    account.refresh(None)
    headers = {"Authorization": f"Bearer {account.token}"}

    def send(verb: str, path: str, **options: Any) -> requests.Response:
        url = f"{double.endpoint}/compute/v1/projects/{double.project}{path}"
        return requests.request(verb, url, headers=headers, timeout=10, **options)

    return send


INSTANCES = "/zones/us-central1-a/instances"


def reason(answer: requests.Response) -> tuple[int, str]:
    return answer.status_code, answer.json()["error"]["errors"][0]["reason"]


def test_what_google_does_not_know_is_refused(ask: Ask, double: Double) -> None:
    assert reason(ask("GET", "/zones/us-central1-a/nothing")) == (404, "notFound")
    assert reason(ask("GET", "/regions", params={"size": "3"})) == (400, "invalidParameter")
    assert reason(ask("GET", "/regions", params={"maxResults": "many"})) == (400, "invalidParameter")
    assert reason(ask("GET", "/regions", params={"maxResults": "501"})) == (400, "invalid")
    assert reason(ask("GET", "/regions", params={"filter": "name ~ x"})) == (400, "invalid")
    assert reason(ask("GET", "/zones/Bad_Zone/instances")) == (400, "invalidParameter")
    assert reason(ask("POST", INSTANCES, json={"name": "Bad_Name"})) == (400, "invalid")
    assert reason(ask("POST", INSTANCES, json={"name": "a", "colour": "red"})) == (400, "invalid")
    assert reason(ask("POST", INSTANCES, json={"name": "a", "scheduling": {"preemptible": "yes"}})) == (400, "invalid")
    assert reason(ask("POST", INSTANCES, data=b"{")) == (400, "parseError")
    assert reason(ask("POST", "/global/firewalls", json={"direction": "INGRESS"})) == (400, "required")
    assert reason(ask("POST", f"{INSTANCES}?requestId=00000000-0000-0000-0000-000000000000", json={"name": "a"})) == (
        400,
        "invalid",
    )
    assert ask("GET", "/zones/us-central1-a/reservations").status_code == 501
    assert double.objects() == {}


def test_operations_take_their_time_and_can_be_waited_for(ask: Ask, double: Double) -> None:
    double.world.pace.operation = 2.0
    rule = {"name": "one", "allowed": [{"IPProtocol": "tcp", "ports": ["22"]}], "sourceRanges": ["192.0.2.0/24"]}
    begun = ask("POST", "/global/firewalls", json=rule).json()
    assert begun["status"] == "PENDING"
    assert ask("GET", "/global/firewalls/one").status_code == 404
    assert reason(ask("POST", "/global/firewalls", json=rule)) == (409, "alreadyExists")
    done = ask("POST", f"/global/operations/{begun['name']}/wait").json()
    assert (done["status"], done["progress"]) == ("DONE", 100)
    assert ask("GET", "/global/firewalls/one").json()["name"] == "one"
    assert ask("GET", f"/zones/us-central1-a/operations/{begun['name']}").status_code == 404
    listed = ask("GET", "/global/operations", params={"filter": 'operationType="insert"'}).json()
    assert [one["name"] for one in listed["items"]] == [begun["name"]]


def test_a_stopped_double_leaves_no_thread_and_no_port() -> None:
    before = set(threading.enumerate())
    double = Double()
    made(Gce(Credential(**double.credential)))
    double.stop()
    until(lambda: not {one for one in set(threading.enumerate()) - before if one.name.startswith("gce-double")})
    with pytest.raises(requests.ConnectionError):
        requests.get(double.endpoint, timeout=2)


def test_as_a_program(tmp_path: Path) -> None:
    file = tmp_path / "port"
    command = [sys.executable, "-m", "tests.clouds.gce.double", "--port-file", str(file)]
    program = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE)
    try:
        until(lambda: file.exists() or program.poll() is not None, 60)
        assert program.poll() is None, program.communicate()[1]
        said = json.loads(file.read_text())
        said.pop("pid")
        assert len(Gce(Credential(**said)).locations()) == 3
    finally:
        program.send_signal(signal.SIGTERM)
        _, errors = program.communicate(timeout=20)
    assert (program.returncode, errors) == (0, b"")


def test_a_wrong_answer_of_the_doubles_is_noticed() -> None:
    with Double() as double:
        debian = {"project": "debian-cloud", "family": "debian-12"}
        double.world.catalogue["images"][0]["architecture"] = "Z80"
        error = refused(Meaning.UNAVAILABLE, Gce(Credential(**double.credential)).image, "", debian, "x86_64")
        assert "Z80" in str(error)
    assert any("Z80" in one for one in double.violations)


def test_a_hook_that_fails_is_noticed() -> None:
    def on_start(machine: Machine) -> str:
        raise RuntimeError(f"no machine for {machine.key}")

    with Double(on_start=on_start) as double:
        assert isinstance(Gce(Credential(**double.credential)).create(USUAL, {}), Underway)
        until(lambda: double.world.hook_errors)
    assert any("no machine for dd-one" in one for one in double.violations)
