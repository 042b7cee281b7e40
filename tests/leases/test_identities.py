"""One thing is one row, by whatever names and in whichever host it is found."""

from __future__ import annotations

import pytest
from django.db import IntegrityError, transaction

from blueprints.fake.cloud import Cloud
from drydock.core.errors import Conflict
from leases.engine.core import workers
from leases.engine.sync import discovery
from leases.messaging.inline import settle
from leases.models import Event, Resource, ResourceIdentity, Sync
from leases.operations import attention, resources
from leases.operations.callers import caller
from leases.reasons import Reason

S1, S2 = {"serial:acme": "S-0001"}, {"serial:acme": "S-0002"}


@pytest.fixture
def root(django_user_model):
    workers.seen("elsewhere:1")
    return caller(django_user_model.objects.create_superuser("root"))


@pytest.fixture
def cards(blueprint):
    return blueprint("cards", config={"provider": "cards"}, max_resources=0)


@pytest.fixture
def others(blueprint):
    return blueprint("others", config={"provider": "others"}, max_resources=0)


@pytest.fixture
def racks(blueprint):
    return blueprint("racks", kind="fake_reported", config={"provider": "racks"}, max_resources=0)


def look(found, *places):
    settle()
    for place in places or ("",):
        Sync.objects.filter(blueprint=found).update(due_at="2020-01-01T00:00Z")
        if not discovery.discover(found.pk, place):
            discovery.due()
            assert discovery.discover(found.pk, place)
    settle()


def names():
    return sorted(f"{one.resource.identity} {one}" for one in ResourceIdentity.objects.select_related("resource"))


def test_a_resource_has_several_identities_and_those_no_longer_reported_are_removed(cards):
    cloud = Cloud("cards")
    cloud.plant("c", identities={**S1, "mac": "00-1B-21-AA-BB-CC", "dmi_uuid": "N/A"})
    look(cards)
    assert names() == ["c mac 00:1b:21:aa:bb:cc", "c serial:acme S-0001"]
    cloud.plant("c", identities={**S2, "mac": "00:1b:21:aa:bb:cc"})
    look(cards)
    assert names() == ["c mac 00:1b:21:aa:bb:cc", "c serial:acme S-0002"]
    cloud.plant("c")
    look(cards)
    assert names() == []


def test_placeholders_and_a_serial_reported_twice_identify_nothing(cards):
    cloud = Cloud("cards")
    for name in ("x", "y"):
        cloud.plant(name, identities=S1)
    cloud.plant("z", identities={"serial:acme": "To be filled by O.E.M.", "dmi_uuid": "[REDACTED]"})
    cloud.plant("N/A")
    look(cards)
    assert names() == []
    assert set(Resource.objects.values_list("identity", flat=True)) == {"x", "y", "z"}
    assert "N/A: Its identity is a placeholder." in Sync.objects.get().message


def test_the_database_refuses_an_identity_twice_until_the_first_is_gone(cards, until, root):
    cloud = Cloud("cards")
    cloud.plant("a", identities=S1)
    cloud.plant("b")
    look(cards)
    first, second = Resource.objects.order_by("identity")
    again = {"namespace": "serial:acme", "value": "S-0001"}
    with pytest.raises(IntegrityError, match="thing_once"), transaction.atomic():
        ResourceIdentity.objects.create(resource=second, **again)
    Resource.objects.filter(pk=first.pk).update(gone_at="2020-01-01T00:00Z")
    assert names() == []
    ResourceIdentity.objects.create(resource=second, **again)
    with pytest.raises(IntegrityError, match="is gone and has no identities"), transaction.atomic():
        ResourceIdentity.objects.create(resource=first, namespace="mac", value="00:1b:21:aa:bb:cc")


def test_a_second_discoverer_is_a_conflict_and_never_a_second_lease(cards, others, ask, until, root):
    Cloud("cards").plant("card-7", identities=S1)
    look(cards)
    Cloud("others").plant("slot-3", identities=S1, name="the card in slot 3")
    look(others)
    mine = Resource.objects.get()
    assert until(ask(), state="active").resource_id == mine.pk
    assert ask().state == "pending"
    (found,) = [one for one in attention.needed(root) if one.what == "identity_conflict"]
    assert (found.kind, found.id, found.mend) == ("blueprint", others.pk, f"drydock resources show {mine.pk}")
    assert found.message == (
        "the card in slot 3 (serial:acme S-0001), found by blueprint others, is already resource "
        f"{mine.pk} (card-7) of blueprint cards."
    )
    look(others)
    (again,) = [one for one in attention.needed(root) if one.what == "identity_conflict"]
    assert again.since == found.since
    Resource.objects.filter(pk=mine.pk).update(gone_at="2020-01-01T00:00Z")
    look(others)
    assert Resource.objects.get(gone_at=None).blueprint == others
    assert not [one for one in attention.needed(root) if one.what == "identity_conflict"]


def test_a_resource_that_turns_out_to_be_another_one_serves_no_new_leases(cards, others, ask, until):
    Cloud("cards").plant("card-7", identities=S1)
    Cloud("others").plant("slot-3")
    look(cards)
    look(others)
    Cloud("others").plant("slot-3", identities=S1)
    look(others)
    twin = Resource.objects.get(blueprint=others)
    assert twin.quarantined
    assert twin.note.startswith(f"The same thing as resource {Resource.objects.get(blueprint=cards).pk}")
    assert until(ask(), state="active").resource.blueprint == cards
    assert ask().state == "pending"
    Cloud("others").plant("slot-3", identities=S2)
    look(others)
    twin.refresh_from_db()
    assert (twin.quarantined, twin.note) == (False, "")


def test_a_thing_that_is_already_a_resource_is_not_registered_again(cards, blueprint, root):
    Cloud("cards").plant("card-7", identities=S1)
    look(cards)
    hosts = blueprint("hosts")
    with pytest.raises(Conflict, match=r"box is already resource \d+ \(card-7\) of blueprint cards"):
        resources.register(root, "hosts", {"name": "box", "identities": S1})
    made = resources.register(root, "hosts", {"name": "box", "identities": S2})
    assert ResourceIdentity.objects.get(resource=made.id).value == "S-0002"
    assert hosts.resources.count() == 1


def test_an_identity_that_a_build_finds_out_is_refused_twice_and_shown(blueprint, ask, until, root):
    pool = blueprint(config={"identities": {"dmi_uuid": "4C4C4544-0042-3510-8051-B4C04F4A4E32", "serial:x": "N/A"}})
    first = until(ask(), state="active").resource
    info = resources.get(root, first.pk)
    assert info.identities == ("dmi_uuid 4c4c4544-0042-3510-8051-b4c04f4a4e32",)
    ask()
    settle()
    second = until(pool.resources.exclude(pk=first.pk).get(), state="active", quarantined=True)
    assert second.note == (
        "dmi_uuid 4c4c4544-0042-3510-8051-b4c04f4a4e32 also identifies"
        f" resource {first.pk} ({first}) of blueprint pool, so both are the same thing."
    )
    assert [one.id for one in attention.needed(root) if one.what == "quarantined"] == [second.pk]


def test_a_report_neither_removes_what_a_step_found_out_nor_ends_its_quarantine(blueprint):
    dmi = {"dmi_uuid": "4C4C4544-0042-3510-8051-B4C04F4A4E32"}
    pool = blueprint(config={"provider": "d", "identities": dmi}, max_resources=0)
    cloud = Cloud("d")
    for name in ("a", "b"):
        cloud.plant(name, identities={"serial:acme": f"S-{name}0"})
    look(pool)
    settle()
    twin = Resource.objects.get(quarantined=True)
    assert "also identifies" in twin.note
    assert len(names()) == 3
    for name in ("a", "b"):
        cloud.plant(name, identities={"serial:acme": f"S-{name}1"}, attributes={"size": 1})
    look(pool)
    twin.refresh_from_db()
    assert (twin.quarantined, twin.attributes) == (True, {"size": 1})
    assert sorted(ResourceIdentity.objects.values_list("value", flat=True)) == [
        "4c4c4544-0042-3510-8051-b4c04f4a4e32", "S-a1", "S-b1",
    ]  # fmt: skip


def test_a_device_found_under_another_name_is_the_same_row(cards):
    cloud = Cloud("cards")
    cloud.plant("0000:17:00.0", identities=S1)
    look(cards)
    before = Resource.objects.get()
    cloud.uproot("0000:17:00.0")
    cloud.plant("0000:65:00.0", identities=S1)
    look(cards)
    after = Resource.objects.get()
    assert (after.pk, after.identity, after.missed) == (before.pk, "0000:65:00.0", 0)


def test_a_leased_device_in_another_host_breaks_its_lease_with_the_reason(cards, ask, until):
    cloud = Cloud("cards")
    for host in ("host-a", "host-b"):
        cloud.plant(host, attributes={"color": "blue"})
    cloud.plant("a/gpu", part_of="host-a", name="GPU 1", identities=S1, attributes={"color": "red"})
    look(cards)
    lease = until(ask(requirements={"color": "red"}), state="active")
    cloud.uproot("a/gpu")
    cloud.plant("b/gpu", part_of="host-b", name="GPU 1", identities=S1, attributes={"color": "red"})
    look(cards)
    lease.refresh_from_db()
    assert (lease.state, lease.reason) == ("broken", Reason.MOVED)
    assert lease.message == "GPU 1 was in host-a and was found in host-b."
    look(cards)
    moved = Resource.objects.get(pk=lease.resource_id)
    assert (moved.identity, moved.part_of.identity, moved.quarantined) == ("b/gpu", "host-b", False)
    assert Event.objects.get(kind="resource.moved").resource_id == moved.pk
    assert Resource.objects.count() == 3
    assert until(ask(requirements={"color": "red"}), state="active").resource_id == moved.pk


def test_the_row_moves_once_what_the_lease_left_is_cleaned(blueprint, ask, until):
    pool = blueprint("deep", kind="fake_activated", config={"provider": "deep"}, max_resources=0)
    cloud = Cloud("deep")
    for host in ("host-a", "host-b"):
        cloud.plant(host, attributes={"color": "blue"})
    cloud.plant("gpu", part_of="host-a", attributes={"color": "red"})
    look(pool)
    lease = until(ask("fake_activated", requirements={"color": "red"}), state="active")
    cloud.plant("gpu", part_of="host-b", attributes={"color": "red"})
    Sync.objects.update(due_at="2020-01-01T00:00Z")
    assert discovery.discover(pool.pk)
    gpu = Resource.objects.get(identity="gpu")
    assert (gpu.part_of.identity, gpu.quarantined, gpu.note) == ("host-a", True, "Moved to host-b.")
    until(lease, state="broken", reason=Reason.MOVED)
    for _ in range(3):
        look(pool)
    gpu.refresh_from_db()
    assert (gpu.part_of.identity, gpu.quarantined, gpu.missed) == ("host-b", False, 0)


def test_a_device_reported_in_two_hosts_stays_until_a_complete_report_of_the_first_omits_it(
    racks, ask, until, root
):  # fmt: skip
    cloud = Cloud("racks")
    for rack in ("a", "b"):
        cloud.plant(f"host-{rack}", place=rack, attributes={"color": "blue"})
    cloud.plant("gpu", place="a", part_of="host-a", identities=S1, attributes={"color": "red"})
    look(racks, "", "a", "b")
    lease = until(ask("fake_reported", requirements={"color": "red"}), state="active")
    cloud.plant("b-gpu", place="b", part_of="host-b", identities=S1, attributes={"color": "red"})
    look(racks, "b", "b")
    lease.refresh_from_db()
    assert lease.state == "active"
    (found,) = [one for one in attention.needed(root) if one.what == "identity_conflict"]
    assert "b-gpu is reported in b and in a." in found.message
    cloud.truncate("a", "no time")
    cloud.uproot("gpu")
    look(racks, "a", "b")
    lease.refresh_from_db()
    assert lease.state == "active"
    cloud.truncate("a", "")
    look(racks, "a", "b")
    lease.refresh_from_db()
    assert (lease.state, lease.reason, lease.message) == (
        "broken", Reason.MOVED, "b-gpu was in host-a and was found in host-b.",
    )  # fmt: skip
    look(racks, "b", "a", "a")
    moved = Resource.objects.get(pk=lease.resource_id)
    assert (moved.part_of.identity, moved.missed, moved.observed) == ("host-b", 0, "ok")
    assert not [one for one in attention.needed(root) if one.what == "identity_conflict"]


def test_a_host_that_appears_above_its_devices_breaks_no_lease(cards, ask, until):
    cloud = Cloud("cards")
    cloud.plant("gpu", identities=S1, attributes={"color": "red"})
    look(cards)
    lease = until(ask(requirements={"color": "red"}), state="active")
    cloud.plant("host-a", attributes={"color": "blue"})
    cloud.plant("gpu", identities=S1, part_of="host-a", attributes={"color": "red"})
    look(cards)
    lease.refresh_from_db()
    assert (lease.state, lease.resource.part_of.identity) == ("active", "host-a")
