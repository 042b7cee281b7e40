"""Operations on the console of a lease's machine: attach, read, type, detach, and show the record."""

from __future__ import annotations

import base64
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from django.conf import settings
from django.db.models.functions import Now

from blueprints.contract import Consoles
from drydock.core import clock
from drydock.core.errors import Conflict, InvalidRequest, NotSupported
from drydock.core.logging import redact
from drydock_client.values import ConsoleInfo, ConsolePart
from interfaces.console import readable
from leases.consoles import attachments, pump, record
from leases.engine.core import specs
from leases.engine.core.transitions import record_event
from leases.models import Console, ConsoleOutput, Lease
from leases.operations import machines
from leases.operations.callers import Caller, lease_of
from leases.operations.interfaces import still_mine
from leases.operations.machines import Held
from leases.places import PLACES
from leases.validation.input_checks import checked

LARGEST_INPUT = 8 << 10
"""Maximum number of bytes in one input."""
LARGEST_PART = 256 << 10
LONGEST_WAIT = 60.0
_ROWS = 8
"""Maximum number of rows of a record that are read for a page."""
_FIRST, _LONGEST = 0.02, 0.1
_CHECK_EVERY = 1.0


@checked
def attach(
    who: Caller, lease_id: int, *, session: str = "", read_only: bool = False, take: bool = False
) -> ConsolePart:
    """Attach to the console of a lease's machine, and return the session. Records an event.

    The line is opened by this process, unless another one holds it. Raises what `machines.console` raises,
    InvalidRequest for both `read_only` and `take`, Conflict if the console is open for another lease, and Busy.
    """
    if read_only and take:
        raise InvalidRequest("A session that only reads cannot take the console over.", field="take")
    held = machines.of_lease(who, lease_id)
    _refuse_unable(held)
    _refuse_other_lease(held)
    found = attachments.attach(
        lease_id, held.resource.pk, who.name, session=attachments.session_of(session) if session else None,
        read_only=read_only, take=take,
    )  # fmt: skip
    _record(held, found)
    pump.ensure(lease_id)
    return replace(_part(lease_id, found.session, None, 1), output="")


def _refuse_unable(held: Held) -> None:
    """Raise NotSupported if programs cannot attach to the machine's console. Calls nothing outside the database."""
    if why := _why_not(held):
        raise why


def _why_not(held: Held) -> NotSupported | None:
    """Return why programs cannot attach to the machine's console, or None if they can. Makes no external call."""
    openers = held.kind.interfaces()
    if "console" not in openers:
        return NotSupported(
            f"Programs cannot attach to the console of a machine of kind {held.resource.blueprint.kind}.",
            capability="console", hint="Where the provider has it, `drydock console LEASE` shows its output.",
        )  # fmt: skip
    try:
        openers["console"](specs.lease_view(_lease(held)), lambda: None)
    except NotSupported as error:
        return error
    return None


def _lease(held: Held) -> Lease:
    assert held.lease_id is not None
    return Lease.objects.select_related("owner", "resource__blueprint").get(pk=held.lease_id)


def _refuse_other_lease(held: Held) -> None:
    open_ = Console.objects.filter(resource=held.resource, token_until__gt=Now()).exclude(pk=held.lease_id)
    other = open_.exclude(token=None).values_list("lease_id", flat=True).first()
    if other is not None:
        raise Conflict(f"The console of {held.resource.name} is open for lease {other}.", hint="Try again later.")


def _record(held: Held, found: attachments.Attached) -> None:
    about: dict[str, Any] = {"actor": held.who.actor, "lease_id": held.lease_id, "resource_id": held.resource.pk}
    if found.was_new:
        how = "types there" if found.writes else "only reads"
        record_event("console.attached", f"Attached to the console, and {how}.", **about)
    if found.took_from:
        record_event("console.taken", f"Took the console over from {found.took_from}.", **about)


@checked
def read(
    who: Caller, lease_id: int, *, offset: int = 0, session: str = "", revision: int = -1, wait: float = 0.0,
    limit: int = 64 << 10,
) -> ConsolePart:  # fmt: skip
    """Return a part of what the console printed, after `wait` seconds at most.

    Returns as soon as there is output or the revision changes, and at once if too many requests are already waiting. If
    the process that held the line has died, this one opens it. Raises what `attach` raises.
    """
    if offset < 0 or not 1 <= limit <= LARGEST_PART or not 0 <= wait <= LONGEST_WAIT:
        raise InvalidRequest(
            f"offset must be at least 0, limit from 1 to {LARGEST_PART} bytes, and wait from 0 to {LONGEST_WAIT:g} s.",
            field="offset",
        )
    held = machines.of_lease(who, lease_id)
    one = attachments.session_of(session) if session else None
    with _waiting(who, min(wait, settings.DRYDOCK.longest_wait_seconds)) as seconds:
        _watch(held, one, offset, revision, seconds)
    return _part(lease_id, one, offset, limit)


@contextmanager
def _waiting(who: Caller, seconds: float) -> Iterator[float]:
    """Yield the seconds that this request may wait, which is 0 if too many others wait."""
    if seconds <= 0 or not PLACES.take("wait", who.id):
        yield 0.0
        return
    try:
        yield seconds
    finally:
        PLACES.leave("wait", who.id)


def _watch(held: Held, session: uuid.UUID | None, offset: int, revision: int, seconds: float) -> None:
    assert held.lease_id is not None
    now, known = clock.monotonic(), revision
    end, pause, again = now + seconds, _FIRST, now
    while True:
        if clock.monotonic() >= again:
            if again > now:
                still_mine(held.lease_id, _owner(held))
            if session is not None and attachments.renew(held.lease_id, session):
                pump.ensure(held.lease_id)
            again = clock.monotonic() + _CHECK_EVERY
        found = Console.objects.filter(pk=held.lease_id).values_list("size", "revision").first()
        left = end - clock.monotonic()
        if left <= 0 or found is None or found[0] > offset or found[1] != (known := found[1] if known < 0 else known):
            return
        clock.sleep(min(pause, left))
        pause = min(pause * 1.3, _LONGEST)


def _owner(held: Held) -> int | None:
    assert held.lease_id is not None
    return Lease.objects.filter(pk=held.lease_id).values_list("owner_id", flat=True).first()


def _part(lease_id: int, session: uuid.UUID | None, offset: int | None, limit: int) -> ConsolePart:
    """Return a part of the output from an offset, or its end if the offset is None, with the state of the console."""
    row = Console.objects.annotate(now=Now()).filter(pk=lease_id).first()
    if row is None:
        return ConsolePart(lease=lease_id, session="", state="closed", output="", offset=0, next_offset=0)
    attached = attachments.live(lease_id)
    there = any(one.pk == session for one in attached) if session else bool(attached)
    opened = row.token is not None and row.opened_at is not None and (row.token_until or row.now) > row.now
    begins, content = record.part(lease_id, row.size if offset is None else offset, limit)
    closed = "" if there else _why_closed(lease_id, session)
    return ConsolePart(
        lease=lease_id, session=str(session or ""), output=base64.b64encode(content).decode(), offset=begins,
        state="closed" if not there else "open" if opened else "opening",
        next_offset=begins + len(content), writing=there and row.writer is not None and row.writer == session,
        writer=attachments.writer_of(row, attached), attached=len(attached), typed=row.typed, revision=row.revision,
        message=closed,
    )  # fmt: skip


def _why_closed(lease_id: int, session: uuid.UUID | None) -> str:
    """Return why a console or a session at it was closed, or an empty string if it was never opened.

    The reason is stored by the transaction that ends the sessions, so it is read after they were found to have ended.
    """
    problem = Console.objects.filter(pk=lease_id).values_list("problem", flat=True).first()
    return problem or (attachments.GONE if session else "")


@checked
def write(who: Caller, lease_id: int, *, session: str, sequence: int, content: bytes) -> None:
    """Type bytes at the console, under a number one greater than the last. Raises Conflict, Busy, InvalidRequest."""
    if not 0 < len(content) <= LARGEST_INPUT:
        raise InvalidRequest(f"An input has from 1 to {LARGEST_INPUT} bytes.", field="content")
    if sequence < 1:
        raise InvalidRequest("Inputs are numbered from 1.", field="sequence")
    one = attachments.session_of(session)
    machines.of_lease(who, lease_id)
    attachments.queue(lease_id, one, sequence, bytes(content))
    attachments.renew(lease_id, one)
    pump.ensure(lease_id)


@checked
def detach(who: Caller, lease_id: int, *, session: str) -> None:
    """End a session. Has no effect if it has ended, or if the lease has. Raises NotFound."""
    one = attachments.session_of(session)
    lease_of(who, lease_id)
    attachments.detach(lease_id, one)


@checked
def shown(who: Caller, lease_id: int) -> ConsoleInfo:
    """Return the output of a machine's console as text: from its provider, or else from the record. Records an event.

    Raises what `machines.console` raises.
    """
    held = machines.of_lease(who, lease_id)
    why = _why_not(held)
    attached = attachments.live(lease_id)
    row = Console.objects.filter(pk=lease_id).first()
    about: dict[str, Any] = {
        "attachable": why is None, "attached": tuple(dict.fromkeys(one.user for one in attached)),
        "writer": attachments.writer_of(row, attached) if row is not None else "",
    }  # fmt: skip
    if machines.CAPABILITIES[Consoles][0] in machines.able(held.resource):
        return replace(machines.console(who, lease_id), **about)
    if why is not None:
        raise why
    record_event(
        "machine.console", "The console was read.", actor=who.actor, resource_id=held.resource.pk, lease_id=lease_id
    )
    text = _text(record.newest(lease_id, machines.CONSOLE_BYTES))
    at = clock.now()
    return ConsoleInfo(resource=held.resource.pk, text=text, at=at, source="record", **about)


def recorded(lease_id: int, most: int) -> tuple[Console, str] | None:
    """Return the console of a lease, with the last bytes that it printed as text, in one statement.

    Return None if it has printed nothing. Does not check the caller.
    """
    rows = ConsoleOutput.objects.filter(lease_id=lease_id).select_related("lease__console").order_by("-start")
    found = list(rows.defer("lease__secrets")[:_ROWS])
    if not found:
        return None
    return found[0].lease.console, _text(b"".join(bytes(row.content) for row in reversed(found))[-most:])


def _text(content: bytes) -> str:
    """Return a part of the record as text.

    Secrets that Drydock knows were removed before it was stored. Others are recognized by what stands before them.
    """
    return redact(readable(content))
