"""The VPC of a DPU: what is refused, and that it shares interfaces and addresses with no chain, network or lease."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drydock.core.errors import Conflict, InvalidRequest, NotSupported
from interfaces.dpu_services import Chain, DpuServices, Network, ObjectState, Vpc
from interfaces.dpu_services.fake import FakeDpuServices, MemoryBackend
from interfaces.errors import ConnectionLost, LeaseEnded
from tests.interfaces.dpus import ALLOWED, Lease, service
from tests.interfaces.dpus import lease as lease
from tests.interfaces.dpus import other as other
from tests.interfaces.dpus import services as services

BLUE: dict[str, Any] = {"name": "blue", "subnet": "10.20.1.0/24", "interfaces": ["pf0vf1", "pf0vf2"]}
RED: dict[str, Any] = {"name": "red", "subnet": "10.20.2.0/24", "interfaces": ["pf1"], "external": True}


def vpc(*networks: Any, name: str = "lab", **given: Any) -> Vpc:
    return Vpc.of(name, networks or [BLUE, RED], **{"isolation": "ovn", **given})


def test_a_vpc_is_created_shown_listed_and_removed(services: FakeDpuServices) -> None:
    made = services.vpcs.create(vpc())
    assert (made.definition, made.state) == (vpc(), ObjectState.READY)
    assert services.vpcs.show("lab") == made == services.vpcs.create(vpc())
    assert [one.definition for one in services.vpcs.list()] == [vpc()]
    with pytest.raises(Conflict, match="is another one"):
        services.vpcs.create(vpc(routed=True))
    with pytest.raises(Conflict, match=r"at most 1 VPC\."):
        services.vpcs.create(vpc(RED, name="more"))
    services.vpcs.remove("lab")
    services.vpcs.remove("lab")
    assert (services.isolator.found, services.locks.table) == ({}, {})


def test_it_goes_through_json() -> None:
    for one in (vpc(), vpc({**BLUE, "dhcp": False, "masquerade": False, "interfaces": ["edge:net1"]}, routed=True)):
        assert Vpc.from_json(json.loads(json.dumps(one.to_json()))) == one


VFS = [f"pf0vf{number}" for number in range(33)]


@pytest.mark.parametrize(
    ("networks", "field"),
    [
        ([], "networks"), ("blue", "networks"), (None, "networks"), ([BLUE] * 9, "networks"),
        ([BLUE, BLUE], "networks"), (["blue"], "networks.0"), ([{**BLUE, "vlan": 7}], "networks.0.vlan"),
        ([{**BLUE, "name": "B"}], "networks.0.name"), ([{**BLUE, "subnet": "10.20.1.1/24"}], "networks.0.subnet"),
        ([{**BLUE, "subnet": None}], "networks.0.subnet"), ([{**BLUE, "subnet": "10.21.0.0/24"}], "networks.0.subnet"),
        ([{**BLUE, "subnet": "::/64"}], "networks.0.subnet"), ([{**BLUE, "interfaces": []}], "networks.0.interfaces"),
        ([{**BLUE, "interfaces": "pf0"}], "networks.0.interfaces"),
        ([{**BLUE, "interfaces": ["pf0"] * 33}], "networks.0.interfaces"),
        ([{**BLUE, "interfaces": ["p0"]}], "networks.0.interfaces.0"),
        ([{**BLUE, "interfaces": ["pf0vf8"]}], "networks.0.interfaces.0"),
        ([{**BLUE, "interfaces": ["pf0", "pf2"]}], "networks.0.interfaces.1"),
        ([{**BLUE, "interfaces": ["edge:net1@blue"]}], "networks.0.interfaces.0"),
        ([{**BLUE, "interfaces": ["edge:net1"]}], "networks.0.interfaces.0"),
        ([{**BLUE, "interfaces": ["pf0", "pf0"]}], "networks"), ([{**BLUE, "dhcp": "no"}], "networks.0.dhcp"),
        ([BLUE, {**RED, "interfaces": ["pf0vf1"]}], "networks"),
        ([BLUE, {**RED, "subnet": BLUE["subnet"]}], "networks"),
        ([{**BLUE, "subnet": "10.20.2.0/25"}, {**RED, "subnet": "10.20.2.128/25"}], "networks"),
        ([{**BLUE, "subnet": "10.0.0.0/16"}, {**RED, "subnet": "10.1.0.0/16"}], "networks"),
        ([{**BLUE, "interfaces": VFS[:20]}, {**RED, "interfaces": VFS[20:]}], "networks"),
    ],
)  # fmt: skip
def test_bad_vpcs_are_refused_with_their_field(services: FakeDpuServices, networks: Any, field: str) -> None:
    with pytest.raises(InvalidRequest) as refused:
        services.vpcs.create(Vpc.of("lab", networks, isolation="ovn"))
    assert refused.value.field == field
    assert (services.isolator.found, services.locks.table) == ({}, {})


@pytest.mark.parametrize("given", [{"isolation": "other"}, {"isolation": ""}, {"isolation": 7}, {"routed": 1}])
def test_classes_beyond_the_config_are_refused(services: FakeDpuServices, given: Any) -> None:
    with pytest.raises(InvalidRequest) as refused:
        services.vpcs.create(vpc(**given))
    assert refused.value.field == next(iter(given))


@pytest.mark.parametrize("given", [{}, {"name": "a"}, {"name": "a", "networks": [], "isolation": "ovn", "tenant": "x"}])
def test_garbled_vpcs_are_refused(given: Any) -> None:
    with pytest.raises(InvalidRequest):
        Vpc.from_json(given)


def test_it_shares_nothing_with_chains_and_networks_and_each_names_the_other(services: FakeDpuServices) -> None:
    services.vpcs.create(vpc())
    with pytest.raises(Conflict, match="The interface pf0vf1 is used by VPC lab"):
        services.chains.connect(Chain.of("web", [["p0", "pf0vf1"]]))
    with pytest.raises(Conflict, match=r"The range 10\.20\.1\.0 is used by VPC lab"):
        services.networks.create(Network(name="net", subnet="10.20.1.0/25"))
    services.vpcs.remove("lab")
    services.chains.connect(Chain.of("web", [["p0", "pf0vf1"]]))
    services.networks.create(Network(name="net", subnet="10.20.2.0/25"))
    with pytest.raises(Conflict, match="The interface pf0vf1 is used by chain web"):
        services.vpcs.create(vpc(BLUE))
    with pytest.raises(Conflict, match=r"The range 10\.20\.2\.0 is used by network net"):
        services.vpcs.create(vpc(RED))
    assert services.isolator.found == {}


def test_two_leases_on_one_dpu_share_no_vpc(services: FakeDpuServices, other: FakeDpuServices) -> None:
    services.vpcs.create(vpc(BLUE))
    with pytest.raises(Conflict, match="The DPU is in a VPC of another lease"):
        other.vpcs.create(vpc(RED))
    other.isolator.dpu = "another"
    with pytest.raises(Conflict, match=r"10\.20\.1\.0 is used by another lease"):
        other.vpcs.create(vpc(BLUE))
    other.vpcs.create(vpc({**BLUE, "subnet": "10.20.3.0/24"}))


def test_the_interface_of_a_service_is_not_removed_while_a_vpc_has_it(services: FakeDpuServices) -> None:
    wanted = vpc({**BLUE, "interfaces": ["edge:net1"]})
    services.apply(service("net2"))
    with pytest.raises(InvalidRequest, match="has no interface net1"):
        services.vpcs.create(wanted)
    services.apply(service("net1", "net2"))
    services.vpcs.create(wanted)
    for call in (lambda: services.remove("edge"), lambda: services.apply(service("net2"))):
        with pytest.raises(Conflict, match="edge:net1 is used by VPC lab"):
            call()
    services.vpcs.remove("lab")
    services.remove("edge")


def test_services_have_interfaces_for_vpcs_where_there_are_no_chains(lease: Lease) -> None:
    fake = FakeDpuServices(still_mine=lease, allowed=ALLOWED)
    services = DpuServices(
        None, still_mine=lease, backend=MemoryBackend(), allowed=ALLOWED, vpcs=fake.isolator, locks=fake.locks
    )
    services.apply(service("net1"))
    services.vpcs.create(vpc({**BLUE, "interfaces": ["edge:net1"]}))
    with pytest.raises(Conflict, match="is used by VPC lab"):
        services.remove("edge")


def test_locks_of_a_request_that_died_before_it_wrote_are_taken_over(services: FakeDpuServices) -> None:
    keys = services.vpcs.keys(vpc(), services.isolator)
    services.locks.take("VPC lab", keys)
    services.chains.connect(Chain.of("web", [["p0", "pf0vf1"]]))
    services.locks.drop("chain web")
    services.connector.found.clear()
    services.locks.take("chain web", keys[1:2])
    services.vpcs.create(vpc(BLUE))


@pytest.mark.parametrize("answer", ["kept", "lost"])
def test_a_vpc_of_a_lease_that_ended_meanwhile_is_taken_back(
    services: FakeDpuServices, lease: Lease, answer: str
) -> None:
    def ended() -> None:
        services.isolator.after_write = lambda: None
        lease.over = True
        if answer == "lost":
            raise ConnectionLost

    services.isolator.after_write = ended
    with pytest.raises(LeaseEnded if answer == "kept" else ConnectionLost):
        services.vpcs.create(vpc())
    assert services.isolator.found == {}


def test_without_classes_there_are_none(lease: Lease) -> None:
    services = DpuServices(None, still_mine=lease, backend=MemoryBackend(), allowed=ALLOWED)
    with pytest.raises(NotSupported, match="no VPCs on this DPU"):
        services.vpcs.create(vpc())
