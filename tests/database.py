"""Empty the test database after a test that committed: only the tables that have rows, and without post_migrate.

Django's own flush truncates every table and makes content types and permissions anew, which takes 0.2 s a test. It also
opens a new connection for each test: the server then reads its catalogue and plans the emptying anew, which was more
than half of what a short test cost it. Here the connection is kept, and made as good as new.
"""

from __future__ import annotations

import asyncio
from functools import cache
from typing import Any

import psycopg
from django.core.management import call_command
from django.db import DatabaseError, connections, transaction
from django.db.backends.utils import CursorWrapper
from django.test import TransactionTestCase
from psycopg.pq import TransactionStatus

KEPT = {"django_content_type", "auth_permission", "django_migrations"}
"""Tables with the same rows before and after every test."""
SMALL = 1 << 20
"""Bytes of a table up to which DELETE is quicker than TRUNCATE. A larger one would leave its pages to later tests."""


def install() -> None:
    """Empty databases in this way after each test with `transactional_db`, and keep connections."""
    TransactionTestCase._fixture_teardown = _teardown  # type: ignore[method-assign]
    TransactionTestCase._should_reload_connections = _renew  # type: ignore[method-assign]


def _teardown(case: Any) -> None:
    for name in case._databases_names(include_mirrors=False):
        _close_busy(name)
        try:
            empty(name)
        except DatabaseError:  # no superuser, or a worker that is still at it
            call_command("flush", verbosity=0, interactive=False, database=name, reset_sequences=False)


def _renew(case: Any) -> bool:
    """Let the next test find connections as new ones are. Returns False, because Django has none left to close."""
    for wrapper in connections.all(initialized_only=True):
        if _in_event_loop() or not renewed(wrapper):
            wrapper.close()
    return False


def _in_event_loop() -> bool:
    """Return whether connections belong to a loop, as while a browser is open. Nothing could close them without it."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def renewed(wrapper: Any) -> bool:
    """Remove everything from a session that its users set, prepared, locked or made. Return False if it cannot be kept.

    A session in which a statement failed, or that is not idle, is not worth the doubt.
    """
    session = wrapper.connection
    if session is None:
        return True
    idle = session.info.transaction_status == TransactionStatus.IDLE and wrapper.autocommit
    busy = not idle or wrapper.in_atomic_block or wrapper.run_on_commit
    if busy or wrapper.errors_occurred or session.info.dbname != wrapper.settings_dict["NAME"]:
        return False
    try:
        # As a prepared statement, so that psycopg notices that the others are gone.
        psycopg.Cursor(session).execute("DISCARD ALL", prepare=True)
        session.prepare_threshold = None
        wrapper.init_connection_state()
    except (DatabaseError, psycopg.Error):
        return False
    wrapper.health_check_done = True
    return True


def _close_busy(name: str) -> None:
    """Close a connection that a test left in the middle of a statement, as one that ran out of time does."""
    open_connection = connections[name].connection
    if open_connection is not None and open_connection.info.transaction_status == TransactionStatus.ACTIVE:
        connections[name].close()


def empty(name: str) -> None:
    """Remove all rows but those that are always there.

    Triggers and foreign keys are switched off meanwhile, which only a superuser may do.
    """
    with transaction.atomic(using=name), connections[name].cursor() as cursor:
        filled = _filled(cursor, _tables(name))
        if not filled:
            return
        cursor.execute("SET LOCAL session_replication_role = replica")
        cursor.execute("SET LOCAL lock_timeout = '10s'")
        large = {table for table in filled if _size(cursor, table) > SMALL}
        for table in filled:
            if table not in large:
                cursor.execute(f'DELETE FROM "{table}"')
        if large:
            cursor.execute("TRUNCATE " + ", ".join(f'"{table}"' for table in sorted(large)) + " CASCADE")


@cache
def _tables(name: str) -> list[str]:
    """Return the tables that a test may fill. Tests leave the schema as it is, so that it is read once."""
    tables = connections[name].introspection.django_table_names(only_existing=True)
    return [table for table in tables if table not in KEPT]


def _filled(cursor: CursorWrapper, tables: list[str]) -> list[str]:
    """Tables that have rows, by one statement."""
    cursor.execute("SELECT " + ", ".join(f'EXISTS (SELECT FROM "{table}")' for table in tables))
    return [table for table, some in zip(tables, cursor.fetchone(), strict=True) if some]


def _size(cursor: CursorWrapper, table: str) -> int:
    cursor.execute("SELECT pg_relation_size(%s::regclass)", (f'"{table}"',))
    return int(cursor.fetchone()[0])
