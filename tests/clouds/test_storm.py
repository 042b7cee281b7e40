"""`make storm` in its short form keeps every promise."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.peers import require

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make accounts for leases")
def test_nothing_is_lost_and_nothing_left():
    require("sshd")
    require("sudo")
    command = [sys.executable, "-m", "tests.clouds.storm", "--seed", "3", "--leases", "6"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=880)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    assert "no object is left in any cloud" in ran.stdout
    assert "no machine was made twice" in ran.stdout
