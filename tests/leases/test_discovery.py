"""Discovery: things that are there without anybody having asked for them."""

from __future__ import annotations

import uuid

import pytest
from django.contrib.auth.models import User
from django.db import connection
from django.test.utils import CaptureQueriesContext

from blueprints.amounts import Amounts
from blueprints.answers import Ready
from blueprints.fake.cloud import Cloud
from blueprints.fake.kind import Fake
from blueprints.specs import Draft
from leases.engine.core import specs, workers
from leases.engine.core.database import rows
from leases.engine.lifecycle import release
from leases.engine.resources import provision
from leases.engine.sync import discovery, findings
from leases.messaging.inline import settle
from leases.models import Event, Resource, Sync
from leases.operations import attention, resources
from leases.operations.callers import caller


@pytest.fixture
def pool(blueprint):
    """A blueprint that only discovers."""
    return blueprint(config={"provider": "d"}, max_resources=0)


@pytest.fixture
def root(django_user_model):
    workers.seen("elsewhere:1")
    return caller(django_user_model.objects.create_superuser("root"))


@pytest.fixture
def look(pool):
    """Looks now, as often as it is called."""

    def now() -> None:
        settle()
        Sync.objects.update(due_at="2020-01-01T00:00Z")
        assert discovery.discover(pool.pk)
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


def test_a_tree_is_registered_at_once_in_whatever_order_it_was_found(look, cloud):
    for name, whole in (("a-slice", "b-card"), ("b-card", "c-host"), ("c-host", "")):
        cloud.plant(name, part_of=whole)
    look()
    assert {r.identity: r.part_of and r.part_of.identity for r in Resource.objects.all()} == {
        "a-slice": "b-card", "b-card": "c-host", "c-host": None,
    }  # fmt: skip


def test_a_discovered_whole_and_its_parts_exclude_each_other(look, cloud, ask, until):
    cloud.plant("host", attributes={"color": "red"}, capacity=Amounts(slots=8))
    cloud.plant("card", part_of="host", attributes={"color": "blue"})
    look()
    whole = until(ask(exclusive=True, requirements={"color": "red"}), state="active")
    card = ask(requirements={"color": "blue"})
    settle()
    card.refresh_from_db()
    assert (card.state, card.message) == (
        "pending", "pool: its only suitable resource cannot be leased now (card: host is held whole by another lease)",
    )  # fmt: skip
    release.release(whole.pk, actor="ada")
    until(card, state="active")


def test_a_leased_part_that_turns_up_in_a_held_whole_leaves_its_lease_first(look, cloud, ask, until):
    cloud.plant("host", attributes={"color": "red"}, capacity=Amounts(slots=8))
    cloud.plant("other", attributes={"color": "green"})
    cloud.plant("card", part_of="host", attributes={"color": "blue"})
    look()
    lease = until(ask(requirements={"color": "blue"}), state="active")
    whole = until(ask(requirements={"color": "green"}, exclusive=True), state="active")
    cloud.plant("card", part_of="other", attributes={"color": "blue"})
    look()
    until(lease, state="broken", reason="moved")
    look()
    card = Resource.objects.get(identity="card")
    assert (card.part_of_id, card.closed_by) == (whole.resource_id, [whole.resource_id])
    assert (Resource.objects.get(identity="host").busy_below, whole.resource.busy_below) == (0, 0)


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
        kind_sees = discovery._read

        def late(*given):
            Sync.objects.update(token=uuid.uuid4())
            return kind_sees(*given)

        patched.setattr(discovery, "_read", late)
        settle()
    assert Sync.objects.get().token is not None
    assert not Resource.objects.exists()
    turns = []
    meet = findings._meet
    monkeypatch.setattr(findings, "_meet", lambda *given: turns.append(Sync.objects.get().token) or meet(*given))
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


def test_what_a_report_no_longer_says_is_removed_and_what_a_step_found_stays(look, cloud):
    there = {"attributes": {"color": "red", "size": 1}, "traits": ["fast", "new"]}
    cloud.plant("serial-1", capacity=Amounts(slots=2, extra={"gpu": 2, "nic": 1}), **there)
    look()
    resource = Resource.objects.get()
    answer = Ready(attributes={"zone": "north"}, traits=frozenset({"fast", "new", "checked"}))
    provision.amend(resource.pk, answer)
    cloud.plant("serial-1", capacity=Amounts(slots=2, extra={"gpu": 2}), attributes={"size": 1}, traits=["fast"])
    look()
    resource.refresh_from_db()
    assert resource.attributes == {"size": 1, "zone": "north"}
    assert resource.traits == ["checked", "fast"]
    assert dict(resource.capacities.values_list("name", "total")) == {"gpu": 2, "nic": 0}
    provision.amend(resource.pk, Ready(attributes={"zone": None}))
    resource.refresh_from_db()
    assert resource.attributes == {"size": 1}


def test_what_a_step_found_is_kept_until_the_report_changes_it(look, cloud):
    cloud.plant("serial-1", attributes={"size": 1, "color": "red"}, traits=["slow"])
    look()
    resource = Resource.objects.get()
    provision.amend(resource.pk, Ready(attributes={"size": 5}, traits=frozenset({"fast"})))
    cloud.plant("serial-1", attributes={"size": 1, "color": "blue"}, traits=["slow"])
    look()
    resource.refresh_from_db()
    assert (resource.attributes, resource.traits) == ({"size": 5, "color": "blue"}, ["fast"])


def test_an_unchanged_report_writes_nothing_but_the_time_of_the_report(look, cloud, pool):
    for n in range(20):
        cloud.plant(f"serial-{n}", attributes={"size": n})
    look()
    before = rows("SELECT xmin, id FROM leases_resource ORDER BY id")
    Sync.objects.update(due_at="2020-01-01T00:00Z")
    with CaptureQueriesContext(connection) as sent:
        assert discovery.discover(pool.pk)
    assert len(sent) <= 3, [one["sql"] for one in sent]
    assert rows("SELECT xmin, id FROM leases_resource ORDER BY id") == before
    cloud.plant("serial-7", attributes={"size": 70})
    Sync.objects.update(due_at="2020-01-01T00:00Z")
    with CaptureQueriesContext(connection) as sent:
        assert discovery.discover(pool.pk)
    ours = [one["sql"] for one in sent if one["sql"] not in ("BEGIN", "COMMIT")]
    assert len(ours) <= 6 + 4, ours
    assert Resource.objects.get(identity="serial-7").attributes["size"] == 70


def test_a_report_is_stored_again_when_a_resource_is_gone_or_an_hour_has_passed(look, cloud, ask, until, root):
    cloud.plant("serial-1")
    look()
    gone = Resource.objects.get()
    resources.retire(root, gone.pk)
    until(gone, state="destroyed")
    look()
    again = Resource.objects.get(gone_at=None)
    assert (again.identity, again.pk != gone.pk) == ("serial-1", True)
    Resource.objects.filter(pk=again.pk).update(missed=1)
    look()
    assert Resource.objects.get(pk=again.pk).missed == 1
    Sync.objects.update(applied_at="2020-01-01T00:00Z")
    look()
    assert Resource.objects.get(pk=again.pk).missed == 0


def test_a_failing_discovery_needs_attention_with_the_words_of_the_provider(look, cloud, pool, root, monkeypatch):
    look()
    assert attention.needed(root) == []

    def fail(*_: object) -> None:
        raise ConnectionError("provider is down")

    with monkeypatch.context() as patched:
        patched.setattr(Fake, "discover", fail)
        look()
    (found,) = attention.needed(root)
    assert (found.what, found.kind, found.id, found.name) == ("discovery_failed", "blueprint", pool.pk, "pool")
    assert found.message == "ConnectionError: provider is down"
    assert attention.needed(caller(User.objects.create_user("eve"))) == []
    look()
    assert attention.needed(root) == []


def test_resources_that_are_part_of_themselves_or_named_twice_are_refused(look, cloud, monkeypatch):
    for name, whole in (("a", "b"), ("b", "a"), ("card", "host"), ("port", "card"), ("host", "")):
        cloud.plant(name, part_of=whole)
    twice = Draft(identity="twin")
    found = Fake().discover
    monkeypatch.setattr(Fake, "discover", lambda self, view: [*found(view), twice, twice])
    look()
    assert sorted(Resource.objects.values_list("identity", "part_of__identity")) == [
        ("card", "host"), ("host", None), ("port", "card"),
    ]  # fmt: skip
    said = Sync.objects.get().message
    assert "a: It is part of itself." in said
    assert "twin: Several resources of one report have this identity." in said


def test_the_locality_of_a_discovered_resource_is_stored_followed_and_removed(look, cloud):
    cloud.plant("host")
    cloud.plant("card", part_of="host", locality=("node 0", "port 1"))
    look()
    card = Resource.objects.get(identity="card")
    assert card.locality == ["node 0", "port 1"]
    cloud.plant("card", part_of="host", locality=("node 1",))
    look()
    card.refresh_from_db()
    assert card.locality == ["node 1"]
    cloud.plant("card", part_of="host")
    look()
    card.refresh_from_db()
    assert card.locality == []


def test_a_draft_with_a_malformed_locality_is_not_stored(look, cloud):
    cloud.plant("card", locality=("x" * 101,))
    cloud.plant("other")
    look()
    assert set(Resource.objects.values_list("identity", flat=True)) == {"other"}


def test_a_step_sees_everything_that_its_resource_is_part_of(look, cloud):
    cloud.plant("host", name="box")
    cloud.plant("card", part_of="host")
    cloud.plant("slice", part_of="card", locality=("node 0",))
    look()
    view = specs.resource_view(Resource.objects.get(identity="slice"))
    assert [(one.identity, one.name, one.type, one.state) for one in view.part_of] == [
        ("card", "card", "fake", "active"), ("host", "box", "fake", "active"),
    ]  # fmt: skip
    assert [one.id for one in view.part_of] == [Resource.objects.get(identity=i).pk for i in ("card", "host")]
    assert view.locality == ("node 0",)
    assert specs.resource_view(Resource.objects.get(identity="host")).part_of == ()
