"""Watches: the state machine by itself, and driven on a server that breaks, forgets and lies."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from blueprints.kube import (
    ApiUnavailable,
    Bookmark,
    Changed,
    CredentialRefused,
    Follower,
    Listed,
    Marked,
    News,
    Object,
    ObjectType,
    Pause,
    RequestForbidden,
    VersionExpired,
    follow,
)
from blueprints.kube.errors import AnswerInvalid, AnswerTooLong, KubeError
from blueprints.kube.objects import Event, Page
from blueprints.kube.watch import LIST_EVERY, ListNext, WatchNext
from tests.kube.double import Double, status

THING = ObjectType(group="test.example.com", version="v1", kind="Thing", plural="things")
PATH = "/apis/test.example.com/v1/namespaces/lab/things"
NOW = 1_000_000.0


def thing(name: str, version: int) -> dict[str, Any]:
    return {"metadata": {"name": name, "namespace": "lab", "uid": f"uid-{name}", "resourceVersion": str(version)}}


def event(type_: str, name: str, version: int) -> dict[str, Any]:
    return {"type": type_, "object": thing(name, version)}


def bookmark(version: int) -> dict[str, Any]:
    return {"type": "BOOKMARK", "object": {"kind": "Thing", "metadata": {"resourceVersion": str(version)}}}


def error(code: int, reason: str) -> dict[str, Any]:
    return {"type": "ERROR", "object": status(code, reason)}


def listing(version: int, *names: str, more: str = "") -> dict[str, Any]:
    meta = {"resourceVersion": str(version)} | ({"continue": more} if more else {})
    return {"metadata": meta, "items": [thing(name, version) for name in names]}


def page(version: str, *names: str, more: str = "") -> Page:
    return Page(items=tuple(Object.of(thing(name, 1)) for name in names), resource_version=version, more=more)


def told(news: News) -> tuple[Any, ...]:
    """Return news in short: names and resourceVersion, or the error."""
    match news:
        case Listed(objects=objects, first=first, bookmark=mark):
            return ("listed", *(one.name for one in objects), first, mark and mark.resource_version)
        case Changed(object=one, deleted=deleted, bookmark=mark):
            return ("gone" if deleted else "changed", one.name, mark.resource_version)
        case Marked(bookmark=mark):
            return ("marked", mark.resource_version)
        case Pause(error=error):
            return ("pause", type(error).__name__)


def followed(double: Double, count: int, **options: Any) -> list[tuple[Any, ...]]:
    with double.cluster() as cluster:
        news = follow(cluster, THING, "lab", now=lambda: NOW, **options)
        found = [told(one) for one in itertools.islice(news, count)]
        news.close()
    return found


class TestStateMachine:
    def follower(self, mark: Bookmark | None = None) -> Follower:
        return Follower(mark, limit=100, chance=lambda: 0.5)

    def test_it_lists_first_and_watches_from_there(self):
        state = self.follower()
        assert state.next(NOW) == ListNext(limit=100, more="")
        assert state.listed(page("5", "a", more="m"), NOW) == Listed(
            objects=page("5", "a").items, first=True, bookmark=None, missed=True
        )
        assert state.next(NOW) == ListNext(limit=100, more="m")
        last = state.listed(page("5", "b"), NOW)
        assert (last.first, last.bookmark) == (False, Bookmark(resource_version="5", listed_at=NOW))
        assert state.next(NOW) == WatchNext(resource_version="5", timeout=360.0)

    def test_timeouts_differ(self):
        mark = Bookmark(resource_version="5", listed_at=NOW)
        wanted = {Follower(mark, chance=lambda c=chance: c).next(NOW) for chance in (0.0, 0.3, 0.9)}
        assert sorted(round(one.timeout) for one in wanted if isinstance(one, WatchNext)) == [240, 312, 456]

    def test_a_stored_bookmark_resumes_without_a_listing(self):
        state = self.follower(Bookmark(resource_version="5", listed_at=NOW - 100))
        assert state.next(NOW) == WatchNext(resource_version="5", timeout=360.0)

    def test_it_lists_every_ten_minutes_whatever_the_watch_says(self):
        state = self.follower(Bookmark(resource_version="5", listed_at=NOW))
        state.received(Event(type="BOOKMARK", resource_version="9"))
        assert state.next(NOW + LIST_EVERY - 60) == WatchNext(resource_version="9", timeout=60.0)
        assert state.next(NOW + LIST_EVERY) == ListNext(limit=100, more="")

    def test_a_listing_says_whether_changes_may_have_been_missed(self):
        mark = Bookmark(resource_version="20", listed_at=NOW - LIST_EVERY)
        assert not self.follower(mark).listed(page("21"), NOW).missed
        assert self.follower(mark).listed(page("9"), NOW).missed, "the server was restored"
        assert self.follower().listed(page("21"), NOW).missed
        state = self.follower(mark)
        state.failed(VersionExpired())
        assert state.listed(page("30", more="m"), NOW).missed
        assert state.listed(page("30"), NOW).missed

    def test_a_clock_that_was_set_back_does_not_postpone_the_listing(self):
        state = self.follower(Bookmark(resource_version="5", listed_at=NOW))
        assert isinstance(state.next(NOW - 5000), ListNext)

    def test_a_lost_version_means_list_again_at_once_and_later_with_pauses(self):
        state = self.follower(Bookmark(resource_version="5", listed_at=NOW))
        assert state.failed(VersionExpired()) is None
        assert state.next(NOW) == ListNext(limit=100, more="")
        assert state.failed(VersionExpired()) is None
        assert isinstance(state.failed(VersionExpired()), Pause)

    def test_a_listing_that_expires_between_pages_begins_again(self):
        state = self.follower()
        state.listed(page("5", "a", more="m"), NOW)
        assert state.failed(VersionExpired()) is None
        assert state.next(NOW) == ListNext(limit=100, more="")
        assert state.listed(page("6", "a"), NOW).first

    def test_pages_that_are_too_long_get_shorter(self):
        state = self.follower()
        limits = []
        for _ in range(3):
            assert state.failed(AnswerTooLong()) is None
            limits.append(state.next(NOW))
        assert [one.limit for one in limits if isinstance(one, ListNext)] == [25, 6, 1]
        assert isinstance(state.failed(AnswerTooLong()), Pause)

    def test_pauses_grow_and_end_with_the_first_success(self):
        state = self.follower(Bookmark(resource_version="5", listed_at=NOW))
        pauses = [state.failed(ApiUnavailable()) for _ in range(8)]
        assert [one.seconds for one in pauses if one] == [1, 2, 4, 8, 16, 32, 60, 60]
        assert isinstance(state.next(NOW), WatchNext)  # an outage loses no event
        state.received(Event(type="BOOKMARK", resource_version="6"))
        again = [state.failed(ApiUnavailable()), state.failed(ApiUnavailable(retry_after=100))]
        assert [one.seconds for one in again if one] == [1, 100]

    @pytest.mark.parametrize(
        "problem", [CredentialRefused(), RequestForbidden("no", verb="list", resource="things")], ids=["401", "403"]
    )
    def test_what_only_an_operator_can_change_is_tried_once_a_minute(self, problem: KubeError):
        state = self.follower(Bookmark(resource_version="5", listed_at=NOW))
        pause = state.failed(problem)
        assert pause is not None
        assert pause.seconds >= 60

    def test_after_garbage_it_lists_again(self):
        state = self.follower(Bookmark(resource_version="5", listed_at=NOW))
        assert state.failed(AnswerInvalid()) is not None
        assert isinstance(state.next(NOW), ListNext)


def test_a_listing_is_followed_by_its_watch(double: Double):
    double.says("GET", PATH, listing(5, "a", more="m"), times=1)
    double.says("GET", PATH, listing(5, "b"), times=1)
    double.streams(PATH, [event("ADDED", "c", 6), event("MODIFIED", "a", 7), bookmark(9), event("DELETED", "b", 10)], 1)
    double.fails("GET", PATH, 503)
    assert followed(double, 7) == [
        ("listed", "a", True, None), ("listed", "b", False, "5"), ("changed", "c", "6"), ("changed", "a", "7"),
        ("marked", "9"), ("gone", "b", "10"), ("pause", "ApiUnavailable"),
    ]  # fmt: skip
    watch = double.calls[2].query
    assert (watch["resourceVersion"], watch["allowWatchBookmarks"], watch["watch"]) == ("5", "true", "true")
    assert 240 <= int(watch["timeoutSeconds"]) <= 480
    assert double.calls[3].query["resourceVersion"] == "10"


def test_a_broken_connection_resumes_at_the_last_whole_event(double: Double):
    half = b'{"type": "MODIFIED", "object": {"metadata": {"name": "b", "resourceV'
    double.streams(PATH, [event("ADDED", "a", 6), half], 1, cut=True)
    double.streams(PATH, [event("MODIFIED", "b", 7)], 1)
    double.fails("GET", PATH, 503)
    found = followed(double, 3, bookmark=Bookmark(resource_version="5", listed_at=NOW))
    assert found == [("changed", "a", "6"), ("pause", "ApiUnavailable"), ("changed", "b", "7")]
    assert [call.query.get("resourceVersion") for call in double.calls] == ["5", "6"]


@pytest.mark.parametrize("how", ["status", "event", "reason only"])
def test_410_means_list_again(double: Double, how: str):
    if how == "status":
        double.fails("GET", PATH, 410, "Expired", times=1)
    else:
        double.streams(PATH, [bookmark(6), error(410 if how == "event" else 500, "Expired")], 1)
    double.says("GET", PATH, listing(50, "a"), times=1)
    double.streams(PATH, [event("ADDED", "b", 51)], 1)
    found = followed(double, 2 if how == "status" else 3, bookmark=Bookmark(resource_version="5", listed_at=NOW))
    assert found[-2:] == [("listed", "a", True, "50"), ("changed", "b", "51")]


def test_an_error_event_of_an_overloaded_server_resumes_without_a_listing(double: Double):
    double.streams(PATH, [bookmark(6), error(429, "TooManyRequests")], 1)
    double.streams(PATH, [bookmark(8)], 1)
    found = followed(double, 3, bookmark=Bookmark(resource_version="5", listed_at=NOW))
    assert found == [("marked", "6"), ("pause", "ApiUnavailable"), ("marked", "8")]


@pytest.mark.parametrize(
    "line",
    [
        b"<html>\n", b"[1]\n", b'{"type": "SURPRISE", "object": {}}\n', b'{"type": "ADDED", "object": {}}\n',
        b'{"type": "BOOKMARK"}\n', b'{"type": "ERROR"}\n', b'{"type": "MODIFIED", "object": null}\n',
    ],
)  # fmt: skip
def test_after_a_line_that_cannot_be_understood_it_lists_again(double: Double, line: bytes):
    double.streams(PATH, [line], 1)
    double.says("GET", PATH, listing(9, "a"))
    found = followed(double, 2, bookmark=Bookmark(resource_version="5", listed_at=NOW))
    assert found == [("pause", "AnswerInvalid"), ("listed", "a", True, "9")]


def test_a_line_without_end_is_given_up(double: Double):
    def endless(handler: Any, call: Any) -> None:
        handler.send_response(200)
        handler.send_header("Transfer-Encoding", "chunked")
        handler.end_headers()
        while not double.ended.is_set():
            handler.wfile.write(b"10000\r\n" + b"x" * 65536 + b"\r\n")

    double.does("GET", PATH, endless, 1)
    double.says("GET", PATH, listing(9, "a"))
    found = followed(double, 1, bookmark=Bookmark(resource_version="5", listed_at=NOW))
    assert found == [("pause", "AnswerTooLong")]


def test_empty_lines_are_ignored(double: Double):
    double.streams(PATH, [b"\n", b"\n", bookmark(6)], 1)
    assert followed(double, 1, bookmark=Bookmark(resource_version="5", listed_at=NOW)) == [("marked", "6")]
