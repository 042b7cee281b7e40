"""Database transactions and statements, and recovery from lost connections.

Claims and queues use raw SQL, because they need row locks, SKIP LOCKED and statements that the ORM cannot express, and
because a claim of free capacity may take at most 14 statements.
"""

from __future__ import annotations

import logging
import mmap
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from django.conf import settings
from django.db import (
    DEFAULT_DB_ALIAS,
    Error,
    IntegrityError,
    InterfaceError,
    InternalError,
    NotSupportedError,
    OperationalError,
    connection,
    connections,
    transaction,
)
from django.db.backends.postgresql.base import ServerBindingCursor

from drydock.core import clock
from drydock.core.errors import Busy as Busy
from drydock.core.errors import Conflict

NAMES = ("commit.before", "commit.after", "run.taken", "run.calling", "run.called", "run.applying", "run.applied")

_hook: Callable[[str], None] | None = None


def failpoint(name: str) -> None:
    """Call the hook that a test has set, if any."""
    if _hook is not None:
        _hook(name)


def hook(new: Callable[[str], None] | None) -> None:
    """Set the function that every failpoint of this process calls, or None to remove it."""
    global _hook
    _hook = new


_word = mmap.mmap(-1, 1)


def begin_draining() -> None:
    """Prevent this process and its forks from starting steps. Steps that are already running are completed."""
    _word[0] = 1


def is_draining() -> bool:
    """Return whether this worker is shutting down."""
    return _word[0] == 1


def forget_draining() -> None:
    """Let this process start steps again, after stopping one worker and before starting another."""
    _word[0] = 0


P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger(__name__)

LOST = (OperationalError, InterfaceError, InternalError)
"""Exception classes that Django raises for a lost connection, but also for other errors. `is_lost` tells which."""
PATIENCE = 60.0
"""Time in seconds for which `patient` retries while the database does not answer."""
_PAUSE = 0.25
_CONNECTION = "08"
_ENDED = {"57P01", "57P02", "57P03", "57P04", "57P05", "25P03"}
"""SQLSTATEs that mean a connection was ended by an administrator, crash or timeout, or was refused."""
_REPORT_EVERY = 1.0
_answering: ContextVar[bool] = ContextVar("answering", default=False)
_reported_at = float("-inf")
_guard = threading.Lock()


def is_lost(error: BaseException) -> bool:
    """Return whether an error means that the connection was lost or could not be opened.

    Closes a broken connection, so that the next statement opens a new one. Returns False inside a transaction,
    because the code that opened the transaction must handle the error.
    """
    if not isinstance(error, LOST) or connection.in_atomic_block:
        return False
    if connection.connection is not None and not connection.is_usable():
        connection.close()
    return connection.connection is None or _of_connection(error)


def _of_connection(error: BaseException) -> bool:
    """Return whether a database error reports a failed connection, as opposed to a failed statement."""
    state = sqlstate(error)
    if isinstance(error, InternalError):
        # psycopg does not understand the answer. PgBouncer adds an error of its own to the last one of the server, and
        # with BEGIN, COMMIT and ROLLBACK psycopg then says only that it received 2 results.
        return not state
    return isinstance(error, OperationalError) and (not state or state[:2] == _CONNECTION or state in _ENDED)


def report(error: BaseException) -> None:
    """Log that the database is not reachable, at most once a second in each process."""
    global _reported_at
    with _guard:
        now = clock.monotonic()
        if now - _reported_at < _REPORT_EVERY:
            return
        _reported_at = now
    log.error("The database is not reachable (%s). Work resumes when it is back.", str(error).strip().split("\n")[0])


def patient(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call an idempotent function, and retry while the database is not reachable.

    Raises the last error after `PATIENCE` seconds, and any error other than a lost connection at once. Does not retry
    while a web request is being answered, because the client is told to retry, nor in a worker that is shutting down.
    """
    until = clock.monotonic() + PATIENCE
    while True:
        try:
            return call(*args, **kwargs)
        except Error as error:
            if not is_lost(error) or _answering.get() or is_draining() or clock.monotonic() >= until:
                raise
            report(error)
        clock.sleep(_PAUSE)


def request_started(**_: object) -> None:
    """Record that this thread is serving a web request. Receiver of Django's `request_started` signal."""
    _answering.set(True)


def request_finished(**_: object) -> None:
    """Record that this thread has finished its web request. Receiver of Django's `request_finished` signal."""
    _answering.set(False)


_STALE_PLAN = "0A000"
"""SQLSTATE raised after a migration changed a type that a prepared statement returns.

The rollback discards the prepared statements, so the transaction can be repeated.
"""
_REPEAT = {"40P01", "40001", _STALE_PLAN}
_LOCK_NOT_AVAILABLE = "55P03"
_TREE = "resource_tree"
"""The constraint that the triggers of the resource tree report. The claim was too late; another attempt sees why."""
_TRIES = 8
_PREPARE_AFTER = 2
_PLANS_KEPT = 5.0
"""How long plans are reused, in seconds.

A plan made for a small table reads all of it, and the server keeps that plan until it next updates the statistics. In
those minutes the table may grow, while planning again costs a few milliseconds.
"""


class _Local(threading.local):
    ours = False
    """True if `short` opened the current transaction, and can therefore repeat it."""
    plans_until = 0.0


_local = _Local()


class InsideTransaction(Conflict):
    """This operation waits for other processes, which cannot see your uncommitted changes. Call it after the commit."""


def short(work: Callable[P, R]) -> Callable[P, R]:
    """Wrap `work` in a transaction of its own that is repeated after a deadlock or serialization failure.

    The wrapped function raises Busy if a lock was not free within the lock timeout, and InsideTransaction inside a
    caller's transaction.
    """
    return _repeated(work, _ours)


def single(work: Callable[P, R]) -> Callable[P, R]:
    """Wrap `work` as `short` does, if it sends one statement only: that is a transaction without BEGIN and COMMIT."""
    return _repeated(work, nullcontext)


def _repeated(work: Callable[P, R], transacted: Callable[[], AbstractContextManager[object]]) -> Callable[P, R]:
    @wraps(work)
    def repeated(*args: P.args, **kwargs: P.kwargs) -> R:
        refuse_inside_transaction(work.__name__)
        for last in (*[False] * (_TRIES - 1), True):
            try:
                with transacted():
                    done = work(*args, **kwargs)
                failpoint("commit.after")
                return done
            except IntegrityError as error:
                if constraint(error) == _TREE:
                    raise Busy(str(error).partition("\n")[0]) from error
                raise
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
            failpoint("commit.before")
        finally:
            _local.ours = False


def refuse_inside_transaction(what: str) -> None:
    """Raise InsideTransaction if the caller has a transaction open."""
    if connection.in_atomic_block:
        raise InsideTransaction(f"{what} does not work inside a transaction. {InsideTransaction.__doc__}")


def sqlstate(error: BaseException) -> str:
    """Return the SQLSTATE of a database error, or an empty string if it has none."""
    return getattr(error.__cause__, "sqlstate", None) or ""


def constraint(error: BaseException) -> str:
    """Return the name of the constraint that a database error reports, or an empty string if it reports none."""
    return getattr(getattr(error.__cause__, "diag", None), "constraint_name", None) or ""


def rows(sql: str, params: Any = (), *, hot: bool = False) -> list[tuple[Any, ...]]:
    """Return all rows of a statement's result. For `hot`, see `_cursor`."""
    try:
        with _cursor(hot) as cursor:
            cursor.execute(sql, params)
            return cursor.fetchall() if cursor.rownumber is not None else []
    except NotSupportedError as error:
        if not hot or connection.in_atomic_block or sqlstate(error) != _STALE_PLAN:
            raise
        connection.close()  # this drops its prepared statements; the next statement reconnects
        return rows(sql, params)


def lookup(sql: str, params: Any = ()) -> list[tuple[Any, ...]]:
    """Return all rows of a hot statement that changes nothing and comes first in a web request.

    It replaces Django's check of the connection, which takes a round trip of its own in every request: if the connection
    was lost since the request before, the statement is sent again on a new one.
    """
    if connection.in_atomic_block:
        return rows(sql, params, hot=True)
    connection.health_check_done = True  # type: ignore[attr-defined]
    try:
        return rows(sql, params, hot=True)
    except Error as error:
        if not is_lost(error):
            raise
    return rows(sql, params, hot=True)


def some(sql: str, params: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the first rows of a query, at most as many as one periodic check processes.

    Without an ORDER BY, the rows are chosen at random. Otherwise rows that fail every time could keep the others from
    being processed.
    """
    ordered = sql if "ORDER BY" in sql else f"SELECT * FROM ({sql}) found ORDER BY random()"
    return rows(f"{ordered} LIMIT {settings.DRYDOCK.sweep_batch}", params)


def run(sql: str, params: Any = (), *, hot: bool = False) -> int:
    """Execute a statement and return the number of affected rows. For `hot`, see `_cursor`."""
    with _cursor(hot) as cursor:
        cursor.execute(sql, params)
        return int(cursor.rowcount)


def leases_by_id(condition: str) -> str:
    """Return a WHERE condition for updating several leases, which locks them in the order of their ids.

    A plain UPDATE locks rows in the order in which its plan finds them, so two such UPDATEs can deadlock.
    """
    return f"id = ANY(ARRAY(SELECT id FROM leases_lease WHERE {condition} ORDER BY id FOR NO KEY UPDATE))"


def _cursor(hot: bool) -> Any:
    """Return a cursor that uses prepared statements if the statement is `hot`.

    A hot statement is sent again and again with the same text, and planning it costs more than executing it. The
    server plans it once for each connection. A statement whose best plan depends on its parameters must not be hot.

    A hot statement about one row passes the row's state as a parameter: with a literal, the planner picks a small
    partial index for that state and reads all of it.

    Nothing is prepared inside a caller's transaction, because it cannot be repeated after a migration invalidates a
    plan, or while Django logs statements, because Django cannot log prepared ones.
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
            # By default, the server compares costs and plans expensive statements anew for every call.
            db.connection.execute("DISCARD PLANS; SET plan_cache_mode = force_generic_plan")
    return db._prepare_cursor(ServerBindingCursor(db.connection))  # type: ignore[call-arg]


def bound_lock_waits() -> None:
    """Apply the configured lock timeout to the rest of this transaction."""
    run("SELECT set_config('lock_timeout', %s, TRUE)", (f"{settings.DRYDOCK.lock_timeout_ms}ms",))


def attempt(act: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | None:
    """Return the result of `act`. If it raises an exception, log the exception and return None.

    Errors that mean a lost database connection are raised, because every later call would fail as well.
    """
    try:
        return act(*args, **kwargs)
    except Exception as error:
        if is_lost(error):
            raise
        log.exception("%s%s failed; the next sweep tries again.", getattr(act, "__name__", act), args)
        return None


def each(act: Callable[..., object], found: Iterable[tuple[object, ...]]) -> int:
    """Call `act` for each row. Return how many calls succeeded and did not return False."""
    return sum(attempt(_done, act, *row) or False for row in found)


def _done(act: Callable[..., object], *row: object) -> bool:
    return act(*row) is not False


def begins_with(text: str) -> str:
    """Return the LIKE pattern that matches values starting with `text`."""
    return text.replace("\\", "\\\\").replace("%", "\\%").replace("_", "\\_") + "%"
