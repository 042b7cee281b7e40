"""The catalogue: read for each account, looked through by what is asked; and the status of what was built of it."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db.models import F

from blueprints.fake.cloud import Cloud
from blueprints.fake.offering import FakeCloud
from blueprints.models import Credential, Listing, Reading, RememberedError
from blueprints.offers import counts
from leases.engine.catalogue import offers, poll_schedule
from leases.engine.core.database import run
from leases.engine.resources.remembered_errors import is_requests
from leases.engine.sync import poll
from leases.messaging.inline import settle
from leases.models import Event, Lease, Resource


@pytest.fixture
def cloud():
    return Cloud("vendor")


@pytest.fixture
def account():
    made = Credential(name="vendor", secrets={"provider": "vendor"})
    made.save()
    return made


@pytest.fixture
def shop(blueprint, account):
    """A blueprint that builds what the vendor sells."""

    def make(name: str = "shop", **config):
        columns = {one: config.pop(one) for one in ("order", "min_ready", "max_resources") if one in config}
        return blueprint(
            name, kind="fake_cloud", config={"provider": "vendor", "credential": "vendor", **config}, **columns
        )

    return make


def look(what: str = "") -> None:
    """Make every reading now, those first of which others follow."""
    poll_schedule.due()
    for each in [what] if what else ["places", "inventory", "status"]:
        Reading.objects.filter(what=each).update(due_at="2020-01-01T00:00Z")
        for one in Reading.objects.filter(what=each):
            assert poll.read(one.pk)
    settle()


def served_by(lease) -> Resource:
    """What a lease is served by, after everything has settled."""
    settle()
    lease.refresh_from_db()
    assert lease.state == "active", lease.message
    return lease.resource


def test_a_lease_waits_until_the_catalogue_is_read_and_is_then_served_by_the_cheapest(cloud, shop, ask):
    shop()
    lease = ask("fake_cloud", cpu_millicores=2000)
    cloud.sell("east", "small", vcpus=1, price=0.1)
    cloud.sell("east", "big", vcpus=8, price=0.8)
    cloud.sell("west", "right", vcpus=2, price=0.2)
    look()
    lease.refresh_from_db()
    assert (lease.state, lease.resource.offer, lease.resource.price) == ("active", "west/right/on_demand", 0.2)
    assert lease.resource.attributes["region"] == "west"
    assert Listing.objects.get(type="right").boot_seconds is not None


def test_before_its_first_reading_the_reason_is_the_catalogue(shop, ask):
    shop()
    lease = ask("fake_cloud")
    settle()
    lease.refresh_from_db()
    assert (lease.state, lease.reason) == ("pending", "waiting_catalogue")


def test_why_the_catalogue_cannot_be_read_is_said_to_who_waits(account, cloud, shop, ask):
    account.secrets = {"provider": "vendor", "password": "wrong"}
    account.save()
    shop()
    lease = ask("fake_cloud")
    look()
    run("UPDATE leases_lease SET due_at = now()")
    settle()
    lease.refresh_from_db()
    assert lease.reason == "waiting_catalogue"
    assert "does not know this account" in lease.message
    assert Reading.objects.get(what="places").seen_at is None


def test_a_failing_reading_keeps_the_last_good_offers(account, cloud, shop):
    shop()
    cloud.sell("east", "small", vcpus=1, price=0.1)
    look()
    seen = Reading.objects.get(what="inventory").seen_at
    account.secrets = {"provider": "vendor", "password": "wrong"}
    account.save()
    look("inventory")
    failed = Reading.objects.get(what="inventory")
    assert failed.seen_at == seen
    assert "PermissionError" in failed.message
    assert Listing.objects.get().available


def test_only_places_that_a_blueprint_uses_are_read(cloud, shop):
    shop(regions=["west"])
    for place in ("east", "west"):
        cloud.sell(place, "small", vcpus=1, price=0.1)
    look()
    assert set(Reading.objects.exclude(what="places").values_list("place", flat=True)) == {"west"}
    assert [one.location for one in Listing.objects.all()] == ["west"]
    assert cloud.count("sold", "east") == 0


def test_what_did_not_change_is_not_written(cloud, shop):
    shop()
    cloud.sell("east", "small", vcpus=1, price=0.1)
    cloud.sell("east", "big", vcpus=8, price=0.8)
    look()
    before = dict(Listing.objects.values_list("type", "changed_at"))
    cloud.sell("east", "big", vcpus=8, price=0.7)
    cloud.withdraw("east", "small")
    look("inventory")
    look("inventory")
    after = {one.type: one for one in Listing.objects.all()}
    assert after["big"].price == 0.7
    assert not after["small"].available
    assert after["big"].changed_at > before["big"]


def test_a_request_narrows_what_is_sought(cloud, shop, ask):
    shop()
    cloud.sell("east", "cheap", vcpus=4, price=0.1)
    cloud.sell("west", "dear", vcpus=4, price=0.9)
    look()
    assert served_by(ask("fake_cloud", requirements={"region": ["west"]})).offer == "west/dear/on_demand"
    refused = ask("fake_cloud", requirements={"region": ["west"], "max_price": 0.5})
    settle()
    refused.refresh_from_db()
    assert (refused.state, refused.reason) == ("broken", "refused")
    assert "offers nothing that meets the request" in refused.message


def test_sold_out_offers_are_left_aside_one_after_the_other_and_use_up_no_try(cloud, shop, ask, until, settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"bounce_limit": 0})
    sold_out = {"does": "refuse", "at": "build.create", "times": 3}
    shop(faults=[sold_out])
    for number in range(4):
        cloud.sell("east", f"t{number}", vcpus=1, price=number)
    look()
    lease = ask("fake_cloud")
    until(lease, state="active")
    failed = set(RememberedError.objects.values_list("key", flat=True))
    assert failed == {f"east/t{number}/on_demand" for number in range(3)}
    assert (lease.resource.offer, lease.bounces) == ("east/t3/on_demand", 0)


def test_a_refused_quota_rules_out_at_once_what_it_counts(cloud, shop, ask, until):
    full = {"does": "fail", "at": "build.create", "scope": "location", "key": "east/std/on_demand", "code": "quota"}
    shop(faults=[full])
    for number in range(6):
        cloud.sell("east", f"t{number}", vcpus=1, price=number, family="std")
    cloud.sell("east", "gpu", vcpus=1, price=8, family="g")
    cloud.sell("west", "t0", vcpus=1, price=9, family="std")
    look()
    lease = ask("fake_cloud")
    until(lease, state="active")
    assert lease.resource.offer == "east/gpu/on_demand"
    (error,) = RememberedError.objects.values_list("scope", "key")
    assert error == ("location", "east/std/on_demand")
    assert Resource.objects.count() == 2
    RememberedError.objects.update(key="east//")
    assert served_by(ask("fake_cloud", exclusive=True)).offer == "west/t0/on_demand"


def _wrong(times):
    return [{
        "does": "fail", "at": "build.create", "scope": "offer", "code": "invalid", "blames_request": True,
        "message": "pd-balanced cannot be used.", "times": times,
    }]  # fmt: skip


def test_one_type_refused_as_invalid_stops_nothing_else(cloud, shop, ask, until):
    shop(faults=_wrong(2))
    cloud.sell("east", "h3", vcpus=1, price=1)
    cloud.sell("east", "c4", vcpus=1, price=2)
    cloud.sell("east", "n2", vcpus=1, price=3)
    look()
    lease = ask("fake_cloud")
    until(lease, state="active")
    assert lease.resource.offer == "east/n2/on_demand"
    assert set(RememberedError.objects.values_list("scope", flat=True)) == {"offer"}


def test_several_types_refused_alike_are_an_operators_matter(cloud, shop, ask):
    shop(faults=_wrong(9))
    for number in range(6):
        cloud.sell("east", f"t{number}", vcpus=1, price=number)
    look()
    lease = ask("fake_cloud")
    settle()
    lease.refresh_from_db()
    assert (lease.state, lease.reason) == ("pending", "needs_operator"), lease.message
    assert "Refused in the same way for t0, t1, t2: pd-balanced cannot be used." in lease.message
    assert Resource.objects.count() == 3


@pytest.mark.parametrize(
    ("types", "built_since", "whose"),
    [
        (["a", "a", "a"], False, False), (["a", "b"], False, False), (["a", "b", "c"], False, True),
        (["a", "b", "c"], True, False),
    ],
)  # fmt: skip
def test_whose_matter_an_invalid_request_is(types, built_since, whose):
    assert is_requests(types, built_since=built_since) is whose


@pytest.mark.parametrize(
    ("key", "ruled_out"),
    [
        ("east/std/spot", True), ("east//", True), ("east//spot", True), ("//", True), ("east/std/", True),
        ("west//", False), ("east/g/spot", False), ("east//on_demand", False),
    ],
)  # fmt: skip
def test_what_a_key_of_a_location_rules_out(key, ruled_out):
    assert counts(key, "east/std/spot") is ruled_out
    assert not counts(key, "")


def test_choose_takes_the_cheapest_or_the_soonest_over_all_blueprints(cloud, shop, ask):
    shop("first", regions=["east"], order=1)
    shop("second", regions=["west"], order=2)
    cloud.sell("east", "dear", vcpus=1, price=0.9, boot_seconds=5)
    cloud.sell("west", "cheap", vcpus=1, price=0.1, boot_seconds=60)
    look()
    assert served_by(ask("fake_cloud", exclusive=True)).blueprint.name == "first"
    Resource.objects.update(drained=True)
    assert served_by(ask("fake_cloud", exclusive=True, choose="price")).blueprint.name == "second"
    Resource.objects.update(drained=True)
    assert served_by(ask("fake_cloud", exclusive=True, choose="fastest")).blueprint.name == "first"


def test_the_warm_pool_is_built_of_the_cheapest_offer(cloud, shop):
    cloud.sell("east", "dear", vcpus=1, price=0.9)
    cloud.sell("east", "cheap", vcpus=1, price=0.1)
    shop(min_ready=1)
    settle()
    look()
    settle()
    assert [one.offer for one in Resource.objects.all()] == ["east/cheap/on_demand"]


@pytest.fixture
def served(cloud, shop, ask):
    """Three leases, each on a machine of its own, after a first listing."""
    shop(capacity={"slots": 1})
    cloud.sell("east", "small", vcpus=1, price=0.1)
    look()
    leases = [ask("fake_cloud", serve_again=True) for _ in range(3)]
    settle()
    assert all(lease.state == "active" for lease in Lease.objects.all())
    look("status")
    return leases


def test_one_listing_tells_of_all(served, cloud):
    calls = cloud.count("listed")
    look("status")
    assert cloud.count("listed") == calls + 1
    assert {one.observed for one in Resource.objects.all()} == {"running"}


def test_what_the_provider_ended_is_noticed_by_the_next_listing_and_served_again(served, cloud, until):
    cloud.kill(cloud.instances()[0].key)
    look("status")
    broken = Lease.objects.get(state="broken")
    assert broken in served
    assert "The instance failed." in broken.message
    assert broken.replaced_by.state == "active"
    assert Event.objects.filter(resource=broken.resource_id, to_state="broken", actor="status").count() == 1


@pytest.fixture
def grown_up(served):
    """Old enough that 'not found' proves something."""
    Resource.objects.update(created_at=F("created_at") - dt.timedelta(minutes=10))


def test_what_is_gone_is_lost_in_its_provider_s_own_words(grown_up, cloud):
    gone = cloud.instances()[0].key
    cloud.lose(gone)
    look("status")
    assert Lease.objects.get(state="broken").message == f"The provider reports that {gone} does not exist."


def test_what_is_gone_soon_after_it_was_made_is_only_suspected(served, cloud):
    gone = cloud.instances()[0].key
    cloud.lose(gone)
    look("status")
    look("status")
    doubted = Lease.objects.get(reason="suspected")
    assert doubted.state == "active"
    assert "no longer lists it" in doubted.message
    assert "created too recently" in doubted.message
    assert [one.observed for one in Resource.objects.filter(missed=2)] == ["suspected"]
    assert Event.objects.filter(kind="resource.suspected").count() == 1


def test_what_a_listing_leaves_out_and_exists_stays_and_the_listing_is_at_fault(grown_up, cloud, monkeypatch):
    monkeypatch.setattr(FakeCloud, "observe", lambda *about: [])
    for _ in range(3):
        look("status")
    assert Lease.objects.filter(state="active").count() == 3
    assert "omitted 3 machines that exist" in Reading.objects.get(what="status").message


def test_what_cannot_be_asked_for_is_suspected_until_it_can_and_is_well_then(grown_up, cloud, monkeypatch):
    def refuse(*about):
        raise RuntimeError("The provider is away.")

    with monkeypatch.context() as patched:
        patched.setattr(FakeCloud, "observe", lambda *about: [])
        patched.setattr(FakeCloud, "read", refuse)
        look("status")
        assert {one.reason for one in Lease.objects.filter(state="active")} == {"suspected"}
        assert "The provider is away." in Lease.objects.first().message
    look("status")
    assert {(one.state, one.reason) for one in Lease.objects.all()} == {("active", "ready")}
    assert {one.observed for one in Resource.objects.all()} == {"running"}


def test_when_all_are_missed_at_once_nobody_loses_anything(grown_up, cloud):
    for one in cloud.instances():
        cloud.lose(one.key)
    for _ in range(3):
        look("status")
    assert Lease.objects.filter(state="active").count() == 3
    assert "All 3 machines of this account disappeared at once" in Reading.objects.get(what="status").message


def test_when_the_only_one_is_missed_nobody_loses_anything(grown_up, cloud):
    Lease.objects.exclude(pk=Lease.objects.first().pk).update(release_wanted="released")
    Resource.objects.exclude(pk=Lease.objects.first().resource_id).update(drained=True)
    settle()
    look("status")
    (last,) = cloud.instances()
    cloud.lose(last.key)
    for _ in range(3):
        look("status")
    assert Lease.objects.filter(state="active").count() == 1
    assert [one.observed for one in Resource.objects.filter(state="active")] == ["vanished"]


def test_a_reading_that_another_has_taken_over_writes_nothing(cloud, shop):
    shop()
    cloud.sell("east", "small", vcpus=1, price=0.1)
    look()
    one = Reading.objects.get(what="inventory")
    Reading.objects.update(due_at="2020-01-01T00:00Z")
    token = poll_schedule.take(one.pk)
    assert token is not None
    assert poll_schedule.take(one.pk) is None
    run("UPDATE blueprints_reading SET token_until = now() - interval '1 s'")
    assert poll_schedule.take(one.pk) is not None
    assert offers.write(one, token, []) is None
    assert Listing.objects.get().available


def test_an_account_that_no_blueprint_uses_is_not_read(cloud, account):
    assert poll_schedule.due() == 0
    assert not Reading.objects.exists()


def test_what_is_released_goes_with_nothing_left(served, cloud, until):
    Lease.objects.update(release_wanted="released")
    Resource.objects.update(drained=True)
    settle()
    assert cloud.is_empty()


def test_an_offer_of_unknown_price_is_never_the_cheapest(cloud, shop, ask):
    shop("first", regions=["east"], order=1)
    shop("second", regions=["west"], order=2)
    cloud.sell("east", "unpriced", vcpus=1)
    cloud.sell("west", "priced", vcpus=1, price=0.1)
    look()
    assert served_by(ask("fake_cloud", exclusive=True, choose="price")).blueprint.name == "second"


def test_what_is_not_found_while_the_catalogue_cannot_be_read_waits(account, cloud, shop, ask):
    shop()
    cloud.sell("east", "small", vcpus=1, price=0.1)
    look()
    account.secrets = {"provider": "vendor", "password": "wrong"}
    account.save()
    look("inventory")
    lease = ask("fake_cloud", cpu_millicores=9000)
    settle()
    lease.refresh_from_db()
    assert (lease.state, lease.reason) == ("pending", "waiting_catalogue")
