"""Operations on the networks of leased DPUs."""

from __future__ import annotations

from drydock_client.values import DpuNetworkInfo
from interfaces.dpu_services import Network, Networks, ObjectStatus
from leases.engine.core.database import patient
from leases.engine.core.transitions import record_event
from leases.operations.callers import Caller
from leases.operations.dpus.services import services_of
from leases.validation.input_checks import checked, printable


@checked
def list_(who: Caller, lease_id: int) -> list[DpuNetworkInfo]:
    """Return the networks of a lease, sorted by name. Raises what `Networks.list` raises."""
    return [_info(one) for one in _of(who, lease_id).list()]


@checked
def show(who: Caller, lease_id: int, name: str) -> DpuNetworkInfo:
    """Return a network. Raises what `Networks.show` raises."""
    return _info(_of(who, lease_id).show(name))


@checked
def create(
    who: Caller, lease_id: int, name: str, *, subnet: str = "", gateway: str = "", addresses: int | None = None,
    network: str = "", prefix: int | None = None, gateway_index: int | None = None, mtu: int | None = None,
) -> DpuNetworkInfo:  # fmt: skip
    """Create a network, and record an event. Raises what `Networks.create` raises."""
    networks = _of(who, lease_id)
    wanted = Network(
        name=name, subnet=subnet, gateway=gateway, addresses=addresses, network=network, prefix=prefix,
        gateway_index=gateway_index, mtu=mtu,
    )  # fmt: skip
    status = networks.create(wanted)
    what = f"Created network {name} with the range {wanted.range}."
    patient(record_event, "lease.dpu_network", what, actor=who.actor, lease_id=lease_id)
    return _info(status)


@checked
def remove(who: Caller, lease_id: int, name: str) -> None:
    """Begin to remove a network, and record an event. Raises what `Networks.remove` raises."""
    _of(who, lease_id).remove(name)
    what = f"Removed network {printable(name)}."
    patient(record_event, "lease.dpu_network", what, actor=who.actor, lease_id=lease_id)


def _of(who: Caller, lease_id: int) -> Networks:
    return services_of(who, lease_id).networks


def _info(status: ObjectStatus[Network]) -> DpuNetworkInfo:
    return DpuNetworkInfo(**status.definition.to_json(), state=status.state.value, messages=status.messages)
