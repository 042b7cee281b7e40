"""The end: terminated twice, swept until nothing is left, and never taken for gone too early."""

from __future__ import annotations

import dataclasses

import pytest

from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Lifecycle, Market
from blueprints.ec2.client import Ec2
from tests.clouds.ec2.double import Double
from tests.clouds.ec2.orders import TAGS, again, made, order
from tests.clouds.ec2.plan import Fault


def test_terminated_twice_and_swept_to_nothing(double: Double, ec2: Ec2) -> None:
    given = order(market=Market.SPOT)
    instance = made(ec2, given)
    ec2.terminate(instance)
    ec2.terminate(instance)
    assert again(ec2, instance).state is Lifecycle.TERMINATED
    assert ec2.sweep("us-east-1", "us-east-1a", given.key, TAGS) == []
    assert ec2.sweep("us-east-1", "us-east-1a", given.key, TAGS) == []
    assert double.objects() == {}


def test_the_group_stays_while_the_instance_is_on_its_way_out(double: Double, ec2: Ec2) -> None:
    double.ending = 3600.0
    given = order()
    instance = made(ec2, given)
    group = ec2.prepare(given)["group"]
    ec2.terminate(instance)
    assert again(ec2, instance).state is Lifecycle.TERMINATING
    assert ec2.sweep("us-east-1", "", given.key, TAGS) == [f"instance {instance.id}", f"security group {group}"]
    assert len(double.asked("TerminateInstances")) == 1
    for name, (_, into, one) in double._due.items():
        double._due[name] = (0.0, into, one)
    assert ec2.sweep("us-east-1", "", given.key, TAGS) == []
    assert double.objects() == {}


def test_the_instance_of_an_attempt_that_was_lost_is_swept_too(double: Double, ec2: Ec2) -> None:
    given = order(market=Market.SPOT)
    lost, instance = made(ec2, dataclasses.replace(given, token="given up")), made(ec2, given)
    ec2.terminate(instance)
    left = ec2.sweep("us-east-1", "", given.key, TAGS)
    assert f"instance {lost.id}" in left
    assert ec2.sweep("us-east-1", "", given.key, TAGS) == []
    assert double.objects() == {}


def test_a_copy_of_a_machine_survives_its_sweep(double: Double, ec2: Ec2) -> None:
    instance = made(ec2, order())
    tags = [{"Key": k, "Value": v} for k, v in instance.tags.items()]
    answer = ec2.connection.call(
        "run_instances", "us-east-1", ImageId=instance.image, InstanceType="t3.micro", MinCount=1, MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )  # fmt: skip
    ec2.terminate(instance)
    ec2.sweep("us-east-1", "", instance.key, TAGS)
    assert double.objects()["instances"] == [answer["Instances"][0]["InstanceId"]]


def test_without_an_id_it_is_found_by_its_key(ec2: Ec2) -> None:
    given = order()
    assert ec2.instance("us-east-1", "", given.key, "") is None
    instance = made(ec2, given)
    found = ec2.instance("us-east-1", "", given.key, "")
    assert found is not None
    assert found.id == instance.id


def test_disks_and_cards_that_were_left_are_swept(double: Double, ec2: Ec2) -> None:
    given = order()
    subnet = ec2.prepare(given)["subnet"]
    tags = [{"Key": k, "Value": v} for k, v in {**TAGS, "Name": given.key}.items()]
    ec2.connection.call(
        "create_volume", "us-east-1", AvailabilityZone="us-east-1a", Size=1,
        TagSpecifications=[{"ResourceType": "volume", "Tags": tags}],
    )  # fmt: skip
    ec2.connection.call(
        "create_network_interface", "us-east-1", SubnetId=subnet,
        TagSpecifications=[{"ResourceType": "network-interface", "Tags": tags}],
    )  # fmt: skip
    assert set(double.objects()) == {"volumes", "network_interfaces", "security_groups"}
    assert ec2.sweep("us-east-1", "", given.key, TAGS) == []
    assert double.objects() == {}


def test_what_is_not_ours_is_not_swept(double: Double, ec2: Ec2) -> None:
    given = order()
    ec2.prepare(given)
    ec2.sweep("us-east-1", "", given.key, {**TAGS, "drydock-installation": "another"})
    ec2.sweep("us-east-1", "", order().key, TAGS)
    assert double.objects() == {"security_groups": [given.key]}


def test_a_delete_whose_answer_was_lost_is_repeated(double: Double, ec2: Ec2) -> None:
    given = order()
    instance = made(ec2, given)
    double.plan.lose("TerminateInstances")
    with pytest.raises(CloudError) as caught:
        ec2.terminate(instance)
    assert caught.value.meaning is Meaning.AMBIGUOUS
    ec2.terminate(instance)
    double.plan.lose("DeleteSecurityGroup")
    with pytest.raises(CloudError):
        ec2.sweep("us-east-1", "", given.key, TAGS)
    assert ec2.sweep("us-east-1", "", given.key, TAGS) == []
    assert double.objects() == {}


def test_one_that_ec2_does_not_know_is_gone(ec2: Ec2) -> None:
    instance = dataclasses.replace(made(ec2, order()), id="i-00000000000000000", key="dd-abc-1-r0")
    ec2.terminate(instance)
    assert ec2.instance("us-east-1", "", instance.key, instance.id) is None
    assert ec2.instance("us-east-1", "", "", instance.id) is None


def test_not_found_by_id_is_no_proof(double: Double, ec2: Ec2) -> None:
    instance = made(ec2, order())
    double.plan.add(Fault(action="DescribeInstances", code="InvalidInstanceID.NotFound", message="x"))
    assert again(ec2, instance).id == instance.id


def test_an_outage_is_no_absence(double: Double, ec2: Ec2) -> None:
    instance = made(ec2, order())
    double.plan.fail("DescribeInstances", times=None)
    with pytest.raises(CloudError) as caught:
        ec2.instance("us-east-1", "", instance.key, instance.id)
    assert caught.value.meaning is Meaning.UNAVAILABLE


def test_a_malformed_id_is_our_fault(ec2: Ec2) -> None:
    with pytest.raises(CloudError) as caught:
        ec2.terminate(dataclasses.replace(made(ec2, order()), id="i-nonsense"))
    assert caught.value.meaning is Meaning.INVALID


def test_the_guest_ends_itself_where_it_shall(double: Double, ec2: Ec2) -> None:
    given = order(ends_after=60.0)
    instance = made(ec2, given)
    assert again(ec2, instance).state is Lifecycle.RUNNING
    double.power_off(instance.id)
    assert again(ec2, instance).state is Lifecycle.TERMINATED
    assert not again(ec2, instance).preempted
    assert ec2.sweep("us-east-1", "", given.key, TAGS) == []
    assert double.objects() == {}
    other = made(ec2, order())
    assert again(ec2, other).state is Lifecycle.RUNNING
    double.power_off(other.id)
    assert again(ec2, other).state is Lifecycle.STOPPED
    assert "Client.InstanceInitiatedShutdown" in again(ec2, other).reason
