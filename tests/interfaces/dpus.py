"""Shared by the tests of `dpu_services`: leases that may end, and the interfaces of two leases on one DPU."""

from __future__ import annotations

import pytest

from interfaces.dpu_services import AllowedChart, Chart, Service
from interfaces.dpu_services.fake import FakeDpuServices
from interfaces.errors import LeaseEnded
from interfaces.slot_locks import SlotLocksInMemory

CHART = Chart(repository="oci://charts.example.org", name="firewall", version="1.2.0")
ALLOWED = (AllowedChart(repository=CHART.repository, name="firewall", versions=("1.2.0",)),)


def service(*interfaces: str, name: str = "edge") -> Service:
    return Service(name=name, chart=CHART, interfaces=interfaces)


class Lease:
    """A lease that may end."""

    over = False

    def __call__(self) -> None:
        if self.over:
            raise LeaseEnded

    def end(self) -> None:
        self.over = True


@pytest.fixture
def lease() -> Lease:
    return Lease()


@pytest.fixture
def services(lease: Lease) -> FakeDpuServices:
    return FakeDpuServices(still_mine=lease, allowed=ALLOWED, locks=SlotLocksInMemory("one"))


@pytest.fixture
def other(services: FakeDpuServices) -> FakeDpuServices:
    """The interface of another lease on the same DPU."""
    found = FakeDpuServices(allowed=ALLOWED, locks=SlotLocksInMemory("other", services.locks.table))
    for one in (found.connector, found.addresses, found.storage, found.isolator):
        one.lease = "other"
    return found
