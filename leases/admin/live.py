"""Regions of a page that renew themselves: htmx asks for the same address again, and gets only the region.

Nothing is swapped while nothing but the age of things has changed: the browser says which content it has, and the
answer to that is 204. Ages and countdowns run in the browser (`console.js`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.html import format_html
from django.utils.safestring import SafeString

SEEN = "X-Drydock-Seen"
"""Request header: the content that the browser has."""
_AGE = re.compile(r"(<time[^>]*>)[^<]*(</time>)")
_TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="[^"]*"')


def wanted(request: HttpRequest) -> str:
    """The id of the region that is asked for; empty for a whole page."""
    return request.headers.get("HX-Target", "") if request.headers.get("HX-Request") == "true" else ""


def region(request: HttpRequest, name: str, template: str, context: Mapping[str, Any]) -> SafeString:
    """A region with the id `name`, to be put into a page."""
    content = SafeString(render_to_string(template, dict(context), request))
    return format_html(
        '<div id="{}" class="dd-live" hx-get="{}" hx-trigger="every 3s" hx-target="this" hx-swap="outerHTML"'
        ' hx-sync="this:drop" hx-headers=\'{{"{}": "{}"}}\'>{}</div>',
        name, request.get_full_path(), SEEN, digest(content), content,
    )  # fmt: skip


def answer(request: HttpRequest, found: SafeString) -> HttpResponse:
    """The region alone, or 204 when the browser has it already."""
    seen = request.headers.get(SEEN, "")
    same = bool(seen) and f'"{SEEN}": "{seen}"' in found[:2000]
    response = HttpResponse(status=204) if same else HttpResponse(found)
    # Without this header it is not ours, but a page that asks to sign in.
    response.headers["X-Drydock-Live"] = "1"
    return response


def digest(content: str) -> str:
    """What the content is, whatever age the things in it have reached."""
    return hashlib.sha256(_TOKEN.sub("", _AGE.sub(r"\1\2", content)).encode()).hexdigest()[:16]
