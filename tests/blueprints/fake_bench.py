"""A bench for the fake kind, for tests that give it a fault plan."""

from __future__ import annotations

from typing import Any, ClassVar

from blueprints.answers import Hold, Json, Maintenance, NeededLease, Resolution
from blueprints.fake.cloud import Cloud
from blueprints.fake.kind import FakeActivated
from blueprints.specs import LeaseView
from blueprints.testing.phases import Phases

PROVIDER = "faults"


class FakeBench(Phases):
    """Carries out phases of `fake_activated` with these faults."""

    kind: ClassVar[FakeActivated] = FakeActivated()

    def __init__(self, *faults: Json, **config: Any) -> None:
        self._config = {"provider": PROVIDER, "faults": list(faults), "poll_seconds": 0, **config}
        self.cloud = Cloud(PROVIDER)
        self.maintained: list[Maintenance] = []
        self.resolution: Resolution | None = None

    def config(self) -> Json:
        return self._config

    def supply(self, needed: NeededLease) -> LeaseView:
        neighbour = FakeBench()
        return neighbour.lease(neighbour.built())

    def maintain(self, maintenance: Maintenance) -> None:
        self.maintained.append(maintenance)

    def resolve(self, hold: Hold) -> Resolution | None:
        if self.resolution is not None:
            self.cloud.resolve()
        return self.resolution
