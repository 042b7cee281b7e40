"""How the tests are run: what may not run at the same time is in one group, and nothing begins too late."""

from __future__ import annotations

import re
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from tests import slow
from tests.scheduling import ACCOUNTS, GROUPS, SECONDS, import_share

ROOT = Path(__file__).parents[2]
CONFTEST = """
from tests import slow


def pytest_addoption(parser):
    slow.add_option(parser)


def pytest_configure(config):
    slow.set_end(config.getoption("minutes"))


def pytest_runtest_setup(item):
    slow.skip_if_late(item)
"""


def test_every_file_that_takes_the_lock_of_the_accounts_is_in_their_group():
    files = [file for file in (ROOT / "tests").rglob("test_*.py") if file != Path(__file__)]
    takes = re.compile(r"peers\.(alone|unchanged_accounts)\(\)|from (?!tests\.kube\.).*import .*\b(_alone|lab)\b")
    found = {str(file.relative_to(ROOT)) for file in files if takes.search(file.read_text())}
    assert found == {file for file, group in GROUPS.items() if group == ACCOUNTS}


def test_the_files_of_the_lists_exist():
    missing = [name for name in {*GROUPS, *SECONDS} if name not in GROUPS.values() and not (ROOT / name).exists()]
    assert not missing


def test_no_test_begins_after_the_minutes_of_the_run(monkeypatch: pytest.MonkeyPatch, request: Any) -> None:
    monkeypatch.setattr(request.node, "execution_count", 1, raising=False)
    monkeypatch.delenv(slow.UNTIL, raising=False)
    slow.skip_if_late(request.node)
    monkeypatch.setenv(slow.UNTIL, str(time.time() + 600))
    slow.skip_if_late(request.node)
    monkeypatch.setenv(slow.UNTIL, str(time.time() - 1))
    with pytest.raises(pytest.skip.Exception, match="not begun within --minutes"):
        slow.skip_if_late(request.node)


def test_a_test_that_failed_is_repeated_also_after_the_minutes_of_the_run(tmp_path: Path) -> None:
    """Otherwise a run would skip it, and pass."""
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_late.py").write_text("import time\n\n\ndef test_late():\n    time.sleep(1)\n    assert False\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:django", "-c", "/dev/null", "--rootdir", tmp_path]
    done = subprocess.run(
        [*command, "--reruns", "1", "--minutes", "0.01", tmp_path], cwd=ROOT, capture_output=True, text=True
    )
    assert done.returncode == 1, done.stdout
    assert "1 failed, 1 rerun" in done.stdout


def test_workers_compile_every_file_of_tests_between_them(monkeypatch):
    def load(name):
        imported.append(name)
        raise pytest.skip.Exception(name) if name.endswith("_scheduling") else ImportError(name)

    imported: list[str] = []
    monkeypatch.setattr("tests.scheduling.importlib.import_module", load)
    for worker in range(3):
        import_share(worker, 3)
    files = {file.relative_to(ROOT).with_suffix("") for file in (ROOT / "tests").rglob("test_*.py")}
    assert sorted(imported) == sorted(".".join(file.parts) for file in files)
