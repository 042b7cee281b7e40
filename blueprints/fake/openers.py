"""The interfaces of a fake resource: in-memory fakes, one set per lease and process."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Callable

from blueprints.contract import Opener
from blueprints.specs import Control, LeaseView
from interfaces.command.fake import FakeCommand
from interfaces.console.fake import FakeConsole
from interfaces.contract import Interface
from interfaces.fake import FakeTransport
from interfaces.filesystem.fake import FakeFilesystem
from interfaces.httpd.fake import FakeHttpd

_KEPT = 1024


class Fakes:
    """State shared by a lease's interfaces: a test scripts `command` and inspects the files."""

    def __init__(self) -> None:
        self._still_mine: Callable[[], None] = lambda: None
        transport = FakeTransport()
        self.command = FakeCommand(transport, still_mine=self._ask)
        self.console = FakeConsole(transport, still_mine=self._ask)
        self.filesystem = FakeFilesystem(transport, still_mine=self._ask)
        self.httpd = FakeHttpd(transport, still_mine=self._ask)

    def guard(self, still_mine: Callable[[], None]) -> None:
        """Make the interfaces call this check from now on. All checks of one lease return the same answer."""
        self._still_mine = still_mine

    def _ask(self) -> None:
        self._still_mine()


def fakes(lease_key: str) -> Fakes:
    """Return the fakes of a lease in this process; the oldest leases' fakes are dropped when there are many."""
    with _lock:
        found = _fakes.pop(lease_key, None) or Fakes()
        _fakes[lease_key] = found
        while len(_fakes) > _KEPT:
            _fakes.popitem(last=False)
        return found


_fakes: OrderedDict[str, Fakes] = OrderedDict()
_lock = threading.Lock()


def control_of(lease: LeaseView) -> Control:
    """Return the in-memory control connection, which bypasses a lease's account."""
    return Control(transport=FakeTransport(), uid=1000, gid=1000, home=f"/home/{lease.key}")


def _opener(name: str) -> Opener:
    def opened(lease: LeaseView, still_mine: Callable[[], None]) -> Interface:
        found = fakes(lease.key)
        found.guard(still_mine)
        interface: Interface = getattr(found, name)
        return interface

    return opened


OPENERS: dict[str, Opener] = {name: _opener(name) for name in ("command", "console", "filesystem", "httpd")}
