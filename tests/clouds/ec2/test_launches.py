"""A launch: what is asked for, that it happens once, and what its failures mean."""

from __future__ import annotations

import base64
import dataclasses
from concurrent.futures import ThreadPoolExecutor

import pytest

from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Confidential, Lifecycle, Market
from blueprints.ec2.client import Ec2
from blueprints.ec2.kind import Config
from tests.clouds.ec2.double import Double
from tests.clouds.ec2.orders import TAGS, again, made, order
from tests.clouds.ec2.plan import Fault


def _asked(double: Double) -> dict[str, str]:
    return dict(double.asked("RunInstances")[-1].parameters)


def test_an_instance_is_as_ordered_and_comes_up(double: Double, ec2: Ec2) -> None:
    double.pending = 3600.0
    given = order(disk_gib=40)
    instance = made(ec2, given)
    assert (instance.key, instance.zone, instance.type) == (given.key, "us-east-1a", "t3.micro")
    assert instance.state is Lifecycle.PENDING
    assert again(ec2, instance).state is Lifecycle.PENDING
    assert again(ec2, instance).public_address == ""
    double.pending = 0.0
    other = again(ec2, made(ec2, order()))
    assert other.state is Lifecycle.RUNNING
    assert other.public_address == other.private_address
    assert other.public_address.startswith("127.20.")
    assert other.created_at is not None
    assert other.created_at.tzinfo is not None


def test_what_is_asked_for(double: Double, ec2: Ec2) -> None:
    given = order(disk_gib=40, ends_after=3600.0)
    made(ec2, given)
    asked = _asked(double)
    assert base64.b64decode(asked["UserData"]).decode() == given.user_data
    assert asked["InstanceInitiatedShutdownBehavior"] == "terminate"
    assert asked["MetadataOptions.HttpTokens"] == "required"
    assert asked["BlockDeviceMapping.1.DeviceName"] == "/dev/xvda"
    assert asked["BlockDeviceMapping.1.Ebs.VolumeSize"] == "40"
    assert asked["BlockDeviceMapping.1.Ebs.Encrypted"] == "true"
    assert asked["BlockDeviceMapping.1.Ebs.DeleteOnTermination"] == "true"
    assert asked["NetworkInterface.1.AssociatePublicIpAddress"] == "true"
    assert asked["ClientToken"].startswith(f"{given.key}.")
    assert len(asked["ClientToken"]) <= 64
    assert "InstanceMarketOptions.MarketType" not in asked
    assert "CpuOptions.AmdSevSnp" not in asked


def test_without_an_end_the_guest_may_be_switched_off(double: Double, ec2: Ec2) -> None:
    made(ec2, order())
    assert "InstanceInitiatedShutdownBehavior" not in _asked(double)


def test_a_disk_is_never_smaller_than_the_image(double: Double, ec2: Ec2) -> None:
    made(ec2, order(disk_gib=1))
    assert _asked(double)["BlockDeviceMapping.1.Ebs.VolumeSize"] == "15"


def test_everything_bears_the_tags(double: Double, ec2: Ec2) -> None:
    given = order(market=Market.SPOT)
    instance = made(ec2, given)
    left = double.objects()
    assert set(left) == {"instances", "volumes", "network_interfaces", "security_groups", "spot_requests"}
    group = ec2.prepare(given)["group"]
    things = [instance.id, *left["volumes"], *left["network_interfaces"], *left["spot_requests"], group]
    assert len(things) == 5
    for thing in things:
        assert double.tags(thing).items() >= {**TAGS, "Name": given.key}.items(), thing


def test_spot_is_one_time_and_ends_when_it_is_taken_back(double: Double, ec2: Ec2) -> None:
    instance = made(ec2, order(market=Market.SPOT))
    asked = _asked(double)
    assert asked["InstanceMarketOptions.MarketType"] == "spot"
    assert asked["InstanceMarketOptions.SpotOptions.SpotInstanceType"] == "one-time"
    assert asked["InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior"] == "terminate"
    assert again(ec2, instance).market is Market.SPOT
    assert not again(ec2, instance).preempted
    double.preempt(instance.id)
    taken = again(ec2, instance)
    assert taken.preempted
    assert taken.state in (Lifecycle.TERMINATING, Lifecycle.TERMINATED)
    assert "Server.SpotInstanceTermination" in taken.reason


def test_a_confidential_guest(double: Double, ec2: Ec2) -> None:
    made(ec2, order(type="m6a.large", confidential=Confidential.SEV_SNP))
    assert _asked(double)["CpuOptions.AmdSevSnp"] == "enabled"


@pytest.mark.parametrize(("type_", "wanted"), [("t3.micro", Confidential.SEV_SNP), ("m6a.large", Confidential.TDX)])
def test_what_has_no_confidential_guests_is_not_offered(ec2: Ec2, type_: str, wanted: Confidential) -> None:
    with pytest.raises(CloudError) as caught:
        made(ec2, order(type=type_, confidential=wanted))
    assert caught.value.meaning is Meaning.NOT_OFFERED


def test_no_public_address_where_none_is_wanted(ec2: Ec2) -> None:
    instance = again(ec2, made(ec2, order(public_address=False)))
    assert instance.public_address == ""
    assert instance.private_address


def test_ec2_chooses_the_zone_where_none_is_named(ec2: Ec2) -> None:
    given = order(zone="")
    assert again(ec2, made(ec2, given)).zone.startswith("us-east-1")
    with pytest.raises(CloudError) as caught:
        ec2.prepare(dataclasses.replace(given, public_address=False))
    assert caught.value.meaning is Meaning.INVALID


def test_a_subnet_of_the_operator(double: Double, ec2: Ec2) -> None:
    prepared = ec2.prepare(order(zone="us-east-1b"))
    given = order(zone="us-east-1b", network=prepared["subnet"])
    assert made(ec2, given).zone == "us-east-1b"
    with pytest.raises(CloudError) as caught:
        ec2.prepare(order(zone="us-east-1a", network=prepared["subnet"]))
    assert (caught.value.meaning, caught.value.zone_wide) == (Meaning.NOT_OFFERED, True)


def test_the_same_token_makes_one_instance(double: Double, ec2: Ec2) -> None:
    given = order()
    prepared = ec2.prepare(given)
    first = ec2.create(given, prepared)
    assert ec2.create(given, prepared).id == first.id
    assert ec2.prepare(given) == prepared
    assert double.objects()["instances"] == [first.id]
    assert len(double.objects()["security_groups"]) == 1


def test_the_same_token_at_once_makes_one_instance(double: Double, ec2: Ec2) -> None:
    given = order()
    prepared = ec2.prepare(given)
    with ThreadPoolExecutor(8) as threads:
        ids = {future.result().id for future in [threads.submit(ec2.create, given, prepared) for _ in range(8)]}
    assert double.objects()["instances"] == list(ids)


def test_another_token_is_another_instance(double: Double, ec2: Ec2) -> None:
    given = order()
    first = made(ec2, given)
    second = made(ec2, dataclasses.replace(given, token="another attempt"))
    assert first.id != second.id
    assert second.key == given.key


def test_one_token_for_two_orders_is_refused(double: Double, ec2: Ec2) -> None:
    given = order()
    prepared = ec2.prepare(given)
    ec2.create(given, prepared)
    with pytest.raises(CloudError) as caught:
        ec2.create(dataclasses.replace(given, type="t3.medium"), prepared)
    assert caught.value.provider_code == "IdempotentParameterMismatch"
    assert caught.value.meaning is Meaning.INVALID


def test_the_token_of_one_that_has_ended_shows_its_end(ec2: Ec2) -> None:
    given = order()
    instance = made(ec2, given)
    ec2.terminate(instance)
    found = ec2.create(given, ec2.prepare(given))
    assert found.id == instance.id
    assert found.state in (Lifecycle.TERMINATING, Lifecycle.TERMINATED)


def test_a_lost_answer_is_ambiguous_and_the_instance_is_found(double: Double, ec2: Ec2) -> None:
    given = order()
    prepared = ec2.prepare(given)
    assert ec2.find(given) is None
    double.plan.lose("RunInstances")
    with pytest.raises(CloudError) as caught:
        ec2.create(given, prepared)
    assert caught.value.meaning is Meaning.AMBIGUOUS
    assert len(double.asked("RunInstances")) == 1
    found = ec2.find(given)
    assert found is not None
    assert double.objects()["instances"] == [found.id]
    assert ec2.create(given, prepared).id == found.id


@pytest.mark.parametrize("happens", [False, True])
def test_a_server_error_is_ambiguous(double: Double, ec2: Ec2, happens: bool) -> None:
    given = order()
    prepared = ec2.prepare(given)
    double.plan.fail("RunInstances", happens=happens)
    with pytest.raises(CloudError) as caught:
        ec2.create(given, prepared)
    assert caught.value.meaning is Meaning.AMBIGUOUS
    assert (ec2.find(given) is not None) is happens


def test_find_sees_only_what_this_attempt_has_made(ec2: Ec2) -> None:
    given = order()
    made(ec2, given)
    assert ec2.find(dataclasses.replace(given, token="never sent")) is None


def test_find_goes_by_name_where_the_filter_for_tokens_lags(
    double: Double, ec2: Ec2, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = order()
    instance = made(ec2, given)
    from moto.ec2 import utils

    monkeypatch.setitem(utils.filter_dict_attribute_mapping, "client-token", "id")
    found = ec2.find(given)
    assert found is not None
    assert found.id == instance.id


@pytest.mark.parametrize(
    ("code", "status", "meaning"),
    [
        ("InsufficientInstanceCapacity", 500, Meaning.NO_CAPACITY),
        ("SpotMaxPriceTooLow", 400, Meaning.NO_CAPACITY),
        ("VcpuLimitExceeded", 400, Meaning.QUOTA),
        ("MaxSpotInstanceCountExceeded", 400, Meaning.QUOTA),
        ("RequestLimitExceeded", 503, Meaning.THROTTLED),
        ("AuthFailure", 401, Meaning.CREDENTIALS),
        ("UnauthorizedOperation", 403, Meaning.CREDENTIALS),
        ("Unsupported", 400, Meaning.NOT_OFFERED),
        ("InvalidParameterValue", 400, Meaning.INVALID),
        ("InvalidSubnetID.NotFound", 400, Meaning.NOT_FOUND),
        ("NeverHeardOf", 400, Meaning.OTHER),
        ("NeverHeardOf", 500, Meaning.AMBIGUOUS),
    ],
)
def test_what_a_refusal_means(double: Double, ec2: Ec2, code: str, status: int, meaning: Meaning) -> None:
    given = order()
    prepared = ec2.prepare(given)
    double.plan.add(Fault(action="RunInstances", code=code, message="In EC2's own words.", status=status))
    with pytest.raises(CloudError) as caught:
        ec2.create(given, prepared)
    assert (caught.value.meaning, caught.value.provider_code) == (meaning, code)
    assert "In EC2's own words." in caught.value.message
    assert "instances" not in double.objects()


def test_capacity_lacks_in_one_zone_only(double: Double, ec2: Ec2) -> None:
    double.plan.no_capacity(type="t3.micro", zone="us-east-1a")
    with pytest.raises(CloudError) as caught:
        made(ec2, order())
    assert caught.value.meaning is Meaning.NO_CAPACITY
    assert not caught.value.zone_wide
    assert made(ec2, order(zone="us-east-1b")).zone == "us-east-1b"
    assert made(ec2, order(type="t3.medium")).type == "t3.medium"


def test_a_type_that_a_zone_has_not_is_not_offered(ec2: Ec2) -> None:
    with pytest.raises(CloudError) as caught:
        made(ec2, order(type="m5.large", zone="us-east-1e"))
    assert caught.value.meaning is Meaning.NOT_OFFERED


def test_the_image_must_be_there(ec2: Ec2) -> None:
    with pytest.raises(CloudError) as caught:
        ec2.prepare(order(image="ami-00000000000000000"))
    assert caught.value.meaning is Meaning.NOT_FOUND


@pytest.mark.parametrize("key", ["x" * 44, "Not.DNS"])
def test_a_name_that_does_not_fit_is_refused(ec2: Ec2, key: str) -> None:
    with pytest.raises(CloudError) as caught:
        ec2.find(order(key=key))
    assert caught.value.meaning is Meaning.INVALID


def test_a_copy_is_not_under_our_name(double: Double, ec2: Ec2) -> None:
    instance = made(ec2, order())
    tags = [{"Key": k, "Value": v} for k, v in instance.tags.items()]
    copy = ec2.connection.call(
        "run_instances", "us-east-1", ImageId=instance.image, InstanceType="t3.micro", MinCount=1, MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )  # fmt: skip
    keys = {one.id: one.key for one in ec2.instances("us-east-1", TAGS)}
    assert keys == {instance.id: instance.key, copy["Instances"][0]["InstanceId"]: ""}


@pytest.mark.parametrize("type_", ["t3.micro", "t3.medium", "t2.micro"])
def test_a_burstable_type_gets_standard_credits(double: Double, ec2: Ec2, type_: str) -> None:
    made(ec2, order(type=type_))
    assert _asked(double)["CreditSpecification.CpuCredits"] == "standard"


def test_unlimited_credits_are_the_operators_to_choose(double: Double, ec2: Ec2) -> None:
    config = Config(credential="account", cpu_credits="unlimited")
    made(ec2, order(options=config.options()))
    assert _asked(double)["CreditSpecification.CpuCredits"] == "unlimited"
    made(ec2, order(type="m5.large"))
    assert "CreditSpecification.CpuCredits" not in _asked(double)


def test_a_maximum_price_reaches_the_spot_market(double: Double, ec2: Ec2) -> None:
    made(ec2, order(market=Market.SPOT, max_price=0.1))
    assert _asked(double)["InstanceMarketOptions.SpotOptions.MaxPrice"] == "0.1"
    made(ec2, order(market=Market.SPOT))
    assert "InstanceMarketOptions.SpotOptions.MaxPrice" not in _asked(double)
    with pytest.raises(CloudError) as caught:
        made(ec2, order(market=Market.SPOT, max_price=0.0001))
    assert caught.value.meaning is Meaning.NO_CAPACITY
