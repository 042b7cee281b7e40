"""Volumes of a DPU: policies and sizes within the config, and none after the lease."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drydock.core.errors import Conflict, InvalidRequest, NotSupported
from interfaces.dpu_services import DpuServices, ObjectState, Volume, Volumes
from interfaces.dpu_services.fake import FakeDpuServices, MemoryBackend
from interfaces.errors import ConnectionLost, LeaseEnded, ObjectMissing
from tests.interfaces.dpus import ALLOWED, Lease
from tests.interfaces.dpus import lease as lease
from tests.interfaces.dpus import other as other
from tests.interfaces.dpus import services as services


def volume(name: str = "data", **given: Any) -> Volume:
    return Volume(**{"name": name, "policy": "fast", "size_gib": 20, **given})


def test_a_volume_is_created_shown_listed_and_removed(services: FakeDpuServices) -> None:
    made = services.volumes.create(volume())
    assert (made.definition, made.state) == (volume(), ObjectState.READY)
    assert services.volumes.show("data") == made == services.volumes.create(volume())
    services.storage.set("data", facts={"device": "nvme1n1"})
    assert services.volumes.show("data").facts == {"device": "nvme1n1"}
    with pytest.raises(Conflict, match="is another one"):
        services.volumes.create(volume(size_gib=21))
    services.volumes.remove("data")
    services.volumes.remove("data")
    with pytest.raises(ObjectMissing):
        services.volumes.show("data")
    assert services.locks.table == {}


def test_a_pf_is_plugged_in_by_default_and_it_goes_through_json() -> None:
    assert (volume().hotplug, volume(function="vf").hotplug, volume(hotplug=False).hotplug) == (True, False, False)
    for one in (volume(), volume(mode="filesystem", access="ReadWriteMany"), volume(function="vf")):
        assert Volume.from_json(json.loads(json.dumps(one.to_json()))) == one


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"policy": "slow"}, "policy"), ({"policy": ""}, "policy"), ({"policy": None}, "policy"),
        ({"size_gib": 101}, "size_gib"), ({"size_gib": 0}, "size_gib"), ({"size_gib": True}, "size_gib"),
        ({"size_gib": 1.5}, "size_gib"), ({"size_gib": 10**30}, "size_gib"), ({"mode": "Block"}, "mode"),
        ({"access": "all"}, "access"), ({"function": "sf"}, "function"), ({"function": ["pf"]}, "function"),
        ({"function": "vf", "hotplug": True}, "hotplug"), ({"hotplug": 1}, "hotplug"), ({"name": "A b"}, "name"),
    ],
)  # fmt: skip
def test_bad_volumes_are_refused_with_their_field(services: FakeDpuServices, given: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        services.volumes.create(volume(**given))
    assert refused.value.field == field
    assert (services.storage.found, services.locks.table) == ({}, {})


@pytest.mark.parametrize("given", [{}, {"name": "a"}, {"name": "a", "policy": "b", "size_gib": 1, "dpuNodeName": "h"}])
def test_garbled_volumes_are_refused(given: Any) -> None:
    with pytest.raises(InvalidRequest):
        Volume.from_json(given)


def test_too_many_are_refused_and_leases_do_not_share_names(services: FakeDpuServices, other: FakeDpuServices) -> None:
    for number in range(Volumes.most):
        services.volumes.create(volume(f"v{number}"))
    with pytest.raises(Conflict, match="at most 8 volumes"):
        services.volumes.create(volume("another"))
    other.volumes.create(volume("v0"))


@pytest.mark.parametrize("answer", ["kept", "lost"])
def test_a_volume_of_a_lease_that_ended_meanwhile_is_taken_back(
    services: FakeDpuServices, lease: Lease, answer: str
) -> None:
    def ended() -> None:
        services.storage.after_write = lambda: None
        lease.over = True
        if answer == "lost":
            raise ConnectionLost

    services.storage.after_write = ended
    with pytest.raises(LeaseEnded if answer == "kept" else ConnectionLost):
        services.volumes.create(volume())
    assert services.storage.found == {}


def test_without_policies_there_are_none(lease: Lease) -> None:
    services = DpuServices(None, still_mine=lease, backend=MemoryBackend(), allowed=ALLOWED)
    for call in (services.volumes.list, lambda: services.volumes.create(volume())):
        with pytest.raises(NotSupported, match="no volumes on this DPU"):
            call()
