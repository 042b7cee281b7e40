"""The credentials of a fake DPU: rows of the fake provider. They are issued at once, and open nothing."""

from __future__ import annotations

import datetime as dt
import secrets
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from blueprints.fake.running import Running
from drydock.core import clock
from interfaces.deadline import Deadline
from interfaces.dpu_services import CredentialBackend, FoundCredential
from interfaces.errors import ServiceChanged


class FakeCredentials(CredentialBackend):
    """The credentials of one lease on one instance."""

    def __init__(self, provider: str, key: str, lease: str) -> None:
        self._provider, self._key, self._lease = Running(provider), key, lease

    def list(self, deadline: Deadline) -> Sequence[FoundCredential]:
        """Return the credentials of the lease, sorted by name."""
        with self._reached("list_credentials", deadline) as db:
            rows = db.execute("SELECT * FROM dpu_credentials WHERE lease = ? ORDER BY name", (self._lease,))
            return [_found(row) for row in rows]

    def find(self, name: str, deadline: Deadline) -> FoundCredential | None:
        """Return a credential of the lease; None if there is none of this name."""
        with self._reached("find_credential", deadline) as db:
            row = self._row(db, name)
            return None if row is None else _found(row)

    def create(self, name: str, seconds: int, deadline: Deadline) -> FoundCredential:
        """Issue a credential. Raises ServiceChanged if the name is taken."""
        with self._reached("create_credential", deadline) as db:
            if self._row(db, name) is not None:
                raise ServiceChanged(f"The credential {name} was created meanwhile.")
            until = (clock.now() + dt.timedelta(seconds=seconds)).isoformat()
            db.execute(
                "INSERT INTO dpu_credentials VALUES (?, ?, ?, ?, ?, ?, 0)",
                (self._key, self._lease, name, secrets.token_hex(8), until, f"fake kubeconfig {secrets.token_hex(16)}"),
            )
            return _found(self._row(db, name))

    def show(self, found: FoundCredential, deadline: Deadline) -> str:
        """Mark a credential as shown, and return its kubeconfig. Raises ServiceChanged the second time."""
        with self._reached("show_credential", deadline) as db:
            row = db.execute(
                "UPDATE dpu_credentials SET shown = 1 WHERE lease = ? AND name = ? AND version = ? AND NOT shown "
                "RETURNING kubeconfig",
                (self._lease, found.name, found.version),
            ).fetchone()
            if row is None:
                raise ServiceChanged(f"The credential {found.name} was shown or removed meanwhile.")
            return str(row["kubeconfig"])

    def remove(self, found: FoundCredential, deadline: Deadline) -> None:
        """Remove exactly this credential at once. A missing one is not an error."""
        with self._reached("remove_credential", deadline) as db:
            db.execute(
                "DELETE FROM dpu_credentials WHERE lease = ? AND name = ? AND version = ?",
                (self._lease, found.name, found.version),
            )

    @contextmanager
    def _reached(self, call: str, deadline: Deadline) -> Iterator[sqlite3.Connection]:
        deadline.check("Reaching the DPU")
        with self._provider.reached(call, self._key) as db:
            yield db

    def _row(self, db: sqlite3.Connection, name: str) -> Any:
        sql = "SELECT * FROM dpu_credentials WHERE lease = ? AND name = ?"
        return db.execute(sql, (self._lease, name)).fetchone()


def _found(row: Any) -> FoundCredential:
    return FoundCredential(
        name=row["name"], version=row["version"], expires_at=dt.datetime.fromisoformat(row["until"]), issued=True,
        shown=bool(row["shown"]),
    )  # fmt: skip
