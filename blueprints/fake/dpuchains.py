"""The chains of a fake DPU: rows of the fake provider. They are connected at once."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from blueprints.dpuservices import ChainConfig, limits
from blueprints.fake.running import Running
from interfaces.deadline import Deadline
from interfaces.dpu_services import Chain, ChainBackend, Condition, FoundChain
from interfaces.errors import ServiceChanged

PORTS = 2
"""Network ports of a fake DPU."""


class FakeChains(ChainBackend):
    """The chains of one lease on one instance. `Cloud.show_chain` changes what is seen of one."""

    def __init__(self, provider: str, key: str, lease: str, config: ChainConfig) -> None:
        self._provider, self._key, self._lease = Running(provider), key, lease
        self.limits, self.dpu, self.lease = limits(config, PORTS), key, lease

    def list(self, deadline: Deadline) -> Sequence[FoundChain]:
        """Return the chains of the lease, sorted by name."""
        with self._reached("list_chains", deadline) as db:
            rows = db.execute("SELECT * FROM dpu_chains WHERE lease = ? ORDER BY name", (self._lease,))
            return [_found(row) for row in rows]

    def find(self, name: str, deadline: Deadline) -> FoundChain | None:
        """Return a chain of the lease; None if there is none of this name."""
        with self._reached("find_chain", deadline) as db:
            row = self._row(db, name)
            return None if row is None else _found(row)

    def create(self, chain: Chain, deadline: Deadline) -> FoundChain:
        """Create a chain, or complete it. Raises ServiceChanged if another one has its name."""
        with self._reached("create_chain", deadline) as db:
            row = self._row(db, chain.name)
            if row is not None and _found(row).chain != chain:
                raise ServiceChanged(f"The chain {chain.name} was created meanwhile.")
            db.execute(
                "INSERT OR REPLACE INTO dpu_chains VALUES (?, ?, ?, abs(random()), ?, '{}')",
                (self._key, self._lease, chain.name, json.dumps(chain.to_json())),
            )
            return _found(self._row(db, chain.name))

    def remove(self, found: FoundChain, deadline: Deadline) -> bool:
        """Remove exactly this chain at once."""
        with self._reached("remove_chain", deadline) as db:
            db.execute(
                "DELETE FROM dpu_chains WHERE lease = ? AND name = ? AND version = ?",
                (self._lease, found.chain.name, int(found.version)),
            )
            return True

    @contextmanager
    def _reached(self, call: str, deadline: Deadline) -> Iterator[sqlite3.Connection]:
        deadline.check("Reaching the DPU")
        with self._provider.reached(call, self._key) as db:
            yield db

    def _row(self, db: sqlite3.Connection, name: str) -> Any:
        return db.execute("SELECT * FROM dpu_chains WHERE lease = ? AND name = ?", (self._lease, name)).fetchone()


def _found(row: Any) -> FoundChain:
    seen = json.loads(row["seen"])
    return FoundChain(
        chain=Chain.from_json(json.loads(row["definition"])), version=str(row["version"]),
        complete=seen.get("complete", True), ready=seen.get("ready", True), removing=seen.get("removing", False),
        conditions=tuple(Condition(**one) for one in seen.get("conditions", ())),
    )  # fmt: skip
