"""Operations on the services of leased DPUs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Protocol, cast

from drydock_client.values import DpuChart, DpuPort, DpuServiceInfo
from interfaces.dpu_services import Chart, DpuServices, Port, Service, ServiceStatus
from leases.engine.core.database import patient
from leases.engine.core.transitions import record_event
from leases.operations.callers import Caller
from leases.operations.interfaces import interface
from leases.validation.input_checks import checked, printable


class ChartFields(Protocol):
    """The chart of a request."""

    repository: str
    name: str
    version: str


class PortFields(Protocol):
    """A port of a request."""

    name: str
    port: int
    protocol: str


def services_of(who: Caller, lease_id: int) -> DpuServices:
    """Return the dpu_services interface of a lease. Raises what `interface` raises."""
    return cast(DpuServices, interface(who, lease_id, DpuServices.name))


@checked
def list_(who: Caller, lease_id: int) -> list[DpuServiceInfo]:
    """Return the services of a lease, sorted by name, without their values. Raises what `DpuServices.list` raises."""
    return [_info(one, values=False) for one in services_of(who, lease_id).list()]


@checked
def show(who: Caller, lease_id: int, name: str) -> DpuServiceInfo:
    """Return a service with its values. Raises what `DpuServices.show` raises."""
    return _info(services_of(who, lease_id).show(name))


@checked
def apply(
    who: Caller, lease_id: int, name: str, *, chart: ChartFields, values: Mapping[str, Any] | None = None,
    ports: Sequence[PortFields] = (), labels: Mapping[str, str] | None = None, interfaces: Sequence[str] = (),
) -> DpuServiceInfo:  # fmt: skip
    """Create or change a service, and record an event without its values. Raises what `DpuServices.apply` raises."""
    services = services_of(who, lease_id)
    service = Service(
        name=name, chart=Chart(repository=chart.repository, name=chart.name, version=chart.version), values=values or {},
        ports=tuple(Port(name=one.name, port=one.port, protocol=one.protocol) for one in ports), labels=labels or {},
        interfaces=tuple(interfaces),
    )  # fmt: skip
    status = services.apply(service)
    what = f"Applied service {service.name}: chart {service.chart.name} {service.chart.version}."
    patient(record_event, "lease.dpu_service", what, actor=who.actor, lease_id=lease_id)
    return _info(status)


@checked
def remove(who: Caller, lease_id: int, name: str) -> None:
    """Begin to remove a service, and record an event. Raises what `DpuServices.remove` raises."""
    services_of(who, lease_id).remove(name)
    what = f"Removed service {printable(name)}."
    patient(record_event, "lease.dpu_service", what, actor=who.actor, lease_id=lease_id)


def _info(status: ServiceStatus, *, values: bool = True) -> DpuServiceInfo:
    service = status.service
    chart = DpuChart(repository=service.chart.repository, name=service.chart.name, version=service.chart.version)
    return DpuServiceInfo(
        name=service.name, state=status.state.value, messages=status.messages, pods=status.pods,
        pods_ready=status.pods_ready, chart=chart, labels=service.labels, values=service.values if values else None,
        ports=tuple(DpuPort(name=one.name, port=one.port, protocol=one.protocol) for one in service.ports),
        interfaces=service.interfaces, of_blueprint=status.of_blueprint,
    )  # fmt: skip
