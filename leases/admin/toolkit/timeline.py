"""Timelines as SVG. Widths are attributes, so that pages need no inline styles."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

WIDTH = 1000

ROW = 16

LANES = 12

"""The maximum number of lanes. Further leases at the same time share the last lane."""


@dataclass(frozen=True, kw_only=True)
class Bar:
    """A period on a timeline. An `end` of None means until now."""

    start: dt.datetime
    end: dt.datetime | None
    tone: str
    words: str
    address: str = ""


def lanes(pieces: Iterable[Bar], now: dt.datetime) -> list[list[Bar]]:
    """Distribute bars over lanes, oldest first.

    The bars in a lane do not overlap, except in the last of `LANES` lanes.
    """
    found: list[list[Bar]] = []
    for piece in sorted(pieces, key=lambda one: one.start):
        free = next((lane for lane in found if (lane[-1].end or now) <= piece.start), None)
        if free is not None:
            free.append(piece)
        elif len(found) < LANES:
            found.append([piece])
        else:
            found[-1].append(piece)
    return found


def chart(pieces: Sequence[Bar], now: dt.datetime) -> SafeString:
    """Draw periods over time in lanes, from the first start until now."""
    if not pieces:
        return SafeString("")
    start = min(piece.start for piece in pieces)
    whole = max((now - start).total_seconds(), 1.0)
    rows = lanes(pieces, now)
    drawn = format_html_join(
        "", "{}",
        ((_rect(piece, start, whole, now, row * ROW + 2),) for row, lane in enumerate(rows) for piece in lane),
    )  # fmt: skip
    return format_html(
        '<svg class="dd-strips" viewBox="0 0 {} {}" height="{}" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<rect class="dd-fill-track" x="0" y="0" width="{}" height="{}"/>{}</svg>',
        WIDTH, len(rows) * ROW, len(rows) * ROW, f"{len(pieces)} leases over time", WIDTH, len(rows) * ROW, drawn,
    )  # fmt: skip


def _rect(piece: Bar, start: dt.datetime, whole: float, now: dt.datetime, y: int) -> SafeString:
    x = (piece.start - start).total_seconds() / whole * WIDTH
    # Every lease can be seen and clicked, however short it was.
    width = max(((piece.end or now) - piece.start).total_seconds() / whole * WIDTH, 3)
    rect = format_html(
        '<rect class="dd-fill-{}" x="{}" y="{}" width="{}" height="{}"><title>{}</title></rect>',
        piece.tone, f"{min(x, WIDTH - width):.1f}", y, f"{width:.1f}", ROW - 4, piece.words,
    )  # fmt: skip
    return format_html('<a href="{}">{}</a>', piece.address, rect) if piece.address else rect


def stacked_bar(pieces: Sequence[tuple[str, float, str]]) -> SafeString:
    """Draw one bar that consists of parts. Each part is (tone, fraction of the whole, label)."""
    drawn, x = [], 0.0
    for tone, part, words in pieces:
        drawn.append((tone, f"{x * WIDTH:.1f}", f"{max(part * WIDTH, 2):.1f}", words))
        x += part
    rects = format_html_join(
        "", '<rect class="dd-fill-{}" x="{}" y="0" width="{}" height="12"><title>{}</title></rect>', drawn
    )
    return format_html(
        '<svg class="dd-strip" viewBox="0 0 {} 12" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="dd-fill-track" width="{}" height="12"/>{}</svg>',
        WIDTH, WIDTH, rects,
    )  # fmt: skip


def progress_bar(used: int, total: int, tone: str) -> SafeString:
    """Draw one bar, of which the used part is filled."""
    width = 0.0 if total <= 0 else min(used / total, 1) * 100
    return format_html(
        '<svg viewBox="0 0 100 10" preserveAspectRatio="none" aria-hidden="true">'
        '<rect class="dd-fill-track" width="100" height="10"/>'
        '<rect class="dd-fill-{}" width="{}" height="10"/></svg>',
        tone, f"{width:.1f}",
    )  # fmt: skip
