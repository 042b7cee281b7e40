"""What a page costs: at most twelve statements for anybody, however much there is, and no count without a bound."""

from __future__ import annotations

import pytest
from django.contrib.contenttypes.models import ContentType
from django.db import connection
from django.test.utils import CaptureQueriesContext
from django.urls import reverse

from blueprints.models import Blueprint
from leases.models import Event, Lease, Resource
from tests.admin.conftest import page, rows_of
from tests.admin.test_registered import MODELS
from tests.console.fleet import STATES, fleet

MOST = 12
LISTS = (
    "?q=nightly", "?q=team=blue", "?q=7", "?state__exact=destroyed", "?attention=waiting", "?o=1", "?o=-2",
    "?resource__blueprint__id__exact=1",
)  # fmt: skip


def pages(number: int) -> list[str]:
    """The overview, every list, leases and resources of every state, and the page that asks about three of them."""
    found = [reverse("admin:index"), *(rows_of(model) for model in MODELS), rows_of(Lease) + "?o=4"]
    found += [rows_of(Lease) + asked for asked in LISTS]
    found += [f"{reverse('admin:search')}?q={words}" for words in ("nightly", "owner-3", "rack", "team=blue")]
    found.append(reverse("admin:blueprints_blueprint_add"))
    if number:
        ids = ",".join(str(one.pk) for one in Lease.objects.all()[:3])
        found.append(f"{reverse('admin:leases_lease_act', args=('release',))}?ids={ids}")
        for state in sorted(set(STATES)):
            found += [page(one) for one in Lease.objects.filter(state=state)[:1]]
        found += [page(one) for one in (Resource.objects.first(), Blueprint.objects.first(), Event.objects.first())]
    return found


@pytest.mark.parametrize("number", [0, 3, pytest.param(10_000, marks=pytest.mark.slow)])
def test_no_page_asks_more_than_twelve_statements_or_counts_without_a_bound(staff, site, number):
    fleet(number)
    ContentType.objects.get_for_models(*MODELS)
    codenames = [f"view_{model._meta.model_name}" for model in MODELS]
    operator = staff(*codenames, *(name.replace("view", "change") for name in codenames), "add_blueprint")
    for at in pages(number):
        for client in (site, operator):
            with CaptureQueriesContext(connection) as asked:
                assert client.get(at).status_code in (200, 302), at
            asked_for = [one["sql"] for one in asked]
            assert len(asked_for) <= MOST, (at, asked_for)
            assert not [sql for sql in asked_for if _counts_all(sql)], at


def _counts_all(sql: str) -> bool:
    """Whether a statement counts as far as a table goes. The place in the queue is counted among those who wait."""
    words = sql.upper()
    return "COUNT(" in words and not any(bound in words for bound in ("LIMIT", "GROUP BY", "W.RANK"))


def test_long_lists_say_that_they_are_estimates(site):
    fleet(1_500)
    shown = site.get(rows_of(Lease)).content.decode()
    assert "about 1,500 leases" in shown
    assert "more than 1,000 leases" in site.get(rows_of(Lease) + "?state__exact=destroyed").content.decode()
    assert "75 leases" in site.get(rows_of(Lease) + "?state__exact=broken").content.decode()
