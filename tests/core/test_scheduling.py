"""How the tests are run: what may not run at the same time is in one group, and nothing begins too late."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest

from tests import slow
from tests.scheduling import ACCOUNTS, GROUPS, SECONDS

ROOT = Path(__file__).parents[2]


def test_every_file_that_takes_the_lock_of_the_accounts_is_in_their_group():
    files = [file for file in (ROOT / "tests").rglob("test_*.py") if file != Path(__file__)]
    takes = re.compile(r"peers\.(alone|unchanged_accounts)\(\)|from (?!tests\.kube\.).*import .*\b(_alone|lab)\b")
    found = {str(file.relative_to(ROOT)) for file in files if takes.search(file.read_text())}
    assert found == {file for file, group in GROUPS.items() if group == ACCOUNTS}


def test_the_files_of_the_lists_exist():
    missing = [name for name in {*GROUPS, *SECONDS} if name not in GROUPS.values() and not (ROOT / name).exists()]
    assert not missing


def test_no_test_begins_after_the_minutes_of_the_run(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(slow.UNTIL, raising=False)
    slow.skip_if_late()
    monkeypatch.setenv(slow.UNTIL, str(time.time() + 600))
    slow.skip_if_late()
    monkeypatch.setenv(slow.UNTIL, str(time.time() - 1))
    with pytest.raises(pytest.skip.Exception, match="not begun within --minutes"):
        slow.skip_if_late()
