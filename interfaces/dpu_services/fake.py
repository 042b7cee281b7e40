"""Services in memory, for tests: pods and conditions can be set, and another's changes and lost answers provoked."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace

from interfaces.contract import StillMine
from interfaces.deadline import Deadline
from interfaces.dpu_services.contract import DpuServices, ServiceBackend
from interfaces.dpu_services.service import AllowedChart, Service
from interfaces.dpu_services.status import Deployed, Pod
from interfaces.errors import ServiceChanged
from interfaces.transport import Transport


def _always() -> None:
    """Let every operation continue, as for a lease that never ends."""


class MemoryBackend(ServiceBackend):
    """Services in memory. Each has one pod, which is ready at once, unless `show` says otherwise.

    `writes` has every write. `before_write` and `after_write` are called around each of them, for example to release
    the lease or to raise the error of a lost connection.
    """

    def __init__(self) -> None:
        self.services: dict[str, Deployed] = {}
        self.writes: list[tuple[str, str]] = []
        self.before_write: Callable[[], None] = _always
        self.after_write: Callable[[], None] = _always
        self._versions = 0

    def show(self, name: str, **seen: object) -> None:
        """Set what is seen of a service: the fields of `Deployed` other than `service` and `version`."""
        self.services[name] = replace(self.services[name], **seen)  # type: ignore[arg-type]

    def list(self, deadline: Deadline) -> Sequence[Deployed]:
        return [self.services[name] for name in sorted(self.services)]

    def find(self, name: str, deadline: Deadline) -> Deployed | None:
        return self.services.get(name)

    def create(self, service: Service, deadline: Deadline) -> Deployed:
        self.before_write()
        if service.name in self.services:
            raise ServiceChanged(f"The service {service.name} was created meanwhile.")
        return self._written("create", service)

    def replace(self, service: Service, over: Deployed, deadline: Deadline) -> Deployed:
        self.before_write()
        there = self.services.get(service.name)
        if there is None or there.version != over.version:
            raise ServiceChanged(f"The service {service.name} was changed or removed meanwhile.")
        return self._written("replace", service)

    def remove(self, over: Deployed, deadline: Deadline) -> None:
        self.before_write()
        name = over.service.name
        if (there := self.services.get(name)) is not None:
            if there.version != over.version:
                raise ServiceChanged(f"The service {name} was changed meanwhile.")
            del self.services[name]
            self.writes.append(("remove", name))
        self.after_write()

    def _written(self, what: str, service: Service) -> Deployed:
        self._versions += 1
        made = Deployed(service=service, version=str(self._versions), pods=(Pod(name=f"{service.name}-0"),))
        self.services[service.name] = made
        self.writes.append((what, service.name))
        self.after_write()
        return made


class FakeDpuServices(DpuServices):
    """The services of a fake DPU. `backend` has them; change `allowed` to allow other charts."""

    def __init__(
        self, transport: Transport | None = None, *, still_mine: StillMine = _always,
        allowed: Sequence[AllowedChart] = (),
    ) -> None:  # fmt: skip
        self.backend = MemoryBackend()
        super().__init__(transport, still_mine=still_mine, backend=self.backend, allowed=allowed)
