"""Following the objects of a type: list in pages, then watch from there, and list again when the server requires it.

`Follower` is the state machine, which makes no call and reads no clock; `follow` drives it on a cluster. Neither has a
thread, a database or a pause of its own: the caller stores bookmarks, and waits when it is told to.

The rules are those of https://kubernetes.io/docs/reference/using-api/api-concepts/#efficient-detection-of-changes. One
is ours: a server that was restored from a backup accepts a resourceVersion from its future and then reports nothing, so
there is a listing at least every ten minutes.
"""

from __future__ import annotations

import random
import threading
from collections.abc import Callable, Generator
from contextlib import closing
from dataclasses import dataclass
from typing import TypeAlias

from blueprints.kube.cluster import PAGE, Cluster
from blueprints.kube.errors import (
    MOST_PAUSE,
    AnswerTooLong,
    ApiUnavailable,
    CredentialRefused,
    KubeError,
    RequestForbidden,
    VersionExpired,
)
from blueprints.kube.objects import Event, Object, ObjectType, Page
from drydock.core import clock

LIST_EVERY = 600.0
"""Seconds after which there is another listing, whatever the watch reports."""
_TIMEOUT = (240.0, 480.0)
"""Seconds of one watch, chosen at random, so that those of many clients do not end at the same moment."""
_FIRST_PAUSE, _LAST_PAUSE = 1.0, 60.0
_REFUSED_PAUSE = 60.0
"""Seconds after which a request that was forbidden is repeated. An operator may have granted it."""


@dataclass(frozen=True, kw_only=True)
class Bookmark:
    """The resourceVersion from which a watch resumes. Store it together with the effects of its event."""

    resource_version: str
    listed_at: float
    """When the last listing ended, in seconds since 1970."""


@dataclass(frozen=True, kw_only=True)
class Listed:
    """One page of a listing. After the last one, every object that no page had is suspected to be gone."""

    objects: tuple[Object, ...]
    first: bool
    """Whether a new listing begins. What earlier pages said then does not count."""
    bookmark: Bookmark | None
    """Set on the last page."""
    missed: bool = False
    """Whether changes may have been missed since the bookmark before, because the server could not go on from there."""


@dataclass(frozen=True, kw_only=True)
class Changed:
    """An object was created or changed, or, if `deleted`, does not exist any more."""

    object: Object
    deleted: bool
    bookmark: Bookmark


@dataclass(frozen=True, kw_only=True)
class Marked:
    """Nothing changed until this bookmark."""

    bookmark: Bookmark


@dataclass(frozen=True, kw_only=True)
class Pause:
    """A request failed. Wait for `seconds`, and then ask for the next news, which repeats it."""

    seconds: float
    error: KubeError


News: TypeAlias = Listed | Changed | Marked | Pause


@dataclass(frozen=True, kw_only=True)
class ListNext:
    """The request to send next is for a page of a listing."""

    limit: int
    more: str


@dataclass(frozen=True, kw_only=True)
class WatchNext:
    """The request to send next is a watch."""

    resource_version: str
    timeout: float


class Follower:
    """The state of following one type of object. Times are in seconds since 1970."""

    def __init__(
        self, bookmark: Bookmark | None = None, *, limit: int = PAGE, chance: Callable[[], float] = random.random
    ) -> None:
        self._mark, self._limit, self._chance = bookmark, limit, chance
        self._more = ""
        self._begun = False
        self._failures = 0

    @property
    def bookmark(self) -> Bookmark | None:
        """The bookmark from which the watch resumes; None if a listing is needed first."""
        return self._mark

    def next(self, now: float) -> ListNext | WatchNext:
        """Return the request to send now."""
        mark = self._mark
        left = mark.listed_at + LIST_EVERY - now if mark else 0.0
        # A clock that was set back must not postpone the next listing.
        if mark is None or self._begun or left < 1.0 or left > LIST_EVERY:
            return ListNext(limit=self._limit, more=self._more)
        low, high = _TIMEOUT
        return WatchNext(resource_version=mark.resource_version, timeout=min(low + (high - low) * self._chance(), left))

    def listed(self, page: Page, now: float) -> Listed:
        """Take a page of the listing."""
        first, self._begun, self._failures = not self._begun, bool(page.more), 0
        self._more = page.more
        missed = self._mark is None or _is_older(page.resource_version, self._mark.resource_version)
        if page.more:
            return Listed(objects=page.items, first=first, bookmark=None, missed=missed)
        self._mark = Bookmark(resource_version=page.resource_version, listed_at=now)
        return Listed(objects=page.items, first=first, bookmark=self._mark, missed=missed)

    def received(self, event: Event) -> Changed | Marked:
        """Take an event of the watch."""
        assert self._mark is not None
        self._failures = 0
        self._mark = Bookmark(resource_version=event.resource_version, listed_at=self._mark.listed_at)
        if event.object is None:
            return Marked(bookmark=self._mark)
        return Changed(object=event.object, deleted=event.type == "DELETED", bookmark=self._mark)

    def failed(self, error: KubeError) -> Pause | None:
        """Take an error. Return the pause before the next request; None if it may be sent at once."""
        self._failures += 1
        if isinstance(error, AnswerTooLong) and self._mark is None and self._limit > 1:
            self._limit = max(1, self._limit // 4)
            return None
        if isinstance(error, VersionExpired):
            self._list_again()
            # Once it is normal. A server that says so again and again gets pauses, like one that fails.
            return self._pause(error) if self._failures > 2 else None
        if not isinstance(error, ApiUnavailable | CredentialRefused | RequestForbidden):
            self._list_again()  # after an answer that cannot be understood, events may be missing
        return self._pause(error)

    def _list_again(self) -> None:
        self._mark, self._more, self._begun = None, "", False

    def _pause(self, error: KubeError) -> Pause:
        wait = min(_FIRST_PAUSE * 2.0 ** min(self._failures - 1, 10), _LAST_PAUSE) * (0.5 + self._chance())
        if isinstance(error, ApiUnavailable) and error.retry_after is not None:
            wait = max(wait, min(error.retry_after, MOST_PAUSE))
        if isinstance(error, CredentialRefused | RequestForbidden):
            wait = max(wait, _REFUSED_PAUSE)
        return Pause(seconds=wait, error=error)


def _is_older(version: str, than: str) -> bool:
    """Return whether a resourceVersion is older than one that was seen before, as after the restore of a server."""
    return version.isdecimal() and than.isdecimal() and int(version) < int(than)


_listings: dict[str, threading.Lock] = {}
"""For each server: its pages are read in turn, because all types are listed at once at first, and pages are large."""
_guard = threading.Lock()


def _page(cluster: Cluster, type_: ObjectType, namespace: str, labels: str, wanted: ListNext) -> Page:
    with _guard:
        turn = _listings.setdefault(cluster.where, threading.Lock())
    with turn:
        return cluster.page(type_, namespace, labels=labels, limit=wanted.limit, more=wanted.more)


def follow(
    cluster: Cluster, type_: ObjectType, namespace: str = "", *, labels: str = "", bookmark: Bookmark | None = None,
    follower: Follower | None = None, now: Callable[[], float] | None = None,
) -> Generator[News, None, None]:  # fmt: skip
    """Return news about the objects of a type without end, from a stored bookmark or, without one, from a listing.

    One call of `next()` on it waits for as long as nothing happens, but not longer than ten minutes. After a Pause, the
    caller waits, or gives up. A broken connection resumes at the bookmark, without a listing.
    """
    state, now = follower or Follower(bookmark), now or (lambda: clock.now().timestamp())
    while True:
        try:
            wanted = state.next(now())
            if isinstance(wanted, ListNext):
                yield state.listed(_page(cluster, type_, namespace, labels, wanted), now())
                continue
            version, timeout = wanted.resource_version, wanted.timeout
            with closing(
                cluster.watch(type_, namespace, labels=labels, resource_version=version, timeout=timeout)
            ) as events:
                for event in events:
                    yield state.received(event)
        except KubeError as error:
            if pause := state.failed(error):
                yield pause
