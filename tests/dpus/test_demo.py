"""`make demo-dpu` comes true and leaves nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.blueprints import host_peers as peers
from tests.dpus import demo, demo_lab
from tests.kube import apiserver

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(1200, func_only=False)
def test_all_of_it_comes_true() -> None:
    if why := demo_lab.missing():
        pytest.skip(why)
    with peers.alone():  # it makes accounts
        ran = subprocess.run(
            [sys.executable, "-m", "tests.dpus.demo"], cwd=ROOT, capture_output=True, text=True, timeout=1100
        )
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
    assert " NO " not in ran.stdout
    for promise in ("each host was rebooted once", "objects left: 0", "systems left running: 0"):
        assert promise in ran.stdout


def test_without_an_api_server_it_says_at_once_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(apiserver, "missing", lambda: "it is not built")
    assert demo.main() == 2
    assert capsys.readouterr().err == "make demo-dpu needs a Kubernetes API server: it is not built.\n"
