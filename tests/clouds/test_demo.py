"""`make demo-cloud` comes true and leaves nothing, as root and as an ordinary user."""

from __future__ import annotations

import os
import subprocess
import sys
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.engines.users import python_for
from tests.peers import become_root, require

ROOT = Path(__file__).parents[2]


@pytest.fixture
def ordinary() -> Iterator[str]:
    """An account with a shell, as a person has."""
    if os.geteuid() != 0:
        pytest.skip("only root can make an account")
    name = f"demo-{uuid.uuid4().hex[:8]}"
    subprocess.run(["useradd", "--create-home", "--shell", "/bin/sh", name], check=True)
    yield name
    subprocess.run(["userdel", "--force", "--remove", name], capture_output=True)


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_all_of_it_comes_true() -> None:
    require("sshd")
    if become_root() is not None:
        require("sudo")
    ran = subprocess.run(
        [sys.executable, "-m", "tests.clouds.demo"], cwd=ROOT, capture_output=True, text=True, timeout=480
    )
    came_true(ran)


@pytest.mark.slow
@pytest.mark.timeout(500)
def test_it_comes_true_for_a_user_who_may_not_make_accounts(ordinary: str) -> None:
    require("sshd")
    as_user = ("setpriv", f"--reuid={ordinary}", f"--regid={ordinary}", "--clear-groups", "env", "-i")
    python = python_for(as_user)
    if python is None:
        pytest.skip("no Python that an ordinary user can run")
    packages = [path for path in sys.path if path.endswith("site-packages")]
    came_true(
        subprocess.run(
            [*as_user, "PATH=/usr/bin:/bin", f"HOME=/home/{ordinary}", f"LOGNAME={ordinary}",
             f"PYTHONPATH={os.pathsep.join([str(ROOT), *packages])}", python, "-m", "tests.clouds.demo"],
            cwd=ROOT, capture_output=True, text=True, timeout=480,
        )
    )  # fmt: skip


def test_without_an_ssh_server_it_says_at_once_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    from tests import demos
    from tests.clouds import demo

    monkeypatch.setattr(demos, "find", lambda name: None)
    assert demo.main() == 2
    assert capsys.readouterr().err == "make demo-cloud needs sshd: install the package openssh-server.\n"


def came_true(ran: subprocess.CompletedProcess[str]) -> None:
    """Every promise was kept, the one that needs a special machine among them."""
    assert ran.returncode == 0, ran.stdout[-4000:] + ran.stderr[-2000:]
    assert " NO " not in ran.stdout
    assert "tdx" in ran.stdout
    assert "no object is left in any cloud" in ran.stdout
