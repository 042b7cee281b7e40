"""Watches of providers: a change wakes the steps that wait for it, and a lost watch is no loss."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from blueprints.fake.cloud import Cloud
from blueprints.watches import Changes, WatchFailed
from drydock.core import clock
from leases import watching
from leases.engine.core import database, installation
from leases.engine.lifecycle import runner
from leases.engine.records import watches
from leases.engine.records.watches import Key, TokenLost
from leases.messaging.inline import settle
from leases.models import ProviderWatch, Run

pytestmark = pytest.mark.django_db(transaction=True)
KEY = Key("fake", "", "w")
LATER, PAST = "2100-01-01T00:00Z", "2020-01-01T00:00Z"


@pytest.fixture
def pool(blueprint: Any) -> Any:
    """A blueprint whose builds wait for the provider, which is watched."""
    config = {"provider": "w", "watch": True, "boot_polls": 500, "poll_seconds": 60, "watched_seconds": 600}
    return blueprint(config=config)


@pytest.fixture
def cloud() -> Iterator[Cloud]:
    cloud = Cloud("w")
    cloud.forget()
    yield cloud
    cloud.forget()


@pytest.fixture
def booting(pool: Any, ask: Any, cloud: Cloud) -> Run:
    """The run of a build that waits."""
    ask()
    settle()
    run = Run.objects.get()
    assert run.step == "boot"
    return run


@pytest.fixture
def follow() -> Iterator[Callable[..., Any]]:
    """Watch in a thread under a token, until the end of the test."""
    ends = []

    def begin(name: str = "here") -> Any:
        watches.arrange(list(watches.wanted()))
        token = watches.take(KEY, name)
        assert token is not None
        stopped = threading.Event()
        thread = threading.Thread(target=watching.follow, args=(KEY, token, stopped), daemon=True)
        thread.start()
        ends.append((stopped, thread))
        return token

    yield begin
    for stopped, thread in ends:
        stopped.set()
        thread.join(10)
        assert not thread.is_alive()


def reached(what: Callable[[], bool]) -> None:
    end = clock.monotonic() + 20
    while not what():
        assert clock.monotonic() < end, list(ProviderWatch.objects.values())
        clock.sleep(0.05)


def is_due() -> bool:
    return Run.objects.filter(due_at__lte=clock.now()).exists()


def changed(run: Run) -> Changes:
    (one,) = Cloud("w").instances()
    from blueprints.specs import Owned

    return Changes(objects=(Owned(key=one.key, tags=one.tags),), bookmark="7")


def test_a_change_at_the_provider_wakes_the_build_that_waits_for_it(booting, cloud, follow, until):
    follow()
    reached(lambda: ProviderWatch.objects.filter(listed_at__isnull=False).exists())
    Run.objects.update(due_at=LATER)
    cloud.complete(booting.resource.key)
    reached(is_due)
    settle()
    booting.resource.refresh_from_db()
    assert booting.resource.state == "active"
    reached(lambda: ProviderWatch.objects.filter(event_at__isnull=False, bookmark="1", message="").exists())


def test_a_watched_step_is_polled_less_often_while_the_watch_works(pool, ask, cloud, follow):
    follow()
    reached(lambda: ProviderWatch.objects.filter(listed_at__isnull=False).exists())
    ask()
    settle()
    assert (Run.objects.get().due_at - clock.now()).total_seconds() > 300
    ProviderWatch.objects.update(token_until=PAST)
    Run.objects.update(due_at=PAST)
    settle()
    assert (Run.objects.get().due_at - clock.now()).total_seconds() <= 60


def test_a_failing_watch_says_why_and_goes_on_where_it_was(booting, cloud, follow):
    follow()
    reached(lambda: ProviderWatch.objects.filter(listed_at__isnull=False).exists())
    cloud.break_watch("no route to the provider")
    reached(lambda: ProviderWatch.objects.filter(message="no route to the provider").exists())
    assert not watches.covers(booting.resource.blueprint)
    Run.objects.update(due_at=LATER)
    cloud.complete(booting.resource.key)
    cloud.break_watch("")
    reached(is_due)
    reached(lambda: ProviderWatch.objects.filter(message="", failing_since=None).exists())


def test_a_bookmark_from_the_future_of_a_restored_provider_means_a_listing(booting, cloud, follow):
    watches.arrange(list(watches.wanted()))
    ProviderWatch.objects.update(bookmark="900")
    Run.objects.update(due_at=LATER)
    follow()
    reached(is_due)
    reached(lambda: ProviderWatch.objects.filter(bookmark="0", listed_at__isnull=False).exists())


def test_only_one_worker_watches_and_another_succeeds_it(pool, cloud):
    watches.arrange(list(watches.wanted()))
    first = watches.take(KEY, "one")
    assert first is not None
    assert watches.take(KEY, "two") is None
    watches.store(first, Changes(bookmark="5"))
    assert watches.keep([first]) == {first}
    ProviderWatch.objects.update(token_until=PAST)  # its worker was killed
    second = watches.take(KEY, "two")
    assert second is not None
    assert watches.bookmark(second) == "5"
    assert watches.keep([first]) == set()
    with pytest.raises(TokenLost):
        watches.failed(first, WatchFailed(message="late", after=1))
    watches.release([second])
    assert watches.take(KEY, "one") is not None


@pytest.mark.parametrize("lost", ["token", "crash"])
def test_a_batch_whose_token_is_lost_in_its_middle_stores_nothing(booting, lost):
    watches.arrange(list(watches.wanted()))
    token = watches.take(KEY, "one")
    assert token is not None
    Run.objects.update(due_at=LATER)
    news = changed(booting)

    def strike(point: str) -> None:
        if point == "watch.woken" and lost == "crash":
            raise RuntimeError("the worker ends here")
        if point == "watch.woken":
            thread = threading.Thread(target=_steal)
            thread.start()
            thread.join(10)

    database.hook(strike)
    try:
        with pytest.raises((TokenLost, RuntimeError)):
            watches.store(token, news)
    finally:
        database.hook(None)
    assert not is_due()
    assert ProviderWatch.objects.get().bookmark == ""


def _steal() -> None:
    from django.db import connection

    ProviderWatch.objects.update(token="00000000-0000-4000-8000-000000000001")
    connection.close()


def test_a_change_during_a_call_has_the_step_called_again_at_once(booting, monkeypatch):
    watches.arrange(list(watches.wanted()))
    token = watches.take(KEY, "one")
    assert token is not None
    Run.objects.update(due_at=PAST)
    struck = []

    def strike(point: str) -> None:
        if point == "run.called" and not struck:
            struck.append(watches.store(token, changed(booting)))

    database.hook(strike)
    try:
        runner._one(booting.pk)
    finally:
        database.hook(None)
    assert struck == [1]
    assert is_due()


def test_objects_without_a_valid_proof_wake_nothing(booting):
    from blueprints.specs import Owned

    watches.arrange(list(watches.wanted()))
    token = watches.take(KEY, "one")
    Run.objects.update(due_at=LATER)
    (one,) = Cloud("w").instances()
    forged = {**one.tags, installation.PROOF: "0" * 40}
    assert watches.store(token, Changes(objects=(Owned(key=one.key, tags=forged),), bookmark="1")) == 0
    assert not is_due()


def test_a_run_that_failed_or_waits_for_a_person_is_not_woken(booting):
    watches.arrange(list(watches.wanted()))
    token = watches.take(KEY, "one")
    Run.objects.update(due_at=LATER, tries=2)
    assert watches.store(token, changed(booting)) == 0
    Run.objects.update(due_at=None, tries=0, waits_for="operator")
    assert watches.store(token, changed(booting)) == 0


def test_the_rows_of_what_is_not_watched_any_more_are_deleted(pool):
    watches.arrange(list(watches.wanted()))
    assert ProviderWatch.objects.count() == 1
    pool.enabled = False
    pool.save()
    watches.arrange(list(watches.wanted()))
    assert not ProviderWatch.objects.exists()


def test_a_worker_watches_and_gives_its_token_back(booting, cloud):
    one, two = watching.Watcher(), watching.Watcher()
    try:
        reached(lambda: ProviderWatch.objects.filter(listed_at__isnull=False, token__isnull=False).exists())
        assert len(one._running) + len(two._running) == 1
    finally:
        one.end()
        two.end()
    reached(lambda: ProviderWatch.objects.filter(token=None, worker="").exists())
