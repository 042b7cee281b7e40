"""`make storm RACK=1` in its short form keeps every promise."""

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
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may start the systems of the servers")
def test_no_server_has_two_tenants_or_is_available_before_it_is_clean() -> None:
    require("sshd")
    require("sfdisk")
    command = [sys.executable, "-m", "tests.metal.storm", "--seed", "3", "--leases", "3"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=880)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    assert "nothing was available uncleaned, and no machine had two tenants" in ran.stdout
    assert "workers killed after a medium was changed" in ran.stdout
