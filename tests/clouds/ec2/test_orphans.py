"""What stands without its machine is listed by its tags."""

from __future__ import annotations

import dataclasses

from blueprints.cloud.inventory import owned
from blueprints.cloud.values import Market
from blueprints.ec2.client import Ec2
from tests.clouds.ec2.double import Double
from tests.clouds.ec2.orders import TAGS, made, order

OURS = {"drydock-installation": "abc"}


def test_a_security_group_without_its_machine_is_listed(double: Double, ec2: Ec2) -> None:
    given = order()
    group = ec2.prepare(given)["group"]
    ec2.prepare(order(tags={**TAGS, "drydock-installation": "another"}))
    (found,) = ec2.remains("us-east-1", OURS)
    assert (found.what, found.id, found.key, found.named) == ("security group", group, given.key, True)
    assert found.tags == {**TAGS, "Name": given.key}
    (one,) = owned(ec2, ["us-east-1"], OURS)
    assert (one.key, one.what) == (given.key, "security group")
    assert one.facts == {"location": "us-east-1", "zone": "", "things": [f"security group {group}"]}


def test_a_volume_and_a_network_card_that_nothing_uses_are_listed(double: Double, ec2: Ec2) -> None:
    tags = [{"Key": name, "Value": value} for name, value in {**TAGS, "Name": "dd-abc-1-r7"}.items()]
    volume = ec2.connection.call(
        "create_volume", "us-east-1", AvailabilityZone="us-east-1a", Size=8,
        TagSpecifications=[{"ResourceType": "volume", "Tags": tags}],
    )["VolumeId"]  # fmt: skip
    (found,) = ec2.remains("us-east-1", OURS)
    assert (found.what, found.id, found.key, found.zone) == ("volume", volume, "dd-abc-1-r7", "us-east-1a")
    assert found.created_at
    assert not found.named, "a volume made of a snapshot of ours may bear our tags"
    (one,) = owned(ec2, ["us-east-1"], OURS)
    assert (one.key, one.named) == ("dd-abc-1-r7", False)
    assert ec2.sweep("us-east-1", "", one.key, TAGS) == []
    assert owned(ec2, ["us-east-1"], OURS) == []


def test_what_belongs_to_a_machine_is_told_with_it(double: Double, ec2: Ec2) -> None:
    given = order(market=Market.SPOT)
    instance = made(ec2, given)
    (one,) = owned(ec2, ["us-east-1"], OURS)
    assert (one.key, one.what, one.facts["market"]) == (given.key, "machine", "spot")
    assert one.since
    double.ending = 3600.0
    ec2.terminate(instance)
    assert owned(ec2, ["us-east-1"], OURS) == [], "it is on its way out, and its things with it"


def test_things_of_one_name_and_another_proof_stand_for_themselves(double: Double, ec2: Ec2) -> None:
    given = order()
    ec2.prepare(given)
    other = dataclasses.replace(given, tags={**TAGS, "drydock-proof": "0"})
    tags = [{"Key": name, "Value": value} for name, value in {**other.tags, "Name": given.key}.items()]
    ec2.connection.call(
        "create_volume", "us-east-1", AvailabilityZone="us-east-1a", Size=8,
        TagSpecifications=[{"ResourceType": "volume", "Tags": tags}],
    )  # fmt: skip
    assert sorted(one.what for one in owned(ec2, ["us-east-1"], OURS)) == ["security group", "volume"]
