"""Conformance: watches of the provider."""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator
from contextlib import closing

from blueprints.contract import Watches
from blueprints.specs import ResourceView
from blueprints.testing.bench import TAGS
from blueprints.testing.phases import Phases, needs
from blueprints.watches import Changes, Ending, WatchFailed, WatchNews, WatchPlace

_MOST = 1000
"""News that are heard until what is expected must have come."""


class Following(Phases):
    """Tests of Watches."""

    @needs(Watches)
    def test_places_to_watch_are_always_the_same_and_name_credentials_of_the_config(self) -> None:
        places = self._places()
        assert places == self._places()
        assert len(set(places)) == len(places)
        assert all(one.credential in ("", *self.credentials()) for one in places)
        assert self._kind().watches_health(self.blueprint().config) in (True, False)

    @needs(Watches)
    def test_a_watch_begins_with_a_listing_and_goes_on_at_its_bookmark(self) -> None:
        resource = self.built()
        if self.touch(resource):
            starts = {place: self._listed(place) for place in self._places()}
            for _ in range(2):
                self.touch(resource)
                found = {place: self._told(place, start, resource) for place, start in starts.items()}
                heard = {place: news for place, news in found.items() if news is not None}
                assert heard, "no watch reports the change"
                assert not any(news.missed for news in heard.values())
                starts |= {place: news.bookmark for place, news in heard.items()}
        self.destroyed(resource)

    @needs(Watches)
    def test_a_watch_that_waits_for_news_can_be_ended(self) -> None:
        resource = self.built()
        for place in self._places() if self.touch(resource) else ():
            ending, listed = Ending(), threading.Event()
            thread = threading.Thread(target=self._hear, args=(place, ending, listed), daemon=True)
            thread.start()
            assert listed.wait(120), "nothing was heard"
            ending.end()
            thread.join(120)
            assert not thread.is_alive()
        self.destroyed(resource)

    def _kind(self) -> Watches:
        assert isinstance(self.kind, Watches)
        return self.kind

    def _places(self) -> list[WatchPlace]:
        return list(self._kind().watched(self.blueprint().config))

    def _news(self, place: WatchPlace, bookmark: str, ending: Ending) -> Generator[WatchNews, None, None]:
        installation = TAGS["drydock-installation"]
        yield from self._kind().watch(self.blueprint(), place.name, installation, bookmark, ending)

    def _hear(self, place: WatchPlace, ending: Ending, listed: threading.Event) -> None:
        for _ in self._news(place, "", ending):
            listed.set()

    def _first(self, place: WatchPlace, bookmark: str, wanted: Callable[[Changes], bool]) -> Changes | None:
        """Return the first news that are wanted; None if a listing or many others came instead."""
        with closing(self._news(place, bookmark, Ending())) as found:
            for _ in range(_MOST):
                news = next(found, None)
                assert news is not None, "the watch has ended by itself"
                assert not isinstance(news, WatchFailed), news.message
                assert news.bookmark, "the watch cannot be resumed"
                if wanted(news):
                    return news
                if news.after:
                    return None
        return None

    def _listed(self, place: WatchPlace) -> str:
        news = self._first(place, "", lambda one: one.listed)
        assert news is not None
        assert news.missed, "nobody knows what happened before the first listing"
        return news.bookmark

    def _told(self, place: WatchPlace, bookmark: str, resource: ResourceView) -> Changes | None:
        news = self._first(place, bookmark, lambda one: any(each.key == resource.key for each in one.objects))
        if news is not None:
            (told,) = (one for one in news.objects if one.key == resource.key)
            assert TAGS.items() <= dict(told.tags).items(), f"{told.key} lacks our tags"
        return news
