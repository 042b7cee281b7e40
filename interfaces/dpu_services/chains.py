"""The chains of a leased DPU: what is checked and locked before they are written, their states, and their end."""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from enum import Enum

from drydock.core.errors import Conflict, InvalidRequest, NotSupported
from interfaces.contract import StillMine
from interfaces.deadline import Deadline
from interfaces.dpu_services.chain import Chain, ChainInterface
from interfaces.dpu_services.service import check_name
from interfaces.dpu_services.status import MOST_MESSAGES, Condition, Deployed, told
from interfaces.errors import ChainMissing, ConnectionLost, DeadlineExceeded, ServiceChanged, Unreachable
from interfaces.slot_locks import SlotLocks

log = logging.getLogger(__name__)

MOST_CHAINS = 16
"""Chains of one lease."""
_CHAIN = "chain "
"""The beginning of the group of slot locks of a chain."""
_CONNECTION = (Unreachable, ConnectionLost, DeadlineExceeded)
_UNDO_SECONDS = 10.0


class ChainState(Enum):
    """The state of a chain."""

    PENDING = "pending"
    """Its interfaces are not all connected yet."""
    READY = "ready"
    """All of its interfaces are there and connected."""
    REMOVING = "removing"
    """It is being removed."""


@dataclass(frozen=True, kw_only=True)
class FoundChain:
    """A chain as the backend found it."""

    chain: Chain
    version: str
    """Identifies exactly these objects: it differs after one of them was made anew."""
    complete: bool = True
    """False if some of its objects do not exist, because whoever wrote or removed them has died."""
    ready: bool = False
    removing: bool = False
    conditions: tuple[Condition, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ChainStatus:
    """A chain and its state. `messages` say what it waits for; empty if it is ready."""

    chain: Chain
    state: ChainState
    messages: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class ChainLimits:
    """The interfaces that owners may connect: network ports, each with one PF, and VFs of each PF."""

    ports: int = 2
    vfs: int = 0


class ChainBackend(ABC):
    """What carries out the writes for one lease. Every method raises the errors of the connection.

    After one of them, a write may have been carried out.
    """

    limits: ChainLimits
    dpu: str
    """The key of the DPU, within which the names of its interfaces are unique, whoever leases it."""
    lease: str
    """The key of the lease, within which the names of its services are unique."""

    @abstractmethod
    def list(self, deadline: Deadline) -> Sequence[FoundChain]:
        """Return the chains of the lease, sorted by name."""

    @abstractmethod
    def find(self, name: str, deadline: Deadline) -> FoundChain | None:
        """Return a chain of the lease; None if no object of it exists."""

    @abstractmethod
    def create(self, chain: Chain, deadline: Deadline) -> FoundChain:
        """Create a chain with its interfaces. Objects of the same chain that exist already are used.

        Raises ServiceChanged if a name is taken.
        """

    @abstractmethod
    def remove(self, found: FoundChain, deadline: Deadline) -> bool:
        """Begin to remove exactly these objects. Return whether none of them is left."""


class Chains:
    """The chains of one lease.

    Each interface of a chain is a slot lock of the lease, so that no two leases and no two chains have the same one. It
    is taken before anything is written, and given back once the objects of the chain are gone, or with the lease.
    """

    def __init__(
        self, backend: ChainBackend | None, locks: SlotLocks, *, watch: Callable[[str, float | None], Deadline],
        still_mine: StillMine, services: Callable[[Deadline], Sequence[Deployed]],
    ) -> None:  # fmt: skip
        self._backend, self._locks, self._watch = backend, locks, watch
        self._still_mine, self._services = still_mine, services

    def connect(self, chain: Chain, *, timeout: float | None = None) -> ChainStatus:
        """Create a chain. Returns before its interfaces are connected. The same chain again changes nothing.

        Raises InvalidRequest with the field for interfaces that the DPU or a service does not have, Conflict if an
        interface is in use, the name is that of another chain, or the lease has 16 chains, ServiceChanged,
        NotSupported, LeaseEnded, and the errors of the connection. After one of these, some objects of the chain may
        exist: connect it again, or remove it. After any other error, none of them is left.
        """
        backend = self._known()
        _check_limits(chain, backend.limits)
        deadline = self._watch("Connecting the chain", timeout)
        there = backend.list(deadline)
        self._still_mine()
        before = next((one for one in there if one.chain.name == chain.name), None)
        if before is not None and before.removing:
            raise Conflict(f"The chain {chain.name} is being removed.", hint="Connect it again once it is gone.")
        if before is not None and before.chain != chain:
            raise Conflict(f"The chain {chain.name} exists with other switches.", hint="Remove it first.")
        if before is None and len(there) >= MOST_CHAINS:
            raise Conflict(f"A lease has at most {MOST_CHAINS} chains.", hint="Remove one first.")
        keys, group = [self._key(one) for one in chain.interfaces], _group(chain.name)
        if before is None:
            self._locks.drop(group)  # those of an attempt of which nothing is left
        self._take(group, keys, lambda: there)
        if before is not None and before.complete:
            return status_of(before)
        try:
            # Once the locks are taken, no service is removed whose interface is among them.
            self._check_services(chain, deadline)
            deadline.check("Connecting the chain")
            made = backend.create(chain, deadline)
            self._still_mine()
            if not self._locks.held(group).issuperset(keys):
                raise ServiceChanged(f"The chain {chain.name} was removed meanwhile.")
        except Exception as error:
            self._undo_unless_lost(chain, error)
            raise
        return status_of(made)

    def list(self, *, timeout: float | None = None) -> tuple[ChainStatus, ...]:
        """Return the chains of the lease with their states, sorted by name. Raises NotSupported, LeaseEnded."""
        found = self._known().list(self._watch("Listing the chains", timeout))
        self._still_mine()  # after a transfer meanwhile, they may be the next owner's
        return tuple(status_of(one) for one in found)

    def show(self, name: str, *, timeout: float | None = None) -> ChainStatus:
        """Return a chain with its state. Raises ChainMissing, NotSupported, LeaseEnded."""
        check_name(name, "chain")
        found = self._known().find(name, self._watch("Reading the chain", timeout))
        self._still_mine()
        if found is None:
            raise ChainMissing(f"The DPU has no chain {name}.", field="name")
        return status_of(found)

    def remove(self, name: str, *, timeout: float | None = None) -> None:
        """Begin to remove a chain and its interfaces. A missing one is not an error. Raises NotSupported, LeaseEnded.

        A service whose interfaces it connected is left without them.
        """
        check_name(name, "chain")
        backend, deadline = self._known(), self._watch("Removing the chain", timeout)
        found = backend.find(name, deadline)
        self._still_mine()
        if found is None or backend.remove(found, deadline):
            self._still_mine()
            self._locks.drop(_group(name))

    # For services, whose interfaces chains use

    @property
    def available(self) -> bool:
        """Whether the DPU can have chains."""
        return self._backend is not None

    @contextmanager
    def released(self, service: str, interfaces: Collection[str], deadline: Deadline) -> Iterator[None]:
        """Keep chains from using these interfaces of a service while it is changed or removed.

        Raises Conflict if a chain uses one of them, and names the chain.
        """
        if self._backend is None or not interfaces:
            yield
            return
        group = f"removal of {service}"
        keys = [self._key(ChainInterface(service=service, name=one)) for one in sorted(interfaces)]
        self._take(group, keys, lambda: self._known().list(deadline))
        try:
            yield
        finally:
            self._locks.drop(group)  # from now on, a chain finds that the service does not have them

    # Inside

    def _known(self) -> ChainBackend:
        if self._backend is None:
            raise NotSupported(
                "There are no chains on this DPU.", hint="An operator can allow them in the config of the blueprint."
            )
        return self._backend

    def _key(self, interface: ChainInterface) -> str:
        backend = self._known()
        return f"interface of {backend.lease if interface.service else backend.dpu}/{interface}"

    def _take(self, group: str, keys: Sequence[str], there: Callable[[], Sequence[FoundChain]]) -> None:
        """Take locks, also those of chains of this lease of which no object exists any more. Raises Conflict."""
        taken = self._locks.take(group, keys)
        own = {one for one in taken.values() if one.startswith(_CHAIN)}
        if own and (gone := own - {_group(one.chain.name) for one in there()}):
            taken = self._locks.take(group, keys, over=gone)
        if not taken:
            return
        key, holder = next(iter(sorted(taken.items())))
        interface = key.rpartition("/")[2]
        if holder.startswith(_CHAIN):
            name = holder.removeprefix(_CHAIN)
            raise Conflict(f"The interface {interface} is used by chain {name}.", hint="Remove the chain first.")
        if holder:
            raise Conflict(
                f"The interface {interface} is of a service that is being changed or removed.",
                hint="Repeat it. If this lasts, remove the service again.",
            )
        raise Conflict(f"The interface {interface} is used by another lease.", hint="Choose another one.")

    def _check_services(self, chain: Chain, deadline: Deadline) -> None:
        """Raise InvalidRequest unless the services of a chain exist and have its interfaces."""
        if not any(one.service for one in chain.interfaces):
            return
        there = {one.service.name: one for one in self._services(deadline)}
        for number, ports in enumerate(chain.switches):
            for position, one in enumerate(ports):
                found = there.get(one.service) if one.service else None
                field = f"switches.{number}.{position}"
                if one.service and (found is None or found.removing):
                    raise InvalidRequest(f"The DPU has no service {one.service}.", field=field)
                if found is not None and one.name not in found.service.interfaces:
                    names = ", ".join(found.service.interfaces) or "none"
                    raise InvalidRequest(
                        f"The service {one.service} has no interface {one.name}.", field=field,
                        hint=f"It has: {names}. Apply it with this interface first.",
                    )  # fmt: skip

    def _undo_unless_lost(self, chain: Chain, error: Exception) -> None:
        """Remove a chain that was refused or whose lease was lost, but not one whose answer was lost."""
        if isinstance(error, _CONNECTION):
            try:
                self._still_mine()
            except Exception:  # the caller is told of the first error
                self._undo(chain)
        else:
            self._undo(chain)

    def _undo(self, chain: Chain) -> None:
        """Remove what was written of a chain. If this fails, it stays until the kind cleans up, or it is removed."""
        deadline = Deadline(_UNDO_SECONDS, spare=_UNDO_SECONDS)
        try:
            backend = self._known()
            found = backend.find(chain.name, deadline)
            # Otherwise, it is what the next owner has connected.
            if found is None or (found.chain == chain and backend.remove(found, deadline)):
                self._locks.drop(_group(chain.name))
        except Exception as error:
            log.warning("The chain %s could not be taken back: %s", chain.name, type(error).__name__)


def _group(chain: str) -> str:
    return f"{_CHAIN}{chain}"


def _check_limits(chain: Chain, limits: ChainLimits) -> None:
    for number, ports in enumerate(chain.switches):
        for position, one in enumerate(ports):
            field = f"switches.{number}.{position}"
            port = one.port if one.port is not None else one.pf
            if port is not None and port >= limits.ports:
                raise InvalidRequest(f"The DPU has no {one}: it has {limits.ports} network ports.", field=field)
            if one.vf is not None and one.vf >= limits.vfs:
                raise InvalidRequest(
                    f"Owners may not use {one}: the config of the blueprint has {limits.vfs} VFs of each PF.",
                    field=field,
                )


def status_of(found: FoundChain) -> ChainStatus:
    """Return the state of a chain, with the conditions of its objects that are not true."""
    ready = found.ready and found.complete
    state = ChainState.REMOVING if found.removing else ChainState.READY if ready else ChainState.PENDING
    if state is ChainState.READY:
        return ChainStatus(chain=found.chain, state=state)
    messages = tuple(told(one) for one in found.conditions if one.status != "True")
    if not found.complete and not found.removing:
        messages = ("Not all of its objects exist. Connect it again, or remove it.", *messages)
    if not messages and state is ChainState.PENDING:
        messages = ("DPF has not reported on it yet.",)
    return ChainStatus(chain=found.chain, state=state, messages=messages[:MOST_MESSAGES])
