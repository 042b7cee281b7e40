"""What owners define on a DPU beside services, such as chains: what is locked before it is written, and its end.

The order of checks, locks, writes and takings back is the same for all of them. What differs is in the subclasses of
`Objects`: what is checked, which slot locks it takes, and its words.
"""

from __future__ import annotations

import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, ClassVar, Generic, Protocol, TypeVar

from drydock.core.errors import Conflict, NotSupported
from interfaces.contract import StillMine
from interfaces.deadline import Deadline
from interfaces.dpu_services.service import check_name
from interfaces.dpu_services.status import MOST_MESSAGES, Condition, told
from interfaces.errors import ConnectionLost, DeadlineExceeded, ObjectMissing, ServiceChanged, Unreachable
from interfaces.slot_locks import SlotLocks

log = logging.getLogger(__name__)

_CONNECTION = (Unreachable, ConnectionLost, DeadlineExceeded)
_UNDO_SECONDS = 10.0


class Definition(Protocol):
    """What an owner defines. Definitions that are equal are the same."""

    @property
    def name(self) -> str:
        """Its name, unique among those of its kind in a lease."""


D = TypeVar("D", bound=Definition)


class ObjectState(Enum):
    """The state of a definition."""

    PENDING = "pending"
    """DPF has not carried it out yet."""
    READY = "ready"
    """DPF reports that all of it is ready."""
    REMOVING = "removing"
    """It is being removed."""


@dataclass(frozen=True, kw_only=True)
class Found(Generic[D]):
    """A definition, with the state of its objects at the backend."""

    definition: D
    version: str
    """Identifies exactly these objects: it differs after one of them was made anew."""
    complete: bool = True
    """False if some of its objects do not exist, because whoever wrote or removed them has died."""
    ready: bool = False
    removing: bool = False
    conditions: tuple[Condition, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)
    """Facts that DPF reports beside the state, such as the device of a volume."""


@dataclass(frozen=True, kw_only=True)
class ObjectStatus(Generic[D]):
    """A definition and its state. `messages` say what it waits for; empty if it is ready."""

    definition: D
    state: ObjectState
    messages: tuple[str, ...] = ()
    facts: Mapping[str, str] = field(default_factory=dict)


class ObjectBackend(ABC, Generic[D]):
    """What carries out the writes for one lease. Every method raises the errors of the connection.

    After one of them, a write may have been carried out.
    """

    dpu: str
    """The key of the DPU, within which the names of its interfaces are unique, whoever leases it."""
    lease: str
    """The key of the lease, within which the names of its services and networks are unique."""

    @abstractmethod
    def list(self, deadline: Deadline) -> Sequence[Found[D]]:
        """Return what the lease has, sorted by name."""

    @abstractmethod
    def find(self, name: str, deadline: Deadline) -> Found[D] | None:
        """Return the one of this name; None if no object of it exists."""

    @abstractmethod
    def create(self, definition: D, deadline: Deadline) -> Found[D]:
        """Create its objects. Those of the same definition that exist already are used.

        Raises ServiceChanged if a name is taken.
        """

    @abstractmethod
    def remove(self, found: Found[D], deadline: Deadline) -> bool:
        """Begin to remove exactly these objects. Return whether none of them is left."""


B = TypeVar("B", bound=ObjectBackend[Any])


class Objects(ABC, Generic[D, B]):
    """The definitions of one type of one lease, such as its chains.

    What one uses is a slot lock of the lease, so that no two leases have the same. It is taken before anything is
    written, and given back once the objects are gone, or with the lease.
    """

    noun: ClassVar[str]
    most: ClassVar[int]
    """How many a lease may have."""

    def __init__(
        self, backend: B | None, locks: SlotLocks, *, watch: Callable[[str, float | None], Deadline],
        still_mine: StillMine,
    ) -> None:  # fmt: skip
        self._backend, self._locks, self._watch, self._still_mine = backend, locks, watch, still_mine
        self._others: tuple[Objects[Any, Any], ...] = ()

    def beside(self, *others: Objects[Any, Any]) -> None:
        """Name other objects of the lease that may have the same slot locks, so that a conflict names the holder."""
        self._others = others

    @abstractmethod
    def keys(self, definition: D, backend: B) -> Sequence[str]:
        """Return the slot locks that it takes, each `WHAT of SCOPE/VALUE`."""

    @abstractmethod
    def check(self, definition: D, backend: B) -> None:
        """Raise InvalidRequest, with the field, for what the config or the DPU does not have. Reads nothing."""

    def check_needs(self, definition: D, deadline: Deadline) -> None:
        """Raise InvalidRequest, with the field, unless what it uses exists. It is locked already."""

    def create(self, definition: D, *, timeout: float | None = None) -> ObjectStatus[D]:
        """Create one. Returns before DPF has carried it out. The same one again changes nothing.

        Raises InvalidRequest with the field, Conflict if what it uses is in use, its name is that of another one, or
        the lease has too many, ServiceChanged, NotSupported, LeaseEnded, and the errors of the connection. After one of
        these, some of its objects may exist: create it again, or remove it. After any other error, none is left.
        """
        backend, name = self.known(), definition.name
        self.check(definition, backend)
        deadline = self._watch(f"Creating the {self.noun}", timeout)
        there = backend.list(deadline)
        self._still_mine()
        before = next((one for one in there if one.definition.name == name), None)
        if before is not None and before.removing:
            raise Conflict(f"The {self.noun} {name} is being removed.", hint="Repeat it once it is gone.")
        if before is not None and before.definition != definition:
            raise Conflict(f"The {self.noun} {name} exists and is another one.", hint="Remove it first.")
        if before is None and len(there) >= self.most:
            nouns = self.noun if self.most == 1 else f"{self.noun}s"
            raise Conflict(f"A lease has at most {self.most} {nouns}.", hint="Remove one first.")
        keys, group = self.keys(definition, backend), self.group(name)
        if before is None:
            self._locks.drop(group)  # those of an attempt of which nothing is left
        self._take(group, keys, deadline)
        if before is not None and before.complete:
            return status_of(before)
        try:
            # Once the locks are taken, nothing that it uses is removed.
            self.check_needs(definition, deadline)
            deadline.check(f"Creating the {self.noun}")
            made = backend.create(definition, deadline)
            self._still_mine()
            if not self._locks.held(group).issuperset(keys):
                raise ServiceChanged(f"The {self.noun} {name} was removed meanwhile.")
        except Exception as error:
            self._undo_unless_lost(definition, error)
            raise
        return status_of(made)

    def list(self, *, timeout: float | None = None) -> tuple[ObjectStatus[D], ...]:
        """Return what the lease has with its states, sorted by name. Raises NotSupported, LeaseEnded."""
        found = self.known().list(self._watch(f"Listing the {self.noun}s", timeout))
        self._still_mine()  # after a transfer meanwhile, they may be the next owner's
        return tuple(status_of(one) for one in found)

    def show(self, name: str, *, timeout: float | None = None) -> ObjectStatus[D]:
        """Return the one of this name with its state. Raises ObjectMissing, NotSupported, LeaseEnded."""
        check_name(name, self.noun)
        found = self.known().find(name, self._watch(f"Reading the {self.noun}", timeout))
        self._still_mine()
        if found is None:
            raise ObjectMissing(f"The DPU has no {self.noun} {name}.", field="name")
        return status_of(found)

    def remove(self, name: str, *, timeout: float | None = None) -> None:
        """Begin to remove the one of this name. A missing one is not an error.

        Raises Conflict if another one uses it, NotSupported, LeaseEnded.
        """
        check_name(name, self.noun)
        backend, deadline = self.known(), self._watch(f"Removing the {self.noun}", timeout)
        with self.unused(name, deadline):
            found = backend.find(name, deadline)
            self._still_mine()
            if found is None or backend.remove(found, deadline):
                self._still_mine()
                self._locks.drop(self.group(name))

    @contextmanager
    def unused(self, name: str, deadline: Deadline) -> Iterator[None]:
        """Keep others from using it while it is removed. Raises Conflict if one does."""
        yield

    @property
    def available(self) -> bool:
        """Whether the DPU can have any."""
        return self._backend is not None

    def known(self) -> B:
        """Return the backend. Raises NotSupported."""
        if self._backend is None:
            raise NotSupported(
                f"There are no {self.noun}s on this DPU.",
                hint="An operator can allow them in the config of the blueprint.",
            )
        return self._backend

    def group(self, name: str) -> str:
        """Return the group of the slot locks of the one of this name."""
        return f"{self.noun} {name}"

    @contextmanager
    def kept_from(self, group: str, keys: Sequence[str], deadline: Deadline) -> Iterator[None]:
        """Keep all of these from using what the keys lock. Raises Conflict, which names the one that does."""
        if self._backend is None or not keys:
            yield
            return
        self._take(group, keys, deadline)
        try:
            yield
        finally:
            self._locks.drop(group)  # from now on, `check_needs` finds that it is not there

    def _take(self, group: str, keys: Sequence[str], deadline: Deadline) -> None:
        """Take slot locks, also those of a definition of which no object exists any more.

        Raises Conflict, which says who has one.
        """
        taken = self._locks.take(group, keys)
        users = [one for one in (self, *self._others) if any(one._uses(holder) for holder in taken.values())]
        gone = {
            holder
            for one in users
            if one.available
            for holder in {*filter(one._uses, taken.values())}
            - {one.group(found.definition.name) for found in one.known().list(deadline)}
        }
        if gone:
            taken = self._locks.take(group, keys, over=gone)
        if taken:
            self._refuse(*min(taken.items()))

    def _refuse(self, key: str, holder: str) -> None:
        what = f"The {key.partition(' of ')[0]} {key.rpartition('/')[2]}"
        for one in (self, *self._others):
            if one._uses(holder):
                raise Conflict(f"{what} is used by {holder}.", hint=f"Remove the {one.noun} first.")
        if holder:
            raise Conflict(f"{what} is being changed or removed.", hint="Repeat it. If this lasts, remove it again.")
        raise Conflict(f"{what} is used by another lease.", hint="Choose another one.")

    def _uses(self, holder: str) -> bool:
        """Return whether slot locks of this group belong to one of these definitions."""
        return holder.startswith(self.group(""))

    def _undo_unless_lost(self, definition: D, error: Exception) -> None:
        """Remove what was refused or whose lease was lost, but not that whose answer was lost."""
        if isinstance(error, _CONNECTION):
            try:
                self._still_mine()
            except Exception:  # the caller is told of the first error
                self._undo(definition)
        else:
            self._undo(definition)

    def _undo(self, definition: D) -> None:
        """Remove what was written. If this fails, it stays until the kind cleans up, or it is removed."""
        deadline = Deadline(_UNDO_SECONDS, spare=_UNDO_SECONDS)
        try:
            backend = self.known()
            found = backend.find(definition.name, deadline)
            # Otherwise, it is what the next owner has created.
            if found is None or (found.definition == definition and backend.remove(found, deadline)):
                self._locks.drop(self.group(definition.name))
        except Exception as error:
            log.warning("The %s %s could not be taken back: %s", self.noun, definition.name, type(error).__name__)


def status_of(found: Found[D]) -> ObjectStatus[D]:
    """Return the state of what was found, with the conditions of its objects that are not true."""
    ready = found.ready and found.complete
    state = ObjectState.REMOVING if found.removing else ObjectState.READY if ready else ObjectState.PENDING
    if state is ObjectState.READY:
        return ObjectStatus(definition=found.definition, state=state, facts=found.facts)
    messages = tuple(told(one) for one in found.conditions if one.status != "True")
    if not found.complete and not found.removing:
        messages = ("Not all of its objects exist. Create it again, or remove it.", *messages)
    if not messages and state is ObjectState.PENDING:
        messages = ("DPF has not reported on it yet.",)
    return ObjectStatus(definition=found.definition, state=state, messages=messages[:MOST_MESSAGES], facts=found.facts)
