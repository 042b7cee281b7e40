"""`make demo-metal` comes true and leaves nothing."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.metal import qemu_demo
from tests.peers import find, require

ROOT = Path(__file__).parents[2]


@pytest.mark.metal
@pytest.mark.timeout(3600, func_only=False)
def test_machines_that_really_boot_are_deployed_rescued_and_erased() -> None:
    if lacks := qemu_demo.missing():
        pytest.skip(lacks)
    ran = subprocess.run(
        [sys.executable, "-m", "tests.metal.qemu_demo"], cwd=ROOT, capture_output=True, text=True, timeout=3500
    )
    assert ran.returncode == 0, ran.stdout[-6000:] + ran.stderr[-2000:]
    assert " NO " not in ran.stdout
    assert "what the tenant left is not on the raw disk" in ran.stdout


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_all_of_it_comes_true() -> None:
    require("sshd")
    ran = subprocess.run(
        [sys.executable, "-m", "tests.metal.demo"], cwd=ROOT, capture_output=True, text=True, timeout=280
    )
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    assert " NO " not in ran.stdout
    promises = ["drydock resolve --resource confirms it", "a check notices it", "no session is left at a BMC"]
    if os.geteuid() == 0 and find("sfdisk"):
        promises += ["what the tenant left is not on the disk", "the record says that nothing was left"]
    for promise in promises:
        assert promise in ran.stdout


def test_without_an_ssh_server_it_says_at_once_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests import demos
    from tests.metal import demo

    monkeypatch.setattr(demos, "find", lambda name: None)
    assert demo.main() == 2
    assert capsys.readouterr().err == "make demo-metal needs sshd: install the package openssh-server.\n"
