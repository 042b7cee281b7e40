"""Things at a provider that bear our tag and have no row."""

from __future__ import annotations

import datetime as dt
from dataclasses import replace

import pytest
from django.db.models import F
from django.db.models.functions import Now

from blueprints.fake.cloud import Cloud
from blueprints.fake.kind import Fake
from leases.engine.core import installation as this_installation
from leases.engine.core import specs
from leases.engine.lifecycle import release
from leases.engine.resources import retirement
from leases.engine.sync import orphans
from leases.messaging.inline import settle
from leases.models import Event, Resource, Search, Stray
from leases.reasons import Reason

CONFIG = {"provider": "sky", "destroy_polls": 2, "poll_seconds": 0}


@pytest.fixture
def cloud():
    return Cloud("sky")


@pytest.fixture(autouse=True)
def _often(settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"orphan_apart_seconds": 600.0})


@pytest.fixture
def built(blueprint, ask, until):
    """A resource whose lease is active."""
    blueprint(config=CONFIG)
    lease = until(ask(), state="active")
    return lease.resource


def look(times=1):
    for _ in range(times):
        Search.objects.update(due_at=Now())
        settle()


def later():
    """Ten minutes and more have gone by."""
    Stray.objects.update(first_seen_at=F("first_seen_at") - dt.timedelta(minutes=11))


def gone(resource, cloud, until):
    """Its lease has ended, and so has the resource."""
    for lease in resource.leases.all():
        release.release(lease.pk, actor="ada")
        until(lease, state="destroyed")
    assert retirement.retire_idle(resource.pk, reason=Reason.OPERATOR, message="enough")
    until(resource, state="destroyed")
    assert cloud.is_empty()


def late(cloud, resource, **tags):
    """A create that was carried out after everything was over."""
    key = specs.key("r", resource.pk)
    cloud.create(key, token="t", tags={**specs.tags(resource), **tags}, offer="", generation=1)
    return key


def test_a_late_create_is_destroyed_when_it_is_seen_twice_some_time_apart(built, cloud, until):
    gone(built, cloud, until)
    key = late(cloud, built)
    look()
    assert Stray.objects.get().message == orphans.SEEN_ONCE
    look(3)
    assert cloud.instance(key).state == "starting", "seen again too soon"
    later()
    look(5)
    assert cloud.is_empty()
    assert not Stray.objects.exists()
    kinds = list(Event.objects.filter(kind__startswith="orphan.").order_by("id").values_list("kind", flat=True))
    assert kinds == ["orphan.seen", "orphan.destroying", "orphan.destroyed", "orphan.gone"]


def test_what_goes_while_it_is_looked_for_is_no_orphan(built, cloud, until, monkeypatch):
    listed = Fake.owned

    def owned(self, blueprint, installation):
        found = listed(self, blueprint, installation)
        monkeypatch.setattr(Fake, "owned", listed)
        gone(built, cloud, until)
        return found

    monkeypatch.setattr(Fake, "owned", owned)
    Search.objects.update(due_at=Now())
    assert orphans.search(Search.objects.get().blueprint_id)
    assert not Event.objects.filter(kind__startswith="orphan.").exists()
    assert cloud.is_empty()


def test_what_was_seen_once_and_vanished_is_forgotten(built, cloud, until):
    gone(built, cloud, until)
    key = late(cloud, built)
    look()
    cloud.lose(key)
    look()
    assert not Stray.objects.exists()
    late(cloud, built)
    look(2)
    assert cloud.instance(key), "the time begins anew"


@pytest.mark.parametrize(
    "tags",
    [
        {this_installation.PROOF: "0" * 40},
        {this_installation.PROOF: ""},
        {this_installation.INSTALLATION: "12345678"},
        {this_installation.EPOCH: "2"},
        {this_installation.RESOURCE: "4"},
        {this_installation.RESOURCE: "-1"},
        {this_installation.RESOURCE: "\u0661"},
    ],
    ids=str,
)
def test_what_is_not_provably_ours_is_left_alone(built, cloud, until, tags):
    gone(built, cloud, until)
    late(cloud, built, **tags)
    look()
    later()
    look(3)
    listed = [(one.proof, one.message) for one in Stray.objects.all()]
    assert listed == ([] if this_installation.INSTALLATION in tags else [("suspect", orphans.WRONG_PROOF)])
    assert len(cloud.instances()) == 1
    assert not this_installation.current().problem


def test_a_copy_that_bears_our_tags_under_another_name_is_left_alone(built, cloud, until):
    gone(built, cloud, until)
    cloud.create("copy-of-it", token="t", tags=specs.tags(built), offer="", generation=1)
    look()
    later()
    look(3)
    assert cloud.instance("copy-of-it")
    found = Stray.objects.get()
    assert (found.proof, found.key, found.sightings) == ("suspect", "copy-of-it", 4)
    assert specs.key("r", built.pk) in found.message


def test_what_has_a_row_is_left_alone_whatever_its_state(built, cloud):
    for state in ("active", "broken"):
        if state == "broken":
            retirement.lose(built.pk, reason=Reason.LOST, message="lost")
        look()
        assert not Stray.objects.exists()


def test_what_another_blueprint_made_is_that_ones_to_judge(built, blueprint, cloud, until):
    blueprint("neighbour", config=CONFIG)
    gone(built, cloud, until)
    late(cloud, built)
    look()
    assert Stray.objects.get().blueprint.name == "pool"
    Stray.objects.all().delete()
    built.blueprint.name = "renamed"
    built.blueprint.save()
    look()
    assert Stray.objects.count() == 2, "its maker is unknown: both may judge"


def test_an_outage_is_no_absence(built, cloud, until, monkeypatch):
    gone(built, cloud, until)
    late(cloud, built)
    look()

    def fails(self, blueprint, installation):
        raise OSError("no route, password=hunter2")

    monkeypatch.setattr(Fake, "owned", fails)
    look()
    assert Stray.objects.count() == 1
    assert Search.objects.get().message == "OSError: no route, password=***"


def test_a_destruction_that_raises_is_tried_again(built, cloud, until, monkeypatch):
    gone(built, cloud, until)
    late(cloud, built)
    look()
    later()
    plan = Fake.destroy

    def raises(self):
        def act(spec, memo):
            raise OSError("cut off")

        return (replace(plan(self)[0], act=act), *plan(self)[1:])

    monkeypatch.setattr(Fake, "destroy", raises)
    look()
    assert "cut off" in Stray.objects.get().message
    monkeypatch.setattr(Fake, "destroy", plan)
    look(5)
    assert cloud.is_empty()


def test_a_suspended_installation_only_lists(built, cloud, until):
    gone(built, cloud, until)
    key = late(cloud, built)
    this_installation.suspend("for the test")
    look()
    later()
    look(3)
    assert Stray.objects.get().message == orphans.LISTED
    assert cloud.instance(key).state == "starting"
    assert this_installation.confirm(actor="root")
    look(5)
    assert cloud.is_empty()


def test_a_thing_of_which_the_database_cannot_know_suspends_the_installation(built, cloud):
    """Rows were lost within the very same database, which no fingerprint tells."""
    newer = Resource(pk=built.pk + 1000, blueprint=built.blueprint)
    key = late(cloud, newer)
    look()
    assert "was restored" in this_installation.current().problem
    assert Stray.objects.get().message == orphans.LISTED
    later()
    look(2)
    assert cloud.instance(key)
    assert this_installation.confirm(actor="root")
    assert specs.key("r", newer.pk) != key, "the name is not given to another"
    look(5)
    assert not cloud.instance(key)
    assert cloud.instance(specs.key("r", built.pk)).state == "running", "what has a row keeps its old name"
    assert not this_installation.current().problem
