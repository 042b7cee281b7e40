"""The watch of the fake provider: changes are numbered, and the bookmark is the number of the last one."""

from __future__ import annotations

import json
from collections.abc import Iterator

from blueprints.fake.provider import Provider
from blueprints.specs import Owned
from blueprints.watches import Changes, Ending, WatchFailed, WatchNews

_TURN = 0.05
_QUIET = 20
"""Turns without a change after which the bookmark is yielded again."""
INSTALLATION = "drydock-installation"


def follow(provider: Provider, installation: str, bookmark: str, ending: Ending) -> Iterator[WatchNews]:
    """Yield changes of the installation's instances, from a bookmark or a listing, until the end."""
    last = int(bookmark) if bookmark else None
    while not ending.over:
        try:
            for news in _followed(provider, installation, last, ending):
                last = int(news.bookmark)
                yield news
        except ConnectionError as error:
            yield WatchFailed(message=str(error), after=0.2, bookmark="" if last is None else str(last))


def _followed(provider: Provider, installation: str, last: int | None, ending: Ending) -> Iterator[Changes]:
    """Yield changes until the provider fails. Raises ConnectionError."""
    quiet = 0
    while not ending.over:
        found, newest = provider.changes(last or 0)
        if last is None or newest < last:  # a bookmark from the future of a restored provider
            last = newest
            yield Changes(bookmark=str(last), listed=True, missed=True)
            continue
        for number, key, tags in found:
            last, quiet = number, 0
            if (read := json.loads(tags)).get(INSTALLATION) == installation:
                yield Changes(objects=(Owned(key=key, tags=read),), bookmark=str(number))
        quiet += 1
        if quiet >= _QUIET:
            quiet = 0
            yield Changes(bookmark=str(last))
        ending.wait(_TURN)
