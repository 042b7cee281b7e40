"""Searching the catalogue, for whom, in which order; and having an account read at once."""

from __future__ import annotations

import datetime as dt

import pytest
from django.contrib.auth.models import Group, User

from blueprints import registry
from blueprints.cloud.client import Client, Reboots
from blueprints.cloud.faults import SdkNotInstalled
from blueprints.cloud.kind import CloudHost
from blueprints.fake.cloud import Cloud
from blueprints.models import Blueprint, Credential, Listing, Reading
from drydock.core import clock
from drydock.core.errors import Conflict, InvalidRequest, NotAllowed, NotFound
from leases.engine.catalogue import poll_schedule
from leases.engine.sync import poll
from leases.messaging import hints
from leases.models import Authorization, Event
from leases.operations import credentials, offers
from leases.operations.callers import caller


@pytest.fixture
def shop(blueprint):
    """A vendor, its account, and a blueprint that builds what it sells."""

    def make(name: str = "vendor", **columns):
        Credential.objects.create(name=name, secrets={"provider": name})
        blueprint(f"{name}-shop", kind="fake_cloud", config={"provider": name, "credential": name}, **columns)
        return Cloud(name)

    return make


@pytest.fixture
def root():
    return caller(User.objects.create_superuser("root"))


@pytest.fixture
def ada(owner):
    return caller(owner)


def look() -> None:
    """Read every account, first its places."""
    poll_schedule.due()
    for what in ("places", "inventory"):
        Reading.objects.filter(what=what).update(due_at="2020-01-01T00:00Z")
        for one in Reading.objects.filter(what=what):
            assert poll.read(one.pk)


def types(found) -> list[str]:
    return [one.type for one in found.offers]


GPU = {"gpu_maker": "nvidia", "gpu_model": "a100", "gpu_count": 8, "gpu_memory_mib": 81920}


@pytest.fixture
def sold(shop):
    """Some of everything, read."""
    cloud = shop()
    cloud.sell("east", "small", zone="east-1", vcpus=1, ram_mib=1024, price=0.1, price_source="bundled 2026-11-01")
    cloud.sell("east", "big", zone="east-2", vcpus=64, ram_mib=262144, price=3.0, country="US", boot_seconds=20)
    cloud.sell("west", "gpu.8", vcpus=96, ram_mib=1 << 20, price=9.0, country="DE", boot_seconds=90, **GPU)
    cloud.sell("west", "gpu.spot", vcpus=96, ram_mib=1 << 20, price=4.0, country="DE", market="spot", **GPU)
    cloud.sell("west", "sealed", vcpus=2, price=0.4, arch="arm64", confidential=["sev_snp", "tdx"], family="s")
    cloud.sell("west", "untold", vcpus=4, available=True)
    cloud.sell("west", "gone", vcpus=4, price=0.01, available=False)
    look()
    return cloud


@pytest.mark.parametrize(
    ("wanted", "found"),
    [
        ({}, ["small", "sealed", "big", "gpu.spot", "gpu.8", "untold"]),
        ({"all": True, "max_price": 0.2}, ["gone", "small"]),
        ({"gpu": "A100", "max_price": 5}, ["gpu.spot"]),
        ({"gpu": "a100", "gpus": 9}, []),
        ({"gpu_maker": "nvidia", "gpu_memory_mib": "80GiB", "market": "on_demand"}, ["gpu.8"]),
        ({"gpu_memory_mib": "81GiB"}, []),
        ({"vcpus": 64}, ["big", "gpu.spot", "gpu.8"]),
        ({"ram_mib": "1TiB", "market": "spot"}, ["gpu.spot"]),
        ({"arch": "arm64"}, ["sealed"]),
        ({"region": ["east"]}, ["small", "big"]),
        ({"zone": ["east-1", "east-3"]}, ["small"]),
        ({"continent": ["EU", "NA"]}, ["big", "gpu.spot", "gpu.8"]),
        ({"type": ["gpu*", "b_g"]}, ["gpu.spot", "gpu.8"]),
        ({"confidential": ["tdx"]}, ["sealed"]),
        ({"confidential": ["tdx", "sev"]}, []),
        ({"max_boot": 60}, ["big"]),
        ({"credential": "vendor", "kind": "fake_cloud", "type": ["big"]}, ["big"]),
        ({"credential": "other"}, []),
        ({"kind": "ec2"}, []),
        ({"sort": "fastest"}, ["big", "gpu.8", "small", "sealed", "gpu.spot", "untold"]),
        ({"sort": "vcpus"}, ["gpu.spot", "gpu.8", "big", "untold", "sealed", "small"]),
        ({"sort": "ram", "vcpus": 64}, ["gpu.spot", "gpu.8", "big"]),
    ],
)
def test_what_is_looked_for_is_found_in_its_order(sold, ada, wanted, found):
    assert types(offers.search(ada, wanted)) == found


def test_an_offer_says_where_its_price_is_from_and_when_it_was_read(sold, ada):
    (small,) = offers.search(ada, {"type": ["small"]}).offers
    assert (small.price, small.price_source, small.zone) == (0.1, "bundled 2026-11-01", "east-1")
    assert small.seen_at == Reading.objects.get(what="inventory", place="east").seen_at
    assert small.seen_at is not None


@pytest.mark.parametrize("sort", ["price", "fastest", "vcpus", "ram"])
@pytest.mark.parametrize("limit", [1, 2, 3])
def test_pages_hold_each_offer_once_and_in_order(sold, ada, sort, limit):
    whole = types(offers.search(ada, {"sort": sort, "all": True}))
    assert len(whole) == 7
    paged, after = [], ""
    while after is not None:
        page = offers.search(ada, {"sort": sort, "all": True}, limit=limit, after=after)
        paged += types(page)
        after = page.next
    assert paged == whole


def test_a_page_goes_on_where_the_last_one_ended_though_that_offer_is_gone(sold, ada):
    first = offers.search(ada, {}, limit=2)
    Listing.objects.filter(type="sealed").delete()
    assert types(offers.search(ada, {}, limit=2, after=first.next)) == ["big", "gpu.spot"]


@pytest.mark.parametrize(
    ("wanted", "field"),
    [
        ({"sort": "name"}, "sort"), ({"market": "black"}, "market"), ({"continent": ["XX"]}, "continent.0"),
        ({"confidential": ["sgx"]}, "confidential.0"), ({"max_price": 0}, "max_price"), ({"vcpus": -1}, "vcpus"),
        ({"ram_mib": "4 parsecs"}, "ram_mib"), ({"wings": 2}, "wings"), ({"gpu": "\0"}, "gpu"),
    ],
)  # fmt: skip
def test_a_mistake_is_told_by_its_field(ada, wanted, field):
    with pytest.raises(InvalidRequest) as raised:
        offers.search(ada, wanted)
    assert [one.field for one in raised.value.problems] == [field]


@pytest.mark.parametrize("after", ["x", "1_2_3", "_", "1_"])
def test_a_cursor_of_another_list_is_refused(ada, after):
    with pytest.raises(InvalidRequest) as raised:
        offers.search(ada, {}, after=after)
    assert raised.value.field == "cursor"


def test_types_have_the_prices_of_every_zone_and_market(shop, ada):
    cloud = shop()
    for name, zone, market, price in (
        ("a", "east-1", "on_demand", 1.0), ("b", "east-2", "on_demand", 1.1), ("c", "east-1", "spot", None)
    ):  # fmt: skip
        cloud.sell("east", name, zone=zone, market=market, price=price, vcpus=4)
    look()
    Listing.objects.update(type="m1")
    Listing.objects.create(credential=Credential.objects.get(), kind="fake_cloud", location="west", type="m1",
                           market="on_demand", price=2.0)  # fmt: skip
    east, west = offers.types(ada, {})
    assert [(one.zone, one.market, one.price) for one in east.prices] == [
        ("east-1", "on_demand", 1.0), ("east-2", "on_demand", 1.1), ("east-1", "spot", None)
    ]  # fmt: skip
    assert (east.location, east.vcpus, west.location, len(west.prices)) == ("east", 4, "west", 1)
    assert offers.types(ada, {}, after=east.id) == [west]
    assert offers.types(ada, {"region": ["east"], "market": "spot"})[0].prices == east.prices[2:]


def test_places_are_those_that_are_read(sold, ada, root):
    east, west = offers.places(ada)
    assert (east.name, east.account, east.zones, east.offers) == ("east", "vendor", ("east-1", "east-2"), 2)
    assert (west.name, west.zones, west.offers) == ("west", (), 4)
    Reading.objects.filter(what="inventory", place="west").update(message="it throttles")
    assert [one.message for one in offers.places(ada)] == ["", ""]
    assert [one.message for one in offers.places(root)] == ["", "it throttles"]


class TestWhoseTheyAre:
    """An account is seen by whom a blueprint serves that names it."""

    @pytest.fixture
    def secret(self, shop):
        """A blueprint that serves only whom it authorizes, beside one that serves everyone."""
        shop("public").sell("east", "common", vcpus=1, price=1.0)
        shop("private", audience="authorized").sell("west", "treasure", vcpus=1, price=0.5)
        look()
        return Blueprint.objects.get(name="private-shop")

    def seen(self, who):
        return (
            types(offers.search(who, {})), [one.type for one in offers.types(who, {})],
            [one.name for one in offers.places(who)],
        )  # fmt: skip

    def test_a_stranger_s_is_not_seen_and_an_operator_sees_all(self, secret, ada, root):
        assert self.seen(ada) == (["common"], ["common"], ["east"])
        assert offers.search(ada, {"credential": "private", "all": True}).offers == []
        found, by_type, places = self.seen(root)
        assert (found, set(by_type), places) == (["treasure", "common"], {"treasure", "common"}, ["west", "east"])

    @pytest.mark.parametrize("to", ["user", "group"])
    def test_whoever_is_authorized_sees_it(self, secret, ada, owner, to):
        group = Group.objects.create(name="lab")
        owner.groups.add(group)
        holder = {"user": owner} if to == "user" else {"group": group}
        asked = Authorization.objects.create(blueprint=secret, state="requested", **holder)
        assert self.seen(ada)[0] == ["common"]
        asked.state = "authorized"
        asked.save()
        assert self.seen(ada)[0] == ["treasure", "common"]
        assert self.seen(caller(User.objects.create_user("eve")))[0] == ["common"]

    @pytest.mark.parametrize("columns", [{"enabled": False}, {"removed_at": "2026-01-01T00:00Z"}, {"kind": "ec2"}])
    def test_a_blueprint_that_serves_nobody_from_it_shows_nothing(self, secret, ada, columns):
        type(secret).everything.filter(name="public-shop").update(**columns)
        assert self.seen(ada) == ([], [], [])

    def test_an_odd_config_is_no_account(self, secret, ada):
        type(secret).objects.filter(name="private-shop").update(config=["credential", "private"], audience="everyone")
        assert self.seen(ada)[0] == ["common"]


class TestReading:
    """How the readings of an account go."""

    def test_a_credential_says_what_reads_with_it_and_how_that_goes(self, sold, root):
        (info,) = credentials.list_(root)
        assert [(one.kind, one.capabilities) for one in info.readers] == [("fake_cloud", None)]
        found = {(one.what, one.place): one for one in info.readings}
        assert found.keys() == {("places", "")} | {
            (what, place) for what in ("allowances", "inventory", "status") for place in ("east", "west")
        }
        assert found["inventory", "west"].found == 5
        assert dt.timedelta() <= found["inventory", "west"].age < dt.timedelta(hours=1)
        assert found["status", "east"].age is None
        assert found["inventory", "east"].due_at > clock.now()

    def test_one_that_nothing_reads_with_has_no_readers(self, root, blueprint):
        Credential.objects.create(name="lab", secrets={"private_key": "x"})
        blueprint("hosts", kind="ssh_host", config={"credential": "lab"})
        info = credentials.get(root, "lab")
        assert (info.used_by, info.readers, info.readings) == (("hosts",), (), ())
        with pytest.raises(Conflict, match="nothing to poll with 'lab'"):
            credentials.read(root, "lab")

    def test_what_a_cloud_can_do_is_told_only_when_asked_for(self, root, blueprint, monkeypatch):
        loaded = []

        class Sky(CloudHost):
            """A cloud."""

            name = "sky"

            def client_class(self):
                loaded.append(self.name)
                return type("SkyClient", (Client, Reboots), {})

            def new_client(self, secrets):
                raise AssertionError("nothing is called")

        monkeypatch.setitem(registry._registered, "sky", Sky())
        registry.forget()
        Credential.objects.create(name="heaven", secrets={"key": "x"})
        blueprint("clouds", kind="sky", config={"credential": "heaven"})
        try:
            assert credentials.list_(root)[0].readers[0].capabilities is None
            assert loaded == []
            assert credentials.get(root, "heaven").readers[0].capabilities == ("create", "reboot", "terminate")
            assert credentials.list_(root, capabilities=True)[0].readers == credentials.get(root, "heaven").readers

            def missing(self):
                raise SdkNotInstalled("sky", ("skylib>=2",), ModuleNotFoundError("No module named 'skylib'"))

            monkeypatch.setattr(Sky, "client_class", missing)
            (without,) = credentials.get(root, "heaven").readers
            assert (without.capabilities, "No module named 'skylib'" in without.problem) == (None, True)
            assert "pip install 'skylib>=2'" in without.problem
        finally:
            monkeypatch.undo()
            registry.forget()

    def test_read_now_makes_everything_due_and_tells_a_worker(self, sold, root):
        with hints.collected() as sent:
            info = credentials.read(root, "vendor")
            assert sorted(sent) == sorted(("read", (pk,)) for pk in Reading.objects.values_list("pk", flat=True))
        assert all(one.due_at <= clock.now() for one in info.readings)
        assert Event.objects.get(kind="credential.read").actor == "root"
        assert all(poll.read(pk) for pk in Reading.objects.filter(what="inventory").values_list("pk", flat=True))

    def test_read_now_begins_with_the_places_of_an_account_that_was_never_read(self, shop, root):
        shop()
        assert [one.what for one in credentials.read(root, "vendor").readings] == ["places"]

    def test_only_operators_may(self, sold, ada, root):
        with pytest.raises(NotAllowed):
            credentials.read(ada, "vendor")
        with pytest.raises(NotFound):
            credentials.read(root, "nothing")
