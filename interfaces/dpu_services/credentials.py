"""Credentials of a leased DPU: kubeconfigs of accounts on its DPU cluster, each shown once and bounded in time."""

from __future__ import annotations

import datetime as dt
import logging
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum

from drydock.core import clock
from drydock.core.errors import Conflict, InvalidRequest, NotSupported
from interfaces.contract import StillMine
from interfaces.deadline import Deadline
from interfaces.dpu_services.service import check_name
from interfaces.errors import CredentialMissing, ServiceChanged

log = logging.getLogger(__name__)

SHORTEST = 600
"""Seconds for which a token is valid at least (https://kubernetes.io/docs/reference/kubernetes-api/
authentication-resources/token-request-v1/)."""
LONGEST = 86_400
"""Seconds for which a token is valid at most, by the documentation of `spec.duration` of DPF."""
MOST_CREDENTIALS = 8
"""Credentials of one lease."""
_UNDO_SECONDS = 10.0


class CredentialState(Enum):
    """The state of a credential."""

    PENDING = "pending"
    """It has not been issued yet."""
    READY = "ready"
    """It can be shown, once."""
    SHOWN = "shown"
    """It was shown. It is valid until its end."""
    EXPIRED = "expired"
    """The credential has expired and will be removed."""
    REMOVING = "removing"
    """It is being removed."""


@dataclass(frozen=True, kw_only=True)
class FoundCredential:
    """A credential as the backend found it, without its secret."""

    name: str
    version: str
    """Identifies this object: it differs after the object was made anew."""
    expires_at: dt.datetime
    issued: bool = False
    shown: bool = False
    removing: bool = False
    messages: tuple[str, ...] = ()
    """What the controller reports while it is not issued."""


@dataclass(frozen=True, kw_only=True)
class CredentialStatus:
    """A credential and its state. `messages` say why it is not issued yet."""

    name: str
    state: CredentialState
    expires_at: dt.datetime
    messages: tuple[str, ...] = ()


class CredentialBackend(ABC):
    """What carries out the writes for one lease. Every method raises the errors of the connection.

    After one of them, a write may have been carried out.
    """

    @abstractmethod
    def list(self, deadline: Deadline) -> Sequence[FoundCredential]:
        """Return the credentials of the lease, sorted by name."""

    @abstractmethod
    def find(self, name: str, deadline: Deadline) -> FoundCredential | None:
        """Return a credential of the lease; None if there is none of this name."""

    @abstractmethod
    def create(self, name: str, seconds: int, deadline: Deadline) -> FoundCredential:
        """Request a credential for some seconds. Raises ServiceChanged if the name is taken."""

    @abstractmethod
    def show(self, found: FoundCredential, deadline: Deadline) -> str:
        """Mark an issued credential as shown, and then return its kubeconfig.

        Of two calls, one raises ServiceChanged, as do calls for a credential that was made anew or removed.
        """

    @abstractmethod
    def remove(self, found: FoundCredential, deadline: Deadline) -> None:
        """Begin to remove exactly this credential. A missing one is not an error."""


class Credentials:
    """The credentials of one lease.

    Whoever was shown a credential can use it without Drydock until it expires or its account is removed. A kind must
    therefore remove all of them at the end of the lease and before the lease is handed to another owner.
    """

    def __init__(
        self, backend: CredentialBackend | None, *, watch: Callable[[str, float | None], Deadline],
        still_mine: StillMine, longest: int,
    ) -> None:  # fmt: skip
        self._backend, self._watch, self._still_mine, self.longest = backend, watch, still_mine, longest

    def request(self, name: str, *, seconds: int, timeout: float | None = None) -> CredentialStatus:
        """Request a credential that is valid for `seconds` from now. Returns before it is issued.

        Raises InvalidRequest with the field for a bad name or length, Conflict if the name is taken or the lease has 8
        credentials, NotSupported, LeaseEnded, and the errors of the connection.
        """
        check_name(name)
        backend = self._known()
        if type(seconds) is not int or not SHORTEST <= seconds <= self.longest:
            raise InvalidRequest(
                f"A credential is valid for {SHORTEST} to {self.longest} seconds, not {seconds}.", field="ttl"
            )
        deadline = self._watch("Requesting the credential", timeout)
        there = backend.list(deadline)
        if any(one.name == name for one in there):
            raise Conflict(f"The credential {name} exists already.", hint="Remove it first, or choose another name.")
        if len(there) >= MOST_CREDENTIALS:
            raise Conflict(f"A lease has at most {MOST_CREDENTIALS} credentials.", hint="Remove one first.")
        try:
            made = backend.create(name, seconds, deadline)
            self._still_mine()
        except ServiceChanged:
            raise
        except Exception:
            self._undo_if_lost(name)  # the answer may be lost, and the write carried out
            raise
        return status_of(made)

    def list(self, *, timeout: float | None = None) -> tuple[CredentialStatus, ...]:
        """Return the credentials of the lease with their states, sorted by name. Raises NotSupported, LeaseEnded."""
        found = self._known().list(self._watch("Listing the credentials", timeout))
        self._still_mine()  # after a transfer meanwhile, they may be the next owner's
        return tuple(status_of(one) for one in found)

    def show(self, name: str, *, timeout: float | None = None) -> str:
        """Return the kubeconfig of a credential, once. If the answer is lost, remove it and request another one.

        Raises CredentialMissing, Conflict if it is not issued yet, was shown or has expired, ServiceChanged,
        NotSupported, and LeaseEnded.
        """
        check_name(name)
        backend, deadline = self._known(), self._watch("Reading the credential", timeout)
        found = backend.find(name, deadline)
        self._still_mine()
        if found is None:
            raise CredentialMissing(f"The DPU has no credential {name}.", field="name")
        status = status_of(found)
        if status.state is CredentialState.PENDING:
            said = f" {status.messages[0]}" if status.messages else ""
            raise Conflict(f"The credential {name} has not been issued yet.{said}", hint="Repeat it in some seconds.")
        if status.state is not CredentialState.READY:
            said = {"shown": "was shown already", "expired": "has expired"}.get(status.state.value, "is being removed")
            raise Conflict(f"The credential {name} {said}.", hint="Remove it, and request another one.")
        kubeconfig = backend.show(found, deadline)
        self._still_mine()
        return kubeconfig

    def remove(self, name: str, *, timeout: float | None = None) -> None:
        """Begin to remove a credential. A missing one is not an error. Raises NotSupported, LeaseEnded."""
        check_name(name)
        backend, deadline = self._known(), self._watch("Removing the credential", timeout)
        found = backend.find(name, deadline)
        self._still_mine()
        if found is not None and not found.removing:
            backend.remove(found, deadline)

    def _known(self) -> CredentialBackend:
        if self._backend is None:
            raise NotSupported(
                "There are no credentials on this DPU.",
                hint="An operator can set a namespace aside for them in the config of the blueprint.",
            )
        return self._backend

    def _undo_if_lost(self, name: str) -> None:
        """Remove a credential that was written for a lease that was lost meanwhile.

        If this fails as well, it stays until the kind cleans up: it has the proof of the lease.
        """
        try:
            self._still_mine()
        except Exception:  # the caller is told of the first error
            deadline = Deadline(_UNDO_SECONDS, spare=_UNDO_SECONDS)
            try:
                backend = self._known()
                if (found := backend.find(name, deadline)) is not None:
                    backend.remove(found, deadline)
            except Exception as error:
                log.warning("The credential %s of a lost lease could not be taken back: %s", name, type(error).__name__)


def status_of(found: FoundCredential) -> CredentialStatus:
    """Return the state of a credential."""
    state = CredentialState.READY if found.issued else CredentialState.PENDING
    if found.shown:
        state = CredentialState.SHOWN
    if found.expires_at <= clock.now():
        state = CredentialState.EXPIRED
    if found.removing:
        state = CredentialState.REMOVING
    messages = found.messages if state is CredentialState.PENDING else ()
    return CredentialStatus(name=found.name, state=state, expires_at=found.expires_at, messages=messages)
