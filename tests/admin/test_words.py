"""The console uses the words of the field."""

from __future__ import annotations

from django.contrib import admin
from django.urls import reverse

from leases.models import Resource
from tests.admin.conftest import act, page, rows_of

UNWANTED = (
    "Watchs", "Strays", "Debts", "Readings of accounts", "How old that is", "By gone at", "Not empty", "take me back",
    "Its way", "The same elsewhere",
)  # fmt: skip


def test_no_page_uses_a_riddle(site, lease):
    addresses = [reverse("admin:index"), page(lease), page(lease.resource), rows_of(Resource), act("release", lease)]
    addresses += [rows_of(model) for model in admin.site._registry]
    for address in addresses:
        shown = site.get(address).content.decode()
        assert not [words for words in UNWANTED if f">{words}" in shown or f"{words}<" in shown], address


def test_resources_are_filtered_by_whether_they_exist(site, lease):
    shown = site.get(rows_of(Resource)).content.decode()
    assert "By existence" in shown
    assert ">Exists<" in shown
    assert ">Gone<" in shown
    exists, gone = (site.get(f"{rows_of(Resource)}?gone_at__isempty={value}") for value in (1, 0))
    assert exists.context["cl"].result_count == 1
    assert gone.context["cl"].result_count == 0


def test_the_panels_say_progress_and_equivalents(site, lease):
    shown = site.get(page(lease)).content.decode()
    assert "Progress" in shown
    assert "CLI and API equivalents" in shown
