"""Operations on the chains of leased DPUs."""

from __future__ import annotations

from collections.abc import Sequence

from drydock_client.values import DpuChainInfo
from interfaces.dpu_services import Chain, Chains, ObjectStatus
from leases.engine.core.database import patient
from leases.engine.core.transitions import record_event
from leases.operations.callers import Caller
from leases.operations.dpus.services import services_of
from leases.validation.input_checks import checked, printable


@checked
def list_(who: Caller, lease_id: int) -> list[DpuChainInfo]:
    """Return the chains of a lease, sorted by name. Raises what `Chains.list` raises."""
    return [_info(one) for one in _of(who, lease_id).list()]


@checked
def show(who: Caller, lease_id: int, name: str) -> DpuChainInfo:
    """Return a chain. Raises what `Chains.show` raises."""
    return _info(_of(who, lease_id).show(name))


@checked
def connect(who: Caller, lease_id: int, name: str, *, switches: Sequence[Sequence[str]]) -> DpuChainInfo:
    """Connect interfaces by a chain, and record an event. Raises what `Chains.connect` raises."""
    chains = _of(who, lease_id)
    status = chains.connect(Chain.of(name, switches))
    ports = "; ".join(", ".join(map(str, one)) for one in status.definition.switches)
    patient(record_event, "lease.dpu_chain", f"Connected chain {name}: {ports}.", actor=who.actor, lease_id=lease_id)
    return _info(status)


@checked
def remove(who: Caller, lease_id: int, name: str) -> None:
    """Begin to remove a chain, and record an event. Raises what `Chains.remove` raises."""
    _of(who, lease_id).remove(name)
    what = f"Removed chain {printable(name)}."
    patient(record_event, "lease.dpu_chain", what, actor=who.actor, lease_id=lease_id)


def _of(who: Caller, lease_id: int) -> Chains:
    return services_of(who, lease_id).chains


def _info(status: ObjectStatus[Chain]) -> DpuChainInfo:
    switches = tuple(tuple(map(str, ports)) for ports in status.definition.switches)
    return DpuChainInfo(
        name=status.definition.name, state=status.state.value, switches=switches, messages=status.messages
    )
