"""Who asks, and what they may see."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from django.db.models import Q, QuerySet

from drydock.core.errors import NotAllowed, NotFound
from leases import owners
from leases.given import checked
from leases.models import Lease


@dataclass(frozen=True, kw_only=True)
class Caller:
    """A user who asks. Operators see and change everything."""

    id: int
    name: str
    operator: bool = False
    maker: str = ""
    """Who made the token with which it is asked, where that is somebody else."""

    @property
    def actor(self) -> str:
        """Under whose name it is recorded."""
        return f"{self.maker} for {self.name}" if self.maker else self.name


@checked
def caller(user: Any) -> Caller:
    """The caller that a user, or a user name, is. Raises InvalidRequest when there is no such active user."""
    found = owners.find_owner(user)
    return Caller(id=found.pk, name=found.get_username(), operator=found.is_staff or found.is_superuser)


def operator_only(who: Caller, what: str) -> None:
    """Raises NotAllowed unless the caller is an operator."""
    if not who.operator:
        raise NotAllowed(f"Only an operator may {what}.", hint="Ask one of them.")


@checked
def on_behalf(who: Caller, owner: Any = None) -> Caller:
    """Whose lease it will be: the caller's own, or `owner`'s where an operator says so. Raises NotAllowed."""
    if owner is None or owner == who.name:
        return who
    operator_only(who, "ask for somebody else")
    return caller(owner)


def own_leases(who: Caller) -> QuerySet[Lease]:
    """The leases that the caller may see."""
    return Lease.objects.all() if who.operator else Lease.objects.filter(owner_id=who.id)


@checked
def lease_of(who: Caller, lease_id: int, *, related: bool = False) -> Lease:
    """A lease that the caller may touch. Raises NotFound, also when it is somebody else's."""
    found = own_leases(who).filter(pk=lease_id)
    if related:
        found = found.select_related("owner", "resource__blueprint")
    lease = found.first()
    if lease is None:
        raise not_theirs(lease_id)
    return lease


def not_theirs(lease_id: int) -> NotFound:
    """The error for a lease that is not there or that the caller may not see; which of the two, it does not tell."""
    return NotFound(f"No lease {lease_id}, or it is not yours.", field="lease")


def theirs(who: Caller) -> Q:
    """The condition under which an event concerns the caller."""
    return Q() if who.operator else Q(lease__owner_id=who.id)
