"""Empty the test database after a test that committed: only the tables that have rows, and without post_migrate.

Django's own flush truncates every table and makes content types and permissions anew, which takes 0.2 s a test.
"""

from __future__ import annotations

from typing import Any

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
    """Empty databases in this way after each test with `transactional_db`."""
    TransactionTestCase._fixture_teardown = _teardown  # type: ignore[method-assign]


def _teardown(case: Any) -> None:
    for name in case._databases_names(include_mirrors=False):
        _close_busy(name)
        try:
            empty(name)
        except DatabaseError:  # no superuser, or a worker that is still at it
            call_command("flush", verbosity=0, interactive=False, database=name, reset_sequences=False)


def _close_busy(name: str) -> None:
    """Close a connection that a test left in the middle of a statement, as one that ran out of time does."""
    open_connection = connections[name].connection
    if open_connection is not None and open_connection.info.transaction_status == TransactionStatus.ACTIVE:
        connections[name].close()


def empty(name: str) -> None:
    """Remove all rows but those that are always there.

    Triggers and foreign keys are switched off meanwhile, which only a superuser may do.
    """
    connection = connections[name]
    tables = [table for table in connection.introspection.django_table_names(only_existing=True) if table not in KEPT]
    with transaction.atomic(using=name), connection.cursor() as cursor:
        filled = _filled(cursor, tables)
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


def _filled(cursor: CursorWrapper, tables: list[str]) -> list[str]:
    """Tables that have rows, by one statement."""
    cursor.execute("SELECT " + ", ".join(f'EXISTS (SELECT FROM "{table}")' for table in tables))
    return [table for table, some in zip(tables, cursor.fetchone(), strict=True) if some]


def _size(cursor: CursorWrapper, table: str) -> int:
    cursor.execute("SELECT pg_relation_size(%s::regclass)", (f'"{table}"',))
    return int(cursor.fetchone()[0])
