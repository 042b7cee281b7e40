"""The fake provider for calls that need an instance that answers."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

from blueprints.fake.provider import Provider
from interfaces.errors import Unreachable


class Running(Provider):
    """The provider, where a call needs an instance that answers."""

    @contextmanager
    def reached(self, call: str, key: str) -> Iterator[sqlite3.Connection]:
        """Count a call to an instance, as one transaction. Raises Unreachable if the instance does not answer."""
        with self._call(call, key) as db:
            there = db.execute("SELECT 1 FROM instances WHERE key = ? AND state = 'running'", (key,)).fetchone()
            cut_off = db.execute("SELECT 1 FROM settings WHERE key = ? AND name = 'cut_off'", (key,)).fetchone()
            if there is None or cut_off is not None:
                raise Unreachable("The instance does not answer.")
            yield db
