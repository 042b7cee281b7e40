"""The fake provider's memory: one SQLite file, shared by processes, that survives SIGKILL."""

from __future__ import annotations

import os
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_VERSION = 7
_SCHEMA = (
    """CREATE TABLE instances (
        key TEXT PRIMARY KEY, state TEXT NOT NULL, tags TEXT NOT NULL, token TEXT NOT NULL DEFAULT '',
        offer TEXT NOT NULL DEFAULT '', power TEXT NOT NULL DEFAULT 'on', created INTEGER NOT NULL DEFAULT 0,
        polls INTEGER NOT NULL DEFAULT 0, checks INTEGER NOT NULL DEFAULT 0,
        cycles INTEGER NOT NULL DEFAULT 0, generation INTEGER NOT NULL DEFAULT 0)""",
    """CREATE TABLE left_by (
        key TEXT NOT NULL, lease TEXT NOT NULL, what TEXT NOT NULL, PRIMARY KEY (key, lease, what))""",
    """CREATE TABLE calls (
        id INTEGER PRIMARY KEY AUTOINCREMENT, name TEXT NOT NULL, key TEXT NOT NULL, pid INTEGER NOT NULL)""",
    """CREATE TABLE fired (
        fault TEXT NOT NULL, key TEXT NOT NULL, seen INTEGER NOT NULL, PRIMARY KEY (fault, key))""",
    """CREATE TABLE holds (
        fault TEXT NOT NULL, key TEXT NOT NULL, resolved INTEGER NOT NULL DEFAULT 0,
        PRIMARY KEY (fault, key))""",
    "CREATE TABLE planted (identity TEXT PRIMARY KEY, draft TEXT NOT NULL)",
    "CREATE TABLE sold (place TEXT NOT NULL, offer TEXT NOT NULL, said TEXT NOT NULL, PRIMARY KEY (place, offer))",
    "CREATE TABLE settings (key TEXT NOT NULL, name TEXT NOT NULL, value TEXT NOT NULL, PRIMARY KEY (key, name))",
    "CREATE TABLE sold_out (type TEXT PRIMARY KEY)",
    """CREATE TABLE services (
        key TEXT NOT NULL, lease TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL, definition TEXT NOT NULL,
        seen TEXT NOT NULL, PRIMARY KEY (lease, name))""",
    """CREATE TABLE dpu_credentials (
        key TEXT NOT NULL, lease TEXT NOT NULL, name TEXT NOT NULL, version TEXT NOT NULL, until TEXT NOT NULL,
        kubeconfig TEXT NOT NULL, shown INTEGER NOT NULL, PRIMARY KEY (lease, name))""",
    """CREATE TABLE dpu_objects (
        key TEXT NOT NULL, lease TEXT NOT NULL, noun TEXT NOT NULL, name TEXT NOT NULL, version INTEGER NOT NULL,
        definition TEXT NOT NULL, seen TEXT NOT NULL, PRIMARY KEY (lease, noun, name))""",
    "CREATE TABLE changes (id INTEGER PRIMARY KEY AUTOINCREMENT, key TEXT NOT NULL, tags TEXT NOT NULL)",
    "CREATE TABLE allowed (place TEXT NOT NULL, name TEXT NOT NULL, said TEXT NOT NULL, PRIMARY KEY (place, name))",
)
TABLES = (
    "instances", "left_by", "calls", "fired", "holds", "planted", "sold", "settings", "sold_out", "services", "allowed",
    "dpu_credentials", "dpu_objects", "changes",
)  # fmt: skip


def folder() -> Path:
    """Return the folder of the fake providers' files: DRYDOCK_FAKE_CLOUD, or this user's temporary folder."""
    chosen = os.environ.get("DRYDOCK_FAKE_CLOUD")
    return Path(chosen) if chosen else Path(tempfile.gettempdir()) / f"drydock-fake-{os.getuid()}"


class Store:
    """One provider's file. A connection lives for one transaction only, so forked workers share none."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Read and write atomically, under the file's one write lock."""
        db = self._connect()
        try:
            db.execute("BEGIN IMMEDIATE")
            _make(db)
            yield db
            db.execute("COMMIT")
        finally:
            db.close()

    def _connect(self) -> sqlite3.Connection:
        try:
            db = sqlite3.connect(self.path, timeout=30, isolation_level=None)
        except sqlite3.OperationalError:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            db = sqlite3.connect(self.path, timeout=30, isolation_level=None)
        # The journal outlives a killed process without it; only a power cut could do harm.
        db.execute("PRAGMA synchronous = OFF")
        db.row_factory = sqlite3.Row
        return db


def _make(db: sqlite3.Connection) -> None:
    if db.execute("PRAGMA user_version").fetchone()[0] == _VERSION:
        return
    for statement in _SCHEMA:
        db.execute(statement.replace("CREATE TABLE", "CREATE TABLE IF NOT EXISTS", 1))
    db.execute(f"PRAGMA user_version = {_VERSION}")
