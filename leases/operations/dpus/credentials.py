"""Operations on the credentials of leased DPUs."""

from __future__ import annotations

import datetime as dt

from drydock.core.errors import NotAllowed, NotFound
from drydock.core.units import duration
from drydock_client.values import DpuCredentialInfo
from interfaces.dpu_services import Credentials, CredentialStatus
from leases.engine.core.database import patient
from leases.engine.core.transitions import record_event
from leases.models import Lease
from leases.operations.callers import Caller
from leases.operations.dpus.services import services_of
from leases.validation.input_checks import checked, printable


@checked
def list_(who: Caller, lease_id: int) -> list[DpuCredentialInfo]:
    """Return the credentials of a lease, sorted by name, without secrets. Raises what `Credentials.list` raises."""
    return [_info(one) for one in _of(who, lease_id).list()]


@checked
def request(who: Caller, lease_id: int, name: str, *, ttl: str | float | dt.timedelta) -> DpuCredentialInfo:
    """Request a credential, and record an event. Raises what `Credentials.request` raises."""
    seconds = int(duration(ttl, field="ttl").total_seconds())
    status = _of(who, lease_id).request(name, seconds=seconds)
    what = f"Requested DPU credential {status.name} for {seconds} s."
    patient(record_event, "lease.dpu_credential", what, actor=who.actor, lease_id=lease_id)
    return _info(status)


@checked
def show(who: Caller, lease_id: int, name: str) -> str:
    """Return the kubeconfig of a credential, once, and only to the owner of the lease. Records an event.

    Raises NotFound if an operator does not own the lease, NotAllowed if the caller's token was created by somebody
    else, and what `Credentials.show` raises.
    """
    if who.maker:
        raise NotAllowed(
            f"This token was created by {who.maker}, and only {who.name} can read the credential.",
            hint="Use a token that the owner created.",
        )
    if not patient(Lease.objects.filter(pk=lease_id, owner_id=who.id).exists):
        raise NotFound(f"Lease {lease_id} does not exist or is not yours.", field="lease")
    kubeconfig = _of(who, lease_id).show(name)
    what = f"DPU credential {printable(name)} was shown to the owner."
    patient(record_event, "lease.dpu_credential", what, actor=who.actor, lease_id=lease_id)
    return kubeconfig


@checked
def remove(who: Caller, lease_id: int, name: str) -> None:
    """Begin to remove a credential, and record an event. Raises what `Credentials.remove` raises."""
    _of(who, lease_id).remove(name)
    what = f"Removed DPU credential {printable(name)}."
    patient(record_event, "lease.dpu_credential", what, actor=who.actor, lease_id=lease_id)


def _of(who: Caller, lease_id: int) -> Credentials:
    return services_of(who, lease_id).credentials


def _info(status: CredentialStatus) -> DpuCredentialInfo:
    return DpuCredentialInfo(
        name=status.name, state=status.state.value, expires_at=status.expires_at, messages=status.messages
    )
