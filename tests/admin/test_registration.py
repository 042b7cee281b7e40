"""Who may register hosts in the console, what is refused, and that nothing typed or shown is trusted."""

from __future__ import annotations

import pytest
from django.core import signing
from django.urls import reverse

from leases.admin import registration
from leases.messaging.inline import settle
from leases.models import Resource
from tests.admin.conftest import page, rows_of

EVIL = "<script>alert(1)</script>"


@pytest.fixture
def pool(blueprint):
    """Its kind registers resources, and they have no host keys."""
    return blueprint("pool")


@pytest.fixture
def where(pool):
    return f"{reverse('admin:leases_resource_register')}?blueprint=pool"


def signed(answer) -> str:
    return str(answer.context["signed"])


def many(text: str) -> dict[str, str]:
    return {"many": "1", "text": text}


def test_only_who_may_change_resources_sees_and_uses_the_pages(staff, site, pool, where):
    looker = staff("view_resource")
    assert looker.get(where).status_code == 403
    assert looker.post(where, many("name\nalpha")).status_code == 403
    assert b"Register hosts" not in looker.get(rows_of(Resource)).content
    assert b"Register hosts" in site.get(rows_of(Resource)).content
    answer = site.post(where, many("name\nalpha"))
    site.post(where, {"confirmed": signed(answer), "host": "0"})
    host = Resource.objects.get()
    correct = reverse("admin:leases_resource_correct", args=(host.pk,))
    assert looker.get(correct).status_code == 403
    assert b">Correct<" not in looker.get(page(host)).content
    assert b">Correct<" in site.get(page(host)).content


def test_only_what_was_shown_can_be_confirmed(site, pool, where):
    answer = site.post(where, many("name\nalpha"))
    assert not Resource.objects.exists()
    for wrong in ("", "nonsense", signing.dumps({"rows": []}), signed(answer)[:-1] + "x"):
        told = site.post(where, {"confirmed": wrong, "host": "0"}, follow=True)
        assert b"This page has expired" in told.content
    other = site.post(where, {"confirmed": signed(answer), "host": ["7", "x"]}, follow=True)
    assert b"No host was selected" in other.content
    assert not Resource.objects.exists()


def test_what_was_shown_for_one_page_is_not_confirmed_on_another(site, pool, where, blueprint):
    blueprint("second")
    answer = site.post(where, many("name\nalpha"))
    elsewhere = where.replace("pool", "second")
    answer = site.post(elsewhere, {"confirmed": signed(answer), "host": "0"}, follow=True)
    assert b"This page has expired" in answer.content
    assert not Resource.objects.exists()


def test_csv_that_cannot_be_read_says_where(site, pool, where):
    for text, said in (
        ("name", "one line per host"), ("colour\nred", "unknown field &#x27;colour&#x27;. Valid fields: name"),
        ("name\na,b", "line 2: 2 values for 1 fields"), ("\n\n", "Paste CSV"),
        ("name\n" + "x\n" * 201, "201 hosts; at most 200"), (f"{EVIL}\nx", "&lt;script&gt;"),
    ):  # fmt: skip
        found = site.post(where, many(text)).content.decode()
        assert said in found, text[:50]
        assert EVIL not in found
    assert not Resource.objects.exists()


def test_one_bad_line_stops_no_other_and_is_shown_escaped(site, pool, where):
    text = f'name,capacity,attributes.color\nalpha,"{{""slots"": 3}}",blue\n{EVIL},many,red\n'
    answer = site.post(where, many(text))
    assert [bool(one.problem) for _, one in answer.context["found"]] == [False, True]
    assert EVIL not in answer.content.decode()
    told = site.post(where, {"confirmed": signed(answer), "host": ["0", "1"]}, follow=True)
    assert b"lpha: registered" in told.content
    settle()
    host = Resource.objects.get()
    assert (host.name, host.total_slots, host.attributes["color"]) == ("alpha", 3, "blue")
    assert host.registration == {"name": "alpha", "capacity": {"slots": 3}, "attributes": {"color": "blue"}}


def test_what_is_typed_wrongly_stays_in_the_form_with_the_reason(site, pool, where):
    answer = site.post(where, {"one": "1", "registration.name": "", "registration.identity": EVIL})
    found = answer.content.decode()
    assert "errorlist" in found
    assert EVIL not in found
    assert "&lt;script&gt;" in found


def test_a_field_that_is_emptied_is_taken_away(site, pool, where):
    answer = site.post(where, {"one": "1", "registration.name": "alpha", "registration.identity": "serial-1"})
    site.post(where, {"confirmed": signed(answer), "host": "0"})
    settle()
    host = Resource.objects.get()
    assert host.identity == "serial-1"
    correct = reverse("admin:leases_resource_correct", args=(host.pk,))
    assert b"serial-1" in site.get(correct).content
    answer = site.post(correct, {"one": "1", "registration.name": "alpha"})
    site.post(correct, {"confirmed": signed(answer), "host": "0"})
    host.refresh_from_db()
    assert (host.identity, host.registration) == ("alpha", {"name": "alpha"})


def test_what_was_built_cannot_be_corrected(site, lease):
    correct = reverse("admin:leases_resource_correct", args=(lease.resource_id,))
    assert b"is not a registered resource" in site.get(correct, follow=True).content
    assert site.get(reverse("admin:leases_resource_correct", args=(987_654,))).status_code == 403


def test_rows_of_reads_every_sort_of_field(blueprint):
    lab = blueprint("lab", kind="ssh_host", resource_type="host", config={"credential": "k"})
    text = "\ufeffaddress, port, traits, attributes.region\n10.0.0.7, 22, a;b, lab\n"
    assert registration.rows_of(text, lab) == [
        {"address": "10.0.0.7", "port": 22, "traits": ["a", "b"], "attributes": {"region": "lab"}}
    ]
