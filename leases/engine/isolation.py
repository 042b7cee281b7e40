"""Process each row independently: log a failure and go on with the next row."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

from leases.engine import database

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger(__name__)


def attempt(act: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | None:
    """Return what `act` returns, or None when it raises.

    A lost connection to the database is raised: nothing else can be done without it, and the error would be logged
    for every row.
    """
    try:
        return act(*args, **kwargs)
    except Exception as error:
        if database.is_lost(error):
            raise
        log.exception("%s%s failed; the next look tries it again.", getattr(act, "__name__", act), args)
        return None


def each(act: Callable[..., object], found: Iterable[tuple[object, ...]]) -> int:
    """Act on each row found. Returns how many did not answer False or raise."""
    return sum(attempt(_done, act, *row) or False for row in found)


def _done(act: Callable[..., object], *row: object) -> bool:
    return act(*row) is not False
