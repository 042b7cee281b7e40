"""What operators do with leases in the admin."""

from __future__ import annotations

from typing import Any

from django import forms

from leases.admin.acts import Act, Given, Plain, Said, Span
from leases.operations import holding
from leases.operations.callers import Caller

OPEN = ("pending", "acquired", "active")


class Longer(Plain):
    """How much longer."""

    ttl = Span(label="For", help_text='From now, such as "90m", "2h" or "1d12h". A lease is never shortened.')


class Hold(Plain):
    """How long, and why."""

    ttl = Span(label="For", required=False, help_text='From now, such as "2h"; empty: until somebody ends the hold.')
    message = forms.CharField(label="Why", max_length=500, required=False, help_text="Kept with the event.")


def _release(who: Caller, row: Any, given: Given) -> str:
    holding.release(who, row.pk, message=given["message"])
    return "Its end is under way."


def _extend(who: Caller, row: Any, given: Given) -> str:
    until = holding.extend(who, row.pk, ttl=given["ttl"])
    return "It is asked for longer." if until is None else f"It lasts until {until:%Y-%m-%d %H:%M:%S} UTC."


def _hold(who: Caller, row: Any, given: Given) -> str:
    end = holding.hold(who, row.pk, ttl=given["ttl"], reason=given["message"])
    return "Held until somebody ends the hold." if end is None else f"Held until {end:%Y-%m-%d %H:%M:%S} UTC."


def _unhold(who: Caller, row: Any, given: Given) -> str:
    holding.unhold(who, row.pk)
    return "The hold has ended."


def _retry(who: Caller, row: Any, given: Given) -> str:
    holding.retry(who, row.pk)
    return "Tried again now."


ACTS = (
    Act(
        name="release", label="Release", does=_release, form=Said, dangerous=True,
        applies=lambda lease: lease.state in OPEN,
        sentence="The right ends now: every process and access of the lease ends, what it used is cleaned, and its "
        "share goes to the next who waits. One that still waits is cancelled.",
    ),
    Act(
        name="extend", label="Extend", does=_extend, form=Longer,
        applies=lambda lease: lease.state == "active" and lease.until is not None,
        sentence="The lease will last longer, at most as long as its resource does.",
    ),
    Act(
        name="hold", label="Hold", does=_hold, form=Hold, applies=lambda lease: lease.state in (*OPEN, "released"),
        sentence="When the lease ends, however that comes, its resource stays as it is, for debugging, until the hold "
        "ends. Nobody else gets its share meanwhile.",
    ),
    Act(
        name="unhold", label="End the hold", does=_unhold, applies=lambda lease: lease.held,
        sentence="The hold ends. Where the lease has ended meanwhile, it is cleaned now.",
    ),
    Act(
        name="retry", label="Retry now", does=_retry, applies=lambda lease: lease.state in (*OPEN[:2], "released"),
        sentence="Room is looked for, or the step that waits for its next try is tried, at once.",
    ),
)  # fmt: skip
