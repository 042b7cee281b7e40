"""Short transactions of our own, repeated when the database asks for it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from django.conf import settings
from django.db import DEFAULT_DB_ALIAS, NotSupportedError, OperationalError, connection, connections, transaction
from django.db.backends.postgresql.base import ServerBindingCursor

from drydock.core import clock
from drydock.core.errors import Busy as Busy
from drydock.core.errors import Conflict
from leases.engine.failpoints import failpoint

P = ParamSpec("P")
R = TypeVar("R")

_STALE_PLAN = "0A000"
"""A migration has changed a type that a prepared statement gives; the rollback forgets what was prepared."""
_REPEAT = {"40P01", "40001", _STALE_PLAN}
_LOCK_NOT_AVAILABLE = "55P03"
_TRIES = 8
_PREPARE_AFTER = 2
_PLANS_KEPT = 5.0
"""Seconds. A plan that was made for a small table reads all of it, and the server keeps it until it next looks at
the statistics, which may be minutes in which the table grows; planning anew costs some milliseconds."""


class _Local(threading.local):
    ours = False
    """The open transaction is one that we repeat."""
    plans_until = 0.0


_local = _Local()


class InsideTransaction(Conflict):
    """This waits for other processes, which cannot see what your transaction has not committed yet.
    Call it after the transaction."""


def short(work: Callable[P, R]) -> Callable[P, R]:
    """Run `work` in a transaction of its own; deadlocks and serialization failures are repeated.

    Raises Busy when a lock was not free within the lock timeout, InsideTransaction inside a caller's transaction.
    """

    @wraps(work)
    def repeated(*args: P.args, **kwargs: P.kwargs) -> R:
        refuse_inside_transaction(work.__name__)
        for last in (*[False] * (_TRIES - 1), True):
            try:
                with _ours():
                    done = work(*args, **kwargs)
                    failpoint("commit.before")
                failpoint("commit.after")
                return done
            except (OperationalError, NotSupportedError) as error:
                state = sqlstate(error)
                if state == _LOCK_NOT_AVAILABLE:
                    raise Busy from error
                if last or state not in _REPEAT:
                    raise
        raise AssertionError("unreachable")

    return repeated


@contextmanager
def _ours() -> Iterator[None]:
    with transaction.atomic():
        _local.ours = True
        try:
            yield
        finally:
            _local.ours = False


def refuse_inside_transaction(what: str) -> None:
    """Raises InsideTransaction when the caller has a transaction open."""
    if connection.in_atomic_block:
        raise InsideTransaction(f"{what} was called inside a transaction. {InsideTransaction.__doc__}")


def sqlstate(error: BaseException) -> str:
    """The SQLSTATE of a database error, or an empty string."""
    return getattr(error.__cause__, "sqlstate", None) or ""


def constraint(error: BaseException) -> str:
    """The name of the constraint that a database error is about, or an empty string."""
    return getattr(getattr(error.__cause__, "diag", None), "constraint_name", None) or ""


def rows(sql: str, params: Any = (), *, hot: bool = False) -> list[tuple[Any, ...]]:
    """All rows of a statement. `hot`: see `_cursor`."""
    try:
        with _cursor(hot) as cursor:
            cursor.execute(sql, params)
            return cursor.fetchall() if cursor.rownumber is not None else []
    except NotSupportedError as error:
        if not hot or connection.in_atomic_block or sqlstate(error) != _STALE_PLAN:
            raise
        connection.close()  # what was prepared goes with it; the next statement connects again
        return rows(sql, params)


def some(sql: str, params: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The first rows of a statement: as many as one look of the sweep acts on. Where it says no order, any of them:
    those that cannot be helped must not keep the others from being looked at."""
    ordered = sql if "ORDER BY" in sql else f"SELECT * FROM ({sql}) found ORDER BY random()"
    return rows(f"{ordered} LIMIT {settings.DRYDOCK.sweep_batch}", params)


def run(sql: str, params: Any = (), *, hot: bool = False) -> int:
    """Execute a statement; the number of rows it touched. `hot`: see `_cursor`."""
    with _cursor(hot) as cursor:
        cursor.execute(sql, params)
        return int(cursor.rowcount)


def leases_by_id(condition: str) -> str:
    """Return the WHERE condition of an UPDATE of several leases that locks them in the order of their ids.

    A plain UPDATE locks rows in the order in which its plan finds them, and two of them can deadlock.
    """
    return f"id = ANY(ARRAY(SELECT id FROM leases_lease WHERE {condition} ORDER BY id FOR NO KEY UPDATE))"


def _cursor(hot: bool) -> Any:
    """A cursor. What is `hot`, and sent again and again with the same text, the server plans once a connection:
    planning it costs more than carrying it out. Where the best plan depends on the values it is not hot.

    Whoever writes a hot statement about one row says its state by a parameter: with a literal the planner takes a
    small partial index for the state, and reads all of that.

    Not in a caller's transaction, which we could not repeat when a migration makes a plan useless, nor where Django
    keeps a log of statements, which cannot show prepared ones.
    """
    db: Any = connections[DEFAULT_DB_ALIAS]
    repeatable = _local.ours or not db.in_atomic_block
    if not (hot and repeatable and settings.DRYDOCK.prepared_statements) or db.queries_logged:
        return db.cursor()
    db.close_if_health_check_failed()
    db.ensure_connection()
    db.connection.prepare_threshold = _PREPARE_AFTER
    if (now := clock.monotonic()) > _local.plans_until:
        _local.plans_until = now + _PLANS_KEPT
        with db.wrap_database_errors:
            # Left to itself the server compares costs, and plans those that look dear anew for every call.
            db.connection.execute("DISCARD PLANS; SET plan_cache_mode = force_generic_plan")
    return db._prepare_cursor(ServerBindingCursor(db.connection))  # type: ignore[call-arg]


def bound_lock_waits() -> None:
    """For the rest of this transaction a lock is waited for no longer than the settings say."""
    run("SELECT set_config('lock_timeout', %s, TRUE)", (f"{settings.DRYDOCK.lock_timeout_ms}ms",))
