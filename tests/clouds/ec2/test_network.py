"""The security group of an order: made once, with exactly one way in, and opened and closed later."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import pytest

from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Rule
from blueprints.ec2 import network
from blueprints.ec2.client import Ec2
from tests.clouds.ec2.double import Double
from tests.clouds.ec2.orders import made, order
from tests.clouds.ec2.plan import Fault


def _rules(ec2: Ec2, group: str) -> set[tuple[int, str, str]]:
    found: dict[str, Any] = ec2.connection.call("describe_security_groups", "us-east-1", GroupIds=[group])
    return {
        (one["FromPort"], one["IpProtocol"], source)
        for one in found["SecurityGroups"][0]["IpPermissions"]
        for source in [r["CidrIp"] for r in one["IpRanges"]] + [r["CidrIpv6"] for r in one["Ipv6Ranges"]]
    }


def test_only_ssh_from_where_it_may_come(ec2: Ec2) -> None:
    group = ec2.prepare(order(ssh_port=2222))["group"]
    assert _rules(ec2, group) == {(2222, "tcp", "192.0.2.0/24"), (2222, "tcp", "2001:db8::/32")}


def test_a_group_left_from_before_gets_the_ways_of_now(ec2: Ec2) -> None:
    given = order(ssh_from=("192.0.2.0/24", "198.51.100.0/24"))
    group = ec2.prepare(given)["group"]
    now = dataclasses.replace(given, ssh_from=("192.0.2.0/24", "203.0.113.0/24"))
    assert ec2.prepare(now)["group"] == group
    assert _rules(ec2, group) == {(22, "tcp", "192.0.2.0/24"), (22, "tcp", "203.0.113.0/24")}


def test_another_group_is_not_let_in(ec2: Ec2) -> None:
    given = order(ssh_from=())
    group, other = ec2.prepare(given)["group"], ec2.prepare(order())["group"]
    pairs = [{"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22, "UserIdGroupPairs": [{"GroupId": other}]}]
    ec2.connection.call("authorize_security_group_ingress", "us-east-1", GroupId=group, IpPermissions=pairs)
    ec2.prepare(given)
    answer = ec2.connection.call("describe_security_groups", "us-east-1", GroupIds=[group])
    assert answer["SecurityGroups"][0]["IpPermissions"] == []


def test_no_way_in_where_none_is_named(ec2: Ec2) -> None:
    assert _rules(ec2, ec2.prepare(order(ssh_from=()))["group"]) == set()


def test_a_group_of_somebody_else_is_left_alone(double: Double, ec2: Ec2) -> None:
    given = order()
    vpc = ec2.prepare(order())["vpc"]
    ec2.connection.call("create_security_group", "us-east-1", GroupName=given.key, Description="x", VpcId=vpc)
    with pytest.raises(CloudError) as caught:
        ec2.prepare(given)
    assert caught.value.meaning is Meaning.INVALID
    assert not double.asked("AuthorizeSecurityGroupIngress")[2:]


def test_a_group_whose_making_was_lost_is_found(double: Double, ec2: Ec2) -> None:
    given = order()
    double.plan.lose("CreateSecurityGroup")
    with pytest.raises(CloudError) as caught:
        ec2.prepare(given)
    assert caught.value.meaning is Meaning.AMBIGUOUS
    group = ec2.prepare(given)["group"]
    assert len(_rules(ec2, group)) == 2
    assert double.objects() == {"security_groups": [given.key]}


def test_a_group_that_another_has_just_made_is_taken(double: Double, ec2: Ec2) -> None:
    given = order()
    double.plan.add(Fault(action="CreateSecurityGroup", code="InvalidGroup.Duplicate", message="x", happens=True))
    assert len(_rules(ec2, ec2.prepare(given)["group"])) == 2


def test_ports_open_and_close_again_and_again(ec2: Ec2) -> None:
    given = order(ssh_from=("192.0.2.0/24",))
    instance = made(ec2, given)
    group = ec2.prepare(given)["group"]
    rules = [Rule(port=443), Rule(port=53, protocol="udp", source="2001:db8::/64")]
    for _ in range(2):
        ec2.open_ports(instance, rules)
        assert _rules(ec2, group) == {(22, "tcp", "192.0.2.0/24"), (443, "tcp", "0.0.0.0/0"),
                                      (53, "udp", "2001:db8::/64")}  # fmt: skip
    for _ in range(2):
        ec2.close_ports(instance, rules)
        assert _rules(ec2, group) == {(22, "tcp", "192.0.2.0/24")}


def test_nothing_is_to_close_where_nothing_is(ec2: Ec2) -> None:
    instance = dataclasses.replace(made(ec2, order()), id="i-00000000000000000")
    ec2.close_ports(instance, [Rule(port=443)])
    with pytest.raises(CloudError) as caught:
        ec2.open_ports(instance, [Rule(port=443)])
    assert caught.value.meaning is Meaning.NOT_FOUND


class _Subnets:
    """Calls that know one default VPC with one subnet, in which so many addresses are free."""

    def __init__(self, free: int) -> None:
        self._subnet = {"SubnetId": "subnet-1", "VpcId": "vpc-1", "AvailabilityZone": "us-east-1a",
                        "AvailableIpAddressCount": free, "CidrBlock": "10.0.0.0/28"}  # fmt: skip

    def call(self, operation: str, region: str, **parameters: Any) -> dict[str, Any]:
        return {"describe_vpcs": {"Vpcs": [{"VpcId": "vpc-1"}]}, "describe_subnets": {"Subnets": [self._subnet]}}[
            operation
        ]

    def pages(self, operation: str, region: str, **parameters: Any) -> Iterator[dict[str, Any]]:
        yield self.call(operation, region)


@pytest.mark.parametrize("named", ["", "subnet-1"])
def test_a_subnet_without_a_free_address_is_told_before_anything_is_made(named: str) -> None:
    wanted = order(network=named, zone="us-east-1a")
    assert network.place(_Subnets(1), wanted) == ("vpc-1", "subnet-1")  # type: ignore[arg-type]
    with pytest.raises(CloudError, match=r"10\.0\.0\.0/28.*no free address") as caught:
        network.place(_Subnets(0), wanted)  # type: ignore[arg-type]
    assert caught.value.meaning is Meaning.QUOTA
    assert caught.value.zone_wide
