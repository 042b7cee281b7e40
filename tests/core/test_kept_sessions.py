"""The connection that tests share is as a new one for each of them."""

from __future__ import annotations

import asyncio

import pytest
from django.db import DatabaseError, connection, transaction
from django.test import TransactionTestCase

from leases.engine.core.database import rows
from tests.database import renewed

pytestmark = pytest.mark.django_db(transaction=True)

LEFT = {
    "a setting": ("SET statement_timeout = '7s'", "SELECT current_setting('statement_timeout') = '7s'"),
    "a table": ("CREATE TEMPORARY TABLE left_over ()", "SELECT to_regclass('left_over') IS NOT NULL"),
    "a lock": (
        "SELECT pg_advisory_lock(7)",
        "SELECT EXISTS (SELECT FROM pg_locks WHERE locktype = 'advisory' AND pid = pg_backend_pid())",
    ),
    "a channel": ("LISTEN left_over", "SELECT EXISTS (SELECT FROM pg_listening_channels())"),
}


def backend() -> int:
    return int(rows("SELECT pg_backend_pid()")[0][0])


@pytest.mark.parametrize("what", LEFT)
def test_what_a_test_leaves_in_its_session_is_gone(what):
    leave, is_there = LEFT[what]
    before = backend()
    rows(leave)
    assert rows(is_there) == [(True,)]
    assert renewed(connection)
    assert rows(is_there) == [(False,)]
    assert backend() == before


def test_statements_are_prepared_anew():
    prepared = "SELECT count(*) FROM pg_prepared_statements"
    for _ in range(3):
        for _ in range(9):
            assert rows("SELECT %s::int", (7,), hot=True) == [(7,)]
        assert rows(prepared) == [(1,)]
        assert renewed(connection)
        assert rows(prepared) == [(0,)]


def test_a_session_is_kept_after_wrong_data_and_not_after_other_errors():
    with pytest.raises(DatabaseError):
        rows("SELECT 1 / 0")
    assert renewed(connection)
    with pytest.raises(DatabaseError):
        rows("SELECT of_nothing")
    assert not renewed(connection)


def test_a_session_in_a_transaction_is_not_kept():
    with transaction.atomic():
        assert not renewed(connection)
    assert renewed(connection)
    connection.set_autocommit(False)
    try:
        assert not renewed(connection)
    finally:
        connection.close()


def test_a_session_that_the_server_ended_is_not_kept():
    connection.ensure_connection()
    connection.connection.close()
    try:
        assert not renewed(connection)
    finally:
        connection.close()


def test_a_session_of_an_event_loop_is_not_kept(monkeypatch):
    monkeypatch.setenv("DJANGO_ALLOW_ASYNC_UNSAFE", "1")
    outside = backend()

    async def inside() -> tuple[int, bool]:
        there = backend()
        TransactionTestCase._should_reload_connections(None)
        return there, connection.connection is None

    there, is_closed = asyncio.run(inside())
    assert (there != outside, is_closed) == (True, True)
    assert backend() == outside
    TransactionTestCase._should_reload_connections(None)
    assert backend() == outside
