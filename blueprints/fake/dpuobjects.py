"""The chains, networks, volumes and VPCs of a fake DPU: rows of the fake provider. They are ready at once."""

from __future__ import annotations

import json
import sqlite3
from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, Generic, TypeVar

from blueprints.dpuservices import ChainConfig, VolumeConfig, VpcConfig, limits, volume_limits
from blueprints.fake.running import Running
from interfaces.deadline import Deadline
from interfaces.dpu_services import (
    Chain,
    ChainBackend,
    Condition,
    Found,
    Network,
    NetworkBackend,
    ObjectBackend,
    Volume,
    VolumeBackend,
    Vpc,
    VpcBackend,
)
from interfaces.errors import ServiceChanged

PORTS = 2
"""Network ports of a fake DPU."""

D = TypeVar("D", Chain, Network, Volume, Vpc)


class FakeObjects(ObjectBackend[D], Generic[D]):
    """The definitions of one type of one lease on one instance. `Cloud.show_object` changes what is seen of one."""

    noun: ClassVar[str]

    def __init__(self, provider: str, key: str, lease: str) -> None:
        self._provider, self.dpu, self.lease = Running(provider), key, lease

    @abstractmethod
    def parse(self, given: Mapping[str, Any]) -> D:
        """Return a definition from JSON."""

    def list(self, deadline: Deadline) -> Sequence[Found[D]]:
        """Return what the lease has, sorted by name."""
        with self._reached(f"list_{self.noun}s", deadline) as db:
            sql = "SELECT * FROM dpu_objects WHERE lease = ? AND noun = ? ORDER BY name"
            return [self._found(row) for row in db.execute(sql, (self.lease, self.noun))]

    def find(self, name: str, deadline: Deadline) -> Found[D] | None:
        """Return the one of this name; None if there is none."""
        with self._reached(f"find_{self.noun}", deadline) as db:
            row = self._row(db, name)
            return None if row is None else self._found(row)

    def create(self, definition: D, deadline: Deadline) -> Found[D]:
        """Create one, or complete it. Raises ServiceChanged if another one has its name."""
        with self._reached(f"create_{self.noun}", deadline) as db:
            row = self._row(db, definition.name)
            if row is not None and self._found(row).definition != definition:
                raise ServiceChanged(f"The {self.noun} {definition.name} was created meanwhile.")
            db.execute(
                "INSERT OR REPLACE INTO dpu_objects VALUES (?, ?, ?, ?, abs(random()), ?, '{}')",
                (self.dpu, self.lease, self.noun, definition.name, json.dumps(definition.to_json())),
            )
            return self._found(self._row(db, definition.name))

    def remove(self, found: Found[D], deadline: Deadline) -> bool:
        """Remove exactly this one at once."""
        with self._reached(f"remove_{self.noun}", deadline) as db:
            db.execute(
                "DELETE FROM dpu_objects WHERE lease = ? AND noun = ? AND name = ? AND version = ?",
                (self.lease, self.noun, found.definition.name, int(found.version)),
            )
            return True

    @contextmanager
    def _reached(self, call: str, deadline: Deadline) -> Iterator[sqlite3.Connection]:
        deadline.check("Reaching the DPU")
        with self._provider.reached(call, self.dpu) as db:
            yield db

    def _row(self, db: sqlite3.Connection, name: str) -> Any:
        sql = "SELECT * FROM dpu_objects WHERE lease = ? AND noun = ? AND name = ?"
        return db.execute(sql, (self.lease, self.noun, name)).fetchone()

    def _found(self, row: Any) -> Found[D]:
        seen = json.loads(row["seen"])
        return Found(
            definition=self.parse(json.loads(row["definition"])), version=str(row["version"]),
            complete=seen.get("complete", True), ready=seen.get("ready", True), removing=seen.get("removing", False),
            conditions=tuple(Condition(**one) for one in seen.get("conditions", ())), facts=seen.get("facts", {}),
        )  # fmt: skip


class FakeChains(FakeObjects[Chain], ChainBackend):
    """The chains of one lease."""

    noun: ClassVar[str] = "chain"

    def __init__(self, provider: str, key: str, lease: str, config: ChainConfig) -> None:
        super().__init__(provider, key, lease)
        self.limits = limits(config, PORTS)

    def parse(self, given: Mapping[str, Any]) -> Chain:
        """Return a chain from JSON."""
        return Chain.from_json(given)


class FakeNetworks(FakeObjects[Network], NetworkBackend):
    """The networks of one lease."""

    noun: ClassVar[str] = "network"

    def __init__(self, provider: str, key: str, lease: str, ranges: Sequence[str]) -> None:
        super().__init__(provider, key, lease)
        self.ranges = ranges

    def parse(self, given: Mapping[str, Any]) -> Network:
        """Return a network from JSON."""
        return Network.from_json(given)


class FakeVolumes(FakeObjects[Volume], VolumeBackend):
    """The volumes of one lease."""

    noun: ClassVar[str] = "volume"

    def __init__(self, provider: str, key: str, lease: str, config: VolumeConfig) -> None:
        super().__init__(provider, key, lease)
        self.limits = volume_limits(config)

    def parse(self, given: Mapping[str, Any]) -> Volume:
        """Return a volume from JSON."""
        return Volume.from_json(given)


class FakeVpcs(FakeObjects[Vpc], VpcBackend):
    """The VPCs of one lease."""

    noun: ClassVar[str] = "vpc"

    def __init__(self, provider: str, key: str, lease: str, config: VpcConfig) -> None:
        super().__init__(provider, key, lease)
        self.limits, self.isolations, self.ranges = limits(config, PORTS), config.isolations, config.subnets

    def parse(self, given: Mapping[str, Any]) -> Vpc:
        """Return a VPC from JSON."""
        return Vpc.from_json(given)
