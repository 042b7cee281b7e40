"""Small graphs of values over time as SVG, without scripts and inline styles."""

from __future__ import annotations

from collections.abc import Sequence

from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString

WIDTH, HEIGHT = 240, 36
_MARGIN = 3
Point = tuple[float, float | None]
"""A place in time from 0 to 1, and a value; None where there is none."""


def line(points: Sequence[Point], title: str) -> SafeString:
    """Draw values over time as a line, which is interrupted where there is no value.

    The lowest value is at the bottom and the highest at the top. `title` is what screen readers read.
    """
    values = [value for _, value in points if value is not None]
    if not values:
        return SafeString("")
    low, high = min(values), max(values)
    drawn = format_html_join("", "{}", ((_piece(piece, low, high),) for piece in _pieces(points)))
    return format_html(
        '<svg class="dd-graph" viewBox="0 0 {} {}" preserveAspectRatio="none" role="img" aria-label="{}">'
        '<title>{}</title><rect class="dd-fill-track" width="{}" height="{}"/>{}</svg>',
        WIDTH, HEIGHT, title, title, WIDTH, HEIGHT, drawn,
    )  # fmt: skip


def _pieces(points: Sequence[Point]) -> list[list[tuple[float, float]]]:
    """Return the runs of points that have values."""
    found: list[list[tuple[float, float]]] = [[]]
    for at, value in points:
        if value is not None:
            found[-1].append((at, value))
        elif found[-1]:
            found.append([])
    return [piece for piece in found if piece]


def _piece(piece: Sequence[tuple[float, float]], low: float, high: float) -> SafeString:
    places = [(_x(at), _y(value, low, high)) for at, value in piece]
    if len(places) == 1:  # a single point would not be visible as a line
        places.append((places[0][0] + 1, places[0][1]))
    corners = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    return format_html('<polyline points="{}" vector-effect="non-scaling-stroke"/>', corners)


def _x(at: float) -> float:
    return min(max(at, 0.0), 1.0) * (WIDTH - 2 * _MARGIN) + _MARGIN


def _y(value: float, low: float, high: float) -> float:
    """Return the height of a value; values that do not change are in the middle."""
    # Halves, because the difference of two very large numbers may be infinite.
    part = 0.5 if high == low else (value / 2 - low / 2) / (high / 2 - low / 2)
    return HEIGHT - _MARGIN - part * (HEIGHT - 2 * _MARGIN)
