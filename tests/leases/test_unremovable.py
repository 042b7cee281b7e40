"""What of a lease cannot be removed and is put aside: the lease ends, and people see that something is left."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import User
from django.urls import reverse

from blueprints.answers import Ready
from blueprints.contract import Step
from blueprints.fake.kind import FakeActivated
from leases.messaging.inline import settle
from leases.models import Event, Resource
from leases.operations import attention, resources
from leases.operations.callers import caller
from leases.reports import figures
from tests.leases import kinds

HOME = "/srv/homes/a"


class Busy(FakeActivated):
    """Its homes cannot be removed as long as `there` is not empty."""

    name = "busy"
    resource_type = "busy"
    there: list[str] = []

    def deactivate(self):
        def act(spec, memo):
            return Ready(facts={"put_aside": self.there[0]}) if self.there else Ready()

        return (Step(name="files", act=act),)

    def check(self):
        return (Step(name="look", act=lambda spec, memo: Ready(facts={"aside": list(self.there)})),)


@pytest.fixture
def kind():
    found = Busy()
    found.there = [HOME]
    with kinds.installed(found):
        yield found


@pytest.fixture
def chief():
    return caller(User.objects.create_superuser("chief"))


def _told(chief):
    return [(one.what, one.kind, one.message, one.mend) for one in attention.needed(chief) if one.what == "put_aside"]


def _figure():
    return next(rows for figure, rows in figures.measure(5) if figure.name == "put_aside")


def _check(chief):
    resources.check(chief, Resource.objects.get().pk)
    settle()


def test_what_was_put_aside_is_told_everywhere_until_it_is_gone(kind, blueprint, ask, until, chief, owner, client):
    blueprint(kind="busy")
    lease = until(ask("busy"), state="active")
    lease.release_wanted = "released"
    lease.save()
    until(lease, state="destroyed")
    resource = Resource.objects.get()
    assert (resource.state, resource.quarantined) == ("active", False)
    event = Event.objects.get(kind="resource.cleaning_failed")
    assert (event.lease_id, event.resource_id) == (lease.pk, resource.pk)
    assert HOME in event.message
    ((what, of, message, mend),) = _told(chief)
    assert (what, of, mend[-len(f"check {resource.pk}") :]) == ("put_aside", "resource", f"check {resource.pk}")
    assert HOME in message
    assert not attention.needed(caller(owner))
    assert _figure() == [("pool", 1)]
    client.force_login(User.objects.get(username="chief"))
    assert "still has files of ended leases" in client.get(reverse("admin:index")).content.decode()
    listed = client.get(reverse("admin:leases_resource_changelist"), {"attention": "put aside"}).content.decode()
    assert resource.name in listed
    _check(chief)
    assert _told(chief)
    assert not Event.objects.filter(kind="resource.cleaned").exists()
    kind.there = []
    _check(chief)
    assert not _told(chief)
    assert _figure() in ([], [("pool", 0)])
    assert HOME in Event.objects.get(kind="resource.cleaned").message


def test_a_check_tells_of_what_an_earlier_version_put_aside(kind, blueprint, ask, until, chief):
    kind.there = []
    blueprint(kind="busy")
    until(ask("busy"), state="active")
    kind.there = [HOME, "/srv/homes/b"]
    _check(chief)
    assert len(_told(chief)) == 1
    assert _figure() == [("pool", 2)]
