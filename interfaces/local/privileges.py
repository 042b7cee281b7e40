"""Starting processes that can never gain a right by starting a program: setuid, setgid and file capabilities are
nothing to them, nor to whatever comes from them."""

from __future__ import annotations

import ctypes
import os
import threading
from collections.abc import Callable
from typing import TypeVar

from interfaces.errors import NotStarted

_PR_SET_NO_NEW_PRIVS = 38
_Started = TypeVar("_Started")


def unprivileged(start: Callable[[], _Started]) -> _Started:
    """What `start` returns, called in a thread that has given up gaining rights, as has what it starts.

    The kernel keeps that for each thread and takes it back from none, so this one ends right after. A function between
    fork and exec would do the same, and may deadlock in a program with threads.
    """
    outcome: list[_Started | BaseException] = []

    def work() -> None:
        try:
            _no_new_privileges()
            outcome.append(start())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=work, name="starting")
    thread.start()
    thread.join()
    (found,) = outcome
    if isinstance(found, BaseException):
        raise found
    return found


def _no_new_privileges() -> None:
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(_PR_SET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0))):
        code = ctypes.get_errno()
        raise NotStarted(f"The process cannot be kept from gaining privileges: {os.strerror(code)}.")
