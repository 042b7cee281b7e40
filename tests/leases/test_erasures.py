"""Erasure records: written with the answer that reports them, kept longer than what they name, and never changed."""

from __future__ import annotations

import datetime as dt

import pytest
from django.db import IntegrityError, connection, transaction

from blueprints.answers import Failed, Ready, Scope
from blueprints.contract import Acts, Cleans, DeclaredAct, Step
from blueprints.fake.kind import Fake
from blueprints.records.erasures import Erasure
from drydock.core import clock
from drydock.core.errors import InvalidRequest
from leases import erasures
from leases.engine.records import erasures as engine
from leases.engine.upkeep import pruning
from leases.messaging.inline import settle
from leases.models import ErasureRecord, Event, Lease, Resource
from leases.operations import leases, machines, resources
from leases.operations.callers import caller
from tests.leases import kinds

BEGAN = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)


def erasure(disk="sda", **more):
    given = {
        "serial": "S1", "model": "Disk", "method": "overwrite", "started_at": BEGAN,
        "ended_at": BEGAN + dt.timedelta(hours=2), "verified": True,
    }  # fmt: skip
    return Erasure(disk=disk, **{**given, **more})


class Shredded(Fake, Cleans, Acts):
    """Reports the same erasure in two steps of its cleaning, and erases by an act."""

    name = "shredded"
    resource_type = "shredded"
    reported = (erasure(), erasure("sdb", serial="S2"))
    fails = False

    def clean(self):
        return (Step(name="erase", act=self._report), Step(name="verify", act=self._report))

    def acts(self):
        return (DeclaredAct(name="erase", summary="Erase the disks.", plan=self._erasure, dangerous=True),)

    def _erasure(self):
        return (Step(name="wipe", act=self._report),)

    def _report(self, spec, memo):
        if self.fails:
            return Failed(scope=Scope.OPERATOR, code="disk", message="A disk failed.", erasures=self.reported)
        return Ready(erasures=self.reported)


@pytest.fixture
def shredded():
    kind = Shredded()
    with kinds.installed(kind):
        yield kind


@pytest.fixture
def operator(django_user_model):
    return caller(django_user_model.objects.create_superuser("root"))


def served(ask, until, type_):
    return until(ask(type_), state="active")


def release(lease, owner, until):
    leases.release(caller(owner), lease.pk)
    return until(lease, state="destroyed")


@pytest.mark.parametrize("apart", [False, True])
def test_a_cleaning_leaves_a_record_and_an_event_for_each_disk(blueprint, ask, until, owner, apart, soon):
    disks = {"disks": 2, "clean_apart": apart, "clean_polls": 1, "poll_seconds": 0}
    blueprint(kind="fake_activated", config={**disks, "identities": {"dmi_uuid": "4C4C4544"}})
    lease = served(ask, until, "fake_activated")
    release(lease, owner, until)
    until(Resource.objects.get(pk=lease.resource_id), in_maintenance=False)

    found = ErasureRecord.objects.order_by("disk")
    assert [(one.disk, one.verified, one.method) for one in found] == [
        ("disk0", True, "overwrite"),
        ("disk1", True, "overwrite"),
    ]
    first = found[0]
    assert (first.lease_id, first.owner, first.requested_by) == (lease.pk, "ada", "ada")
    assert (first.resource_id, first.blueprint, first.kind) == (lease.resource_id, "pool", "fake_activated")
    assert (first.phase, first.step, first.act) == ("clean", "wipe", "")
    assert first.identities == ["dmi_uuid 4c4c4544"]
    assert first.started_at <= first.ended_at
    events = Event.objects.filter(kind="resource.erased", lease=lease.pk, resource=lease.resource_id)
    assert sorted(one.details["record"] for one in events) == sorted(one.pk for one in found)
    assert f"{first.serial} was erased (overwrite)" in events[0].message


def test_a_disk_that_fails_is_recorded_with_its_problem_and_so_is_the_next_attempt(blueprint, ask, until, owner):
    fault = {"does": "disk_fails", "disk": "disk1"}
    blueprint(kind="fake_activated", config={"disks": 2, "clean_apart": True, "faults": [fault]})
    lease = served(ask, until, "fake_activated")
    release(lease, owner, until)
    settle()

    failed = ErasureRecord.objects.get(verified=False)
    assert (failed.disk, failed.problem, failed.method) == ("disk1", "The disk is read-only.", "")
    assert ErasureRecord.objects.filter(disk="disk0", verified=True).exists()
    event = Event.objects.get(kind="resource.erasure_failed")
    assert event.message.endswith("is not proven to be erased: The disk is read-only.")


def test_an_erasure_that_is_reported_twice_is_recorded_once(shredded, blueprint, ask, until, owner):
    blueprint(kind="shredded")
    lease = served(ask, until, "shredded")
    release(lease, owner, until)
    assert sorted(ErasureRecord.objects.values_list("disk", "step")) == [("sda", "erase"), ("sdb", "erase")]
    assert Event.objects.filter(kind="resource.erased").count() == 2

    again = served(ask, until, "shredded")
    assert again.resource_id == lease.resource_id
    shredded.reported = (erasure(started_at=BEGAN + dt.timedelta(days=1)),)
    release(again, owner, until)
    assert list(ErasureRecord.objects.filter(lease=again.pk).values_list("disk", flat=True)) == ["sda"]


def test_texts_of_firmware_are_cut_and_without_control_characters(shredded, blueprint, ask, until, owner):
    shredded.reported = (
        erasure("sd\0a", model="x" * 1000, serial="\x1b[31mred", bytes=1 << 80, size_bytes=-5, problem="p" * 9000),
    )
    blueprint(kind="shredded")
    release(served(ask, until, "shredded"), owner, until)
    found = ErasureRecord.objects.get()
    assert (found.disk, found.serial, found.model) == ("sd a", "[31mred", "x" * 255)
    assert (found.bytes, found.size_bytes, len(found.problem)) == ((1 << 63) - 1, 0, 2000)


def test_one_answer_is_recorded_up_to_a_number_of_disks(shredded, blueprint, ask, until, owner, monkeypatch):
    monkeypatch.setattr(engine, "MOST", 3)
    shredded.reported = tuple(erasure(f"sd{n}") for n in range(5))
    blueprint(kind="shredded")
    release(served(ask, until, "shredded"), owner, until)
    assert ErasureRecord.objects.count() == 3


def test_an_act_is_recorded_with_who_requested_it(shredded, blueprint, operator, until):
    blueprint(kind="shredded", max_resources=1)
    rack = until(Resource.objects.get(pk=resources.register(operator, "pool", {"name": "r1"}).id), state="active")
    machines.start_act(operator, rack.pk, "erase", arguments={})
    settle()
    found = ErasureRecord.objects.get(disk="sda")
    assert (found.phase, found.act, found.requested_by) == ("act", "erase", "root")
    assert (found.resource_name, found.lease_id, found.owner) == ("r1", None, "")


def test_a_record_cannot_be_changed(shredded, blueprint, ask, until, owner):
    blueprint(kind="shredded")
    release(served(ask, until, "shredded"), owner, until)
    with pytest.raises(IntegrityError, match="never changed"), transaction.atomic():
        ErasureRecord.objects.update(verified=False)
    assert not ErasureRecord.objects.filter(verified=False).exists()


def _age(days):
    """Make every record older. The trigger that refuses this is disabled meanwhile."""
    with connection.cursor() as cursor:
        cursor.execute("ALTER TABLE leases_erasurerecord DISABLE TRIGGER erasure_is_fixed")
        cursor.execute("UPDATE leases_erasurerecord SET recorded_at = recorded_at - %s * interval '1 day'", (days,))
        cursor.execute("ALTER TABLE leases_erasurerecord ENABLE TRIGGER erasure_is_fixed")


@pytest.fixture
def old_record(shredded, blueprint, ask, until, owner, monkeypatch):
    """A record whose lease and resource are pruned."""
    blueprint(kind="shredded", idle_timeout=dt.timedelta(0))
    lease = served(ask, until, "shredded")
    release(lease, owner, until)
    resource = until(Resource.objects.get(pk=lease.resource_id), state="destroyed")
    past = clock.now() - dt.timedelta(days=365)
    Lease.objects.filter(pk=lease.pk).update(created_at=past, ended_at=past)
    Resource.objects.filter(pk=resource.pk).update(created_at=past, gone_at=past)
    for walk in pruning.WALKS:
        walk.place, walk.rest.until = 0, 0.0
    pruning.ERASURES.until = 0.0
    pruning.prune_ended()
    pruning.prune_ended()
    assert not Resource.objects.filter(pk=resource.pk).exists()
    assert not Lease.objects.filter(pk=lease.pk).exists()
    return lease


def test_records_outlive_their_lease_and_their_resource(old_record):
    _age(100_000)
    assert pruning.prune_erasures() == 0
    found = ErasureRecord.objects.filter(lease=old_record.pk, resource=old_record.resource_id)
    assert {(one.owner, one.blueprint) for one in found} == {("ada", "pool")}


def test_records_are_pruned_after_their_retention_if_there_is_one(old_record, settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"erasure_retention_days": 30})
    _age(29)
    assert pruning.prune_erasures() == 0
    pruning.ERASURES.until = 0.0
    _age(2)
    assert pruning.prune_erasures() == 2
    assert not ErasureRecord.objects.exists()


@pytest.mark.parametrize(
    "wrong", [{"disk": ""}, {"started_at": dt.datetime(2026, 3, 1)}, {"ended_at": dt.datetime(2026, 3, 1)}]
)
def test_an_erasure_needs_its_disk_and_times_with_a_zone(wrong):
    with pytest.raises(ValueError, match=r"need(s the name| a time zone)"):
        erasure(**wrong)


@pytest.fixture
def records(shredded, blueprint, ask, until, owner, django_user_model):
    """Records after a lease of ada and one of bob on the same machine."""
    blueprint(kind="shredded", max_resources=1)
    bob = django_user_model.objects.create_user("bob")
    for day, user in enumerate((owner, bob)):
        began = BEGAN + dt.timedelta(days=day)
        shredded.reported = (
            erasure(serial=f"S{day}", wwn=f"0x{day}", started_at=began),
            erasure("sdb", serial=f"T{day}", started_at=began, verified=False, method="", problem="It is read-only."),
        )
        release(until(ask("shredded", by=user), state="active"), user, until)
    return caller(owner), caller(bob)


def _seen(who, **given):
    return [(one.owner, one.disk) for one in erasures.erasures(who, **given)]


def test_owners_see_the_records_of_their_own_leases_and_operators_see_all(records, operator):
    ada, bob = records
    assert _seen(ada) == [("ada", "sda"), ("ada", "sdb")]
    assert _seen(bob) == [("bob", "sda"), ("bob", "sdb")]
    everything = erasures.erasures(operator)
    assert [(one.owner, one.disk) for one in everything] == _seen(ada) + _seen(bob)
    assert _seen(bob, lease=everything[0].lease) == _seen(bob, serial="S0") == []
    assert {one.resource for one in erasures.erasures(ada)} == {one.resource for one in erasures.erasures(bob)}


def test_records_are_found_by_disk_lease_resource_time_and_result(records, operator):
    ada, _ = records
    first = erasures.erasures(ada)[0]
    assert _seen(operator, serial="S1") == _seen(operator, serial="0x1") == [("bob", "sda")]
    assert _seen(operator, lease=first.lease) == [("ada", "sda"), ("ada", "sdb")]
    assert len(_seen(operator, resource=first.resource)) == 4
    assert _seen(operator, resource=first.resource + 1) == []
    assert len(_seen(operator, name=first.resource_name)) == 4
    assert _seen(operator, name="another") == []
    assert _seen(operator, verified=False) == [("ada", "sdb"), ("bob", "sdb")]
    assert _seen(operator, verified=True, limit=1) == [("ada", "sda")]
    assert _seen(operator, verified=True, after=first.id) == [("bob", "sda")]
    assert _seen(operator, since=clock.now() + dt.timedelta(hours=1)) == []
    assert len(_seen(operator, since=first.recorded_at)) == 4


@pytest.mark.parametrize(
    ("wrong", "field"),
    [({"limit": 0}, "limit"), ({"limit": 1001}, "limit"), ({"since": dt.datetime(2026, 3, 1)}, "since"),
     ({"serial": "a\0b"}, "serial"), ({"lease": 1 << 64}, "lease")],
)  # fmt: skip
def test_a_wrong_filter_is_refused(operator, wrong, field):
    with pytest.raises(InvalidRequest) as refused:
        erasures.erasures(operator, **wrong)
    assert refused.value.field == field
