"""Networks of a DPU: ranges within the config, blocks that no two leases share, and chains that use them."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drydock.core.errors import Conflict, InvalidRequest, NotSupported
from interfaces.dpu_services import Chain, DpuServices, Network, Networks, ObjectState, Service
from interfaces.dpu_services.fake import FakeDpuServices, MemoryBackend
from interfaces.errors import ConnectionLost, LeaseEnded, ObjectMissing
from tests.interfaces.dpus import ALLOWED, CHART, Lease
from tests.interfaces.dpus import lease as lease
from tests.interfaces.dpus import other as other
from tests.interfaces.dpus import services as services

BLUE = {"subnet": "10.20.1.0/24", "gateway": "10.20.1.254", "addresses": 32}


def network(name: str = "blue", **given: Any) -> Network:
    return Network(name=name, **(given or BLUE))


def blocks(services: FakeDpuServices) -> set[str]:
    return {key.rpartition("/")[2] for key in services.locks.table if key.startswith("range of ")}


def test_a_network_is_created_shown_listed_and_removed(services: FakeDpuServices) -> None:
    made = services.networks.create(network())
    assert (made.definition, made.state) == (network(), ObjectState.READY)
    assert services.networks.show("blue") == made == services.networks.create(network())
    wide = network("green", network="10.20.16.0/22", prefix=28, gateway_index=1)
    services.networks.create(wide)
    assert [one.definition for one in services.networks.list()] == [network(), wide]
    assert blocks(services) == {"10.20.1.0", "10.20.16.0", "10.20.17.0", "10.20.18.0", "10.20.19.0"}
    with pytest.raises(Conflict, match="is another one"):
        services.networks.create(network(subnet="10.20.2.0/24"))
    services.networks.remove("green")
    services.networks.remove("green")
    assert blocks(services) == {"10.20.1.0"}
    with pytest.raises(ObjectMissing):
        services.networks.show("green")


def test_what_is_left_out_has_a_default_and_it_goes_through_json() -> None:
    given = network(subnet="10.20.1.64/28")
    assert (given.gateway, given.addresses) == ("10.20.1.65", 13)
    assert network(subnet="10.20.1.0/24").addresses == 16
    for one in (given, network(network="10.20.0.0/20", prefix=24)):
        assert Network.from_json(json.loads(json.dumps(one.to_json()))) == one


@pytest.mark.parametrize(
    ("given", "field"),
    [
        ({"subnet": "10.20.1.0/24", "network": "10.20.1.0/24"}, "subnet"), ({"mtu": 1500}, "subnet"),
        ({"subnet": "10.20.1.1/24"}, "subnet"), ({"subnet": "nonsense"}, "subnet"), ({"subnet": "fd00::/64"}, "subnet"),
        ({"subnet": "10.20.1.0/31"}, "subnet"), ({"subnet": "10.0.0.0/8"}, "subnet"), ({"subnet": 7}, "subnet"),
        ({"subnet": "10.21.0.0/24"}, "subnet"), ({"subnet": "10.20.0.0/15"}, "subnet"),
        ({"network": "192.168.0.0/20", "prefix": 24}, "network"), ({"network": "10.20.0.0/20"}, "prefix"),
        ({"network": "10.20.0.0/20", "prefix": 19}, "prefix"), ({"network": "10.20.0.0/20", "prefix": 31}, "prefix"),
        ({"network": "10.20.0.0/20", "prefix": "24"}, "prefix"), ({"subnet": "10.20.1.0/24", "prefix": 28}, "prefix"),
        ({"network": "10.20.0.0/20", "prefix": 24, "gateway_index": 255}, "gateway_index"),
        ({"network": "10.20.0.0/20", "prefix": 24, "gateway_index": 0}, "gateway_index"),
        ({"network": "10.20.0.0/20", "prefix": 24, "gateway": "10.20.0.1"}, "gateway"),
        ({"network": "10.20.0.0/20", "prefix": 24, "addresses": 4}, "addresses"),
        ({"subnet": "10.20.1.0/24", "gateway": "10.20.2.1"}, "gateway"),
        ({"subnet": "10.20.1.0/24", "gateway": "10.20.1.0"}, "gateway"),
        ({"subnet": "10.20.1.0/24", "gateway": "10.20.1.255"}, "gateway"),
        ({"subnet": "10.20.1.0/24", "gateway": "gw"}, "gateway"),
        ({"subnet": "10.20.1.0/24", "addresses": 0}, "addresses"),
        ({"subnet": "10.20.1.0/24", "addresses": 254}, "addresses"),
        ({"subnet": "10.20.1.0/24", "addresses": True}, "addresses"),
        ({"subnet": "10.20.1.0/24", "mtu": 1279}, "mtu"), ({"subnet": "10.20.1.0/24", "mtu": 9217}, "mtu"),
    ],
)  # fmt: skip
def test_bad_networks_are_refused_with_the_field_and_nothing_is_written(
    services: FakeDpuServices, given: dict[str, Any], field: str
) -> None:
    with pytest.raises(InvalidRequest) as refused:
        services.networks.create(network(**given))
    assert refused.value.field == field
    assert (services.addresses.found, services.locks.table) == ({}, {})


@pytest.mark.parametrize("name", ["Blue", "a" * 41, "-a", "a_b", "7"])
def test_odd_names_are_refused(services: FakeDpuServices, name: str) -> None:
    for call in (lambda: network(name), lambda: services.networks.show(name), lambda: services.networks.remove(name)):
        with pytest.raises(InvalidRequest) as refused:
            call()
        assert refused.value.field == "name"


@pytest.mark.parametrize("theirs", ["10.20.1.0/24", "10.20.1.128/25", "10.20.0.0/20"])
def test_two_leases_never_share_addresses(services: FakeDpuServices, other: FakeDpuServices, theirs: str) -> None:
    services.networks.create(network())
    with pytest.raises(Conflict, match=r"range 10\.20\.1\.0 is used by another lease"):
        other.networks.create(network(subnet=theirs))
    assert blocks(other) == {"10.20.1.0"}
    with pytest.raises(Conflict, match=r"range 10\.20\.1\.0 is used by network blue"):
        services.networks.create(network("green", subnet=theirs))
    services.networks.remove("blue")
    other.networks.create(network(subnet=theirs))


def test_a_network_that_a_chain_uses_is_not_removed_and_the_chain_is_named(services: FakeDpuServices) -> None:
    services.apply(Service(name="edge", chart=CHART, interfaces=("net1", "net2")))
    wanted = Chain.of("web", [["p0", "edge:net1@blue", "edge:net2@blue"]])
    with pytest.raises(InvalidRequest, match="no network blue") as refused:
        services.chains.connect(wanted)
    assert refused.value.field == "switches.0.1"
    assert services.locks.table == {}
    services.networks.create(network())
    services.chains.connect(wanted)
    with pytest.raises(Conflict, match="network blue is used by chain web"):
        services.networks.remove("blue")
    services.apply(Service(name="core", chart=CHART, interfaces=("net1",)))
    with pytest.raises(Conflict, match="network blue is used by chain web"):
        services.chains.connect(Chain.of("second", [["p1", "core:net1@blue"]]))
    assert services.networks.show("blue").state is ObjectState.READY
    services.chains.remove("web")
    services.addresses.set("blue", removing=True)
    with pytest.raises(InvalidRequest, match="no network blue"):
        services.chains.connect(wanted)
    services.networks.remove("blue")
    assert services.locks.table == {}


def test_too_many_are_refused(services: FakeDpuServices) -> None:
    for number in range(Networks.most):
        services.networks.create(network(f"n{number}", subnet=f"10.20.{number}.0/24"))
    with pytest.raises(Conflict, match="at most 8 networks"):
        services.networks.create(network("another", subnet="10.20.99.0/24"))


@pytest.mark.parametrize("answer", ["kept", "lost"])
def test_a_network_of_a_lease_that_ended_meanwhile_is_taken_back(
    services: FakeDpuServices, lease: Lease, answer: str
) -> None:
    def ended() -> None:
        services.addresses.after_write = lambda: None
        lease.over = True
        if answer == "lost":
            raise ConnectionLost

    services.addresses.after_write = ended
    with pytest.raises(LeaseEnded if answer == "kept" else ConnectionLost):
        services.networks.create(network())
    assert services.addresses.found == {}


def test_without_ranges_there_are_none(lease: Lease) -> None:
    services = DpuServices(None, still_mine=lease, backend=MemoryBackend(), allowed=ALLOWED)
    for call in (services.networks.list, lambda: services.networks.create(network())):
        with pytest.raises(NotSupported, match="no networks on this DPU"):
            call()
