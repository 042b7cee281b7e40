"""What there is to be had: sizes, prices, limits, images, places."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from blueprints.azure.client import Azure
from blueprints.azure.config import Credential, Image
from blueprints.azure.market import BUNDLED, confidential, gpus, table
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Confidential, Gpu, InstanceType, Location, Market, Price
from tests.clouds.azure.catalogue import LOCATIONS, SIZES
from tests.clouds.azure.conftest import Bench, order
from tests.clouds.azure.double import AzureDouble


@pytest.fixture
def types(bench: Bench) -> dict[str, InstanceType]:
    return {one.id: one for one in bench.azure.types("")}


def test_the_sizes_of_all_locations_come_in_one_listing(bench: Bench, types: dict[str, InstanceType]) -> None:
    assert len(types) == len(SIZES) * len(LOCATIONS)
    again = list(bench.azure.types(""))
    assert again == list(types.values())
    assert [one.id for one in again] == sorted(types)
    assert [one for one in again if one.location == "eastus"] == list(bench.azure.types("eastus"))
    assert bench.azure.types("nowhere") == []


def test_a_size_and_what_it_has(types: dict[str, InstanceType]) -> None:
    found = types["eastus/Standard_D4ds_v5"]
    assert (found.vcpus, found.ram_mib, found.arch, found.local_disk_gib) == (4, 16384, "x86_64", 150)
    assert (found.zones, found.family, found.available) == (("1", "2", "3"), "standardddsv5family", True)
    assert found.gpus == ()
    assert types["eastus/Standard_D2ps_v5"].arch == "arm64"
    assert types["westcentralus/Standard_D2s_v5"].zones == ()


def test_what_this_subscription_may_not_have(types: dict[str, InstanceType]) -> None:
    assert not types["westeurope/Standard_ND96isr_H100_v5"].available
    assert types["eastus/Standard_ND96isr_H100_v5"].available
    limited = types["eastus/Standard_NC24ads_A100_v4"]
    assert (limited.available, limited.zones) == (True, ("1",))


def test_accelerators(types: dict[str, InstanceType]) -> None:
    def of(name: str) -> tuple[Gpu, ...]:
        return types[f"eastus/Standard_{name}"].gpus

    assert of("NC4as_T4_v3") == (Gpu(maker="nvidia", model="t4", count=1, memory_mib=16384),)
    assert of("NC24ads_A100_v4") == (Gpu(maker="nvidia", model="a100", count=1, memory_mib=81920),)
    assert of("ND96isr_H100_v5") == (Gpu(maker="nvidia", model="h100", count=8, memory_mib=81920),)
    assert of("NV6ads_A10_v5") == (Gpu(maker="nvidia", model="a10", count=1, memory_mib=4096),)


@pytest.mark.parametrize(
    ("size", "model"),
    [
        ("Standard_NC40ads_H100_v5", "h100"),
        ("Standard_ND96isr_H200_v5", "h200"),
        ("Standard_ND96isr_MI300X_v5", "mi300x"),
        ("Standard_ND96asr_v4", "a100"),
        ("Standard_ND96amsr_A100_v4", "a100"),
        ("Standard_NC6s_v3", "v100"),
        ("Standard_NC999_new", "unknown"),
    ],
)
def test_accelerators_by_the_sizes_name(size: str, model: str) -> None:
    assert [one.model for one in gpus(size, "1")] == [model]
    assert gpus(size, "") == gpus(size, "0") == ()


def test_confidential_technologies(types: dict[str, InstanceType]) -> None:
    found = {one.name: set(one.confidential) for one in types.values() if one.confidential}
    assert found == {
        "Standard_DC2as_v5": {Confidential.SEV_SNP},
        "Standard_DC4as_v5": {Confidential.SEV_SNP},
        "Standard_EC4as_v5": {Confidential.SEV_SNP},
        "Standard_DC2es_v6": {Confidential.TDX},
    }


@pytest.mark.parametrize(
    ("size", "technology"),
    [
        ("Standard_DC4ads_v5", Confidential.SEV_SNP),
        ("Standard_EC96ias_v5", Confidential.SEV_SNP),
        ("Standard_DC4as_v6", Confidential.SEV_SNP),
        ("Standard_EC8eds_v6", Confidential.TDX),
        ("Standard_DC2s_v3", None),
        ("Standard_DC2ds_v3", None),
        ("Standard_DC4as_cc_v5", None),
        ("Standard_D4as_v5", None),
    ],
)
def test_confidential_by_the_sizes_name(size: str, technology: Confidential | None) -> None:
    assert confidential(size, "") == ({technology} if technology else set())


def test_prices_are_the_bundled_ones_and_say_so(types: dict[str, InstanceType]) -> None:
    date = json.loads(BUNDLED.read_text())["read_at"]
    assert types["eastus/Standard_D2s_v5"].prices == (
        Price(market=Market.ON_DEMAND, per_hour=0.096, source=f"bundled {date}"),
        Price(market=Market.SPOT, per_hour=0.096, source=f"bundled {date}, at most"),
    )
    assert [one.market for one in types["eastus/Standard_B1s"].prices] == [Market.ON_DEMAND]
    assert types["westeurope/Standard_D2s_v5"].prices[0].per_hour == 0.115
    assert types["westcentralus/Standard_D2s_v5"].prices == ()


def test_the_bundled_table_is_whole() -> None:
    given = json.loads(BUNDLED.read_text())
    assert BUNDLED.stat().st_size < 150_000
    assert "Azure Retail Prices API" in given["source"]
    figures = [one for row in given["on_demand"].values() for one in row if one is not None]
    assert len(figures) > 10_000
    assert all(0 < one < 1000 for one in figures)


def test_a_table_of_ones_own(double: AzureDouble, tmp_path: Path) -> None:
    own = tmp_path / "own.json"
    own.write_text(json.dumps({"read_at": "2026-01-01", "locations": ["eastus"], "on_demand": {"D2s_v5": [0.5]},
                               "spot": {"D2s_v5": [0.1]}}))  # fmt: skip
    azure = Azure(Credential(**double.credential(prices=str(own))))
    found = next(one for one in azure.types("eastus") if one.name == "Standard_D2s_v5")
    azure.close()
    assert [(one.market, one.per_hour, one.source) for one in found.prices] == [
        (Market.ON_DEMAND, 0.5, "own.json 2026-01-01"),
        (Market.SPOT, 0.1, "own.json 2026-01-01"),
    ]


@pytest.mark.parametrize("text", ["", "[]", '{"read_at": "x", "locations": ["a"], "on_demand": {"b": []}}'])
def test_a_table_that_cannot_be_read(tmp_path: Path, text: str) -> None:
    path = tmp_path / "prices.json"
    path.write_text(text)
    with pytest.raises(CloudError, match="cannot be read") as caught:
        table(str(path))
    assert caught.value.meaning is Meaning.INVALID


def test_the_locations(bench: Bench) -> None:
    assert bench.azure.locations() == [
        Location(name="eastus", description="East US", zones=("1", "2", "3"), country="US"),
        Location(name="westcentralus", description="West Central US", country="US"),
        Location(name="westeurope", description="West Europe", zones=("1", "2", "3"), country="NL"),
    ]


def test_the_limits_and_what_is_used_of_them(bench: Bench) -> None:
    bench.made()
    bench.made(order(key="dd-two", token="attempt-2", market=Market.SPOT, type="Standard_D4s_v5"))
    found = {(one.family or one.unit, one.market): one for one in bench.azure.quotas("eastus")}

    assert (found["vcpus", Market.ON_DEMAND].used, found["vcpus", Market.ON_DEMAND].limit) == (2, 100)
    assert found["vcpus", Market.SPOT].used == 4
    assert (found["instances", None].used, found["instances", None].limit) == (2, 25_000)
    assert found["standarddsv5family", Market.ON_DEMAND].used == 2
    families = {one.family for one in bench.azure.types("eastus")}
    assert families == {one.family for one in found.values() if one.family}
    assert {one.location for one in bench.azure.quotas("")} == set(LOCATIONS)


def test_the_newest_image(bench: Bench) -> None:
    assert bench.azure.image("eastus", {}, "x86_64").id == "Debian:debian-12:12-gen2:0.20260601.2600"
    assert bench.azure.image("eastus", {}, "arm64").id == "Debian:debian-12:12-arm64:0.20260601.2600"
    fixed = bench.azure.image("eastus", {"sku": "12", "version": "0.20251112.2300"}, "x86_64")
    assert fixed.id == "Debian:debian-12:12:0.20251112.2300"
    own = "/subscriptions/x/resourceGroups/y/providers/Microsoft.Compute/images/golden"
    assert bench.azure.image("eastus", {"id": own}, "x86_64").id == own
    named = bench.azure.image("eastus", {"id": "Debian:debian-12:12:latest"}, "x86_64")
    assert named.id == "Debian:debian-12:12:0.20260601.2600"
    assert Image().wanted() == {"publisher": "Debian", "offer": "debian-12", "version": "latest"}


def test_an_image_that_is_not_there(bench: Bench) -> None:
    wanted = {"publisher": "Canonical", "offer": "ubuntu", "sku": "server"}
    with pytest.raises(CloudError, match="eastus has no image Canonical:ubuntu:server") as caught:
        bench.azure.image("eastus", wanted, "x86_64")
    assert caught.value.meaning is Meaning.NOT_FOUND
    with pytest.raises(CloudError) as caught:
        bench.azure.image("eastus", {"colour": "red"}, "x86_64")
    assert caught.value.meaning is Meaning.INVALID


def test_looking_through_images(bench: Bench) -> None:
    found = [one.id for one in bench.azure.images("eastus", "Debian:debian-12:12*")]
    assert len(found) == 12
    assert found[0].endswith(":0.20260601.2600")
    assert found[-1].endswith(":0.20251112.2300")
    assert [one.name for one in bench.azure.images("eastus", "golden-*")] == ["golden-2", "golden-1"]
    assert bench.azure.images("westeurope", "golden-*") == []


def test_a_size_that_azure_does_not_have(bench: Bench) -> None:
    with pytest.raises(CloudError, match="does not offer Standard_X1 in eastus") as caught:
        bench.azure.prepare(order(type="Standard_X1"))
    assert caught.value.meaning is Meaning.NOT_OFFERED
