"""The services of a fake DPU: rows of the fake provider, which processes share, one for each service of a lease."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

from blueprints.dpuservices import allowed
from blueprints.fake.dpucredentials import FakeCredentials
from blueprints.fake.dpuobjects import FakeChains, FakeNetworks, FakeVolumes, FakeVpcs
from blueprints.fake.running import Running
from blueprints.specs import LeaseView
from interfaces.contract import Interface
from interfaces.deadline import Deadline
from interfaces.dpu_services import Condition, Deployed, DpuServices, Pod, Service, ServiceBackend
from interfaces.errors import ServiceChanged


class FakeServices(ServiceBackend):
    """The services of one lease on one instance. Each has one pod, which is ready at once.

    `Cloud.show_service` changes what is seen of one.
    """

    def __init__(self, provider: str, key: str, lease: str) -> None:
        self._provider, self._key, self._lease = Running(provider), key, lease

    def list(self, deadline: Deadline) -> Sequence[Deployed]:
        """Return the services of the lease, sorted by name."""
        with self._reached("list_services", deadline) as db:
            rows = db.execute("SELECT * FROM services WHERE lease = ? ORDER BY name", (self._lease,))
            return [_deployed(row) for row in rows]

    def find(self, name: str, deadline: Deadline) -> Deployed | None:
        """Return a service of the lease; None if there is none of this name."""
        with self._reached("find_service", deadline) as db:
            row = self._row(db, name)
            return None if row is None else _deployed(row)

    def create(self, service: Service, deadline: Deadline) -> Deployed:
        """Create a service. Raises ServiceChanged if the name is taken."""
        with self._reached("create_service", deadline) as db:
            if self._row(db, service.name) is not None:
                raise ServiceChanged(f"The service {service.name} was created meanwhile.")
            return self._write(db, service)

    def replace(self, service: Service, over: Deployed, deadline: Deadline) -> Deployed:
        """Change a service. Raises ServiceChanged if it is not there in the version of `over` any more."""
        with self._reached("replace_service", deadline) as db:
            row = self._row(db, service.name)
            if row is None or str(row["version"]) != over.version:
                raise ServiceChanged(f"The service {service.name} was changed or removed meanwhile.")
            return self._write(db, service)

    def remove(self, over: Deployed, deadline: Deadline) -> None:
        """Remove a service at once. A missing one is not an error. Raises ServiceChanged for another version."""
        name = over.service.name
        with self._reached("remove_service", deadline) as db:
            row = self._row(db, name)
            if row is not None and str(row["version"]) != over.version:
                raise ServiceChanged(f"The service {name} was changed meanwhile.")
            db.execute("DELETE FROM services WHERE lease = ? AND name = ?", (self._lease, name))

    @contextmanager
    def _reached(self, call: str, deadline: Deadline) -> Iterator[sqlite3.Connection]:
        deadline.check("Reaching the DPU")
        with self._provider.reached(call, self._key) as db:
            yield db

    def _row(self, db: sqlite3.Connection, name: str) -> Any:
        return db.execute("SELECT * FROM services WHERE lease = ? AND name = ?", (self._lease, name)).fetchone()

    def _write(self, db: sqlite3.Connection, service: Service) -> Deployed:
        version = db.execute("SELECT abs(random())").fetchone()[0]  # also differs after the service was made anew
        seen = json.dumps({"pods": [{"name": f"{service.name}-0"}]})
        db.execute(
            "INSERT OR REPLACE INTO services VALUES (?, ?, ?, ?, ?, ?)",
            (self._key, self._lease, service.name, version, json.dumps(service.to_json()), seen),
        )
        return _deployed(self._row(db, service.name))


def _deployed(row: Any) -> Deployed:
    seen: Mapping[str, Any] = json.loads(row["seen"])
    return Deployed(
        service=Service.from_json(json.loads(row["definition"])), version=str(row["version"]),
        current=seen.get("current", True), removing=seen.get("removing", False),
        conditions=tuple(Condition(**one) for one in seen.get("conditions", ())),
        pods=tuple(Pod(**one) for one in seen.get("pods", ())),
    )  # fmt: skip


def open_services(lease: LeaseView, still_mine: Callable[[], None]) -> Interface:
    """Open the services of a lease, with what the config of its blueprint allows."""
    config = lease.resource.blueprint.config
    there = config.provider, lease.resource.key, lease.key
    return DpuServices.beside(
        FakeServices(*there), still_mine=still_mine, allowed=allowed(config.charts), locks=lease.slot_locks,
        credentials=FakeCredentials(*there),
        chains=FakeChains(*there, config.chains) if config.chains is not None else None,
        networks=FakeNetworks(*there, config.networks) if config.networks else None,
        volumes=FakeVolumes(*there, config.volumes) if config.volumes is not None else None,
        vpcs=FakeVpcs(*there, config.vpcs) if config.vpcs is not None else None,
    )  # fmt: skip
