"""The floor: plain psycopg that writes the rows of a warm cycle.

Its tables are copies of ours (`LIKE ... INCLUDING ALL`: the same columns, generated column, checks and indexes, and
the same fill factor), filled with the same values, with as many rows that are hot. Without our triggers and foreign
keys, without looking who waits, without SQL made from a question. psycopg prepares its statements by itself.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from django.db import connection

_COPIED = {"leases_lease": 85, "leases_event": 100, "leases_share": 100, "leases_resource": 70}
"""Table -> its fill factor, which LIKE does not copy."""
_RESOURCE_COLUMNS = """
    SELECT string_agg(quote_ident(column_name), ', ') FROM information_schema.columns
    WHERE table_schema = current_schema() AND table_name = 'leases_resource' AND is_generated = 'NEVER'"""


def _copy(table: str) -> str:
    return table.replace("leases_", "bench_")


def prepare() -> None:
    """The tables, with the resources that there are. Replaces those of an earlier run."""
    from leases.engine.core.database import rows, run

    for table, fill in _COPIED.items():
        run(f"DROP TABLE IF EXISTS {_copy(table)}")
        run(f"CREATE TABLE {_copy(table)} (LIKE {table} INCLUDING ALL) WITH (fillfactor = {fill})")
    columns = rows(_RESOURCE_COLUMNS)[0][0]
    run(f"INSERT INTO bench_resource ({columns}) SELECT {columns} FROM leases_resource")  # noqa: S608
    for table in _COPIED:
        run(f"VACUUM ANALYZE {_copy(table)}")


def remove() -> None:
    """The tables again."""
    from leases.engine.core.database import run

    for table in _COPIED:
        run(f"DROP TABLE IF EXISTS {_copy(table)}")


def work(floor: type[Each]) -> tuple[Callable[[], object], list[int]]:
    """One cycle on a connection of its own, and the process of the database that serves it."""
    import psycopg

    connection.ensure_connection()
    wanted = ("host", "port", "user", "dbname", "password")
    db = psycopg.connect(
        **{k: v for k, v in connection.get_connection_params().items() if k in wanted}, autocommit=True
    )
    return floor(db), [db.info.backend_pid]


_EVENT = """
    INSERT INTO bench_event (at, kind, lease_id, resource_id, from_state, to_state, reason, message, actor, duration)
    VALUES (clock_timestamp(), %s, %s, %s, %s, %s, %s, '', 'bench', '1 ms')"""
_FIND = """
    SELECT id FROM bench_resource WHERE type = 'fake' AND claimable ORDER BY id LIMIT 1
    FOR NO KEY UPDATE SKIP LOCKED"""
_SHARE = "INSERT INTO bench_share (lease_id, resource_id, slots) VALUES (%s, %s, 1)"
_USE = "UPDATE bench_resource SET used_slots = used_slots + 1, idle_since = NULL WHERE id = %s"
_FREE = """
    UPDATE bench_resource SET used_slots = used_slots - 1,
        idle_since = CASE WHEN used_slots = 1 THEN clock_timestamp() END WHERE id = %s"""
_MOVE = "UPDATE bench_lease SET state = %s, reason = %s, message = '', actor = 'bench', since = clock_timestamp()"


class Each:
    """Each row by a statement of its own, each state written as it comes: what our engine writes, row by row."""

    def __init__(self, db: Any) -> None:
        from leases.engine.scheduling import request
        from leases.validation.requests import read

        asked = read({"type": "fake"})
        self.db = db
        self.insert = request._INSERT.replace("leases_lease", "bench_lease")
        self.values = request._values(asked, 1, request.usable(asked), "bench", request.Cause(), None)

    def __call__(self) -> None:
        db = self.db
        with db.transaction():
            lease = db.execute(self.insert, self.values).fetchone()[0]
            db.execute(_EVENT, ("lease.pending", lease, None, "", "pending", "requested"))
            resource = db.execute(_FIND).fetchone()[0]
            db.execute(f"{_MOVE}, resource_id = %s, acquired_at = clock_timestamp() WHERE id = %s",
                ("acquired", "granted", resource, lease))  # fmt: skip
            db.execute(_EVENT, ("lease.acquired", lease, resource, "pending", "acquired", "granted"))
            db.execute(_SHARE, (lease, resource))
            db.execute(_USE, (resource,))
            db.execute(f"{_MOVE}, active_at = clock_timestamp() WHERE id = %s", ("active", "ready", lease))
            db.execute(_EVENT, ("lease.active", lease, resource, "acquired", "active", "ready"))
        with db.transaction():
            db.execute(f"{_MOVE} WHERE id = %s", ("released", "released_by_owner", lease))
            db.execute(_EVENT, ("lease.released", lease, resource, "active", "released", "released_by_owner"))
            db.execute(f"{_MOVE}, ended_at = clock_timestamp() WHERE id = %s", ("destroyed", "returned", lease))
            db.execute(_EVENT, ("lease.destroyed", lease, resource, "released", "destroyed", "returned"))
            db.execute("DELETE FROM bench_share WHERE lease_id = %s", (lease,))
            db.execute(_FREE, (resource,))


class Tight(Each):
    """The same rows with as few statements as one can: a lease is written as it stands at the commit, and the events
    of a transaction in one statement. No state in between ever is in a row."""

    def __init__(self, db: Any) -> None:
        super().__init__(db)
        self.insert = self.insert.replace("'pending'", "'active'", 1)

    def __call__(self) -> None:
        db = self.db
        with db.transaction():
            resource = db.execute(_FIND).fetchone()[0]
            lease = db.execute(self.insert, self.values).fetchone()[0]
            db.execute(_EVENT + ", (clock_timestamp(), %s, %s, %s, %s, %s, %s, '', 'bench', '1 ms')" * 2, (
                "lease.pending", lease, None, "", "pending", "requested",
                "lease.acquired", lease, resource, "pending", "acquired", "granted",
                "lease.active", lease, resource, "acquired", "active", "ready"))  # fmt: skip
            db.execute(_SHARE, (lease, resource))
            db.execute(_USE, (resource,))
        with db.transaction():
            db.execute(f"{_MOVE}, ended_at = clock_timestamp() WHERE id = %s", ("destroyed", "returned", lease))
            db.execute(_EVENT + ", (clock_timestamp(), %s, %s, %s, %s, %s, %s, '', 'bench', '1 ms')", (
                "lease.released", lease, resource, "active", "released", "released_by_owner",
                "lease.destroyed", lease, resource, "released", "destroyed", "returned"))  # fmt: skip
            db.execute("DELETE FROM bench_share WHERE lease_id = %s", (lease,))
            db.execute(_FREE, (resource,))
