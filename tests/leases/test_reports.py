"""Reports: discovery place by place and page by page, or sent in by programs that run there."""

from __future__ import annotations

import datetime as dt
import uuid

import pytest
from django.db import connection
from django.test.utils import CaptureQueriesContext

from blueprints.fake import kind as fake
from blueprints.fake.cloud import Cloud
from blueprints.reports import Report
from drydock.core.errors import Busy, Conflict, InvalidRequest, NotSupported
from leases.engine.core import workers
from leases.engine.core.database import rows
from leases.engine.sync import discovery, findings
from leases.messaging import handlers, hints
from leases.messaging.inline import settle
from leases.models import Finding, Resource, Sync
from leases.operations import attention, blueprints
from leases.operations.callers import caller
from tests.engines.users import eventually
from tests.leases.test_workers import _hints_are_sent  # noqa: F401

KIND = "fake_reported"


@pytest.fixture
def root(django_user_model):
    workers.seen("elsewhere:1")
    return caller(django_user_model.objects.create_superuser("root"))


@pytest.fixture
def pool(blueprint):
    return blueprint(kind=KIND, config={"provider": "d", "page_size": 2}, max_resources=0)


@pytest.fixture
def cloud():
    return Cloud("d")


@pytest.fixture
def look(pool):
    """Discover every place that is due, by the sweep."""

    def now(*places: str) -> None:
        settle()
        due = Sync.objects.filter(blueprint=pool, place__in=places) if places else Sync.objects.all()
        due.update(due_at="2020-01-01T00:00Z")
        handlers.sweep()
        settle()

    return now


@pytest.fixture
def two(cloud, look):
    """Two hosts with three cards each, found."""
    for host in ("a", "b"):
        cloud.plant(host, place=host)
        for n in range(3):
            cloud.plant(f"{host}-{n}", place=host, part_of=host)
    look()
    look()


def missed():
    return dict(Resource.objects.filter(missed__gt=0).values_list("identity", "missed"))


def report(place, *identities, **more):
    found = [{"identity": one, "capacity": {"slots": 1}, "parts": [], "traits": []} for one in identities]
    return Report(place=place, content={"found": found}, **more)


def test_each_place_is_discovered_in_pages_under_a_row_of_its_own(two, pool, cloud):
    assert dict(Sync.objects.values_list("place", "found")) == {"": 2, "a": 4, "b": 4}
    assert Resource.objects.filter(part_of__identity="a").count() == 3
    assert Finding.objects.filter(sync__place="b").count() == 4


@pytest.mark.django_db(transaction=True)
@pytest.mark.usefixtures("_hints_are_sent")
def test_a_worker_discovers_all_places(worker, cloud, pool):
    for host in ("a", "b"):
        cloud.plant(host, place=host)
    eventually(lambda: hints.send("sweep") and Resource.objects.count() == 2, 30)


def test_a_place_that_does_not_answer_delays_no_other_and_loses_nothing(two, look, cloud, root, pool):
    cloud.silence("a", "no route to host a")
    cloud.plant("b-3", place="b", part_of="b")
    for _ in range(3):
        look()
    assert Resource.objects.filter(identity="b-3").exists()
    assert missed() == {}
    (found,) = attention.needed(root)
    assert (found.what, found.message) == ("discovery_failed", "a: ConnectionError: no route to host a")
    cloud.silence("a", "")
    look()
    assert attention.needed(root) == []


def test_an_incomplete_report_adds_and_changes_but_nothing_counts_as_missing(two, look, cloud, root):
    cloud.truncate("a", "the list of devices ends after 64 KiB")
    cloud.uproot("a-1")
    cloud.plant("a-2", place="a", part_of="a", attributes={"size": 5})
    for _ in range(3):
        look()
    assert missed() == {}
    assert Resource.objects.get(identity="a-2").attributes["size"] == 5
    (found,) = attention.needed(root)
    assert found.message == "a: The report is incomplete: the list of devices ends after 64 KiB"
    cloud.truncate("a", "")
    look()
    assert missed() == {"a-1": 1}
    look()
    assert Resource.objects.get(identity="a-1").observed == "lost"


def test_pages_after_a_failed_one_or_the_deadline_do_not_count_as_missing(two, look, cloud, monkeypatch):
    read = fake.FakeReported.read_report

    def break_(self, view, place, page):
        if (place, page) == ("a", "1"):
            raise ConnectionError("reset by peer")
        return read(self, view, place, page)

    cloud.plant("a", place="a", attributes={"color": "red"})
    with monkeypatch.context() as patched:
        patched.setattr(fake.FakeReported, "read_report", break_)
        look()
    assert (
        Sync.objects.get(place="a").message
        == "The report is incomplete: Page 1 could not be read: ConnectionError: reset by peer"
    )
    assert Resource.objects.get(identity="a").attributes["color"] == "red"
    with monkeypatch.context() as patched:
        patched.setattr(fake.FakeReported, "report_deadline", 0.0)
        look()
    assert Sync.objects.get(place="a").message == "The report is incomplete: Only 1 pages could be read within 0 s."
    assert missed() == {}
    look()
    assert set(Sync.objects.values_list("message", flat=True)) == {""}


def test_pages_that_never_end_are_incomplete(two, look, monkeypatch):
    again = report("a", "a", next_page="1")
    monkeypatch.setattr(fake.FakeReported, "read_report", lambda *_: again)
    look("a")
    assert "listed twice" in Sync.objects.get(place="a").message
    assert missed() == {}


def test_what_is_in_a_place_that_is_no_longer_named_is_missed_and_then_lost(two, look, cloud):
    for name in ("b", "b-0", "b-1", "b-2"):
        cloud.uproot(name)
    look("")
    assert missed() == dict.fromkeys(("b", "b-0", "b-1", "b-2"), 1)
    cloud.plant("b", place="b")
    look("")
    look("b")
    assert missed() == dict.fromkeys(("b-0", "b-1", "b-2"), 2)
    cloud.uproot("b")
    for _ in range(3):
        look("")
    assert not Sync.objects.filter(place="b").exists()
    assert not Resource.objects.filter(identity__startswith="b", gone_at=None).exists()
    assert Resource.objects.filter(gone_at=None).count() == 4


def test_who_lost_the_token_between_two_pages_stores_nothing(two, look, cloud, monkeypatch):
    read = fake.FakeReported.read_report

    def late(self, view, place, page):
        if place == "a":
            Sync.objects.filter(place="a").update(token=uuid.uuid4())
        return read(self, view, place, page)

    monkeypatch.setattr(fake.FakeReported, "read_report", late)
    cloud.plant("a", place="a", attributes={"color": "red"})
    look("a")
    assert "color" not in Resource.objects.get(identity="a").attributes


def test_an_unchanged_report_takes_at_most_three_statements(two, look, pool):
    pool.config = {"provider": "d"}
    pool.save()
    look()
    before = rows("SELECT xmin, id FROM leases_resource ORDER BY id")
    Sync.objects.update(due_at="2020-01-01T00:00Z")
    with CaptureQueriesContext(connection) as sent:
        assert discovery.discover(pool.pk, "a")
    assert len(sent) <= 3
    discovery.receive(pool.pk, report("c", "c-0", "c-1"))
    with CaptureQueriesContext(connection) as sent:
        discovery.receive(pool.pk, report("c", "c-0", "c-1"))
    assert len(sent) <= 3
    settle()
    after = rows("SELECT xmin, r.id FROM leases_resource r WHERE identity NOT LIKE 'c%%' ORDER BY id")
    assert after == before


def test_a_blueprint_or_its_kind_sets_the_interval_of_its_discoveries(two, look, pool, root, monkeypatch, settings):
    def seconds():
        look()
        return round(rows("SELECT extract(epoch FROM due_at - seen_at) FROM leases_sync WHERE place = 'a'")[0][0])

    assert seconds() == settings.DRYDOCK.discovery_interval_seconds
    monkeypatch.setattr(fake.FakeReported, "discovery_interval", dt.timedelta(minutes=5))
    assert seconds() == 300
    blueprints.change(root, "pool", blueprints.BlueprintChange(discovery_interval="7s"))
    assert seconds() == 7
    assert blueprints.get(root, "pool").discovery_interval == dt.timedelta(seconds=7)


def colored(place, color):
    found = [
        {"identity": f"gpu-{n}", "capacity": {"slots": 1}, "parts": [], "traits": [], "attributes": {"color": color}}
        for n in range(2)
    ]
    return Report(place=place, content={"found": found})


def colors():
    return [one["color"] for one in Resource.objects.order_by("identity").values_list("attributes", flat=True)]


@pytest.fixture
def dying(monkeypatch):
    """Let the process die when it has stored one of two resources, until the token is no longer valid."""

    def die(store):
        see, done = findings._see, []

        def once(*given):
            if done:
                raise SystemExit
            done.append(given)
            return see(*given)

        with monkeypatch.context() as patch:
            patch.setattr(findings, "_see", once)
            with pytest.raises(SystemExit):
                store()
        assert sorted(colors()) == ["green", "red"]
        Sync.objects.update(token_until="2020-01-01T00:00Z", due_at="2020-01-01T00:00Z")

    return die


def test_a_sent_report_is_not_taken_for_the_one_before_a_half_stored_one(pool, dying):
    discovery.receive(pool.pk, colored("agent", "red"))
    dying(lambda: discovery.receive(pool.pk, colored("agent", "green")))
    assert discovery.receive(pool.pk, colored("agent", "red")).stored
    assert colors() == ["red", "red"]


def test_a_report_that_is_read_is_not_taken_for_the_one_before_a_half_stored_one(pool, cloud, look, dying):
    def paint(color):
        for n in range(2):
            cloud.plant(f"gpu-{n}", place="a", attributes={"color": color})
        Sync.objects.update(due_at="2020-01-01T00:00Z")

    paint("red")
    look()
    look()
    paint("green")
    dying(lambda: discovery.discover(pool.pk, "a"))
    paint("red")
    assert discovery.discover(pool.pk, "a")
    assert colors() == ["red", "red"]


def test_reports_that_are_sent_in_are_never_read_and_silence_is_no_absence(pool, look, cloud):
    discovery.receive(pool.pk, report("agent", "gpu-0", "gpu-1"))
    for _ in range(4):
        look()
    assert missed() == {}
    row = Sync.objects.get(place="agent")
    assert (row.source, row.found, row.message) == ("sent", 2, "")
    discovery.receive(pool.pk, report("agent", "gpu-0", incomplete="no time"))
    assert missed() == {}
    discovery.receive(pool.pk, report("agent", "gpu-0"))
    assert missed() == {"gpu-1": 1}
    discovery.receive(pool.pk, report("agent", "gpu-0"))
    assert Resource.objects.get(identity="gpu-1").observed == "lost"
    discovery.receive(pool.pk, report("agent", "gpu-0", "gpu-1"))
    assert missed() == {}


def test_a_report_that_is_refused_changes_nothing(pool, blueprint, two):
    discovery.receive(pool.pk, report("agent", "gpu-0"))
    before = list(Sync.objects.order_by("pk").values())
    with pytest.raises(InvalidRequest, match="content: The report was rejected: 'found'"):
        discovery.receive(pool.pk, Report(place="agent", content={"lost": []}))
    with pytest.raises(InvalidRequest, match="not valid JSON"):
        discovery.receive(pool.pk, Report(place="agent", content={"found": [float("nan")]}))
    with pytest.raises(Conflict, match="reads the reports about a itself"):
        discovery.receive(pool.pk, report("a", "x"))
    with pytest.raises(NotSupported, match="takes no reports"):
        discovery.receive(blueprint("other", kind="fake").pk, report("agent", "x"))
    assert list(Sync.objects.order_by("pk").values()) == before
    assert missed() == {}
    Sync.objects.filter(place="agent").update(token=uuid.uuid4(), token_until="2100-01-01T00:00Z")
    with pytest.raises(Busy):
        discovery.receive(pool.pk, report("agent", "gpu-1"))
    pool.enabled = False
    pool.save()
    with pytest.raises(Conflict, match="disabled"):
        discovery.receive(pool.pk, report("agent", "gpu-1"))
