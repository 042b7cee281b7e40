"""Who is attached to a console: any number of readers, one of whom may type."""

from __future__ import annotations

import datetime as dt
import uuid
from collections.abc import Sequence
from typing import NamedTuple

from django.db.models import F
from django.db.models.functions import Length, Now

from drydock.core.errors import Busy, Conflict, InvalidRequest
from leases.engine.core.database import short
from leases.models import Console, ConsoleAttachment, ConsoleInput

LASTS = 45.0
"""Seconds for which an attachment lasts unless it is renewed. Readers renew it with each request."""
MOST = 32
"""Maximum number of attachments to one console."""
MOST_UNSENT = 64 << 10
"""Maximum number of bytes that were typed and not sent to the machine yet."""
GONE = "This session at the console has ended."


class Attached(NamedTuple):
    """The result of attaching: the attachment, whether it may type, and whose place it took."""

    session: uuid.UUID
    writes: bool
    was_new: bool
    took_from: str = ""


def session_of(text: str) -> uuid.UUID:
    """Return the id of an attachment from its text. Raises InvalidRequest."""
    try:
        return uuid.UUID(text)
    except (ValueError, TypeError, AttributeError):
        raise InvalidRequest(
            "The session is not one that attaching to a console has returned.", field="session"
        ) from None


def live(lease_id: int) -> list[ConsoleAttachment]:
    """Return the attachments to a console that have not ended, in the order of their ids."""
    return list(ConsoleAttachment.objects.filter(lease_id=lease_id, until__gt=Now()).order_by("pk"))


def writer_of(console: Console, attached: Sequence[ConsoleAttachment]) -> str:
    """Return the name of the user who may type, or an empty string if nobody may."""
    return next((one.user for one in attached if one.pk == console.writer), "")


@short
def attach(
    lease_id: int, resource_id: int, user: str, *, session: uuid.UUID | None, read_only: bool, take: bool
) -> Attached:
    """Attach a user to a console, as the writer if the place is free or taken over. Raises Busy.

    With the id of an attachment that still exists, that one is changed.
    """
    Console.objects.get_or_create(lease_id=lease_id, defaults={"resource_id": resource_id})
    console = Console.objects.select_for_update(no_key=True).get(pk=lease_id)
    ConsoleAttachment.objects.filter(lease_id=lease_id, until__lte=Now()).delete()
    attached = live(lease_id)
    known = next((one for one in attached if one.pk == session), None)
    if known is None and len(attached) >= MOST:
        raise Busy(f"{MOST} programs are attached to this console already.", hint="Try again later.")
    one = known or ConsoleAttachment(pk=uuid.uuid4(), lease_id=lease_id, user=user[:150])
    one.until = Now() + dt.timedelta(seconds=LASTS)
    one.save()
    holder = writer_of(console, attached)
    changes: dict[str, object] = {"problem": "", "forced": console.forced or take, "revision": F("revision") + 1}
    took_from = ""
    if read_only:
        changes |= {"writer": None} if console.writer == one.pk else {}
    elif (not holder or take) and console.writer != one.pk:
        took_from, changes = holder, {**changes, "writer": one.pk, "typed": 0}
    Console.objects.filter(pk=lease_id).update(**changes)
    console.refresh_from_db(fields=["writer"])
    return Attached(one.pk, console.writer == one.pk, known is None, took_from)


def renew(lease_id: int, session: uuid.UUID) -> bool:
    """Let an attachment last longer. Return False if it has ended."""
    found = ConsoleAttachment.objects.filter(pk=session, lease_id=lease_id, until__gt=Now())
    return bool(found.update(until=Now() + dt.timedelta(seconds=LASTS)))


@short
def detach(lease_id: int, session: uuid.UUID) -> None:
    """End an attachment. Has no effect if it has ended."""
    if ConsoleAttachment.objects.filter(pk=session, lease_id=lease_id).delete()[0]:
        Console.objects.filter(pk=lease_id).update(revision=F("revision") + 1)


@short
def queue(lease_id: int, session: uuid.UUID, number: int, content: bytes) -> None:
    """Store what the writer typed, until the process that holds the line sends it.

    An input whose number is not greater than the last one was stored before, and is ignored. Raises Conflict if
    somebody else is the writer or an input is missing, and Busy if the machine takes nothing.
    """
    console = Console.objects.select_for_update(no_key=True).filter(pk=lease_id).first()
    attached = live(lease_id)
    if console is None or session not in {one.pk for one in attached}:
        problem = console.problem if console is not None else ""
        raise Conflict(problem or GONE, hint="Attach again: drydock console LEASE --attach")
    if console.writer != session:
        holder = writer_of(console, attached)
        said = f"{holder} types at this console now." if holder else "This session only reads."
        raise Conflict(said, field="session", hint="To type, attach with --take.")
    if number <= console.typed:
        return
    if number != console.typed + 1:
        raise Conflict(f"Input {console.typed + 1} is missing before input {number}.", field="sequence")
    unsent = ConsoleInput.objects.filter(lease_id=lease_id).annotate(size=Length("content"))
    if sum(unsent.values_list("size", flat=True)) + len(content) > MOST_UNSENT:
        raise Busy("The machine takes no more input.", hint="Try again in a moment.")
    ConsoleInput.objects.create(lease_id=lease_id, content=content)
    Console.objects.filter(pk=lease_id).update(typed=number)
