"""What there is to be had: regions, types with prices, images, quotas, and lists of many pages."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from blueprints.cloud.client import capabilities
from blueprints.cloud.faults import Meaning
from blueprints.cloud.values import Confidential, InstanceType, Market, Quota
from blueprints.gce.client import Gce
from blueprints.gce.config import Credential
from blueprints.gce.market import table
from drydock.core.errors import InvalidRequest
from tests.clouds.gce import lists
from tests.clouds.gce.conftest import TAGS, made, order, prepared, refused
from tests.clouds.gce.double import Double, Pace


def by_id(types: object) -> dict[str, InstanceType]:
    return {one.id: one for one in types}  # type: ignore[attr-defined]


def test_regions(gce: Gce) -> None:
    found = {one.name: one for one in gce.locations()}
    assert set(found) == {"us-central1", "us-east1", "europe-west4"}
    assert found["europe-west4"].country == "NL"
    assert found["us-east1"].country == "US"
    assert found["us-east1"].zones == ("us-east1-b", "us-east1-c", "us-east1-d")


def test_types_of_all_regions_are_those_of_each(double: Double, gce: Gce) -> None:
    every = by_id(gce.types(""))
    assert len(double.calls("compute.machineTypes.aggregatedList")) == 1
    each = [one for region in ("us-central1", "us-east1", "europe-west4") for one in gce.types(region)]
    assert every == by_id(each)
    assert len(every) == len(each)
    assert all(one.id == f"{one.location}/{one.name}" for one in each)


def test_what_a_type_is(gce: Gce) -> None:
    types = by_id(gce.types("us-central1"))
    usual = types["us-central1/n2-standard-2"]
    assert (usual.vcpus, usual.ram_mib, usual.arch, usual.family) == (2, 8192, "x86_64", "N2_CPUS")
    assert usual.zones == ("us-central1-a", "us-central1-b", "us-central1-c", "us-central1-f")
    assert types["us-central1/t2a-standard-4"].arch == "arm64"
    assert types["us-central1/t2a-standard-4"].zones == ("us-central1-a", "us-central1-b")
    assert types["us-central1/c4-standard-4"].family == "CPUS_PER_VM_FAMILY:C4"
    assert types["us-central1/e2-standard-2"].family == "CPUS"
    local = types["us-central1/c3-standard-4-lssd"]
    assert (local.local_disk_gib, local.stoppable) == (375, False)
    assert "us-central1/f1-micro" not in types


def test_confidential_types(gce: Gce) -> None:
    types = by_id(gce.types("us-central1"))
    assert types["us-central1/n2d-standard-2"].confidential == {Confidential.SEV, Confidential.SEV_SNP}
    assert types["us-central1/c2d-standard-4"].confidential == {Confidential.SEV}
    assert types["us-central1/c3-standard-4"].confidential == {Confidential.TDX}
    assert types["us-central1/a3-highgpu-1g"].confidential == {Confidential.TDX}
    assert not types["us-central1/n2-standard-2"].confidential
    assert not types["us-central1/c3-standard-4-lssd"].confidential


def test_gpus(gce: Gce) -> None:
    types = by_id(gce.types(""))
    (card,) = types["us-central1/n1-standard-8+nvidia-tesla-t4:2"].gpus
    assert (card.maker, card.model, card.count, card.memory_mib) == ("nvidia", "t4", 2, 16384)
    assert types["us-central1/n1-standard-8+nvidia-tesla-t4:2"].zones == ("us-central1-a", "us-central1-b")
    (built_in,) = types["us-central1/a3-highgpu-1g"].gpus
    assert (built_in.model, built_in.memory_mib) == ("h100", 81920)
    assert "us-central1/n1-standard-16+nvidia-tesla-v100:1" not in types
    assert "us-central1/n1-standard-16+nvidia-tesla-v100:2" in types
    assert "us-east1/n1-standard-8+nvidia-tesla-v100:1" not in types


def test_prices_are_marked_and_as_google_lists_them(gce: Gce) -> None:
    types = by_id(gce.types(""))
    prices = {one.market: one for one in types["us-central1/e2-standard-2"].prices}
    assert prices[Market.ON_DEMAND].per_hour == pytest.approx(0.067011, rel=0.002)
    assert prices[Market.SPOT].per_hour < prices[Market.ON_DEMAND].per_hour
    assert all(one.source == "bundled 2026-08-03" for one in prices.values())
    assert types["us-central1/e2-micro"].prices[0].per_hour == pytest.approx(0.00838, rel=0.002)
    assert types["us-central1/a2-highgpu-1g"].prices[0].per_hour == pytest.approx(3.6734, rel=0.002)
    plain = types["us-central1/n1-standard-4"].prices[0].per_hour
    assert types["us-central1/n1-standard-4+nvidia-tesla-t4:2"].prices[0].per_hour == pytest.approx(plain + 0.7)
    assert types["europe-west4/n1-standard-4+nvidia-tesla-v100:1"].prices == ()
    assert (
        types["europe-west4/n2-standard-2"].prices[0].per_hour > types["us-central1/n2-standard-2"].prices[0].per_hour
    )


def test_prices_of_ones_own(double: Double, tmp_path: Path) -> None:
    own = tmp_path / "prices.json"
    own.write_text(json.dumps({"date": "2027-01-01", "types": {"us-east1": {"n2-standard-2": [1.5, 0.5]}}}))
    gce = Gce(Credential(**double.credential, prices=str(own)))
    types = by_id(gce.types("us-east1"))
    assert [(one.per_hour, one.source) for one in types["us-east1/n2-standard-2"].prices] == [
        (1.5, "file 2027-01-01"),
        (0.5, "file 2027-01-01"),
    ]
    assert types["us-east1/n2-standard-4"].prices == ()
    own.write_text("{}")
    table.cache_clear()
    with pytest.raises(InvalidRequest, match=r"prices\.json cannot be read"):
        Gce(Credential(**double.credential, prices=str(own)))


def test_the_bundled_table_is_small_and_whole() -> None:
    found = table()
    assert len(found.rates) >= 40
    assert all(len(rate) == 4 and rate[0] > 0 for region in found.rates.values() for rate in region.values())
    assert all(0 < spot <= on_demand for region in found.types.values() for on_demand, spot in region.values())


def test_images(gce: Gce) -> None:
    assert gce.image("us-central1", {}, "x86_64").name == "ubuntu-2404-noble-amd64-v20261020"
    assert gce.image("", {}, "arm64").name == "ubuntu-2404-noble-arm64-v20261020"
    debian = {"project": "debian-cloud", "family": "debian-12"}
    usual = gce.image("us-central1", debian, "x86_64")
    assert usual.id == "projects/debian-cloud/global/images/debian-12-bookworm-v20261014"
    assert (usual.arch, usual.disk_gib) == ("x86_64", 10)
    assert gce.image("", debian, "arm64").name == "debian-12-bookworm-arm64-v20261014"
    ubuntu = {"project": "ubuntu-os-cloud", "family": "ubuntu-2404-lts-amd64"}
    assert gce.image("", ubuntu, "arm64").name == "ubuntu-2404-noble-arm64-v20261020"
    assert gce.image("", {"link": usual.id}, "x86_64") == usual
    family = "projects/debian-cloud/global/images/family/debian-12"
    assert gce.image("", {"link": family}, "x86_64") == usual
    error = refused(Meaning.NOT_FOUND, gce.image, "", {"link": usual.id}, "arm64")
    assert "arm64" in str(error)
    refused(Meaning.NOT_FOUND, gce.image, "", {"project": "debian-cloud", "family": "debian-3"}, "x86_64")


def test_images_by_pattern(gce: Gce) -> None:
    names = [one.name for one in gce.images("", "debian-cloud/debian-12-*v2026*")]
    assert names == ["debian-12-bookworm-arm64-v20261014", "debian-12-bookworm-v20261014"]
    assert gce.images("", "debian-cloud/debian-1?-nothing") == []


def quota(found: object, name: str) -> Quota:
    return next(one for one in found if one.name == name)  # type: ignore[attr-defined]


def test_quotas(double: Double, gce: Gce) -> None:
    made(gce)
    found = gce.quotas("us-central1")
    n2 = quota(found, "N2_CPUS")
    assert (n2.limit, n2.used, n2.unit, n2.family, n2.market) == (200, 2, "vcpus", "N2_CPUS", None)
    assert quota(found, "INSTANCES").unit == "instances"
    spot = quota(found, "PREEMPTIBLE_NVIDIA_T4_GPUS")
    assert (spot.unit, spot.family, spot.market) == ("gpus", "NVIDIA_T4_GPUS", Market.SPOT)
    assert quota(found, "GPUS_ALL_REGIONS").location == ""
    assert not {"COMMITTED_CPUS", "PREEMPTIBLE_CPUS", "SSD_TOTAL_GB"} & {one.name for one in found}
    assert {one.location for one in gce.quotas("")} == {"", "us-central1", "us-east1", "europe-west4"}


def test_lists_of_many_pages() -> None:
    with Double(pace=Pace(0.01, 0.02), page=7) as double:
        gce = Gce(Credential(**double.credential))
        for number in range(10):
            zone = ("us-central1-a", "us-east1-b")[number % 2]
            made(gce, order(key=f"dd-{number}", token=f"t-{number}", zone=zone))
        made(gce, order(key="other", token="t-other", tags={**TAGS, "drydock-installation": "i-2"}))
        found = gce.instances("", {"drydock-installation": "i-1"})
        assert sorted(one.key for one in found) == [f"dd-{number}" for number in range(10)]
        assert len(double.calls("compute.instances.aggregatedList")) == 2
        assert len(gce.instances("us-east1", {"drydock-installation": "i-1"})) == 5
        assert len(gce.instances("", {})) == 11
        assert len(gce.types("us-east1")) == 56
        assert len(double.calls("compute.machineTypes.list")) > 6
    assert double.violations == []


def test_an_empty_page_with_a_token_is_not_the_end(
    double: Double, gce: Gce, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    usual = lists.page

    def empty_first(items: Any, query: Any, most: int) -> Any:
        return usual(items, query, most) if query.get("pageToken") else ([], {"nextPageToken": "p0"})

    monkeypatch.setattr(lists, "page", empty_first)
    prepared(gce, order())
    it = made(gce)
    assert [one.id for one in gce.instances("", {"drydock-installation": "i-1"})] == [it.id]
    assert gce.locations()
    assert gce.remains("us-central1", {"drydock-installation": "i-1"})
    assert any(one.name == "n2-standard-2" for one in gce.types("us-central1"))


def test_who_we_are(gce: Gce) -> None:
    assert gce.identity() == "projects/drydock-test"


def test_what_it_can_do() -> None:
    assert capabilities(Gce) >= {
        "create", "idempotent-create", "terminate", "stop-start", "reboot", "resize-volume", "change-type", "tags",
        "user-data", "machine-image", "firewall", "spot", "confidential", "console-output", "quota",
        "server-side-expiry",
    }  # fmt: skip
