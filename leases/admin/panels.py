"""Tables below a record: what is related to it, in a few statements however many rows there are."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.utils.html import format_html
from django.utils.safestring import SafeString

from leases.admin import cells
from leases.models import Event, Lease, Run

LATEST = 50
EVENTS = 200


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A table with a heading; `empty` is said when there are no rows, `note` and `lead` stand before them."""

    title: str
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    empty: str = "None."
    note: str = ""
    lead: str | SafeString = ""
    more: tuple[str, str] | None = None
    """Words and address of a link to the rest."""
    name: str = ""
    always: bool = False
    """Shown in full even when it is empty, because that says something."""


@dataclass(frozen=True, kw_only=True)
class Head:
    """What a record is now: badges, a sentence, and facts as (words, value)."""

    badges: SafeString
    sentence: str = ""
    facts: Sequence[tuple[str, Any]] = ()


def latest(found: QuerySet[Event], *of: str) -> list[Event]:
    """The last events, oldest first. `of`: relations to read with them."""
    found = found.select_related(*of) if of else found
    return list(found.order_by("-id")[:EVENTS])[::-1]


def timeline(rows: Sequence[Event], title: str = "Timeline", *, of: Sequence[str] = ()) -> Panel:
    """Events with how long each state lasted. `of`: relations to link to."""
    return Panel(
        title=title, columns=("When", "What", *of, "After", "Reason", "Message", "By"), name="timeline",
        rows=[
            (
                cells.moment(e.at), happened(e), *(cells.link(getattr(e, name)) for name in of),
                cells.span(e.duration), e.reason.replace("_", " "), cells.short(e.message, 400), e.actor,
            )
            for e in rows
        ],
        note=f"The last {EVENTS} events." if len(rows) == EVENTS else "",
    )  # fmt: skip


def happened(event: Event) -> SafeString:
    """A transition as two badges, anything else as its kind."""
    if not event.to_state:
        return format_html("<code>{}</code>", event.kind)
    if not event.from_state:
        return cells.badge(event.to_state, event.kind)
    return format_html("{} → {}", cells.badge(event.from_state, event.kind), cells.badge(event.to_state, event.kind))


def runs(found: Iterable[Run]) -> Panel:
    """What is being carried out."""
    return Panel(
        title="Runs under way",
        columns=("Run", "Step", "Progress", "It says", "Waits for", "Tries", "Next call", "Since"),
        rows=[
            (
                cells.link(run, run.phase), run.step or "-", cells.progress(run.percent),
                cells.short(run.sentence, 200), waits(run), run.tries, cells.moment(run.due_at),
                cells.moment(run.started_at),
            )
            for run in found
        ],
        empty="Nothing is being carried out.",
    )  # fmt: skip


def waits(run: Run) -> str:
    """What a run waits for, in words."""
    if run.waits_for == "operator":
        return f"a person: {run.hold_who}" if run.hold_who else "a person"
    return run.waits_for or ("no cancelling now" if run.uninterruptible else "-")


def leases(title: str, found: Iterable[Lease], *, empty: str = "None.") -> Panel:
    """Leases in a table; give them with their owner and resource."""
    return Panel(
        title=title, columns=("Lease", "State", "Type", "Owner", "On", "Need", "Asked", "Active", "Ended"),
        rows=[
            (
                cells.numbered(one), cells.badge(one.state, one.message or one.reason), one.type, one.owner or "-",
                cells.link(one.resource), one.need or "-", cells.moment(one.created_at), cells.moment(one.active_at),
                cells.moment(one.ended_at),
            )
            for one in found
        ],
        empty=empty,
    )  # fmt: skip
