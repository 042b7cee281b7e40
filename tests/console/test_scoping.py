"""Who may not look is shown nothing and changes nothing, at any address; looking changes nothing; acts want a token."""

from __future__ import annotations

import pytest
from django.contrib import admin
from django.contrib.admin.models import LogEntry
from django.contrib.auth.models import Group, User
from django.test import Client

from blueprints.models import Blueprint, Listing, Reading
from leases.models import Event, Job, Lease, Resource
from leases.operations import jobs
from leases.operations.callers import caller
from tests.admin.conftest import page, rows_of
from tests.admin.test_pages import many
from tests.admin.test_registered import MODELS
from tests.console.addresses import WORDS, every, everything


@pytest.fixture
def zebra(lease, chief):
    """Rows of every model that belong to another owner, and say so."""
    jobs.start(caller(lease.owner), lease.pk, ["make"])
    many(lease, 2)
    Lease.objects.update(name=WORDS, message=WORDS, labels={WORDS: WORDS}, facts={"uri": WORDS})
    Resource.objects.update(name=WORDS, message=WORDS, note=WORDS, facts={WORDS: WORDS})
    Job.objects.update(message=WORDS, command=[WORDS])
    Event.objects.update(message=WORDS)
    Listing.objects.update(type=WORDS, location=WORDS)
    Reading.objects.filter(place="p0").update(place=WORDS, message=WORDS)
    Blueprint.objects.filter(pk=lease.resource.blueprint_id).update(name=WORDS, note=WORDS)
    Group.objects.create(name=WORDS)
    User.objects.filter(pk=lease.owner_id).update(username=WORDS)
    LogEntry.objects.log_actions(chief.pk, [lease], 2, change_message=WORDS, single_object=True)
    return lease


def test_whoever_may_not_look_sees_and_changes_nothing(staff, zebra):
    """An owner who is no operator, staff without any permission, and nobody."""
    owner, stan, nobody = Client(), staff(name="stan"), Client()
    owner.force_login(User.objects.create_user("eve"))
    addresses, asked = every(), set(every(asking=True))
    assert len(addresses) > 150
    before = everything()
    for at in addresses:
        told(nobody.get(at), at)
        told(
            stan.get(at, headers={"HX-Request": "true", "HX-Target": "dd-rows" if at.count("/") == 4 else "dd-record"}),
            at,
        )
        for client in (owner, stan):
            told(client.get(at), at)
            if at != "/admin/logout/":
                told(client.post(at, {"message": "x", "post": "yes", "action": "release", "_selected_action": "1"}), at)
    for at in asked.difference(addresses):
        told(stan.get(at), at)
    assert everything() == before
    assert stan.get("/admin/").status_code == 200


def told(answer, at):
    """Fails where an answer tells of the rows."""
    assert answer.status_code in (200, 302, 400, 403, 404, 405), at
    assert WORDS not in answer.content.decode(), at
    if answer.status_code == 302:
        assert answer.url.startswith("/admin/login/") or answer.url in ("/admin/", f"{at.partition('?')[0]}change/"), at


@pytest.mark.parametrize("model", ["lease", "resource", "job", "event"])
def test_a_permission_shows_its_own_model_only(staff, zebra, model):
    """By guess, list, filter, order and search: one view permission leads to no page of another model."""
    client = staff(f"view_{model}")
    for other in MODELS:
        at = [rows_of(other), page(other.objects.order_by("pk").first())]
        for address in (*at, f"{at[0]}?q={WORDS}", f"{at[0]}?o=1"):
            assert client.get(address).status_code == (200 if other._meta.model_name == model else 403), address
    shown = client.get("/admin/search/", {"q": WORDS}, follow=True).content.decode()
    assert ("/admin/leases/lease/" in shown) == (model == "lease")
    assert ("/admin/leases/resource/" in shown) == (model in ("lease", "resource"))
    assert "/admin/blueprints/" not in shown


def test_looking_changes_nothing(site, zebra):
    addresses = every()
    before = everything()
    for at in addresses:
        assert site.get(at).status_code in (200, 302, 403, 404, 405), at
    assert everything() == before


def test_no_post_is_taken_without_a_token(chief, zebra):
    strict = Client(enforce_csrf_checks=True)
    strict.force_login(chief)
    addresses = every()
    before = everything()
    for at in addresses:
        for how in (strict.post, strict.put, strict.patch, strict.delete):
            assert how(at).status_code == 403, at
    assert everything() == before


def test_lists_answer_only_what_their_filters_ask(site, zebra):
    """Any other lookup would let what is never shown be guessed."""
    for model in MODELS:
        ours = admin.site._registry[model]
        for field in model._meta.get_fields():
            for lookup in ("startswith", "contains", "regex", "gt", "in"):
                assert not ours.lookup_allowed(f"{field.name}__{lookup}", "x", None), (model, field.name)
            assert not ours.lookup_allowed(f"{field.name}__secrets__startswith", "x", None)
    for asked in (
        "leases/job/?environment__KEY=x",
        "leases/job/?command__contains=x",
        "rest/token/?digest__startswith=x",
    ):
        assert site.get(f"/admin/{asked}").status_code == 400, asked
