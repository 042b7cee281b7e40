"""What there is to be had: regions, types with prices, images, limits; page by page."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Confidential, Gpu, InstanceType, Market
from blueprints.ec2 import config, market
from blueprints.ec2.client import Ec2
from tests.clouds.ec2.double import Double
from tests.clouds.ec2.orders import DEBIAN, TAGS, made, order
from tests.clouds.ec2.plan import Fault
from tests.clouds.ec2.strict import TYPES, spot_price


@pytest.fixture
def types(ec2: Ec2) -> dict[str, InstanceType]:
    return {one.name: one for one in ec2.types("us-east-1")}


def test_who_we_are(double: Double, ec2: Ec2) -> None:
    assert ec2.identity() == double.account


def test_regions_as_far_as_they_are_allowed(double: Double) -> None:
    found = Ec2(double.credential(regions=("eu-west-1", "us-east-1"))).locations()
    assert [one.name for one in found] == ["eu-west-1", "us-east-1"]
    ireland = found[0]
    assert (ireland.country, ireland.description, ireland.available) == ("IE", "Europe (Ireland)", True)
    assert ireland.zones == ("eu-west-1a", "eu-west-1b", "eu-west-1c")


def test_a_region_that_is_forbidden_is_told_and_an_outage_is_not_that(double: Double) -> None:
    ec2 = Ec2(double.credential(regions=("us-east-1",)))
    double.plan.add(Fault(action="DescribeAvailabilityZones", code="UnauthorizedOperation", message="x", status=403))
    assert [(one.name, one.available, one.zones) for one in ec2.locations()] == [("us-east-1", False, ())]
    double.plan.fail("DescribeAvailabilityZones", times=None)
    with pytest.raises(CloudError) as caught:
        ec2.locations()
    assert caught.value.meaning is Meaning.UNAVAILABLE


def test_a_type(types: dict[str, InstanceType]) -> None:
    one = types["m6a.large"]
    assert one.id == "us-east-1/m6a.large"
    assert (one.vcpus, one.ram_mib, one.arch, one.family) == (2, 8192, "x86_64", "standard")
    assert one.confidential == {Confidential.SEV_SNP}
    assert one.available
    assert "us-east-1a" in one.zones
    assert "Gigabit" in one.network
    assert types["m6g.large"].arch == "arm64"
    assert types["t3.micro"].confidential == frozenset()


def test_macs_are_left_out_and_nothing_else_is(types: dict[str, InstanceType]) -> None:
    assert set(types) == set(TYPES) - {"mac2.metal"}


def test_accelerators(types: dict[str, InstanceType]) -> None:
    assert types["g4dn.xlarge"].gpus == (Gpu(maker="nvidia", model="t4", count=1, memory_mib=16384),)
    assert types["p5.48xlarge"].gpus == (Gpu(maker="nvidia", model="h100", count=8, memory_mib=81920),)
    assert types["inf1.xlarge"].gpus == (Gpu(maker="aws", model="inferentia", count=1, memory_mib=8192),)
    assert types["trn1.2xlarge"].gpus == (Gpu(maker="aws", model="trainium", count=1, memory_mib=32768),)
    assert types["m5.large"].gpus == ()


def test_disks_of_its_own_are_in_gib(types: dict[str, InstanceType]) -> None:
    assert types["g4dn.xlarge"].local_disk_gib == 116
    assert types["t3.micro"].local_disk_gib == 0


@pytest.mark.parametrize(
    ("name", "family"),
    [
        ("t3.micro", "standard"), ("im4gn.large", "standard"), ("is4gen.large", "standard"), ("g5.xlarge", "g"),
        ("gr6.4xlarge", "g"), ("vt1.3xlarge", "g"), ("p4d.24xlarge", "p"), ("p5en.48xlarge", "p5"),
        ("p6-b200.48xlarge", "p6"), ("inf2.xlarge", "inf"), ("trn1.2xlarge", "trn"), ("x2gd.large", "x"),
        ("u-6tb1.metal", "u"), ("u7i-12tb.224xlarge", "u"), ("hpc7a.96xlarge", "hpc"), ("f2.6xlarge", "f"),
        ("dl1.24xlarge", "dl"), ("z1d.large", "standard"),
    ],
)  # fmt: skip
def test_what_quota_counts_a_type_by(name: str, family: str) -> None:
    from blueprints.ec2.market import family_of

    assert family_of(name) == family


def test_ids_are_unique_and_stay(double: Double, ec2: Ec2) -> None:
    first = [one.id for one in ec2.types("us-east-1")]
    second = [one.id for one in Ec2(double.credential()).types("us-east-1")]
    elsewhere = [one.id for one in ec2.types("eu-west-1")]
    assert first == second
    assert len({*first, *elsewhere}) == len(first) + len(elsewhere)


def test_every_price_says_where_it_is_from(types: dict[str, InstanceType]) -> None:
    one = types["m5.large"]
    demand = [price for price in one.prices if price.market is Market.ON_DEMAND]
    assert [(price.per_hour, price.zone) for price in demand] == [(0.096, "")]
    assert demand[0].source.startswith("bundled 20")
    spot = [price for price in one.prices if price.market is Market.SPOT]
    assert {price.zone for price in spot} == set(one.zones)
    assert {price.per_hour for price in spot} == {float(spot_price("m5.large"))}
    assert {price.source for price in spot} == {"provider"}


def test_the_price_list_tells_of_regions_that_the_table_has_not(double: Double, ec2: Ec2) -> None:
    found = {one.name: one for one in ec2.types("eu-west-1")}
    demand = [(p.per_hour, p.source) for p in found["m5.large"].prices if p.market is Market.ON_DEMAND]
    assert demand == [(0.107, "provider")]
    assert not [p for p in found["r5.large"].prices if p.market is Market.ON_DEMAND]
    assert len(double.asked("GetProducts")) == 2
    ec2.types("eu-west-1")
    assert len(double.asked("GetProducts")) == 2


def test_no_permission_for_prices_is_no_lack_of_types(double: Double, ec2: Ec2) -> None:
    for action in ("GetProducts", "DescribeSpotPriceHistory"):
        double.plan.add(Fault(action=action, code="AccessDeniedException", message="x", times=None))
    found = ec2.types("eu-west-2")
    assert found
    assert {one.prices for one in found} == {()}
    assert Ec2(double.credential(price_list=False)).types("eu-west-2")
    assert len(double.asked("GetProducts")) == 1


def test_a_price_table_of_the_operator(double: Double, tmp_path: Path) -> None:
    path = tmp_path / "prices.json"
    path.write_text(json.dumps({"date": "2026-01-31", "regions": {"us-east-1": {"m5.large": 0.05}}}))
    found = {one.name: one for one in Ec2(double.credential(prices=str(path))).types("us-east-1")}
    (demand,) = [price for price in found["m5.large"].prices if price.market is Market.ON_DEMAND]
    assert (demand.per_hour, demand.source) == (0.05, "table 2026-01-31")
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(CloudError) as caught:
        Ec2(double.credential(prices=str(tmp_path / "bad.json"))).types("us-east-1")
    assert caught.value.meaning is Meaning.INVALID


def test_the_bundled_table_is_whole() -> None:
    bundled = market.table()
    assert len(bundled.regions["us-east-1"]) > 1000
    assert all(0 < price < 1000 for region in bundled.regions.values() for price in region.values())


def test_types_come_in_pages(double: Double, ec2: Ec2, types: dict[str, InstanceType]) -> None:
    double.page = 7
    before = len(double.asked("DescribeInstanceTypes"))
    assert {one.name: one for one in ec2.types("us-east-1")} == types
    assert len(double.asked("DescribeInstanceTypes")) - before == 3


def test_instances_come_in_pages_and_by_tags(double: Double, ec2: Ec2) -> None:
    ids = {made(ec2, order()).id for _ in range(5)}
    made(ec2, order(tags={"drydock-installation": "another"}))
    double.page = 2
    found = ec2.instances("us-east-1", TAGS)
    assert {one.id for one in found} == ids
    assert len(double.asked("DescribeInstances")) == 3
    assert all(one.tags.items() >= TAGS.items() for one in found)
    assert ec2.instances("eu-west-1", TAGS) == []


def test_the_newest_image_of_whom_it_shall_be(ec2: Ec2) -> None:
    image = ec2.image("us-east-1", {}, "x86_64")
    assert (image.id, image.name, image.disk_gib) == (DEBIAN, "debian-12-amd64-20250814-2204", 15)
    assert ec2.image("us-east-1", {}, "arm64").name == "debian-12-arm64-20250814-2204"
    wanted = {"name": "ubuntu/images/hvm-ssd-gp3/ubuntu-noble-24.04-{arch}-server-*", "owner": config.UBUNTU}
    assert "noble" in ec2.image("us-east-1", wanted, "x86_64").name
    assert ec2.image("us-east-1", {"id": DEBIAN}, "x86_64").id == DEBIAN


@pytest.mark.parametrize(
    ("wanted", "arch", "meaning", "words"),
    [
        ({"name": "plan9-*"}, "x86_64", Meaning.NOT_FOUND, "plan9-*"),
        ({"id": DEBIAN}, "arm64", Meaning.NOT_FOUND, "arm64"),
        ({"id": "ami-00000000000000000"}, "x86_64", Meaning.NOT_FOUND, "ami-00000000000000000"),
        ({"nmae": "x"}, "x86_64", Meaning.INVALID, "nmae"),
    ],
)
def test_no_image(ec2: Ec2, wanted: dict[str, str], arch: str, meaning: Meaning, words: str) -> None:
    with pytest.raises(CloudError) as caught:
        ec2.image("us-east-1", wanted, arch)
    assert caught.value.meaning is meaning
    assert words in caught.value.message


def test_images_are_looked_through(ec2: Ec2) -> None:
    names = [one.name for one in ec2.images("us-east-1", "debian-12-amd64-*")]
    assert names == ["debian-12-amd64-20250814-2204", "debian-12-amd64-20240201-1644"]


def test_limits_and_what_is_used_by_whomever(double: Double, ec2: Ec2) -> None:
    made(ec2, order(type="t3.micro"))
    made(ec2, order(type="g4dn.xlarge", market=Market.SPOT))
    ec2.stop(made(ec2, order(type="m5.xlarge")))
    ec2.connection.call(
        "run_instances", "us-east-1", ImageId=DEBIAN, InstanceType="m5.large", MinCount=2, MaxCount=2
    )  # of somebody else in the account
    found = {(one.market, one.family): one for one in ec2.quotas("us-east-1")}
    assert (found[Market.ON_DEMAND, "standard"].limit, found[Market.ON_DEMAND, "standard"].used) == (64.0, 6.0)
    assert (found[Market.SPOT, "g"].limit, found[Market.SPOT, "g"].used) == (0.0, 4.0)
    assert found[Market.ON_DEMAND, "g"].used == 0.0
    assert {one.unit for one in found.values()} == {"vcpus"}
    assert {family for market, family in found if market is Market.ON_DEMAND} == {"standard", "g", "p", "p5", "p6"}
    assert len(double.asked("ListServiceQuotas")) == 2
