"""The short form of `make chaos`: a real installation of its own, killed, cut and emptied, and found whole."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.plan import LONG, SHORT, plan

ROOT = Path(__file__).parents[2]
MUST = {
    "kill_worker", "kill_child", "kill_beat", "kill_web", "kill_client", "empty_broker", "stop_broker",
    "crash_database", "cut_connections", "shuffle_messages", "restart_database", "stop_database",
}  # fmt: skip


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_nothing_is_lost_and_nothing_is_given_twice():
    command = [sys.executable, "-m", "chaos", "--short", "--seed", "7", "--json"]
    environment = {name: value for name, value in os.environ.items() if not name.startswith("DRYDOCK_")}
    ran = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=580)
    assert ran.returncode == 0, ran.stderr[-6000:]
    report = json.loads(ran.stdout)
    assert report["good"]
    assert not [promise for promise in report["promises"] if promise["violations"]]
    assert report["facts"]["leases asked for by clients"] >= 60
    assert all(report["counts"][name.replace("_", " ")] >= 1 for name in MUST), report["counts"]
    assert report["counts"]["empty broker"] == 2


def test_a_seed_is_a_plan():
    assert plan(7, SHORT) == plan(7, SHORT)
    assert plan(7, SHORT) != plan(8, SHORT)
    assert {strike.name for strike in plan(7, SHORT).strikes} >= MUST


def test_the_long_form_asks_for_a_thousand_leases_of_every_sort():
    found = plan(1, LONG)
    requests = [one for order in found.orders for one in order.requests]
    assert len(requests) == 1000
    assert any(order.group for order in found.orders)
    assert any(order.keep for order in found.orders)
    assert {"priority", "ttl", "exclusive", "serve_again", "heartbeat_limit"} <= {
        key for one in requests for key in one
    }
