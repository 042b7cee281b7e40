"""Several processes share one fake provider, and may be killed at any instant."""

from __future__ import annotations

import random
import signal
import sqlite3
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from blueprints.fake.cloud import Cloud
from blueprints.fake.provider import Provider
from drydock.core import clock
from tests.blueprints.fake_bench import PROVIDER, FakeBench

_ROOT = Path(__file__).parents[2]
_BUILDS = """
import sys
from dataclasses import replace
from tests.blueprints.fake_bench import FakeBench
bench = FakeBench(boot_polls=1)
print("ready", flush=True)
for n in range(int(sys.argv[2])):
    resource = bench.built(replace(bench.resource(), key=f"{sys.argv[1]}-{n}"))
    if n % 2:
        bench.destroyed(resource)
"""


@pytest.fixture(autouse=True)
def _cloud(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DRYDOCK_FAKE_CLOUD", str(tmp_path / "not" / "there" / "yet"))


def _start(name: str, builds: int) -> subprocess.Popen[bytes]:
    process = subprocess.Popen([sys.executable, "-c", _BUILDS, name, str(builds)], cwd=_ROOT, stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"ready\n"
    return process


def test_processes_see_one_provider() -> None:
    processes = [_start(f"p{n}", 20) for n in range(4)]
    assert [_finished(process) for process in processes] == [0] * 4
    cloud = Cloud(PROVIDER)
    assert sorted(one.key for one in cloud.instances("running")) == sorted(
        f"p{p}-{n}" for p in range(4) for n in range(0, 20, 2)
    )
    assert cloud.count("create") == 80
    assert len({call.pid for call in cloud.calls("create")}) == 4


def test_a_killed_process_leaves_the_provider_whole(tmp_path: Path) -> None:
    chance = random.Random(7)
    for n in range(8):
        process = _start(f"k{n}", 100_000)
        clock.sleep(chance.uniform(0.0, 0.05))
        process.send_signal(signal.SIGKILL)
        assert _finished(process) == -signal.SIGKILL
    cloud = Cloud(PROVIDER)
    created = cloud.calls("create")
    assert len({call.key for call in created}) == len(created)
    bench = FakeBench()
    for one in cloud.instances():
        bench.destroyed(replace(bench.resource(), key=one.key))
    assert cloud.is_empty()
    for file in tmp_path.rglob("*.sqlite"):
        db = sqlite3.connect(file)
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        db.close()


def test_a_fault_for_all_strikes_once_however_many_come() -> None:
    with ThreadPoolExecutor(8) as pool:
        struck = list(pool.map(lambda _: Provider(PROVIDER).fires("f", "", skip=2, times=3), range(40)))
    assert sum(struck) == 3


def test_forgetting_begins_anew() -> None:
    bench = FakeBench({"does": "fail", "at": "create", "scope": "offer"})
    assert [bench.run("build", bench.resource()).ended for _ in range(2)] == ["failed", "ready"]
    bench.cloud.forget()
    assert bench.cloud.is_empty()
    assert bench.cloud.count() == 0
    assert bench.run("build", bench.resource()).ended == "failed"


def test_providers_know_nothing_of_each_other() -> None:
    bench = FakeBench()
    bench.built()
    assert len(Cloud(PROVIDER).instances()) == 1
    assert Cloud("another").is_empty()


def test_what_vanished_is_found_dead_and_not_discovered() -> None:
    bench = FakeBench()
    resource = bench.built()
    bench.cloud.lose(resource.key)
    assert bench.run("check", resource).ended == "failed"
    bench.cloud.plant("one")
    assert [draft.identity for draft in bench.kind.discover(bench.blueprint())] == ["one"]
    bench.cloud.uproot("one")
    assert not bench.kind.discover(bench.blueprint())


def test_a_build_without_faults_is_one_call_a_step() -> None:
    bench = FakeBench()
    bench.built()
    assert [call.name for call in bench.cloud.calls()] == ["reserve", "create", "boot", "look"]


def _finished(process: subprocess.Popen[bytes]) -> int:
    process.communicate(timeout=60)
    return process.returncode
