"""Panels below a record. They read related rows by a fixed number of queries."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from django.db.models import QuerySet
from django.utils.html import format_html
from django.utils.safestring import SafeString

from leases.admin.toolkit import html
from leases.models import Event, Lease, Run

LATEST = 50

EVENTS = 200


@dataclass(frozen=True, kw_only=True)
class Panel:
    """A table with a heading. `note` and `lead` precede the rows. `empty` is shown if there are no rows."""

    title: str
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[Any]] = ()
    empty: str = "None."
    note: str = ""
    lead: str | SafeString = ""
    more: tuple[str, str] | None = None
    """The text and the address of a link to further rows."""
    name: str = ""
    always: bool = False
    """True if the panel is shown in full even when it is empty, because that is informative."""


@dataclass(frozen=True, kw_only=True)
class Head:
    """The headline of a record: badges, a sentence, and facts as (label, value)."""

    badges: SafeString
    sentence: str = ""
    facts: Sequence[tuple[str, Any]] = ()


def latest(found: QuerySet[Event], *of: str) -> list[Event]:
    """Return the latest events, oldest first, together with the relations that `of` names."""
    found = found.select_related(*of) if of else found
    return list(found.order_by("-id")[:EVENTS])[::-1]


def timeline(rows: Sequence[Event], title: str = "Timeline", *, of: Sequence[str] = ()) -> Panel:
    """Show events with the duration of each state, and with links to the relations that `of` names."""
    return Panel(
        title=title, columns=("Time", "Event", *of, "Previous state lasted", "Reason", "Message", "By"),
        name="timeline",
        rows=[
            (
                html.time(e.at), transition(e), *(html.link(getattr(e, name)) for name in of),
                html.duration(e.duration), e.reason.replace("_", " "), html.short(e.message, 400), e.actor,
            )
            for e in rows
        ],
        note=f"The last {EVENTS} events." if len(rows) == EVENTS else "",
    )  # fmt: skip


def transition(event: Event) -> SafeString:
    """Render a transition as two badges, and any other event as its kind."""
    if not event.to_state:
        return format_html("<code>{}</code>", event.kind)
    if not event.from_state:
        return html.badge(event.to_state, event.kind)
    return format_html("{} → {}", html.badge(event.from_state, event.kind), html.badge(event.to_state, event.kind))


def runs(found: Iterable[Run]) -> Panel:
    """Show runs that are being carried out."""
    return Panel(
        title="Active runs",
        columns=("Run", "Step", "Progress", "Message", "Waits for", "Attempts", "Next call", "Started"),
        rows=[
            (
                html.link(run, run.phase), run.step or "-", html.progress(run.percent),
                html.short(run.sentence, 200), waits_for(run), run.tries, html.time(run.due_at),
                html.time(run.started_at),
            )
            for run in found
        ],
        empty="No active runs.",
    )  # fmt: skip


def waits_for(run: Run) -> str:
    """Return a phrase that says for what a run waits."""
    if run.waits_for == "operator":
        return f"a person: {run.hold_who}" if run.hold_who else "a person"
    return run.waits_for or ("cannot be cancelled" if run.uninterruptible else "-")


def leases(title: str, found: Iterable[Lease], *, empty: str = "None.") -> Panel:
    """Show leases in a table. Their owners and resources must be read together with them."""
    return Panel(
        title=title, columns=("Lease", "State", "Type", "Owner", "Resource", "Need", "Requested", "Active", "Ended"),
        rows=[
            (
                html.link_with_number(one), html.badge(one.state, one.message or one.reason), one.type,
                one.owner or "-",
                html.link(one.resource), one.need or "-", html.time(one.created_at), html.time(one.active_at),
                html.time(one.ended_at),
            )
            for one in found
        ],
        empty=empty,
    )  # fmt: skip
