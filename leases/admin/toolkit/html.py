"""HTML for single values: badges, times, durations, links and bars. User input is escaped here."""

from __future__ import annotations

import datetime as dt
import json
from typing import Any

from django.db.models import Model
from django.urls import reverse
from django.utils.html import format_html, format_html_join
from django.utils.safestring import SafeString, mark_safe

from drydock.core import clock
from drydock.core.units import in_words
from leases.admin.toolkit import timeline

_BADGES = {
    "pending": ("wait", "◷"),
    "requested": ("wait", "◷"),
    "acquired": ("work", "◔"),
    "running": ("work", "◔"),
    "active": ("good", "●"),
    "alive": ("good", "●"),
    "authorized": ("good", "●"),
    "ok": ("good", "●"),
    "enabled": ("good", "●"),
    "released": ("work", "◑"),
    "destroyed": ("over", "○"),
    "ended": ("over", "○"),
    "cancelled": ("over", "○"),
    "disabled": ("over", "○"),
    "declined": ("over", "⊘"),
    "drained": ("wait", "▽"),
    "suspect": ("bad", "?"),
    "quarantined": ("bad", "⚠"),
    "no reboots": ("wait", "⊘"),
    "degraded": ("wait", "⚠"),
    "maintenance": ("wait", "⚙"),
    "cleaning": ("work", "⚙"),
    "enrolling": ("work", "◷"),
    "available": ("good", "●"),
    "deploying": ("work", "◷"),
    "in use": ("work", "●"),
    "rescue": ("wait", "⚙"),
    "unreachable": ("bad", "?"),
    "removing": ("over", "○"),
    "removed": ("over", "○"),
    "erased": ("good", "●"),
    "cleaning owed": ("wait", "⚙"),
    "held": ("wait", "‖"),
    "outdated": ("wait", "↻"),
    "overdue": ("bad", "⚠"),
    "lost": ("bad", "✕"),
    "broken": ("bad", "✕"),
    "build": ("good", "✚"),
    "reclaim": ("work", "↻"),
    "wait": ("wait", "◷"),
    "no": ("bad", "✕"),
    "ready": ("good", "●"),
    "setup required": ("wait", "⚙"),
    "reboot required": ("wait", "↻"),
    "unsupported": ("over", "○"),
    "not leased": ("over", "○"),
    "failed": ("bad", "✕"),
    "failing": ("bad", "✕"),
    "silent": ("bad", "◌"),
    "expected": ("wait", "◷"),
    "unread": ("wait", "◷"),
    "closed": ("wait", "‖"),
    "warning": ("wait", "⚠"),
    "critical": ("bad", "✕"),
}

"""The tone and the icon of each state, flag or answer.

The word is shown beside them, so that no meaning depends on color alone.
"""

DASH = mark_safe('<span class="dd-quiet">-</span>')


def tone(word: str) -> str:
    """Return the tone of a word such as a state."""
    return _BADGES.get(word, ("over", ""))[0]


def badge(word: str, sentence: str = "") -> SafeString:
    """Render a word with its icon and tone. `sentence` is shown on hover."""
    colour, icon = _BADGES.get(word, ("over", "•"))
    return format_html(
        '<span class="dd-badge dd-{}" title="{}"><span aria-hidden="true">{}</span> {}</span>',
        colour, sentence or word, icon, word,
    )  # fmt: skip


def badges(*words: str) -> SafeString:
    """Render several badges, or a dash if there are none."""
    return format_html_join(" ", "{}", ((badge(word),) for word in words)) if words else DASH


def time(at: dt.datetime | None) -> SafeString:
    """Render a time relative to now, with the absolute time on hover."""
    if at is None:
        return DASH
    ago = (clock.now() - at).total_seconds()
    words = "now" if abs(ago) < 1 else f"{in_words(ago)} ago" if ago > 0 else f"in {in_words(-ago)}"
    return format_html('<time datetime="{}" title="{}">{}</time>', at.isoformat(), f"{at:%Y-%m-%d %H:%M:%S} UTC", words)


def duration(length: dt.timedelta | None) -> str | SafeString:
    """Render a duration, with the exact value on hover."""
    return DASH if length is None else format_html('<span title="{}">{}</span>', str(length), in_words(length))


def address(row: Model) -> str:
    """Return the address of a row's page."""
    return reverse(f"admin:{row._meta.label_lower.replace('.', '_')}_change", args=(row.pk,))


def link(row: Model | None, words: str = "") -> SafeString:
    """Render a link to a row's page."""
    if row is None:
        return DASH
    return format_html('<a href="{}">{}</a>', address(row), words or str(row))


def link_with_number(row: Model | None) -> SafeString:
    """Render a link with the number of the row, because names may be empty or used more than once."""
    if row is None:
        return DASH
    number = f"{row._meta.verbose_name} {row.pk}"
    return link(row, number if str(row) == number else f"{row} (#{row.pk})")


def short(text: str, length: int = 90) -> str | SafeString:
    """Shorten a text, and show the whole text on hover."""
    if not text:
        return DASH
    return text if len(text) <= length else format_html('<span title="{}">{}…</span>', text[:2000], text[:length])


def bar(name: str, used: int, total: int) -> SafeString:
    """Render a bar that shows how much of a class of capacity is used."""
    return format_html(
        '<span class="dd-bar" title="{}">{} {} of {}</span>', name, _filled(used, total), used, total
    )  # fmt: skip


def _filled(used: int, total: int) -> SafeString:
    """Render a filled bar: good while there is room, a warning from 80 %, bad when full."""
    colour = "over" if not total else "bad" if used >= total else "wait" if used * 5 >= total * 4 else "good"
    return timeline.progress_bar(used, total, colour)


_GIB = 1024


def amount(name: str, value: int) -> str:
    """Return an amount of a capacity class in common units: cores, GiB, TiB."""
    if name == "cpu_millicores":
        return f"{value / 1000:g} cores"
    if name.endswith("_mib"):
        size, unit = (value / _GIB / 1024, "TiB") if value >= 1024 * _GIB else (value / _GIB, "GiB")
        return f"{value} MiB" if value < _GIB else f"{size:.3g} {unit}"
    return f"{value:,}"


def amounts(given: dict[str, int]) -> str | SafeString:
    """Return amounts by class as text, such as `2 slots, CPU 4 cores`."""
    found = [_amount(name, value) for name, value in given.items()]
    return ", ".join(found) or DASH


def _amount(name: str, value: int) -> str:
    if name in _CLASSES:
        return f"{_CLASSES[name]} {amount(name, value)}"
    return "1 slot" if (name, value) == ("slots", 1) else f"{value:,} {name}"


def pairs(given: Any) -> SafeString:
    """Render a flat mapping as separate `key=value` items."""
    found = given.items() if isinstance(given, dict) else ()
    return format_html_join(" ", '<code class="dd-pair">{}={}</code>', found) if found else DASH


_CLASSES = {"cpu_millicores": "CPU", "ram_mib": "RAM", "disk_mib": "disk"}


def room(name: str, used: int, total: int) -> SafeString:
    """Render a bar for a class of capacity, with its name and its unit."""
    return format_html(
        '<span class="dd-bar">{} {} {} of {}</span>',
        _CLASSES.get(name, name), _filled(used, total), amount(name, used), amount(name, total),
    )  # fmt: skip


def progress(percent: int | None) -> SafeString:
    """Render a progress bar."""
    if percent is None:
        return DASH
    return format_html('<progress max="100" value="{}"></progress> {} %', percent, percent)


def copyable(line: str) -> SafeString:
    """Render a line of text to copy. The browser adds the button."""
    return format_html('<span class="dd-copy"><code>{}</code></span>', line)


def values(given: Any) -> SafeString:
    """Render a mapping or list as formatted JSON."""
    if not given:
        return DASH
    return format_html("<pre class='dd-json'>{}</pre>", json.dumps(given, indent=2, sort_keys=True, default=str))
