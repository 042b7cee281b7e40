"""The bench of DPUs at its smallest: it ends by itself, keeps its limits on counts, and leaves nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.kube import apiserver

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.skipif(bool(apiserver.missing()), reason="the API server is not built")
def test_a_few_dpus_on_a_real_api_server_keep_the_limits(tmp_path):
    results = tmp_path / "latest.json"
    engines = {"DATABASE_URL": "", "BROKER_URL": "", "DRYDOCK_BROKER_PREFIX": "bench:", "DRYDOCK_ENGINE_DURABLE": "0"}
    command = [sys.executable, "-m", "bench", "--only-dpus", "--cycles", "20", "--history", "100", "--results", results]
    surroundings = {**os.environ, **engines, "DJANGO_SETTINGS_MODULE": "drydock.settings", "TMPDIR": str(tmp_path)}
    surroundings.pop("DRYDOCK_FAKE_CLOUD", None)
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True, env=surroundings) as done:
        _, said = done.communicate(timeout=1180)
    assert done.returncode == 0, said
    found = {one["name"]: one for one in json.loads(results.read_text())}
    assert found["statements of a relist of 10 DPUs, none changed"]["ratio"] <= 1
    assert found["statements of a step of a build beside 10 DPUs"]["ratio"] < 1.3
    assert found["requests of a build whose phases take 1.5 s each"]["ratio"] < 1.3
    assert "2 DPUs built at once" in found
    assert [one.name for one in tmp_path.iterdir()] == [results.name], "it leaves nothing"
    assert not list(Path("/tmp").glob(f"dd-bench-{done.pid}-*"))
