"""`make demo-cloud` comes true and leaves nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.peers import require

ROOT = Path(__file__).parents[2]


@pytest.mark.timeout(500)
@pytest.mark.skipif(os.geteuid() != 0, reason="only root may make accounts for leases")
def test_all_of_it_comes_true():
    require("sshd")
    require("sudo")
    command = [sys.executable, "-m", "tests.clouds.demo"]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=480)
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    assert " NO " not in ran.stdout
    assert "tdx" in ran.stdout
    assert "no object is left in any cloud" in ran.stdout
