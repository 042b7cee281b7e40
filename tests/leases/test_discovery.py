"""Discovery: things that are there without anybody having asked for them."""

from __future__ import annotations

import uuid

import pytest

from blueprints.fake.cloud import Cloud
from leases.engine.lifecycle import release
from leases.engine.sync import discovery
from leases.messaging.inline import settle
from leases.models import Event, Resource, Sync


@pytest.fixture
def look(blueprint):
    """A blueprint that only discovers; looks now, as often as it is called."""
    made = blueprint(config={"provider": "d"}, max_resources=0)

    def now() -> None:
        settle()
        Sync.objects.update(due_at="2020-01-01T00:00Z")
        assert discovery.discover(made.pk)
        settle()

    return now


@pytest.fixture
def cloud():
    return Cloud("d")


def test_what_is_there_becomes_a_resource_once_and_serves_leases(look, cloud, ask, until):
    cloud.plant("serial-1", attributes={"color": "red"})
    look()
    look()
    resource = Resource.objects.get()
    assert (resource.origin, resource.state, resource.identity) == ("discovered", "active", "serial-1")
    assert until(ask(requirements={"color": "red"}), state="active").resource_id == resource.pk


def test_what_changes_is_written_and_what_is_part_of_another_knows_it(look, cloud):
    cloud.plant("host")
    cloud.plant("gpu", part_of="host", attributes={"size": 1})
    look()
    cloud.plant("gpu", part_of="host", attributes={"size": 2})
    look()
    gpu = Resource.objects.get(identity="gpu")
    assert gpu.part_of == Resource.objects.get(identity="host")
    assert gpu.attributes["size"] == 2


def test_a_part_belongs_to_the_whole_of_its_own_blueprint_or_to_the_only_one_there_is(look, cloud, blueprint):
    twins = [blueprint(name, enabled=False) for name in ("aaa", "zzz")]
    named = {"type": "fake", "state": "active", "identity": "host"}
    foreign = [Resource.objects.create(blueprint=twin, **named) for twin in twins]
    cloud.plant("gpu-1", part_of="host")
    look()
    assert Resource.objects.get(identity="gpu-1").part_of is None
    cloud.plant("host")
    cloud.plant("gpu-2", part_of="host")
    look()
    own = Resource.objects.get(identity="host", origin="discovered")
    assert Resource.objects.get(identity="gpu-2").part_of == own
    Resource.objects.exclude(pk=foreign[0].pk).filter(identity="host").update(gone_at="2020-01-01T00:00Z")
    cloud.uproot("host")
    cloud.plant("gpu-3", part_of="host")
    look()
    assert Resource.objects.get(identity="gpu-3").part_of == foreign[0]


def test_what_moved_is_written_and_what_others_found_out_stays(look, cloud):
    cloud.plant("bmc", part_of="rack-1", zone="a", facts={"url": "https://10.0.0.1"})
    for rack in ("rack-1", "rack-2"):
        cloud.plant(rack)
    look()
    built = Resource.objects.get(identity="bmc").facts
    assert built["url"] == "https://10.0.0.1"
    cloud.plant("bmc", part_of="rack-2", zone="b", name="second", facts={"url": "https://10.0.0.2"})
    look()
    moved = Resource.objects.get(identity="bmc")
    assert (moved.name, moved.zone, moved.part_of.identity) == ("second", "b", "rack-2")
    assert moved.facts == built | {"url": "https://10.0.0.2"}
    assert built.keys() > {"url"}
    cloud.plant("bmc")
    Resource.objects.filter(pk=moved.pk).update(origin="registered", name="as Ada calls it")
    look()
    moved.refresh_from_db()
    assert (moved.name, moved.zone, moved.facts["url"]) == ("as Ada calls it", "b", "https://10.0.0.2")


def test_what_cannot_be_written_stops_nothing_else_and_is_said(look, cloud):
    cloud.plant("a" * 300)
    cloud.plant("serial-1")
    cloud.plant("z" * 300)
    look()
    assert Resource.objects.get().identity == "serial-1"
    said = Sync.objects.get()
    assert said.message.startswith("2 of 3 resources could not be registered: aaaa")
    assert (said.token, said.found) == (None, 3)
    cloud.uproot("serial-1")
    look()
    assert Resource.objects.get().missed == 1
    for planted in ("a" * 300, "z" * 300):
        cloud.uproot(planted)
    look()
    assert Sync.objects.get().message == ""


def test_who_lost_its_turn_writes_nothing_and_who_writes_has_it(look, cloud, monkeypatch):
    cloud.plant("serial-1")
    with monkeypatch.context() as patched:
        kind_sees = discovery._look

        def late(blueprint):
            Sync.objects.update(token=uuid.uuid4())
            return kind_sees(blueprint)

        patched.setattr(discovery, "_look", late)
        settle()
    assert Sync.objects.get().token is not None
    assert not Resource.objects.exists()
    turns = []
    meet = discovery._meet
    monkeypatch.setattr(discovery, "_meet", lambda *given: turns.append(Sync.objects.get().token) or meet(*given))
    Sync.objects.update(token=None)
    look()
    assert Resource.objects.get().identity == "serial-1"
    assert len(turns) == 1
    assert turns[0] is not None


def test_missed_once_is_nothing_missed_twice_is_lost_and_leased_is_never_deleted(look, cloud, ask, until):
    cloud.plant("serial-1")
    look()
    lease = until(ask(), state="active")
    cloud.uproot("serial-1")
    look()
    resource = Resource.objects.get()
    assert (resource.missed, resource.quarantined) == (1, False)
    look()
    resource.refresh_from_db()
    assert (resource.state, resource.observed, resource.quarantined) == ("active", "lost", True)
    assert ask().state == "pending"
    release.release(lease.pk, actor="ada")
    look()
    until(resource, state="destroyed")


def test_what_comes_back_serves_again(look, cloud, ask, until):
    cloud.plant("serial-1")
    look()
    until(ask(), state="active")
    cloud.uproot("serial-1")
    look()
    look()
    cloud.plant("serial-1")
    look()
    resource = Resource.objects.get()
    assert (resource.missed, resource.observed, resource.quarantined) == (0, "ok", False)
    assert Event.objects.filter(kind="resource.found").exists()


def test_an_outage_is_no_absence(look, cloud, monkeypatch):
    from blueprints.fake.kind import Fake

    cloud.plant("serial-1")
    look()

    def fail(*_: object) -> None:
        raise ConnectionError("provider is down")

    monkeypatch.setattr(Fake, "discover", fail)
    for _ in range(3):
        look()
    assert Resource.objects.get().missed == 0
    assert Sync.objects.get().message == "ConnectionError: provider is down"


def test_what_an_operator_set_apart_stays_so_when_it_comes_back(look, cloud, ask, until):
    cloud.plant("serial-1")
    look()
    until(ask(), state="active")
    Resource.objects.update(quarantined=True, note="smells of smoke")
    cloud.uproot("serial-1")
    look()
    look()
    cloud.plant("serial-1")
    look()
    resource = Resource.objects.get()
    assert (resource.observed, resource.quarantined, resource.note) == ("ok", True, "smells of smoke")
