"""What an account may have is looked up before anything is built, whoever has used it."""

from __future__ import annotations

import pytest

from blueprints.fake.cloud import Cloud
from blueprints.models import Allowance, Credential, Reading
from leases.engine.catalogue import poll_schedule, provider_quotas
from leases.engine.sync import poll
from leases.messaging.inline import settle
from leases.models import Resource


@pytest.fixture
def cloud():
    """A vendor that sells three sizes of two families."""
    Credential.objects.create(name="vendor", secrets={"provider": "vendor"})
    vendor = Cloud("vendor")
    vendor.sell("east", "small", vcpus=2, ram_mib=1024, price=0.1, family="plain")
    vendor.sell("east", "big", vcpus=8, ram_mib=4096, price=0.4, family="plain")
    vendor.sell("east", "card", vcpus=8, ram_mib=4096, price=2.0, family="other t4", gpu_count=2)
    vendor.sell("west", "big", vcpus=8, ram_mib=4096, price=3.0, family="plain")
    return vendor


@pytest.fixture
def shop(blueprint, cloud):
    return blueprint("shop", kind="fake_cloud", config={"provider": "vendor", "credential": "vendor"})


def look(*what: str) -> None:
    poll_schedule.due()
    for each in what or ("places", "inventory", "allowances"):
        Reading.objects.filter(what=each).update(due_at="2020-01-01T00:00Z")
        for one in Reading.objects.filter(what=each):
            assert poll.read(one.pk)
            one.refresh_from_db()
            assert one.message == ""


def served(lease) -> str:
    settle()
    lease.refresh_from_db()
    assert lease.state == "active", lease.message
    return lease.resource.offer


def test_an_offer_without_quota_is_left_out_before_anything_is_made(cloud, shop, ask):
    cloud.allow("east", "plain vCPUs", limit=10, used=4, family="plain")
    look()
    assert served(ask("fake_cloud", cpu_millicores=8000)) == "east/card/on_demand"
    assert served(ask("fake_cloud", cpu_millicores=2000)) == "east/small/on_demand"
    assert not Resource.objects.filter(state="broken").exists()


def test_where_nothing_has_room_the_lease_waits_with_the_provider_s_figures(cloud, shop, ask):
    cloud.allow("", "vCPUs everywhere", limit=10, used=9.0)
    look()
    lease = ask("fake_cloud", cpu_millicores=2000)
    settle()
    lease.refresh_from_db()
    assert (lease.state, lease.reason) == ("pending", "waiting_offer")
    assert "vCPUs everywhere is exhausted: 9 of 10 vcpus in use, 2 more needed" in lease.message
    assert not Resource.objects.exists()

    cloud.allow("", "vCPUs everywhere", limit=10, used=3.0)
    look("allowances")
    assert served(lease) == "east/small/on_demand"


def test_what_is_on_its_way_counts_before_the_provider_counts_it(cloud, shop, ask):
    cloud.allow("east", "plain vCPUs", limit=3, used=0, family="plain")
    look()
    first, second = ask("fake_cloud", cpu_millicores=1000), ask("fake_cloud", cpu_millicores=1000)
    assert {served(first), served(second)} == {"east/small/on_demand", "east/card/on_demand"}


@pytest.mark.parametrize(
    ("bound", "offer"),
    [
        ({"unit": "gpus", "limit": 1, "used": 0, "family": "t4"}, "west/big/on_demand"),
        ({"unit": "gpus", "limit": 1, "used": 0}, "west/big/on_demand"),
        ({"unit": "gpus", "limit": 2, "used": 0, "family": "t4"}, "east/card/on_demand"),
        ({"unit": "gpus", "limit": 0, "used": 0, "family": "a100"}, "east/card/on_demand"),
        ({"unit": "gpus", "limit": 0, "used": 0, "market": "spot"}, "east/card/on_demand"),
        ({"unit": "instances", "limit": 7, "used": 7}, "west/big/on_demand"),
        ({"unit": "addresses", "limit": 7, "used": 7}, "east/card/on_demand"),
        ({"unit": "vcpus", "limit": 7, "used": 0, "family": "other"}, "west/big/on_demand"),
    ],
)
def test_an_allowance_counts_what_it_is_made_for(cloud, shop, ask, bound, offer):
    cloud.allow("east", "bound", **bound)
    cloud.allow("east", "plain", limit=0, used=0, family="plain")
    look()
    assert served(ask("fake_cloud", cpu_millicores=8000)) == offer


def test_an_old_reading_refuses_nothing(cloud, shop, ask):
    cloud.allow("", "vCPUs", limit=0, used=0)
    look()
    assert Allowance.objects.update(read_at="2020-01-01T00:00Z") == 1
    assert provider_quotas.left("vendor", "fake_cloud") == []
    assert served(ask("fake_cloud", cpu_millicores=2000)) == "east/small/on_demand"


def test_what_is_bounded_no_more_is_forgotten(cloud, shop):
    cloud.allow("east", "one", limit=1, used=0)
    cloud.allow("", "all", limit=1, used=0)
    look()
    assert set(Allowance.objects.values_list("location", "name")) == {("east", "one"), ("", "all")}
    with cloud._store.transaction() as db:
        db.execute("DELETE FROM allowed WHERE name = 'one'")
    look("allowances")
    assert set(Allowance.objects.values_list("location", "name")) == {("", "all")}
