"""The scripts of accounts, run as they are where they need no account of their own."""

from __future__ import annotations

import getpass
import os
import subprocess
from pathlib import Path

import pytest

from blueprints.accounts import scripts


@pytest.mark.parametrize(
    ("finds", "says"), [("echo /; exit 1", ""), ("exit 1", "unfinished\n"), ("exec sleep 60", "unfinished\n")]
)
def test_homes_that_could_not_be_searched_to_the_end_are_not_taken_for_clean(tmp_path: Path, finds: str, says: str):
    """Set-uid files of the account in other homes would let its former owner in."""
    home, programs = tmp_path / "homes" / "mine", tmp_path / "bin"
    (home / ".ssh").mkdir(parents=True)
    (home / ".ssh/authorized_keys2").touch()
    programs.mkdir()
    (programs / "find").write_text(f"#!/bin/sh\n{finds}\n")
    (programs / "find").chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", "-c", scripts.TAKE_FROM_FORMER, "sh", getpass.getuser(), str(home)],
        env={**os.environ, "PATH": f"{programs}:{os.environ['PATH']}"}, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert (done.returncode, done.stdout) == (0, says), done.stderr
    assert not (home / ".ssh").exists()
    assert home.stat().st_mode & 0o777 == 0o700
