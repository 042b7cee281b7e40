"""Regions of a page that refresh themselves: htmx requests the same URL again, and receives only the region.

The browser sends a digest of the content that it shows. The response is 204 if nothing but ages has changed since. Ages
and countdowns are updated in the browser (`console.js`).
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

"""The request header with a digest of the content that the browser shows."""

_AGE = re.compile(r"(<time[^>]*>)[^<]*(</time>)")

_TOKEN = re.compile(r'name="csrfmiddlewaretoken" value="[^"]*"')


def wanted(request: HttpRequest) -> str:
    """Return the id of the requested region, or an empty string for a whole page."""
    return request.headers.get("HX-Target", "") if request.headers.get("HX-Request") == "true" else ""


def region(request: HttpRequest, name: str, template: str, context: Mapping[str, Any]) -> SafeString:
    """Render a region with the id `name`."""
    content = SafeString(render_to_string(template, dict(context), request))
    return format_html(
        '<div id="{}" class="dd-live" hx-get="{}" hx-trigger="every 3s" hx-target="this" hx-swap="outerHTML"'
        ' hx-sync="this:drop" hx-headers=\'{{"{}": "{}"}}\'>{}</div>',
        name, request.get_full_path(), SEEN, digest(content), content,
    )  # fmt: skip


def answer(request: HttpRequest, found: SafeString) -> HttpResponse:
    """Return a response with only the region, or a 204 response if the browser already shows the same content."""
    seen = request.headers.get(SEEN, "")
    same = bool(seen) and f'"{SEEN}": "{seen}"' in found[:2000]
    response = HttpResponse(status=204) if same else HttpResponse(found)
    # Without this header it is not ours, but a page that asks to sign in.
    response.headers["X-Drydock-Live"] = "1"
    return response


def digest(content: str) -> str:
    """Return a digest of the content, in which ages are ignored."""
    return hashlib.sha256(_TOKEN.sub("", _AGE.sub(r"\1\2", content)).encode()).hexdigest()[:16]
