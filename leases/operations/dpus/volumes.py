"""Operations on the volumes of leased DPUs."""

from __future__ import annotations

from drydock_client.values import DpuVolumeInfo
from interfaces.dpu_services import ObjectStatus, Volume, Volumes
from leases.engine.core.database import patient
from leases.engine.core.transitions import record_event
from leases.operations.callers import Caller
from leases.operations.dpus.services import services_of
from leases.validation.input_checks import checked, printable


@checked
def list_(who: Caller, lease_id: int) -> list[DpuVolumeInfo]:
    """Return the volumes of a lease, sorted by name. Raises what `Volumes.list` raises."""
    return [_info(one) for one in _of(who, lease_id).list()]


@checked
def show(who: Caller, lease_id: int, name: str) -> DpuVolumeInfo:
    """Return a volume. Raises what `Volumes.show` raises."""
    return _info(_of(who, lease_id).show(name))


@checked
def create(
    who: Caller, lease_id: int, name: str, *, policy: str, size_gib: int, mode: str = "block",
    access: str = "ReadWriteOnce", function: str = "pf", hotplug: bool | None = None,
) -> DpuVolumeInfo:  # fmt: skip
    """Create and attach a volume, and record an event. Raises what `Volumes.create` raises."""
    volumes = _of(who, lease_id)
    wanted = Volume(
        name=name, policy=policy, size_gib=size_gib, mode=mode, access=access, function=function, hotplug=hotplug
    )
    status = volumes.create(wanted)
    what = f"Created volume {name} of {size_gib} GiB under policy {policy}."
    patient(record_event, "lease.dpu_volume", what, actor=who.actor, lease_id=lease_id)
    return _info(status)


@checked
def remove(who: Caller, lease_id: int, name: str) -> None:
    """Begin to remove a volume, and record an event. Raises what `Volumes.remove` raises."""
    _of(who, lease_id).remove(name)
    what = f"Removed volume {printable(name)}."
    patient(record_event, "lease.dpu_volume", what, actor=who.actor, lease_id=lease_id)


def _of(who: Caller, lease_id: int) -> Volumes:
    return services_of(who, lease_id).volumes


def _info(status: ObjectStatus[Volume]) -> DpuVolumeInfo:
    return DpuVolumeInfo(
        **status.definition.to_json(), state=status.state.value, attached=dict(status.facts), messages=status.messages
    )
