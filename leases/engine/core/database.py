"""Transactions and statements on the database, and what to do when its connection is lost.

Raw SQL begins here: claims and queues need row locks, SKIP LOCKED and statements that the ORM cannot express, and a
warm claim may not cost more than 14 statements.
"""

from __future__ import annotations

import logging
import mmap
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from typing import Any, ParamSpec, TypeVar

from django.conf import settings
from django.db import (
    DEFAULT_DB_ALIAS,
    Error,
    InterfaceError,
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
    """Does nothing unless a test has set a hook."""
    if _hook is not None:
        _hook(name)


def hook(new: Callable[[str], None] | None) -> None:
    """Set what is called at every failpoint of this process; None takes it away."""
    global _hook
    _hook = new


_word = mmap.mmap(-1, 1)


def begin_draining() -> None:
    """From now on this process, and those forked from it, begin no step; the ones at hand are finished."""
    _word[0] = 1


def is_draining() -> bool:
    """Whether this worker is ending."""
    return _word[0] == 1


def forget_draining() -> None:
    """Begin steps again: for a process that has ended one worker and starts another."""
    _word[0] = 0


P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger(__name__)

LOST = (OperationalError, InterfaceError)
"""What Django raises when the connection broke or could not be made, among other things: see `is_lost`."""
PATIENCE = 60.0
"""Seconds for which programs that wait put up with a database that does not answer."""
_PAUSE = 0.25
_CONNECTION = "08"
_ENDED = {"57P01", "57P02", "57P03", "57P04", "57P05", "25P03"}
"""SQLSTATEs: ended by an administrator, a crash or a timeout, and refused while starting or stopping."""
_REPORT_EVERY = 1.0
_answering: ContextVar[bool] = ContextVar("answering", default=False)
_reported_at = float("-inf")
_guard = threading.Lock()


def is_lost(error: BaseException) -> bool:
    """Return whether an error means that a connection broke or could not be made.

    A broken connection is closed, so that the next statement connects anew; it may have been replaced already, when
    the transaction was rolled back. Inside a transaction nothing can be told: whoever began it has to see the error.
    """
    if not isinstance(error, LOST) or connection.in_atomic_block:
        return False
    if connection.connection is not None and not connection.is_usable():
        connection.close()
    return connection.connection is None or _of_connection(error)


def _of_connection(error: BaseException) -> bool:
    """Return whether the server, or libpq without it, tells of the connection and not of a statement."""
    if not isinstance(error, OperationalError):
        return False
    state = getattr(error.__cause__, "sqlstate", None) or ""
    return not state or state[:2] == _CONNECTION or state in _ENDED


def report(error: BaseException) -> None:
    """Log that the database does not answer: at most one line a second for each process."""
    global _reported_at
    with _guard:
        now = clock.monotonic()
        if now - _reported_at < _REPORT_EVERY:
            return
        _reported_at = now
    log.error("The database does not answer (%s). Work goes on when it is back.", str(error).strip().split("\n")[0])


def patient(call: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R:
    """Call something that may be repeated, again and again while the database does not answer.

    Raises the last error after `PATIENCE` seconds, and at once whatever does not mean a lost connection. While a web
    request is answered nothing is repeated, since its client is told to come back, nor in a worker that is ending.
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
    """Receive Django's signal of this name."""
    _answering.set(True)


def request_finished(**_: object) -> None:
    """Receive Django's signal of this name."""
    _answering.set(False)


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


def attempt(act: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | None:
    """Return what `act` returns, or None when it raises.

    A lost connection to the database is raised: nothing else can be done without it, and the error would be logged
    for every row.
    """
    try:
        return act(*args, **kwargs)
    except Exception as error:
        if is_lost(error):
            raise
        log.exception("%s%s failed; the next look tries it again.", getattr(act, "__name__", act), args)
        return None


def each(act: Callable[..., object], found: Iterable[tuple[object, ...]]) -> int:
    """Act on each row found. Returns how many did not answer False or raise."""
    return sum(attempt(_done, act, *row) or False for row in found)


def _done(act: Callable[..., object], *row: object) -> bool:
    return act(*row) is not False
