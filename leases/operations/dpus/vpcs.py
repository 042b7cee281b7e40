"""Operations on the VPCs of leased DPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import fields
from typing import Any

from drydock.core.errors import InvalidRequest
from drydock_client.values import DpuVirtualNetwork, DpuVpcInfo
from interfaces.dpu_services import ObjectStatus, Vpc, Vpcs
from leases.engine.core.database import patient
from leases.engine.core.transitions import record_event
from leases.operations.callers import Caller
from leases.operations.dpus.services import services_of
from leases.validation.input_checks import checked, printable

_FIELDS = tuple(one.name for one in fields(DpuVirtualNetwork))


@checked
def list_(who: Caller, lease_id: int) -> list[DpuVpcInfo]:
    """Return the VPCs of a lease. Raises what `Vpcs.list` raises."""
    return [_info(one) for one in _of(who, lease_id).list()]


@checked
def show(who: Caller, lease_id: int, name: str) -> DpuVpcInfo:
    """Return a VPC. Raises what `Vpcs.show` raises."""
    return _info(_of(who, lease_id).show(name))


@checked
def create(
    who: Caller, lease_id: int, name: str, *, isolation: str, networks: Sequence[DpuVirtualNetwork],
    routed: bool = False,
) -> DpuVpcInfo:  # fmt: skip
    """Create a VPC, and record an event. Raises what `Vpcs.create` raises."""
    vpcs = _of(who, lease_id)
    if not isinstance(networks, Sequence) or isinstance(networks, str | bytes):
        raise InvalidRequest("The virtual networks of a VPC must be a list.", field="networks")
    status = vpcs.create(Vpc.of(name, [_json(one) for one in networks], isolation=isolation, routed=routed))
    parts = "; ".join(f"{one.name} {one.subnet}" for one in status.definition.networks)
    patient(record_event, "lease.dpu_vpc", f"Created VPC {name}: {parts}.", actor=who.actor, lease_id=lease_id)
    return _info(status)


@checked
def remove(who: Caller, lease_id: int, name: str) -> None:
    """Begin to remove a VPC, and record an event. Raises what `Vpcs.remove` raises."""
    _of(who, lease_id).remove(name)
    what = f"Removed VPC {printable(name)}."
    patient(record_event, "lease.dpu_vpc", what, actor=who.actor, lease_id=lease_id)


def _of(who: Caller, lease_id: int) -> Vpcs:
    return services_of(who, lease_id).vpcs


def _json(one: Any) -> Any:
    """Return a virtual network as JSON: a mapping, or the fields of what a request has instead."""
    if isinstance(one, Mapping):
        return dict(one)
    return {name: getattr(one, name) for name in _FIELDS} if all(hasattr(one, name) for name in _FIELDS) else one


def _info(status: ObjectStatus[Vpc]) -> DpuVpcInfo:
    made = status.definition
    networks = tuple(
        DpuVirtualNetwork(**{**one.to_json(), "interfaces": tuple(map(str, one.interfaces))}) for one in made.networks
    )
    return DpuVpcInfo(
        name=made.name, state=status.state.value, isolation=made.isolation, routed=made.routed, networks=networks,
        messages=status.messages,
    )  # fmt: skip
