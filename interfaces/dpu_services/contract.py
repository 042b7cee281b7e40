"""The contract of the `dpu_services` interface, and the order in which it checks, writes and takes back."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from contextlib import AbstractContextManager
from typing import Any, ClassVar, Self, TypeVar

from drydock.core.errors import Conflict, InvalidRequest
from interfaces.contract import Interface, StillMine
from interfaces.deadline import Deadline
from interfaces.dpu_services.chains import ChainBackend, Chains
from interfaces.dpu_services.credentials import LONGEST, CredentialBackend, Credentials
from interfaces.dpu_services.networks import NetworkBackend, Networks
from interfaces.dpu_services.service import AllowedChart, Service, check_allowed, check_name
from interfaces.dpu_services.status import Deployed, ServiceStatus, status_of
from interfaces.dpu_services.volumes import VolumeBackend, Volumes
from interfaces.dpu_services.vpcs import VpcBackend, Vpcs
from interfaces.errors import ServiceChanged, ServiceMissing
from interfaces.slot_locks import SlotLocks, SlotLocksInMemory
from interfaces.transport import NoAccount, Transport

log = logging.getLogger(__name__)

T = TypeVar("T")

MOST = 32
"""Services of one lease."""
_ATTEMPTS = 3
_UNDO_SECONDS = 10.0


class ServiceBackend(ABC):
    """What carries out the writes for one lease: the objects of its services, which nobody else's are among.

    Every method raises the errors of the connection. After one of them, a write may have been carried out.
    """

    @abstractmethod
    def list(self, deadline: Deadline) -> Sequence[Deployed]:
        """Return the services of the lease and those of its blueprint, sorted by name."""

    @abstractmethod
    def find(self, name: str, deadline: Deadline) -> Deployed | None:
        """Return a service of the lease, or of its blueprint; None if there is none of this name."""

    @abstractmethod
    def create(self, service: Service, deadline: Deadline) -> Deployed:
        """Create a service. Raises ServiceChanged if the name is taken."""

    @abstractmethod
    def replace(self, service: Service, over: Deployed, deadline: Deadline) -> Deployed:
        """Change the service `over`, in exactly that version. Never creates one.

        Raises ServiceChanged if it is not there in that version any more.
        """

    @abstractmethod
    def remove(self, over: Deployed, deadline: Deadline) -> None:
        """Begin to remove the service `over`, in exactly that version. A missing one is not an error.

        Raises ServiceChanged if it is there in another version.
        """


class DpuServices(Interface):
    """The services on a leased DPU.

    An operation is no step of the engine: the lease may be released while a request is under way, and what the request
    creates after the lease was cleaned would stay. The lease is therefore checked before and after each write. If it is
    lost, the write is taken back and the call fails. A write that only changes something never creates it anew.
    """

    name: ClassVar[str] = "dpu_services"
    default_timeout: ClassVar[float] = 30.0

    def __init__(
        self, transport: Transport | None, *, still_mine: StillMine, backend: ServiceBackend,
        allowed: Sequence[AllowedChart] = (), credentials: CredentialBackend | None = None, longest: int = LONGEST,
        chains: ChainBackend | None = None, networks: NetworkBackend | None = None,
        volumes: VolumeBackend | None = None, vpcs: VpcBackend | None = None, locks: SlotLocks | None = None,
    ) -> None:  # fmt: skip
        """Prepare the interface. `allowed` are the charts that the config of the blueprint allows: by default none.

        Without the backend `credentials`, the lease cannot have any. They are valid for at most `longest` seconds.
        Without the backends `chains`, `networks`, `volumes` and `vpcs`, it has none of these. `locks` are the slot
        locks of the lease, for what they use.
        """
        super().__init__(transport or NoAccount("A DPU service"), still_mine=still_mine)
        self._backend, self._allowed = backend, tuple(allowed)
        self.credentials = Credentials(
            credentials, still_mine=still_mine, longest=longest,
            watch=lambda what, timeout: self._watch(what, timeout).deadline,
        )  # fmt: skip
        given: dict[str, Any] = {
            "locks": locks or SlotLocksInMemory(), "still_mine": still_mine,
            "watch": lambda what, timeout: self._watch(what, timeout).deadline,
        }  # fmt: skip
        self.chains = Chains(chains, services=self._backend.list, networks=self._networks, **given)
        self.networks = Networks(networks, kept_unused=self.chains.without, **given)
        self.volumes = Volumes(volumes, **given)
        self.vpcs = Vpcs(vpcs, services=self._backend.list, **given)
        self.chains.beside(self.vpcs)
        self.networks.beside(self.vpcs)
        self.vpcs.beside(self.chains, self.networks)

    @classmethod
    def beside(
        cls, backend: ServiceBackend, *, still_mine: StillMine, allowed: Sequence[AllowedChart],
        **given: Any,
    ) -> Self:  # fmt: skip
        """Return the interface for a backend that is reached beside the lease's account. Takes what the class takes."""
        return cls(None, still_mine=still_mine, backend=backend, allowed=allowed, **given)

    def apply(self, service: Service, *, timeout: float | None = None) -> ServiceStatus:
        """Create a service, or change the one of this name. The same service again changes nothing.

        Returns before its pods run. Raises InvalidRequest with the field if the chart is not allowed, Conflict if the
        lease has 32 services, this one is being removed, or a chain or VPC uses an interface that it would lose,
        ServiceChanged, LeaseEnded, and the errors of the connection.
        """
        check_allowed(service.chart, self._allowed)
        if service.interfaces and not (self.chains.available or self.vpcs.available):
            raise InvalidRequest(
                "There are neither chains nor VPCs on this DPU that could connect interfaces.", field="interfaces"
            )
        deadline = self._watch("Applying the service", timeout).deadline
        return status_of(self._retried(lambda: self._applied(service, deadline)))

    def list(self, *, timeout: float | None = None) -> tuple[ServiceStatus, ...]:
        """Return the services of the lease with their states, sorted by name. Raises LeaseEnded."""
        found = self._backend.list(self._watch("Listing the services", timeout).deadline)
        self._still_mine()  # after a transfer meanwhile, it may be what the next owner has applied
        return tuple(status_of(one) for one in found)

    def show(self, name: str, *, timeout: float | None = None) -> ServiceStatus:
        """Return a service with its state. Raises ServiceMissing, LeaseEnded."""
        check_name(name)
        found = self._backend.find(name, self._watch("Reading the service", timeout).deadline)
        self._still_mine()
        if found is None:
            raise ServiceMissing(f"The DPU has no service {name}.", field="name")
        return status_of(found)

    def remove(self, name: str, *, timeout: float | None = None) -> None:
        """Begin to remove a service. A missing service is not an error.

        Raises Conflict if a chain or VPC uses it, ServiceChanged, LeaseEnded.
        """
        check_name(name)
        deadline = self._watch("Removing the service", timeout).deadline
        self._retried(lambda: self._removed(name, deadline))

    def _networks(self, deadline: Deadline) -> Sequence[str]:
        """Return the names of the networks of the lease that are not being removed."""
        if not self.networks.available:
            return ()
        return [one.definition.name for one in self.networks.known().list(deadline) if not one.removing]

    def _released(self, name: str, interfaces: Collection[str], deadline: Deadline) -> AbstractContextManager[None]:
        """Keep chains and VPCs, which have the same slot locks, from connecting these interfaces of a service."""
        connecting = self.chains if self.chains.available else self.vpcs
        return connecting.released(name, interfaces, deadline)

    def _retried(self, write: Callable[[], T]) -> T:
        """Repeat a write over another request's, as long as the lease is not lost. Raises ServiceChanged."""
        for _ in range(_ATTEMPTS - 1):
            try:
                return write()
            except ServiceChanged:
                self._still_mine()
        return write()

    def _removed(self, name: str, deadline: Deadline) -> None:
        there = self._backend.find(name, deadline)
        _refuse_of_blueprint(there)
        interfaces = there.service.interfaces if there is not None else ()
        with self._released(name, interfaces, deadline):
            if there is not None and not there.removing:
                self._backend.remove(there, deadline)

    def _applied(self, service: Service, deadline: Deadline) -> Deployed:
        before = self._backend.find(service.name, deadline)
        _refuse_of_blueprint(before)
        if before is not None and before.removing:
            raise Conflict(f"The service {service.name} is being removed.", hint="Apply it again once it is gone.")
        if before is not None and before.service == service:
            return before
        if before is None and sum(not one.of_blueprint for one in self._backend.list(deadline)) >= MOST:
            raise Conflict(f"A lease has at most {MOST} services.", hint="Remove one first.")
        deadline.check("Applying the service")
        try:
            if before is None:
                after = self._backend.create(service, deadline)
            else:
                lost = set(before.service.interfaces) - set(service.interfaces)
                with self._released(service.name, lost, deadline):
                    after = self._backend.replace(service, before, deadline)
        except ServiceChanged:
            raise
        except Exception:
            self._undo_if_lost(service, before)  # the answer may be lost, and the write carried out
            raise
        try:
            self._still_mine()
        except Exception:
            self._undo(service, before)
            raise
        return after

    def _undo_if_lost(self, service: Service, before: Deployed | None) -> None:
        try:
            self._still_mine()
        except Exception:  # the caller is told of the failed write, which came first
            self._undo(service, before)

    def _undo(self, service: Service, before: Deployed | None) -> None:
        """Take back a write of a lease that was lost meanwhile, unless somebody else has changed the service since.

        If the undo fails as well, the object stays until the kind cleans up: it has the proof of the lease.
        """
        deadline = Deadline(_UNDO_SECONDS, spare=_UNDO_SECONDS)
        try:
            there = self._backend.find(service.name, deadline)
            if there is None or there.removing or there.service != service:
                return
            if before is None:
                self._backend.remove(there, deadline)
            else:
                self._backend.replace(before.service, there, deadline)
        except Exception as error:  # its text may quote the values
            log.warning(
                "The service %s of a lost lease could not be taken back: %s", service.name, type(error).__name__
            )


def _refuse_of_blueprint(found: Deployed | None) -> None:
    """Raise Conflict for a service that is not the owner's to change."""
    if found is not None and found.of_blueprint:
        raise Conflict(
            f"The service {found.service.name} belongs to the blueprint: every DPU of it has it.",
            hint="Choose another name. An operator can change it in the config of the blueprint.", field="name",
        )  # fmt: skip
