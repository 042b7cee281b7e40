"""The thread that holds the open line of a console, and moves bytes between it and the database.

Only the process whose token is in the row of the console has the line. The token expires, so that another process opens
the line again if this one dies. No transaction is open while the line is used.
"""

from __future__ import annotations

import atexit
import contextlib
import datetime as dt
import logging
import os
import threading
import uuid
from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from typing import Any, NamedTuple, cast

from django.conf import settings
from django.db import IntegrityError, connections
from django.db.models import F
from django.db.models.functions import Now

from drydock.core import clock
from drydock.core.errors import Busy, DrydockError, NotSupported
from drydock.core.logging import about, hidden
from interfaces.console import Console as ConsoleInterface
from interfaces.console import Line, Redaction
from interfaces.errors import ConnectionLost, ConsoleBusy, LeaseEnded
from leases.consoles import record
from leases.consoles.record import Record, TokenLost
from leases.engine.core import specs
from leases.engine.core.database import short
from leases.models import Console, ConsoleAttachment, ConsoleInput, Lease
from leases.operations.interfaces import still_mine

logger = logging.getLogger(__name__)

TOKEN = 20.0
"""Seconds after which another process may open the line, if this one no longer extends its token."""
OPENING = 30.0
"""Seconds within which the line must be open."""
MOST = 64
"""Maximum number of lines that one process holds."""
_KEEP_EVERY = 1.0
_LIVELY, _QUIET = 0.03, 0.1
"""Seconds for which a turn waits for output, shortly after input or output and otherwise."""
_LIVELY_FOR = 10.0
_APART = 0.04
"""Seconds between two changes of the record, which bounds what a flood costs the database."""
_LARGEST = 16 << 10
"""Maximum number of bytes in one change of the record. More is left to the line, which then makes the machine wait."""
_PAUSE = 0.25
"""Seconds of silence after which the beginning of a possible secret is shown in part."""
_PLAIN = (ConsoleBusy, LeaseEnded, NotSupported)
"""Errors whose messages owners may read. Others can have addresses and accounts of BMCs."""


class Taken(NamedTuple):
    """A token that was taken: whether the line was left open by a process that died, or must be opened by force."""

    token: uuid.UUID
    size: int
    force: bool


@short
def take(lease_id: int) -> Taken | None:
    """Take the token of a console that somebody is attached to, if no process has it. Otherwise return None."""
    row = Console.objects.select_for_update(no_key=True).annotate(now=Now()).filter(pk=lease_id).first()
    if row is None or not ConsoleAttachment.objects.filter(lease_id=lease_id, until__gt=Now()).exists():
        return None
    if row.token is not None and row.token_until is not None and row.token_until > row.now:
        return None
    others = Console.objects.filter(resource_id=row.resource_id, token__isnull=False).exclude(pk=lease_id)
    died = others.filter(token_until__lte=Now()).update(token=None, opened_at=None)
    if others.exists():
        return None
    token = uuid.uuid4()
    Console.objects.filter(pk=lease_id).update(
        token=token, token_until=Now() + dt.timedelta(seconds=TOKEN + OPENING), opened_at=None, forced=False
    )
    return Taken(token, row.size, row.forced or bool(died) or row.token is not None)


def ensure(lease_id: int) -> None:
    """Open the line of a console in this process, unless a process has it or nobody is attached. Returns at once.

    Raises Busy if this process has too many lines.
    """
    with _guard:
        running = _pumps.get(lease_id)
        if running is not None and running.is_alive():
            return
        for gone in [one for one, pump in _pumps.items() if not pump.is_alive()]:
            del _pumps[gone]
        if len(_pumps) >= MOST:
            raise Busy("This server has too many consoles open.", hint="Try again later.")
        if Console.objects.filter(pk=lease_id, token__isnull=False, token_until__gt=Now()).exists():
            return
        try:
            taken = take(lease_id)
        except IntegrityError:  # another process has opened the console of the same machine in this moment
            return
        if taken is not None:
            _pumps[lease_id] = Pump(lease_id, taken)
            _pumps[lease_id].start()


def stop_all(seconds: float = 5.0) -> None:
    """Close all lines of this process, so that other processes can open them at once."""
    with _guard:
        stopped = list(_pumps.values())
        _pumps.clear()
    for pump in stopped:
        pump.stop()
    for pump in stopped:
        pump.join(seconds)


_pumps: dict[int, Pump] = {}
_guard = threading.Lock()


def _forget() -> None:
    """Forget the lines of the parent process after a fork; its threads are not copied."""
    global _guard
    _guard = threading.Lock()
    _pumps.clear()


os.register_at_fork(after_in_child=_forget)
atexit.register(stop_all)


class Pump(threading.Thread):
    """Holds the line of one console until nobody needs it, the lease ends, or it is closed at the other end."""

    def __init__(self, lease_id: int, taken: Taken) -> None:
        super().__init__(name=f"drydock-console-{lease_id}", daemon=True)
        self._lease_id, self._taken = lease_id, taken
        self._record = Record(lease_id, taken.token, taken.size)
        self._stopped = threading.Event()
        self._backlog, self._output = b"", bytearray()
        self._kept_at = self._stored_at = self._used_at = self._heard_at = clock.monotonic()

    def stop(self) -> None:
        """End soon, and leave the attachments for another process."""
        self._stopped.set()

    def run(self) -> None:
        """Open the line, use it, and close it."""
        try:
            with about(lease=self._lease_id):
                self._use()
        finally:
            connections.close_all()

    def _use(self) -> None:
        try:
            problem, ended = self._pumped(), False
        except TokenLost:
            logger.warning("another process holds the console now")
            return
        except LeaseEnded as error:
            problem, ended = str(error), True
        except DrydockError as error:
            logger.warning("the console was closed: %s", error)
            problem, ended = _told(error), False
        except Exception:
            logger.exception("the console was closed")
            problem, ended = "The console was closed because of an error of the server.", False
        with contextlib.suppress(Exception):
            _released(self._lease_id, self._taken.token, problem, ended)

    def _pumped(self) -> str:
        """Move bytes until an end. Return why the line was closed, or an empty string if nobody needs it any more."""
        lease = Lease.objects.select_related("owner", "resource__blueprint").get(pk=self._lease_id)
        check = partial(still_mine, lease.pk, lease.owner_id)
        view = specs.lease_view(lease, still_mine=check)
        secrets = list(texts([*specs.resource_secrets(view.resource), *_of_leases(view.resource.id)]))
        redaction = Redaction(secrets)
        with hidden(secrets):
            console = cast(ConsoleInterface, specs.opened(view, "console", check))
            line = console.connect(take=self._taken.force, timeout=OPENING)
            try:
                self._keep(opened=True)
                return self._turns(line, redaction, check)
            finally:
                line.close()
                self._output += redaction.end()
                with contextlib.suppress(TokenLost):
                    self._store()

    def _turns(self, line: Line, redaction: Redaction, check: Any) -> str:
        while not self._stopped.is_set():
            now = clock.monotonic()
            if now - self._kept_at >= _KEEP_EVERY:
                check()
                if not self._keep():
                    return ""
                if now - self._used_at > settings.DRYDOCK.console_idle_seconds:
                    return "The console was closed because nothing was typed or printed for a long time."
            self._read(line, redaction)
            self._type(line)
        return ""

    def _read(self, line: Line, redaction: Redaction) -> None:
        """Read what the machine printed, and store it. A full buffer is stored before more is read."""
        now = clock.monotonic()
        if len(self._output) < _LARGEST:
            found = line.read(_LIVELY if now - self._used_at < _LIVELY_FOR else _QUIET)
            now = clock.monotonic()
            if found:
                self._used_at = self._heard_at = now
                self._output += redaction.feed(found)
            elif now - self._heard_at >= _PAUSE:
                self._output += redaction.pause()
        wait = self._stored_at + _APART - now
        if self._output and wait > 0 and len(self._output) >= _LARGEST:
            clock.sleep(wait)
            wait = 0.0
        if self._output and wait <= 0:
            self._store()

    def _store(self) -> None:
        self._record.append(bytes(self._output))
        self._output.clear()
        self._stored_at = clock.monotonic()

    def _type(self, line: Line) -> None:
        """Send what was typed. It is deleted before it is sent: better lost than typed twice."""
        if not self._backlog:
            waiting = list(ConsoleInput.objects.filter(lease_id=self._lease_id).order_by("pk")[:64])
            if not waiting:
                return
            ConsoleInput.objects.filter(pk__in=[one.pk for one in waiting]).delete()
            self._backlog = b"".join(bytes(one.content) for one in waiting)
        while self._backlog and (taken := line.write(self._backlog)):
            self._backlog, self._used_at = self._backlog[taken:], clock.monotonic()

    def _keep(self, *, opened: bool = False) -> bool:
        """Extend the token. Return False if nobody is attached any more. Raises TokenLost."""
        mine = Console.objects.filter(pk=self._lease_id, token=self._taken.token)
        news = {"opened_at": Now(), "revision": F("revision") + 1} if opened else {}
        if not mine.update(token_until=Now() + dt.timedelta(seconds=TOKEN), **news):
            raise TokenLost
        self._kept_at = clock.monotonic()
        return ConsoleAttachment.objects.filter(lease_id=self._lease_id, until__gt=Now()).exists()


@short
def _released(lease_id: int, token: uuid.UUID, problem: str, ended: bool) -> None:
    """Give the token back. If the line was closed for a reason, everybody has to attach again."""
    mine = Console.objects.filter(pk=lease_id, token=token)
    changes = {"problem": problem, "writer": None} if problem else {}
    if not mine.update(token=None, opened_at=None, revision=F("revision") + 1, **changes):
        return
    if problem:
        ConsoleAttachment.objects.filter(lease_id=lease_id).delete()
        ConsoleInput.objects.filter(lease_id=lease_id).delete()
    if ended:
        record.erase(lease_id)


def _of_leases(resource_id: int) -> list[Mapping[str, Any]]:
    """Return the secrets of all leases on the machine, because its console may show those of any lease."""
    held = Lease.objects.filter(share__resource_id=resource_id).only("secrets")
    return [lease.secrets for lease in held if lease.secrets]


def texts(secrets: Any) -> Iterator[str]:
    """Yield the texts in secrets, without names of accounts, which a console shows at every login."""
    if isinstance(secrets, str):
        yield secrets
    elif isinstance(secrets, Mapping):
        yield from texts([value for name, value in secrets.items() if name not in ("username", "user")])
    elif isinstance(secrets, Iterable) and not isinstance(secrets, bytes):
        for one in secrets:
            yield from texts(one)


def _told(error: DrydockError) -> str:
    """Return what an owner may read of an error; the server's log has all of it."""
    if isinstance(error, _PLAIN):
        return str(error)
    if isinstance(error, ConnectionLost):
        return "The connection to the console was lost."
    said = (type(error).__doc__ or "").strip().partition("\n")[0]
    return f"The console cannot be used: {said}" if said else "The console cannot be used."
