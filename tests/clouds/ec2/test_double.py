"""The double itself: hooks that stand for machines, accounts of their own, and a process of its own."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Lifecycle
from blueprints.ec2.client import Ec2
from blueprints.ec2.config import Credential
from blueprints.userdata import user_data
from interfaces.keys import new_key_pair
from tests.clouds.ec2.double import KEY, SECRET, Double, Machine
from tests.clouds.ec2.orders import TAGS, again, made, order


def test_hooks_stand_for_the_machine() -> None:
    started: list[Machine] = []
    ended: list[str] = []

    def on_start(machine: Machine) -> str:
        started.append(machine)
        return "127.20.99.1"

    host, ours = new_key_pair(), new_key_pair()
    text = user_data(user="drydock", public_key=ours.public, host_key=host)
    with Double(on_start=on_start, on_end=lambda machine: ended.append(machine.id), pending=3600.0) as double:
        ec2 = Ec2(double.credential())
        given = order(user_data=text)
        instance = made(ec2, given)
        assert again(ec2, instance).state is Lifecycle.PENDING
        assert (started, ended) == ([], [])
        never_up = instance
        double.pending = 0.0
        instance = made(ec2, given := order(user_data=text))
        assert again(ec2, instance).public_address == "127.20.99.1"
        (machine,) = started
        assert (machine.id, machine.key, machine.region) == (instance.id, given.key, "us-east-1")
        assert (machine.user, machine.public_key, machine.user_data) == ("drydock", ours.public, text)
        ec2.terminate(never_up)
        ec2.terminate(instance)
        ec2.terminate(instance)
        assert ended == [instance.id]
        running = made(ec2, order())
        again(ec2, running)
    assert ended == [instance.id, running.id]


def test_two_doubles_share_nothing(double: Double, ec2: Ec2) -> None:
    with Double() as other:
        made(Ec2(other.credential()), order())
        assert other.account != double.account
        assert double.objects() == {}
        assert ec2.instances("us-east-1", TAGS) == []


def test_a_stopped_double_has_forgotten_everything(double: Double, ec2: Ec2) -> None:
    made(ec2, order())
    double.stop()
    double.stop()
    with pytest.raises(CloudError) as caught:
        ec2.identity()
    assert caught.value.meaning is Meaning.UNAVAILABLE
    double.start()
    assert double.objects() == {}


def _post(url: str, act: str, **given: Any) -> Any:
    body = json.dumps(given).encode()
    with urllib.request.urlopen(f"{url}/_double/{act}", data=body, timeout=30) as answer:
        return json.load(answer)


def test_a_process_of_its_own_is_steered_over_http(tmp_path: Path) -> None:
    where = tmp_path / "port"
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.clouds.ec2.double", "--port-file", str(where)],
        cwd=Path(__file__).parents[3],
    )
    try:
        while not where.exists():
            assert process.poll() is None
            time.sleep(0.05)
        url = where.read_text()
        ec2 = Ec2(Credential(access_key_id=KEY, secret_access_key=SECRET, endpoint=url))
        _post(url, "fault", action="RunInstances", code="VcpuLimitExceeded")
        with pytest.raises(CloudError) as caught:
            made(ec2, order())
        assert caught.value.meaning is Meaning.QUOTA
        instance = made(ec2, order())
        assert set(_post(url, "objects")) == {"instances", "volumes", "network_interfaces", "security_groups"}
        again(ec2, instance)
        _post(url, "preempt", id=instance.id)
        assert again(ec2, instance).preempted
        assert "RunInstances" in {one["action"] for one in _post(url, "requests")}
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
