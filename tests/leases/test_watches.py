"""Watches of providers: a change makes the steps due that wait for it, and without a watch nothing is lost but time."""

from __future__ import annotations

import datetime as dt
import itertools
import os
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from django.db import OperationalError, connection, transaction
from django.db.models.functions import Now
from typer.testing import CliRunner

from blueprints.fake.cloud import Cloud
from blueprints.fake.kind import Fake
from blueprints.models import Credential
from blueprints.specs import Owned
from blueprints.watches import Changes, WatchFailed
from drydock.cli.program import app
from drydock.cli.toolkit import options
from drydock.core import clock
from drydock.core.logging import hidden
from leases.engine.core import database, installation, specs
from leases.engine.core.database import rows
from leases.engine.lifecycle import runner, watches
from leases.engine.lifecycle.watches import Key, TokenLost
from leases.local import LocalClient
from leases.messaging.inline import settle
from leases.messaging.watcher import Watcher, WatchThread
from leases.models import Lease, ProviderWatch, Resource, Run
from leases.operations import credentials, leases
from leases.operations.callers import caller
from leases.reports.figures import FIGURES
from tests.settings import DATABASE
from tests.workers import Worker

pytestmark = pytest.mark.django_db(transaction=True)
KEY = Key("fake", "", "w")
LATER, PAST = "2100-01-01T00:00Z", "2020-01-01T00:00Z"


@pytest.fixture
def pool(blueprint: Any) -> Any:
    """A blueprint whose builds wait for the provider, which is watched."""
    config = {"provider": "w", "watch": True, "boot_polls": 500, "poll_seconds": 60, "watched_seconds": 600}
    return blueprint(config=config)


@pytest.fixture
def cloud() -> Cloud:
    return Cloud("w")


@pytest.fixture
def booting(pool: Any, ask: Any, cloud: Cloud) -> Run:
    """The run of a build that waits."""
    ask()
    settle()
    run = Run.objects.get()
    assert run.step == "boot"
    return run


@pytest.fixture
def follow() -> Iterator[Callable[..., WatchThread]]:
    """Watch in a thread under a token, until the end of the test."""
    begun: list[WatchThread] = []

    def begin(name: str = "here") -> WatchThread:
        begun.append(WatchThread(KEY, token(name)))
        return begun[-1]

    yield begin
    for one in begun:
        one.stop()
        one.join(20)
        assert not one.is_alive()


def token(name: str = "here") -> Any:
    """Take the token of the only watch."""
    watches.arrange(watches.wanted())
    found = watches.take(KEY, name)
    assert found is not None
    return found


def reached(what: Callable[[], bool]) -> None:
    end = clock.monotonic() + 60
    while not what():
        assert clock.monotonic() < end, list(ProviderWatch.objects.values())
        clock.sleep(0.02)


def watching(**columns: Any) -> Callable[[], bool]:
    """Return a question whether the watch has these columns."""
    return ProviderWatch.objects.filter(**(columns or {"listed_at__isnull": False})).exists


def is_due() -> bool:
    return Run.objects.filter(due_at__lte=clock.now()).exists()


def until_due() -> float:
    return (Run.objects.get().due_at - clock.now()).total_seconds()


def key_of(resource_id: int) -> str:
    """Return the key of the instance of a resource."""
    return next(one.key for one in Cloud("w").instances() if one.key.endswith(f"-r{resource_id}"))


def changed(progress: Any = None, /, **tags: str) -> Changes:
    """Return the news that the only instance has changed."""
    (one,) = Cloud("w").instances()
    return Changes(objects=(Owned(key=one.key, tags={**one.tags, **tags}, progress=progress),), bookmark="7")


def test_a_change_at_the_provider_wakes_the_build_that_waits_for_it(booting, cloud, follow):
    follow()
    reached(watching())
    Run.objects.update(due_at=LATER)
    cloud.complete(key_of(booting.resource_id))
    reached(is_due)
    settle()
    booting.resource.refresh_from_db()
    assert booting.resource.state == "active"
    reached(watching(event_at__isnull=False, bookmark="1", message="", worker="here"))


def test_a_change_of_one_instance_does_not_wake_the_builds_of_others(booting, ask, cloud, follow):
    ask()
    settle()
    follow()
    reached(watching())
    Run.objects.update(due_at=LATER)
    cloud.report(key_of(booting.resource_id))
    reached(is_due)
    assert Run.objects.filter(due_at__lte=clock.now()).get() == booting


def test_a_watched_step_is_polled_less_often_while_the_watch_works(pool, ask, cloud, follow):
    follow()
    reached(watching())
    ask()
    settle()
    assert until_due() > 300
    ProviderWatch.objects.update(token_until=PAST)
    Run.objects.update(due_at=PAST)
    settle()
    assert until_due() <= 60


def test_a_failing_watch_says_why_and_goes_on_where_it_was(booting, cloud, follow):
    follow()
    reached(watching())
    Run.objects.update(due_at=LATER)
    cloud.break_watch("no route to the provider")
    reached(watching(message="no route to the provider", failing_since__isnull=False))
    reached(is_due)
    settle()
    assert until_due() <= 60, "it is polled as without a watch"
    Run.objects.update(due_at=LATER)
    cloud.complete(key_of(booting.resource_id))
    cloud.break_watch("")
    reached(is_due)
    reached(watching(message="", failing_since=None, bookmark="1"))


def test_a_bookmark_from_the_future_of_a_restored_provider_means_a_listing(booting, cloud, follow):
    cloud.report(key_of(booting.resource_id))
    watches.arrange(watches.wanted())
    ProviderWatch.objects.update(bookmark="900")
    Run.objects.update(due_at=LATER)
    cloud.restore()
    follow()
    reached(is_due)
    reached(watching(bookmark="0", listed_at__isnull=False))


def test_a_kind_that_cannot_read_its_bookmark_begins_with_a_listing(booting, cloud, follow, caplog):
    watches.arrange(watches.wanted())
    ProviderWatch.objects.update(bookmark="of another version")
    follow()
    reached(watching(bookmark="0", listed_at__isnull=False, message=""))
    assert "The watch failed." in caplog.text


def test_only_one_worker_watches_and_another_succeeds_it(pool, cloud):
    first = token("one")
    assert watches.take(KEY, "two") is None
    watches.store(first, Changes(bookmark="5"), [])
    assert watches.keep([first]) == {first}
    ProviderWatch.objects.update(token_until=PAST)  # its worker was killed
    second = watches.take(KEY, "two")
    assert second is not None
    assert watches.bookmark(second) == "5"
    assert watches.keep([first]) == set()
    with pytest.raises(TokenLost):
        watches.store(first, Changes(bookmark="6"), [])
    with pytest.raises(TokenLost):
        watches.failed(first, "late", None, [])
    watches.release([second])
    assert watches.take(KEY, "one") is not None


@pytest.mark.parametrize("lost", ["token", "crash"])
def test_a_bookmark_is_stored_with_what_it_brought_or_not_at_all(booting, lost):
    here, found = token(), list[str]()
    Run.objects.update(due_at=LATER)
    news = changed()
    if lost == "token":
        _steal()
        found.append(_stored(here, news))
    else:
        _end_while_it_stores(here, news, found)
    assert found == ["lost"]
    assert not is_due()
    assert not Resource.objects.filter(changed=True).exists()
    assert ProviderWatch.objects.get().bookmark == ""


_END_THE_ONE_THAT_WAITS = """
    SELECT pg_terminate_backend(pid) FROM pg_locks
    WHERE NOT granted AND pg_backend_pid() = ANY(pg_blocking_pids(pid))"""


def _end_while_it_stores(here: Any, news: Changes, found: list[str]) -> None:
    """End the connection of a watch when it has stored the bookmark, and waits for the lock of the run."""
    with transaction.atomic():
        list(Run.objects.select_for_update(no_key=True))
        thread = threading.Thread(target=lambda: found.append(_stored(here, news)))
        thread.start()
        reached(lambda: bool(rows(_END_THE_ONE_THAT_WAITS)))
        thread.join(10)


def test_a_watch_whose_token_is_taken_meanwhile_stores_before_that_or_not_at_all(booting):
    here, found = token(), list[str]()
    Run.objects.update(due_at=LATER)
    news = changed()
    with transaction.atomic():
        _steal()
        thread = threading.Thread(target=lambda: found.append(_stored(here, news)))
        thread.start()
        thread.join(0.3)
        assert thread.is_alive(), "it waits for the one that takes the token"
    thread.join(10)
    assert found == ["lost"]
    assert not is_due()


def _stored(here: Any, news: Changes) -> str:
    try:
        return "stored" if watches.store(here, news, []) else "nothing"
    except (TokenLost, OperationalError):
        return "lost"
    finally:
        if threading.current_thread() is not threading.main_thread():
            connection.close()


def _steal() -> None:
    ProviderWatch.objects.update(token="00000000-0000-4000-8000-000000000001")


def test_a_watch_goes_on_at_its_bookmark_after_the_database_was_lost(booting, cloud, follow, monkeypatch):
    struck: list[str] = []
    store = watches._store.__wrapped__

    def lose(*args: Any) -> int:
        if not struck:
            struck.append("lost")
            connection.cursor().execute("SELECT pg_terminate_backend(pg_backend_pid())")
        return int(store(*args))

    here = follow()
    reached(watching())
    monkeypatch.setattr(watches, "_store", database.short(lose))
    Run.objects.update(due_at=LATER)
    cloud.complete(key_of(booting.resource_id))
    reached(is_due)
    reached(watching(bookmark="1", message="", failing_since=None))
    assert struck == ["lost"]
    assert here.is_alive()


@pytest.mark.parametrize("before", [{}, {"tries": 2}, {"waits_for": "leases"}], ids=["plain", "failed", "waited"])
def test_a_change_during_a_call_has_the_step_called_again_at_once(booting, before):
    here = token()
    Run.objects.update(due_at=PAST, **before)
    struck: list[int] = []

    def strike(point: str) -> None:
        if point == "run.called" and not struck:
            struck.append(watches.store(here, changed(), []))

    database.hook(strike)
    try:
        runner._one(booting.pk)
    finally:
        database.hook(None)
    assert struck == [1]
    assert is_due()


def test_a_flapping_object_wakes_its_run_once_at_once_and_then_once_in_each_interval(booting, monkeypatch):
    here, called = token(), list[float]()
    one = runner._one
    monkeypatch.setattr(runner, "_one", lambda run: called.append(clock.monotonic()) or one(run))
    Run.objects.update(due_at=LATER)
    began = clock.monotonic()
    while clock.monotonic() - began < 2.2:
        watches.store(here, changed(), [])
        for pk in Run.objects.filter(due_at__lte=Now()).values_list("pk", flat=True):
            runner._one(pk)
        clock.sleep(0.005)
    apart = [later - earlier for earlier, later in itertools.pairwise(called)]
    assert called[0] - began < 0.4, "the first change wakes it at once"
    assert 3 <= len(called) <= 5, apart
    assert min(apart) > 0.45
    assert 0 < until_due() < 0.6, "the last change is not forgotten"


def test_a_flapping_object_wakes_a_run_not_earlier_after_a_call_during_which_it_changed(booting):
    here = token()
    watches.store(here, changed(), [])

    def strike(point: str) -> None:
        if point == "run.called":
            watches.store(here, changed(), [])

    database.hook(strike)
    try:
        runner._one(booting.pk)
    finally:
        database.hook(None)
    assert 0.1 < until_due() < 0.6


@pytest.fixture
def given(booting, monkeypatch) -> Callable[[], list[Any]]:
    """Carry out the step that waits if it is due, and return the progress that it gets."""
    found: list[Any] = []
    read = specs.spec

    def seen(*args: Any, **options: Any) -> Any:
        one = read(*args, **options)
        found.append(one.progress)
        return one

    monkeypatch.setattr(specs, "spec", seen)

    def carried_out() -> list[Any]:
        found.clear()
        Run.objects.filter(woken_at__isnull=False).update(due_at=PAST)
        runner._one(booting.pk)
        return list(found)

    return carried_out


REPORT, LATEST = {"phase": "Flashing", "percent": 10}, {"phase": "Rebooting", "percent": 60}


def test_a_woken_step_gets_the_progress_that_the_watch_reports_and_only_once(given):
    here = token()
    Run.objects.update(due_at=LATER)
    watches.store(here, changed(REPORT), [])
    assert given() == [REPORT]
    Run.objects.update(due_at=PAST)
    assert given() == [None], "a step that is due without a change reads"


@pytest.mark.parametrize(
    ("reports", "expected"),
    [([REPORT, LATEST], LATEST), ([REPORT, None], None), ([None, REPORT], None), ([REPORT, None, LATEST], None)],
    ids=["latest", "one to read", "one to read first", "one to read between"],
)
def test_a_wake_has_the_latest_progress_if_all_of_its_changes_have_any(given, reports, expected):
    here = token()
    Run.objects.update(due_at=LATER, woken_at=Now())
    for one in reports:
        watches.store(here, changed(one), [])
    assert given() == [expected]


def test_several_objects_of_a_resource_are_read(given):
    here, both = token(), (*changed(REPORT).objects, *changed(LATEST).objects)
    Run.objects.update(due_at=LATER)
    watches.store(here, Changes(objects=both, bookmark="7"), [])
    assert given() == [None]


def test_a_step_that_was_due_anyway_reads(given):
    here = token()
    Run.objects.update(due_at=PAST)
    watches.store(here, changed(REPORT), [])
    assert given() == [None]


def test_each_resource_gets_its_own_progress(booting, ask, given):
    ask()
    settle()
    here, (first, second) = token(), sorted(Cloud("w").instances(), key=lambda one: one.key)
    Run.objects.update(due_at=LATER)
    both = (Owned(key=one.key, tags=one.tags, progress={"key": one.key}) for one in (first, second))
    watches.store(here, Changes(objects=tuple(both), bookmark="7"), [])
    assert given() == [{"key": key_of(booting.resource_id)}]


@pytest.mark.parametrize(
    "report",
    [{"a": "\0"}, {"a": "\ud800"}, {"a": "x" * 5000}, {"a": float("nan")}, {"a": object()}, {"a": ["b"]}],
    ids=["NUL", "surrogate", "long", "NaN", "no JSON", "nested"],
)
def test_progress_that_the_database_would_not_take_is_left_out(given, report):
    here = token()
    Run.objects.update(due_at=LATER)
    assert watches.store(here, changed(report), []) == 1
    assert ProviderWatch.objects.get().bookmark == "7"
    assert given() == [None]


def test_progress_is_stored_without_secrets(booting):
    here = token()
    with hidden("hunter22hunter"):
        watches.store(here, changed({"percent": 7, "sentence": "It says hunter22hunter."}), [])
    assert "hunter22" not in str(Run.objects.get().progress)
    assert Run.objects.get().progress["percent"] == 7


def test_progress_of_a_wake_before_that_of_an_earlier_version_does_not_count(given):
    here = token()
    Run.objects.update(due_at=LATER)
    watches.store(here, changed(REPORT), [])
    Run.objects.update(woken_at=Now(), due_at=Now())
    assert given() == [None]


def test_a_step_that_is_repeated_on_demand_reads(given, booting):
    here, lease = token(), Lease.objects.get()
    Run.objects.update(due_at=LATER, woken_at=Now())
    watches.store(here, changed(REPORT), [])
    leases.retry(caller(lease.owner), lease.pk)
    assert given() == [None]


def test_a_step_reads_after_a_change_during_its_call(given, booting):
    here = token()
    Run.objects.update(due_at=PAST)

    def strike(point: str) -> None:
        if point == "run.called":
            watches.store(here, changed(REPORT), [])

    database.hook(strike)
    try:
        assert given() == [None]
    finally:
        database.hook(None)
    assert given() == [None]


def test_a_step_reads_after_changes_that_a_watch_missed_or_after_its_failure(given, booting):
    here, pool = token(), booting.resource.blueprint_id
    for begin in (
        lambda: watches.store(here, Changes(bookmark="8", listed=True, missed=True), [pool]),
        lambda: watches.failed(here, "no route to the provider", None, [pool]),
    ):
        Run.objects.update(due_at=LATER, woken_at=None)
        watches.store(here, changed(REPORT), [])
        begin()
        assert given() == [None]


def test_the_connection_of_a_watch_stays_open_between_changes(booting, cloud, follow, monkeypatch):
    used: list[int] = []
    store = watches._store

    def seen(*args: Any) -> int:
        woken = store(*args)
        used.append(connection.connection.info.backend_pid)
        return woken

    monkeypatch.setattr(watches, "_store", seen)
    follow()
    reached(watching())
    cloud.report(key_of(booting.resource_id))
    reached(watching(bookmark="1"))
    used.clear()
    reached(lambda: bool(used))  # nothing has changed, which is stored too
    cloud.report(key_of(booting.resource_id))
    reached(watching(bookmark="2"))
    assert len(set(used)) == 1


def test_objects_without_a_valid_proof_wake_nothing(booting):
    here = token()
    Run.objects.update(due_at=LATER)
    assert watches.store(here, changed(**{installation.PROOF: "0" * 40}), []) == 0
    assert not is_due()
    assert watches.store(here, changed(), []) == 1


def test_a_run_that_failed_or_waits_for_a_person_is_not_woken(booting):
    here = token()
    Run.objects.update(due_at=LATER, tries=2)
    assert watches.store(here, changed(), []) == 0
    Run.objects.update(due_at=None, tries=0, waits_for="operator")
    assert watches.store(here, changed(), []) == 0


def test_the_rows_of_what_is_not_watched_any_more_are_deleted(pool, blueprint):
    watches.arrange(watches.wanted())
    assert ProviderWatch.objects.count() == 1
    second = blueprint("second", config={"provider": "v", "watch": True})
    watches.arrange(watches.wanted())
    assert ProviderWatch.objects.count() == 2
    pool.enabled = False
    pool.save()
    watches.arrange(watches.wanted())
    assert ProviderWatch.objects.get().place == "v"
    second.config = {"provider": "v", "watch": "certainly"}
    second.save()
    watches.arrange(watches.wanted())
    assert not ProviderWatch.objects.exists()


def test_a_worker_leaves_the_watches_of_a_kind_that_it_lacks_alone(pool, monkeypatch):
    watches.arrange(watches.wanted())
    monkeypatch.setattr(watches, "_kinds", list)
    assert watches.wanted() == {}
    watches.arrange(watches.wanted())
    assert ProviderWatch.objects.count() == 1


@pytest.fixture
def healthy(blueprint: Any, ask: Any, cloud: Cloud) -> Resource:
    """A resource whose health is watched, with a check that is due."""
    config = {"provider": "w", "watch": True, "watch_health": True}
    blueprint(config=config, check_interval="00:00:30")
    ask()
    settle()
    found = Resource.objects.get(state="active")
    make_due()
    return found


def make_due() -> None:
    Resource.objects.update(check_at=clock.now() - dt.timedelta(minutes=1))


def checks(cloud: Cloud) -> int:
    return cloud.count("check")


def test_a_healthy_resource_is_checked_after_a_change_only_while_it_is_watched(healthy, cloud, follow):
    follow()
    reached(watching())
    settle()
    assert checks(cloud) == 1, "the listing may have brought a change"
    make_due()
    settle()
    assert checks(cloud) == 1
    cloud.report(key_of(healthy.pk))
    reached(lambda: Resource.objects.filter(changed=True).exists())
    settle()
    assert checks(cloud) == 2
    make_due()
    settle()
    assert checks(cloud) == 2
    Resource.objects.update(check_at=PAST)
    settle()
    assert checks(cloud) == 3, "once a day it is checked all the same"


def test_changes_are_checked_at_most_once_in_each_interval(healthy, cloud):
    here = token()
    for number in range(3):
        watches.store(here, changed(), [])
        settle()
        assert checks(cloud) == 1, number
    make_due()
    settle()
    assert checks(cloud) == 2


@pytest.mark.parametrize("columns", [{"failing_since": PAST}, {"token_until": PAST}])
def test_a_resource_is_checked_as_usual_while_its_watch_is_broken(healthy, cloud, columns):
    here = token()
    watches.store(here, Changes(bookmark="1", listed=True), [])
    settle()
    assert checks(cloud) == 0
    ProviderWatch.objects.update(**columns)
    settle()
    assert checks(cloud) == 1


def test_a_degraded_resource_is_checked_as_usual(healthy, cloud):
    watches.store(token(), Changes(bookmark="1", listed=True), [])
    Resource.objects.update(health="degraded")
    settle()
    assert checks(cloud) == 1


def test_a_worker_watches_and_gives_its_token_back(booting, cloud):
    one, two = Watcher(), Watcher()
    try:
        reached(watching(listed_at__isnull=False, token__isnull=False))
        assert len(one._watches) + len(two._watches) == 1
    finally:
        one.end()
        two.end()
    reached(watching(token=None, worker=""))


def test_a_suspended_installation_watches_nothing_and_keeps_the_bookmark(booting, cloud):
    watches.store(token(), Changes(bookmark="3", listed=True), [])
    ProviderWatch.objects.update(token=None)
    installation.suspend("A test suspends it.")
    one = Watcher()
    try:
        one._once()
        assert one._watches == {}
    finally:
        one.end()
    assert ProviderWatch.objects.get().bookmark == "3"


@pytest.mark.parametrize("news", ["raises", "fails"])
def test_a_kind_whose_watch_always_fails_is_told_and_asked_less_and_less(pool, follow, monkeypatch, news, caplog):
    opened: list[str] = []

    def watch(self: Fake, view: Any, place: str, installation: str, bookmark: str, ending: Any) -> Iterator[Any]:
        opened.append(bookmark)
        if news == "raises":
            raise OSError("the kind is confused")
        yield WatchFailed(message="the kind is confused", after=0.0)

    monkeypatch.setattr(Fake, "watch", watch)
    here = follow()
    reached(watching(message__contains="the kind is confused"))
    reached(lambda: here._pace.seconds >= 4)
    assert len(opened) <= 4
    assert not watches._live()


def test_operators_see_what_is_watched_with_a_credential(django_user_model, monkeypatch):
    root = caller(django_user_model.objects.create_superuser("root"))
    monkeypatch.setattr(options, "client", lambda *_: LocalClient(root))
    Credential.objects.create(name="vendor", secrets={"key": "x"})
    later = clock.now() + dt.timedelta(hours=1)
    of = {"kind": "dpf", "credential": "vendor", "started_at": clock.now(), "listed_at": clock.now()}
    ProviderWatch.objects.create(**of, place="ns/DPU", token_until=later, worker="w1:7")
    ProviderWatch.objects.create(**of, place="ns/DPUSet", token_until=PAST, worker="w2:8", message="No route.")
    ProviderWatch.objects.create(**of, place="ns/DPUNode", token_until=later, worker="w3:9", failing_since=PAST)
    works, fails, lost = credentials.get(root, "vendor").watches
    assert [one.place for one in (works, fails, lost)] == ["ns/DPU", "ns/DPUNode", "ns/DPUSet"]
    assert (works.worker, works.event_at, works.message) == ("w1:7", None, "")
    assert (lost.worker, lost.since, lost.message) == ("", None, "No route."), "its token has expired"
    shown = CliRunner().invoke(app, ["credentials", "show", "vendor"]).output
    assert "ns/DPUSet" in shown
    assert "No route." in shown
    (figure,) = (one for one in FIGURES if one.name == "watches")
    assert sorted(rows(str(figure.sql))) == [("dpf", "failing", 1), ("dpf", "unwatched", 1), ("dpf", "working", 1)]


@pytest.mark.slow
def test_another_worker_process_goes_on_after_the_one_that_watched_was_killed(booting, cloud):
    Run.objects.update(due_at=LATER)
    environment = {DATABASE: str(connection.settings_dict["NAME"]), "DRYDOCK_STEP_TOKEN_SECONDS": "5"}
    with _worker(environment) as first:
        reached(watching(listed_at__isnull=False, token__isnull=False))
        cloud.report("nothing of ours")
        assert ProviderWatch.objects.get().worker.endswith(f":{first.process.pid}")
        with _worker(environment) as second:
            first.kill()
            cloud.complete(key_of(booting.resource_id))
            reached(lambda: Resource.objects.filter(pk=booting.resource_id, state="active").exists())
            reached(watching(worker__endswith=f":{second.process.pid}", bookmark="1"))
    reached(watching(token=None))


@contextmanager
def _worker(environment: dict[str, str]) -> Iterator[Worker]:
    assert "DRYDOCK_FAKE_CLOUD" in os.environ
    worker = Worker(environment)
    try:
        worker.wait_ready()
        yield worker
    finally:
        worker.stop()
