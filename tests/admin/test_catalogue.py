"""Offers and readings in the console: looked through, never typed over, read again at once."""

from __future__ import annotations

import pytest
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from blueprints.models import Credential, Listing, Reading
from drydock.core import clock
from leases.messaging import hints
from leases.models import Event
from tests.admin.conftest import act, page, rows_of

MOST = 12
_MANY = """
    INSERT INTO blueprints_listing (credential_id, kind, location, zone, type, market, price, price_source, vcpus,
        ram_mib, arch, gpu_maker, gpu_model, gpu_count, gpu_memory_mib, local_disk_gib, network, confidential, family,
        country, available)
    SELECT c.id, 'ec2', 'region-' || n %% 10, 'zone-' || n %% 30, 'm' || n, 'on_demand', n / 1000.0, 'provider',
        n %% 96 + 1, 1024 * (n %% 96 + 1), 'x86_64', '', '', n %% 7 / 6, 0, 0, '', '{}', '', 'US', n %% 10 > 0
    FROM generate_series(1, %s) n JOIN blueprints_credential c ON c.name = 'vendor'"""


@pytest.fixture
def account():
    return Credential.objects.create(name="vendor", secrets={"provider": "vendor"})


@pytest.fixture
def reading(account, blueprint):
    """One that fails, of an account that a blueprint uses."""
    blueprint("shop", kind="fake_cloud", config={"provider": "vendor", "credential": "vendor"})
    return Reading.objects.create(
        credential=account, kind="fake_cloud", what="inventory", place="east", message="it throttles",
        due_at="2040-01-01T00:00Z",
    )  # fmt: skip


def text(answer):
    assert answer.status_code == 200
    return answer.content.decode()


@pytest.mark.parametrize("number", [10, 20_000])
def test_no_page_asks_more_with_more_offers(site, account, number):
    with connection.cursor() as cursor:
        cursor.execute(_MANY, (number,))
        cursor.execute("ANALYZE blueprints_listing")
    ContentType.objects.get_for_models(Listing, Reading)
    lists = ("", "?o=5", "?o=-6.1", "?q=m1", "?sort=with+GPUs", "?kind=ec2&available__exact=1", "?p=1",
             f"?credential__id__exact={account.pk}")  # fmt: skip
    for asked in lists:
        with CaptureQueriesContext(connection) as statements:
            answer = site.get(rows_of(Listing) + asked)
        assert answer.context["cl"].result_count > 0, asked
        assert len(statements) <= MOST, (asked, [one["sql"] for one in statements])
    with CaptureQueriesContext(connection) as statements:
        assert site.get(page(Listing.objects.first())).status_code == 200
    assert len(statements) <= MOST


def test_offers_are_shown_the_cheapest_first_and_found(site, account):
    said = {"credential": account, "kind": "ec2", "market": "on_demand", "price_source": "bundled 2026-11-01"}
    Listing.objects.create(location="east", type="dear", price=2.5, **said)
    Listing.objects.create(location="east", type="cheap", price=0.25, zone="east-1", confidential=["tdx"], **said)
    Listing.objects.create(location="west", type="untold", gpu_count=8, gpu_maker="nvidia", gpu_model="a100", **said)
    shown = text(site.get(rows_of(Listing)))
    assert shown.index("cheap") < shown.index("dear") < shown.index("untold")
    for words in ("<h1>Offers</h1>", "$0.2500", "bundled 2026-11-01", "east-1", "8 nvidia a100", "drydock offers"):
        assert words in shown, words
    found = text(site.get(rows_of(Listing), {"q": "a100"}))
    assert ("untold" in found, "cheap" in found) == (True, False)
    found = text(site.get(rows_of(Listing), {"sort": "TDX"}))
    assert ("untold" in found, "cheap" in found) == (False, True)
    one = text(site.get(page(Listing.objects.get(type="cheap"))))
    assert "drydock offers --type cheap --credential vendor --all" in one
    assert "/api/v1/offers?type=cheap&amp;credential=vendor&amp;all=true" in one
    assert 'name="_save"' not in one


def test_readings_say_how_they_go(site, account, reading):
    Reading.objects.create(credential=account, kind="fake_cloud", what="places", found=3, seen_at="2026-01-01T00:00Z")
    shown = text(site.get(rows_of(Reading)))
    for words in ("<h1>Account polls</h1>", "it throttles", "offers", "locations", " ago", "vendor"):
        assert words in shown, words
    failing = text(site.get(rows_of(Reading), {"attention": "failing"}))
    assert "it throttles" in failing
    assert site.get(rows_of(Reading), {"attention": "failing"}).context["cl"].result_count == 1
    assert "drydock credentials read vendor" in text(site.get(page(reading)))
    assert "it throttles" in text(site.get(page(account)))
    overview = text(site.get(reverse("admin:index")))
    assert "account poll" in overview
    assert "reading/?attention=failing" in overview


@pytest.mark.parametrize("of", ["reading", "account"])
def test_an_account_is_read_at_once(site, account, reading, of):
    row = {"reading": reading, "account": account}[of]
    asks = text(site.get(act("read", row)))
    assert "A worker polls the account now" in asks
    assert "/api/v1/credentials/vendor/read" in asks
    with hints.collected() as sent:
        site.post(act("read", row), {})
        assert sorted(sent) == sorted(("read", (pk,)) for pk in Reading.objects.values_list("pk", flat=True))
    assert set(Reading.objects.values_list("what", flat=True)) == {"places", "inventory"}
    assert not Reading.objects.filter(due_at__gt=clock.now()).exists()
    assert Event.objects.get(kind="credential.read").actor == "chief"


def test_whoever_may_only_look_reads_nothing(staff, reading):
    looks = staff("view_reading", "view_listing")
    assert "it throttles" in text(looks.get(rows_of(Reading)))
    assert looks.post(act("read", reading), {}).status_code == 403
    assert not Event.objects.filter(kind="credential.read").exists()
