"""One bad row stops no other: what acting on one raises is logged, and the rest goes on."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
R = TypeVar("R")

log = logging.getLogger(__name__)


def attempt(act: Callable[P, R], *args: P.args, **kwargs: P.kwargs) -> R | None:
    """What `act` answers, or None when it raises."""
    try:
        return act(*args, **kwargs)
    except Exception:
        log.exception("%s%s failed; the next look tries it again.", getattr(act, "__name__", act), args)
        return None


def each(act: Callable[..., object], found: Iterable[tuple[object, ...]]) -> int:
    """Act on each row found; how many did not answer False or raise."""
    return sum(attempt(_done, act, *row) or False for row in found)


def _done(act: Callable[..., object], *row: object) -> bool:
    return act(*row) is not False
