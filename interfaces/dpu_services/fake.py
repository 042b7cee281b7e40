"""Services in memory, for tests: pods and conditions can be set, and another's changes and lost answers provoked."""

from __future__ import annotations

import datetime as dt
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TypeVar

from drydock.core import clock
from interfaces.contract import StillMine
from interfaces.deadline import Deadline
from interfaces.dpu_services.chain import Chain
from interfaces.dpu_services.chains import ChainBackend
from interfaces.dpu_services.connections import ChainLimits
from interfaces.dpu_services.contract import DpuServices, ServiceBackend
from interfaces.dpu_services.credentials import LONGEST, CredentialBackend, FoundCredential
from interfaces.dpu_services.network import Network
from interfaces.dpu_services.networks import NetworkBackend
from interfaces.dpu_services.objects import Definition, Found, ObjectBackend
from interfaces.dpu_services.service import AllowedChart, Service
from interfaces.dpu_services.status import Deployed, Pod
from interfaces.dpu_services.volumes import Volume, VolumeBackend, VolumeLimits
from interfaces.dpu_services.vpcs import Vpc, VpcBackend
from interfaces.errors import ServiceChanged
from interfaces.slot_locks import SlotLocks, SlotLocksInMemory
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


class MemoryCredentials(CredentialBackend):
    """Credentials in memory, issued at once unless `set` says otherwise. `after_write` is called after each write."""

    def __init__(self) -> None:
        self.credentials: dict[str, FoundCredential] = {}
        self.after_write: Callable[[], None] = _always
        self._versions = 0

    def set(self, name: str, **seen: object) -> None:
        """Set what is seen of a credential: the fields of `FoundCredential`."""
        self.credentials[name] = replace(self.credentials[name], **seen)  # type: ignore[arg-type]

    def list(self, deadline: Deadline) -> Sequence[FoundCredential]:
        return [self.credentials[name] for name in sorted(self.credentials)]

    def find(self, name: str, deadline: Deadline) -> FoundCredential | None:
        return self.credentials.get(name)

    def create(self, name: str, seconds: int, deadline: Deadline) -> FoundCredential:
        if name in self.credentials:
            raise ServiceChanged(f"The credential {name} was created meanwhile.")
        self._versions += 1
        until = clock.now() + dt.timedelta(seconds=seconds)
        made = FoundCredential(name=name, version=str(self._versions), expires_at=until, issued=True)
        self.credentials[name] = made
        self.after_write()
        return made

    def show(self, found: FoundCredential, deadline: Deadline) -> str:
        there = self.credentials.get(found.name)
        if there is None or there.version != found.version or there.shown:
            raise ServiceChanged(f"The credential {found.name} was shown or removed meanwhile.")
        self.set(found.name, shown=True)
        self.after_write()
        return f"kubeconfig of {found.name} {found.version}"

    def remove(self, found: FoundCredential, deadline: Deadline) -> None:
        there = self.credentials.get(found.name)
        if there is not None and there.version == found.version:
            del self.credentials[found.name]
        self.after_write()


D = TypeVar("D", bound=Definition)


class MemoryObjects(ObjectBackend[D]):
    """Definitions of one type in memory, ready at once unless `set` says otherwise.

    `before_write` and `after_write` are called around each write. What `kept` names is removed only in part.
    """

    def __init__(self) -> None:
        self.dpu, self.lease = "dpu", "lease"
        self.found: dict[str, Found[D]] = {}
        self.kept: set[str] = set()
        self.before_write: Callable[[], None] = _always
        self.after_write: Callable[[], None] = _always
        self._versions = 0

    def set(self, name: str, **seen: object) -> None:
        """Set what is seen of one: the fields of `Found`."""
        self.found[name] = replace(self.found[name], **seen)  # type: ignore[arg-type]

    def list(self, deadline: Deadline) -> Sequence[Found[D]]:
        return [self.found[name] for name in sorted(self.found)]

    def find(self, name: str, deadline: Deadline) -> Found[D] | None:
        return self.found.get(name)

    def create(self, definition: D, deadline: Deadline) -> Found[D]:
        self.before_write()
        there = self.found.get(definition.name)
        if there is not None and there.definition != definition:
            raise ServiceChanged(f"{definition.name} was created meanwhile.")
        self._versions += 1
        self.found[definition.name] = Found(definition=definition, version=str(self._versions), ready=True)
        self.after_write()
        return self.found[definition.name]

    def remove(self, found: Found[D], deadline: Deadline) -> bool:
        self.before_write()
        name = found.definition.name
        there = self.found.get(name)
        if there is not None and there.version == found.version:
            if name in self.kept:
                self.set(name, removing=True)
                return False
            del self.found[name]
        self.after_write()
        return True


class MemoryChains(MemoryObjects[Chain], ChainBackend):
    """Chains in memory."""

    def __init__(self, limits: ChainLimits) -> None:
        super().__init__()
        self.limits = limits


class MemoryNetworks(MemoryObjects[Network], NetworkBackend):
    """Networks in memory."""

    def __init__(self, ranges: Sequence[str]) -> None:
        super().__init__()
        self.ranges = ranges


class MemoryVolumes(MemoryObjects[Volume], VolumeBackend):
    """Volumes in memory."""

    def __init__(self, limits: VolumeLimits) -> None:
        super().__init__()
        self.limits = limits


class MemoryVpcs(MemoryObjects[Vpc], VpcBackend):
    """VPCs in memory."""

    def __init__(self, limits: ChainLimits, isolations: Sequence[str], ranges: Sequence[str]) -> None:
        super().__init__()
        self.limits, self.isolations, self.ranges = limits, isolations, ranges


class FakeDpuServices(DpuServices):
    """The services of a fake DPU. `backend`, `issuer`, `connector`, `addresses`, `storage` and `isolator` have writes.

    Change `allowed` to allow other charts.
    """

    def __init__(
        self, transport: Transport | None = None, *, still_mine: StillMine = _always,
        allowed: Sequence[AllowedChart] = (), longest: int = LONGEST, limits: ChainLimits | None = None,
        ranges: Sequence[str] = ("10.20.0.0/16",), locks: SlotLocks | None = None,
    ) -> None:  # fmt: skip
        self.backend, self.issuer = MemoryBackend(), MemoryCredentials()
        self.connector, self.locks = MemoryChains(limits or ChainLimits(vfs=8)), locks or SlotLocksInMemory()
        self.addresses = MemoryNetworks(ranges)
        self.storage = MemoryVolumes(VolumeLimits(policies=("fast",), largest_gib=100))
        self.isolator = MemoryVpcs(self.connector.limits, ("ovn",), ranges)
        super().__init__(
            transport, still_mine=still_mine, backend=self.backend, allowed=allowed, credentials=self.issuer,
            longest=longest, chains=self.connector, networks=self.addresses, volumes=self.storage, vpcs=self.isolator,
            locks=self.locks,
        )  # fmt: skip
