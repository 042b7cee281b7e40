"""The fake provider from a client's point of view: instances created by key, and a log of every call."""

from __future__ import annotations

import json
import os
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, fields

from blueprints.fake.store import Store, folder


@dataclass(frozen=True, kw_only=True)
class Instance:
    """An instance at the provider. `created` counts the create calls for its key."""

    key: str
    state: str
    """reserved, starting, running, dead or deleting."""
    tags: Mapping[str, str]
    token: str
    offer: str
    power: str
    created: int
    polls: int
    checks: int
    cycles: int
    generation: int


_COLUMNS = ", ".join(field.name for field in fields(Instance))


class Provider:
    """A client of one fake provider, by name. Every method is one atomic transaction."""

    def __init__(self, name: str = "default") -> None:
        self.name = name
        self._store = Store(folder() / f"{name}.sqlite")

    def look(self, key: str) -> Instance | None:
        """Return the instance called `key`, or None."""
        with self._call("look", key) as db:
            return _instance(db, key)

    def reserve(self, key: str, *, tags: Mapping[str, str]) -> None:
        """Reserve a place for `key`. Idempotent."""
        with self._call("reserve", key) as db:
            _insert(db, key, "reserved", tags)

    def create(self, key: str, *, token: str, tags: Mapping[str, str], offer: str, generation: int) -> Instance:
        """Create the instance called `key`. A second call returns the same instance, and is counted."""
        with self._call("create", key) as db:
            _insert(db, key, "reserved", tags)
            db.execute(
                """UPDATE instances SET created = created + 1, token = ?, offer = ?, generation = ?, tags = ?,
                state = CASE state WHEN 'reserved' THEN 'starting' ELSE state END WHERE key = ?""",
                (token, offer, generation, json.dumps(dict(tags)), key),
            )
            return _there(db, key)

    def progress(self, call: str, key: str, *, polls: int, state: str) -> Instance | None:
        """Poll the change under way on `key` once. After `polls` polls it has reached `state`."""
        with self._call(call, key) as db:
            db.execute("UPDATE instances SET polls = polls + 1 WHERE key = ? AND state <> 'dead'", (key,))
            db.execute(
                "UPDATE instances SET state = ?, polls = 0 WHERE key = ? AND state <> 'dead' AND polls >= ?",
                (state, key, polls),
            )
            return _instance(db, key)

    def check(self, key: str) -> Instance | None:
        """Return the instance as a health check sees it, and count the check."""
        with self._call("check", key) as db:
            db.execute("UPDATE instances SET checks = checks + 1 WHERE key = ?", (key,))
            return _instance(db, key)

    def check_together(self, keys: Sequence[str]) -> set[str]:
        """Return those of these instances that run, are on, report no health and ask for no password."""
        with self._call("check_together", "") as db:
            sound = db.execute(
                """SELECT key FROM instances WHERE state = 'running' AND power = 'on'
                AND key NOT IN (SELECT key FROM settings WHERE name IN ('health', 'password'))"""
            )
            return {row["key"] for row in sound} & set(keys)

    def switch(self, key: str, power: str, *, cycle: bool = False) -> Instance | None:
        """Switch the instance on or off. Idempotent."""
        with self._call(f"switch_{power}", key) as db:
            db.execute(
                "UPDATE instances SET power = ?, cycles = cycles + ? WHERE key = ? AND power <> ?",
                (power, int(cycle), key, power),
            )
            return _instance(db, key)

    def set(self, call: str, key: str, values: Mapping[str, str]) -> Instance | None:
        """Store settings of the instance called `key`; others stay. Idempotent."""
        with self._call(call, key) as db:
            if (found := _instance(db, key)) is not None:
                db.executemany(
                    "INSERT OR REPLACE INTO settings VALUES (?, ?, ?)",
                    [(key, name, value) for name, value in values.items()],
                )
            return found

    def settings(self, key: str) -> dict[str, str]:
        """Return the settings stored for the instance: disk_gib, type, tag:NAME, console."""
        with self._store.transaction() as db:
            return {row["name"]: row["value"] for row in db.execute("SELECT * FROM settings WHERE key = ?", (key,))}

    def said(self, key: str) -> str:
        """Return the console output of the instance."""
        with self._call("console", key):
            pass
        return self.settings(key).get("console", "")

    def is_sold_out(self, type_name: str) -> bool:
        """Return whether no machine can be switched on as this type now."""
        with self._store.transaction() as db:
            return bool(db.execute("SELECT 1 FROM sold_out WHERE type = ?", (type_name,)).fetchone())

    def update(self, key: str, generation: int, *, flashed: bool) -> Instance | None:
        """Bring the instance to a generation of its blueprint.

        If it was flashed, it runs again afterwards, and nothing of leases is left on it.
        """
        with self._call("update", key) as db:
            if flashed:
                for table in ("left_by", "services", "dpu_objects"):
                    db.execute(f"DELETE FROM {table} WHERE key = ?", (key,))  # noqa: S608
                db.execute("UPDATE instances SET state = 'running' WHERE key = ? AND state = 'starting'", (key,))
            db.execute("UPDATE instances SET generation = ? WHERE key = ?", (generation, key))
            return _instance(db, key)

    def delete(self, key: str, *, polls: int) -> None:
        """Start the deletion of `key` and everything that leases left on it. With 0 polls it is gone at once."""
        with self._call("delete", key) as db:
            db.execute(
                "UPDATE instances SET state = 'deleting', polls = 0 WHERE key = ? AND state <> 'deleting'",
                (key,),
            )
            _bury(db, key, polls)

    def gone(self, key: str, *, polls: int) -> bool:
        """Poll once for the end of a deletion; return whether nothing is left."""
        with self._call("gone", key) as db:
            db.execute("UPDATE instances SET polls = polls + 1 WHERE key = ? AND state = 'deleting'", (key,))
            _bury(db, key, polls)
            return _instance(db, key) is None

    def changes(self, after: int) -> tuple[list[tuple[int, str, str]], int]:
        """Return the changes after one of them, as (number, key, tags), and the number of the newest change.

        Raises ConnectionError if watches are broken.
        """
        with self._store.transaction() as db:
            if broken := db.execute("SELECT value FROM settings WHERE key = 'watch:'").fetchone():
                raise ConnectionError(broken["value"])
            newest = db.execute("SELECT coalesce(max(id), 0) FROM changes").fetchone()[0]
            found = db.execute("SELECT id, key, tags FROM changes WHERE id > ? ORDER BY id", (after,))
            return [tuple(row) for row in found], newest

    def leave(self, key: str, lease: str, what: str) -> None:
        """Add an account, a key or a file to the instance, on behalf of a lease."""
        with self._call(f"leave_{what}", key) as db:
            db.execute("INSERT OR IGNORE INTO left_by VALUES (?, ?, ?)", (key, lease, what))

    def has(self, key: str, lease: str, what: str) -> bool:
        """Return whether the lease has `what` on the instance."""
        with self._call(f"has_{what}", key) as db:
            found = db.execute("SELECT 1 FROM left_by WHERE key = ? AND lease = ? AND what = ?", (key, lease, what))
            return found.fetchone() is not None

    def wipe(self, key: str, lease: str, what: str | None = None) -> None:
        """Remove everything that the lease has on the instance, or only `what`.

        Its services, credentials, chains, networks, volumes and VPCs end with its access.
        """
        with self._call(f"wipe_{what or 'all'}", key) as db:
            db.execute(
                "DELETE FROM left_by WHERE key = ? AND lease = ? AND what = coalesce(?, what)",
                (key, lease, what),
            )
            if what in (None, "access"):
                for table in ("services", "dpu_credentials", "dpu_objects"):
                    db.execute(f"DELETE FROM {table} WHERE lease = ?", (lease,))  # noqa: S608

    def fires(self, fault: str, key: str, *, skip: int, times: int | None) -> bool:
        """Count a call that matches a fault. Return whether the fault strikes: after `skip` calls, `times` times."""
        with self._store.transaction() as db:
            seen = db.execute(
                "INSERT INTO fired VALUES (?, ?, 1) ON CONFLICT DO UPDATE SET seen = seen + 1 RETURNING seen",
                (fault, key),
            ).fetchone()["seen"]
            return bool(skip < seen and (times is None or seen <= skip + times))

    def hold(self, fault: str, key: str, *, begin: bool) -> bool | None:
        """Return whether a hold is open (True), resolved (False) or was never opened (None). `begin` opens it."""
        with self._store.transaction() as db:
            if begin:
                db.execute("INSERT OR IGNORE INTO holds (fault, key) VALUES (?, ?)", (fault, key))
            row = db.execute("SELECT resolved FROM holds WHERE fault = ? AND key = ?", (fault, key)).fetchone()
            return None if row is None else not row["resolved"]

    def everything(self) -> list[Instance]:
        """Return every instance, by key. The listing is not counted as a call."""
        with self._store.transaction() as db:
            return [read(row) for row in db.execute(f"SELECT {_COLUMNS} FROM instances ORDER BY key")]  # noqa: S608

    def planted(self) -> list[str]:
        """Return all planted drafts, as JSON, by identity."""
        with self._call("discover", "") as db:
            return [row["draft"] for row in db.execute("SELECT draft FROM planted ORDER BY identity")]

    def reported_places(self) -> list[str]:
        """Return the places with planted objects, and those with a problem."""
        with self._store.transaction() as db:
            there = [row["key"] for row in db.execute("SELECT key FROM settings WHERE key LIKE 'place:%'")]
        return sorted({json.loads(text).get("place", "") for text in self.planted()} | {one[6:] for one in there})

    def places(self) -> list[str]:
        """Return the places with offers."""
        with self._call("places", "") as db:
            return [row["place"] for row in db.execute("SELECT DISTINCT place FROM sold ORDER BY place")]

    def sold(self, place: str) -> list[str]:
        """Return the offers in a place, as JSON."""
        with self._call("sold", place) as db:
            return [row["said"] for row in db.execute("SELECT said FROM sold WHERE place = ? ORDER BY offer", (place,))]

    def allowed(self, place: str) -> list[str]:
        """Return the account's limits in a place, or those for all places with "", as JSON.

        A limit across all places is always included.
        """
        with self._call("allowed", place) as db:
            sql = "SELECT said FROM allowed WHERE ? = '' OR place IN (?, '') ORDER BY place, name"
            return [row["said"] for row in db.execute(sql, (place, place))]

    def listed(self, place: str) -> list[Instance]:
        """Return every instance made from an offer in a place, in one call."""
        with self._call("listed", place) as db:
            sql = f"SELECT {_COLUMNS} FROM instances WHERE offer LIKE ? ORDER BY key"  # noqa: S608
            return [read(row) for row in db.execute(sql, (f"{place}/%",))]

    @contextmanager
    def _call(self, name: str, key: str) -> Iterator[sqlite3.Connection]:
        with self._store.transaction() as db:
            db.execute("INSERT INTO calls (name, key, pid) VALUES (?, ?, ?)", (name, key, os.getpid()))
            yield db


def _insert(db: sqlite3.Connection, key: str, state: str, tags: Mapping[str, str]) -> None:
    db.execute(
        "INSERT OR IGNORE INTO instances (key, state, tags) VALUES (?, ?, ?)",
        (key, state, json.dumps(dict(tags))),
    )


def _bury(db: sqlite3.Connection, key: str, polls: int) -> None:
    db.execute("DELETE FROM instances WHERE key = ? AND state = 'deleting' AND polls >= ?", (key, polls))
    for table in ("left_by", "services", "dpu_credentials", "dpu_objects", "settings"):
        db.execute(f"DELETE FROM {table} WHERE key = ? AND key NOT IN (SELECT key FROM instances)", (key,))  # noqa: S608


def _instance(db: sqlite3.Connection, key: str) -> Instance | None:
    row = db.execute(f"SELECT {_COLUMNS} FROM instances WHERE key = ?", (key,)).fetchone()  # noqa: S608
    return row and read(row)


def _there(db: sqlite3.Connection, key: str) -> Instance:
    row = _instance(db, key)
    assert row is not None
    return row


def read(row: sqlite3.Row) -> Instance:
    """Convert a row to an instance."""
    return Instance(**(dict(row) | {"tags": json.loads(row["tags"])}))
