"""Callers of operations, and conditions for the rows that a caller may see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import Q, QuerySet

from drydock.core.errors import NotAllowed, NotFound
from leases import owners
from leases.models import Lease
from leases.validation.input_checks import checked


@dataclass(frozen=True, kw_only=True)
class Caller:
    """A user who calls an operation. Operators see and change everything."""

    id: int
    name: str
    operator: bool = False
    maker: str = ""
    """The user who created the token used for the call; empty if the caller created it, or used no token."""

    @property
    def actor(self) -> str:
        """The name that is recorded with the caller's changes."""
        return f"{self.maker} for {self.name}" if self.maker else self.name


@checked
def caller(user: Any) -> Caller:
    """Return the caller for a user or user name. Raises InvalidRequest if no active user has this name."""
    found = owners.find_owner(user)
    return Caller(id=found.pk, name=found.get_username(), operator=found.is_staff or found.is_superuser)


def operator_only(who: Caller, what: str) -> None:
    """Raise NotAllowed unless the caller is an operator. `what` completes "Only an operator may"."""
    if not who.operator:
        raise NotAllowed(f"Only an operator may {what}.", hint="Ask an operator.")


@checked
def on_behalf(who: Caller, owner: Any = None) -> Caller:
    """Return the user who will own a lease: `owner` if given, or else `who`.

    Raises NotAllowed if the caller gives another user without being an operator.
    """
    if owner is None or owner == who.name:
        return who
    operator_only(who, "request leases for another user")
    return caller(owner)


def own_leases(who: Caller) -> QuerySet[Lease]:
    """Return the leases that the caller may see."""
    return Lease.objects.all() if who.operator else Lease.objects.filter(owner_id=who.id)


@checked
def lease_of(who: Caller, lease_id: int, *, related: bool = False) -> Lease:
    """Return a lease that the caller may change. Raises NotFound if there is none, or if another owner has it."""
    found = own_leases(who).filter(pk=lease_id)
    if related:
        found = found.select_related("owner", "resource__blueprint")
    lease = found.first()
    if lease is None:
        raise not_theirs(lease_id)
    return lease


def not_theirs(lease_id: int) -> NotFound:
    """Return one error for both a lease that does not exist and a lease of another owner.

    The caller cannot tell from the error which of the two is the case.
    """
    return NotFound(f"Lease {lease_id} does not exist or is not yours.", field="lease")


def theirs(who: Caller) -> Q:
    """Return the query condition for events that the caller may see."""
    return Q() if who.operator else Q(lease__owner_id=who.id)
