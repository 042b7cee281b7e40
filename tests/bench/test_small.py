"""`make bench` at its smallest: every section ends by itself, says what is asked of it, and leaves nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECTIONS = {
    "statements of a warm cycle", "warm cycle, 4 processes", "floor: psycopg, the same rows, as many commits",
    "CPU of a warm cycle, clients and database", "request to active, from Python, p50",
    "request to active, by REST, p50", "request to active, through the queue, p50",
    "GET me, p99, beside 200 hanging clients",
    "release to the waiter active, p50", "POST lease, 8 clients", "memory of a worker process, largest",
    "cloud SDKs imported by a worker", "warm cycle, 1 waiters, as many ended leases",
    "warm cycle, 10 resources, 100 ended leases", "search: all full",
    "search: no match, by trait", "search: no match, in a blueprint named", "search: a preferred trait",
    "sweep, 10 resources",
    "5 machines asked for at once, until all are leased", "request to create sent, p50",
    "the longest that a worker was at one step", "of 20 offers: nothing that fits",
    "statements of a report of 8 GPUs, none changed", "PUT hardware, nothing changed",
    "1000 agents, each reporting every 60 s",
    "5 BMCs checked at once", "1000 idle machines, each checked every 60 s",
    "change of a DPU -> its step is due, p50", "requests of 10 idle DPUs, watched",
    "the agent: downloaded, hashed, written and read back",
    "statements of a listing of 2 machines that all changed", "CPU of a listing of 2 machines, all changed",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_every_section_gives_its_figures(tmp_path):
    results = tmp_path / "latest.json"
    engines = {"DATABASE_URL": "", "BROKER_URL": "", "DRYDOCK_BROKER_PREFIX": "bench:", "DRYDOCK_ENGINE_DURABLE": "0"}
    command = [
        sys.executable,
        "-m",
        "bench",
        "--cycles",
        "1",
        "--history",
        "100",
        "--no-peers",
        "--no-dpus",
        "--results",
        results,
    ]
    surroundings = {**os.environ, **engines, "DJANGO_SETTINGS_MODULE": "drydock.settings", "TMPDIR": str(tmp_path)}
    surroundings.pop("DRYDOCK_FAKE_CLOUD", None)
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, env=surroundings) as done:
        _, said = done.communicate(timeout=580)
    assert done.returncode == 0, said
    found = {one["name"]: one for one in json.loads(results.read_text())}
    assert found.keys() >= SECTIONS
    assert all(one.keys() == {"name", "value", "unit", "against", "ratio"} for one in found.values())
    assert all((one["ratio"] is None) == (not one["against"]) for one in found.values())
    assert found["statements of a warm cycle"]["value"] <= 14
    assert [one.name for one in tmp_path.iterdir()] == [results.name], "it leaves nothing"
    assert found["leases of these cycles that were never active"]["value"] == 0
    assert found["cloud SDKs imported by a worker"]["value"] == 0
    assert found["statements of a listing of 2 machines that all changed"]["value"] <= 20
    statements = [one for name, one in found.items() if name.startswith("statements of a report of 8 GPUs")]
    assert [one["ratio"] <= 1 for one in statements] == [True] * 3
    assert not list(Path("/tmp").glob(f"dd-bench-{done.pid}-*"))
