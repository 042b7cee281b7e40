"""Acts in the console: who sees and starts them, the form of their arguments, and what is refused."""

from __future__ import annotations

import pytest
from django.urls import reverse

from leases.engine.lifecycle import release
from leases.messaging.inline import settle
from leases.models import Event, Resource, Run
from tests.admin.conftest import page


@pytest.fixture
def resource(blueprint, ask):
    blueprint("pool")
    lease = ask()
    settle()
    lease.refresh_from_db()
    release.end(lease.pk, reason="released_by_owner", actor="root")
    settle()
    return Resource.objects.get()


def where(resource, name="program"):
    return reverse("admin:leases_resource_start_act", args=(resource.pk, name))


def test_an_act_is_started_with_the_form_of_its_arguments_and_shown(site, resource):
    shown = site.get(page(resource)).content.decode()
    assert where(resource) in shown
    form = site.get(where(resource)).content.decode()
    assert "Name of the image." in form
    assert "It can lose data" in form
    assert f"drydock resources act {resource.pk} program KEY=VALUE" in form
    answer = site.post(where(resource), {"arguments.image": "blinky", "arguments.passes": "2"}, follow=True)
    assert b"program was started" in answer.content
    event = Event.objects.get(kind="act.asked")
    assert (event.actor, event.details["arguments"]) == ("chief", {"image": "blinky", "passes": 2})
    assert b"is busy with program" in site.get(where(resource)).content
    while Run.objects.exists():
        settle()
    assert b"done: program is done." in site.get(page(resource)).content


def test_a_wrong_argument_is_shown_at_its_field_and_a_conflict_above(site, resource):
    answer = site.post(where(resource), {"arguments.image": "<b>", "arguments.passes": "99"})
    assert answer.status_code == 200
    assert b"<b>" not in answer.content.replace(b"&lt;b&gt;", b"")
    assert answer.content.count(b"errorlist") == 2
    Resource.objects.update(in_maintenance=True)
    answer = site.post(where(resource), {"arguments.image": "blinky"}, follow=True)
    assert b"is in maintenance" in answer.content
    assert not Run.objects.exists()
    assert site.get(where(resource, "explode")).status_code == 404


def test_only_who_may_change_resources_starts_and_cancels_acts(staff, site, resource):
    looker = staff("view_resource")
    assert looker.get(where(resource)).status_code == 403
    assert looker.post(where(resource), {"arguments.image": "blinky"}).status_code == 403
    assert where(resource) not in looker.get(page(resource)).content.decode()
    assert not Run.objects.exists()
    site.post(where(resource), {"arguments.image": "blinky"})
    cancel = f"{reverse('admin:leases_resource_act', args=('cancel-act',))}?ids={resource.pk}"
    assert looker.post(cancel).status_code == 403
    site.post(cancel)
    while Run.objects.exists():
        settle()
    assert Event.objects.filter(kind="act.cancelled").exists()
