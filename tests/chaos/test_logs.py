"""What is read out of the programs' logs."""

from __future__ import annotations

import traceback

from chaos import logs


def test_of_a_chain_the_last_counts():
    assert list(logs.raised(_told(_script_of_a_broker_that_went))) == ["ConnectionError: refused"]
    assert list(logs.raised(_told(_explained))) == ["ValueError: no such thing"]


def test_each_traceback_counts():
    lines = ["[ERROR] one", *_told(_explained), "[INFO] between", *_told(_script_of_a_broker_that_went), "after"]
    assert list(logs.raised(lines)) == ["ValueError: no such thing", "ConnectionError: refused"]


def test_a_bug_while_an_outage_is_dealt_with_is_found():
    found = list(logs.raised(_told(_fails_while_dealing)))
    assert logs.unexpected({found[0]: 1}) == ["AttributeError: 'NoneType' object has no attribute 'close' (1x)"]


def _told(act) -> list[str]:
    try:
        act()
    except Exception:
        return traceback.format_exc().splitlines()
    raise AssertionError("nothing was raised")


def _script_of_a_broker_that_went():
    try:
        next(iter(()))
    except StopIteration:
        raise ConnectionError("refused")  # noqa: B904


def _explained():
    try:
        {}["thing"]
    except KeyError as error:
        raise ValueError("no such thing") from error


def _fails_while_dealing():
    try:
        raise ConnectionError("refused")
    except ConnectionError:
        None.close()


def test_deadlocks_are_found_in_the_log_of_postgresql(tmp_path):
    (tmp_path / "postgresql.log").write_text(
        "2026-11-22 10:00:00 UTC [7] LOG:  database system is ready\n"
        "2026-11-22 10:00:01 UTC [9] ERROR:  deadlock detected\n"
        "2026-11-22 10:00:01 UTC [9] DETAIL:  Process 9 waits for ShareLock on transaction 1\n"
    )
    (found,) = logs.deadlocks(tmp_path)
    assert "Process 9 waits" in found
    assert logs.unexpected({"DeadlockDetected: deadlock detected": 1})
