"""Credentials of a DPU: bounded, shown once, and none stays of a lease that ended meanwhile."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest

from drydock.core import clock
from drydock.core.errors import Conflict, InvalidRequest, NotSupported
from interfaces.deadline import Deadline
from interfaces.dpu_services import CredentialState, DpuServices
from interfaces.dpu_services.credentials import MOST_CREDENTIALS
from interfaces.dpu_services.fake import FakeDpuServices, MemoryBackend
from interfaces.errors import ConnectionLost, CredentialMissing, LeaseEnded, ServiceChanged
from tests.interfaces.dpus import Lease
from tests.interfaces.dpus import lease as lease


@pytest.fixture
def services(lease: Lease) -> FakeDpuServices:
    return FakeDpuServices(still_mine=lease, longest=3600)


def test_a_credential_is_requested_shown_once_and_removed(services: FakeDpuServices) -> None:
    made = services.credentials.request("metrics", seconds=600)
    assert made.state is CredentialState.READY
    assert dt.timedelta(seconds=590) < made.expires_at - clock.now() <= dt.timedelta(seconds=600)
    assert services.credentials.show("metrics") == "kubeconfig of metrics 1"
    with pytest.raises(Conflict, match="was shown already"):
        services.credentials.show("metrics")
    assert [one.state for one in services.credentials.list()] == [CredentialState.SHOWN]
    with pytest.raises(Conflict, match="exists already"):
        services.credentials.request("metrics", seconds=600)
    services.credentials.remove("metrics")
    services.credentials.remove("metrics")
    with pytest.raises(CredentialMissing):
        services.credentials.show("metrics")
    services.credentials.request("metrics", seconds=600)
    assert services.credentials.show("metrics") == "kubeconfig of metrics 2"


@pytest.mark.parametrize("seconds", [0, -1, 599, 3601, 600.0, True, "600"])
def test_a_credential_is_bounded(services: FakeDpuServices, seconds: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        services.credentials.request("metrics", seconds=seconds)
    assert refused.value.field == "ttl"
    assert services.issuer.credentials == {}


def test_bad_names_and_too_many_are_refused(services: FakeDpuServices) -> None:
    for call in (
        lambda: services.credentials.request("No", seconds=600), lambda: services.credentials.show("No"),
        lambda: services.credentials.remove("No"),
    ):  # fmt: skip
        with pytest.raises(InvalidRequest) as refused:
            call()
        assert refused.value.field == "name"
    for number in range(MOST_CREDENTIALS):
        services.credentials.request(f"c{number}", seconds=600)
    with pytest.raises(Conflict, match="at most 8"):
        services.credentials.request("another", seconds=600)


def test_what_is_not_issued_or_over_is_not_shown(services: FakeDpuServices) -> None:
    services.credentials.request("metrics", seconds=600)
    for seen, state, said in (
        ({"issued": False, "messages": ("No cluster.",)}, CredentialState.PENDING, "not been issued yet. No cluster."),
        ({"issued": True, "expires_at": clock.now()}, CredentialState.EXPIRED, "has expired"),
        ({"removing": True}, CredentialState.REMOVING, "is being removed"),
    ):
        services.issuer.set("metrics", **seen)
        assert [one.state for one in services.credentials.list()] == [state]
        with pytest.raises(Conflict, match=said):
            services.credentials.show("metrics")
    assert not services.issuer.credentials["metrics"].shown


@pytest.mark.parametrize("lost", [False, True])
def test_a_request_for_a_lease_that_ended_meanwhile_leaves_nothing(
    services: FakeDpuServices, lease: Lease, lost: bool
) -> None:
    def end() -> None:
        over = lease.over
        lease.end()
        if lost and not over:
            raise ConnectionLost

    services.issuer.after_write = end
    with pytest.raises(ConnectionLost if lost else LeaseEnded):
        services.credentials.request("metrics", seconds=600)
    assert services.issuer.credentials == {}


def test_a_lease_that_ends_while_it_is_read_shows_nothing(services: FakeDpuServices, lease: Lease) -> None:
    services.credentials.request("metrics", seconds=600)
    services.issuer.after_write = lease.end
    with pytest.raises(LeaseEnded):
        services.credentials.show("metrics")


def test_of_two_readers_one_is_refused(services: FakeDpuServices) -> None:
    services.credentials.request("metrics", seconds=600)
    found = services.issuer.find("metrics", Deadline(5))
    assert found is not None
    services.credentials.show("metrics")
    with pytest.raises(ServiceChanged):
        services.issuer.show(found, Deadline(5))


def test_a_kind_without_credentials_says_so() -> None:
    services = DpuServices(None, still_mine=lambda: None, backend=MemoryBackend())
    for call in (
        services.credentials.list, lambda: services.credentials.request("a", seconds=600),
        lambda: services.credentials.show("a"), lambda: services.credentials.remove("a"),
    ):  # fmt: skip
        with pytest.raises(NotSupported):
            call()
