"""`make demo-metal` comes true and leaves nothing."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from tests.peers import require

ROOT = Path(__file__).parents[2]


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_all_of_it_comes_true() -> None:
    require("sshd")
    ran = subprocess.run(
        [sys.executable, "-m", "tests.metal.demo"], cwd=ROOT, capture_output=True, text=True, timeout=280
    )
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    assert " NO " not in ran.stdout
    for promise in ("drydock resolve --resource confirms it", "a check notices it", "no session is left at a BMC"):
        assert promise in ran.stdout


def test_without_an_ssh_server_it_says_at_once_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests import demos
    from tests.metal import demo

    monkeypatch.setattr(demos, "find", lambda name: None)
    assert demo.main() == 2
    assert capsys.readouterr().err == "make demo-metal needs sshd: install the package openssh-server.\n"
