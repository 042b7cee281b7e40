"""A worker that is ending begins no further step. Its children learn that through memory which they share."""

from __future__ import annotations

import mmap

_word = mmap.mmap(-1, 1)


def begin() -> None:
    """From now on this process, and those forked from it, begin no step; the ones at hand are finished."""
    _word[0] = 1


def begun() -> bool:
    """Whether this worker is ending."""
    return _word[0] == 1


def forget() -> None:
    """Begin steps again: for a process that has ended one worker and starts another."""
    _word[0] = 0
