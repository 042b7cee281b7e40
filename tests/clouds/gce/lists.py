"""Filters, pages and aggregated lists, as Google does them."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from tests.clouds.gce.discovery import Refused

TERM = re.compile(r'\(?\s*([A-Za-z][\w.-]*)\s*(=|!=|\beq\b)\s*("[^"]*"|[^\s()]+)\s*\)?')
Fits = Callable[[Mapping[str, Any]], bool]


def filtered(text: str) -> Fits:
    """`labels.a="b" AND name eq "regular.*"`. Raises Refused 400 for what it does not read."""
    terms: list[tuple[str, str, str]] = []
    rest = text.strip()
    while rest:
        match = TERM.match(rest)
        if not match:
            raise Refused(
                400, "invalid", f"Invalid value for field 'filter': '{text}'. Invalid list filter expression."
            )
        terms.append((match[1], match[2], match[3].strip('"')))
        rest = re.sub(r"^(AND|and)\b", "", rest[match.end() :].strip()).strip()
    return lambda it: all(_fits(it, *term) for term in terms)


def _fits(it: Mapping[str, Any], name: str, operator: str, wanted: str) -> bool:
    first, _, rest = name.partition(".")
    value = it.get(first)
    if rest:
        value = value.get(rest) if isinstance(value, Mapping) else None
    text = "" if value is None else str(value)
    if operator == "eq":
        return re.fullmatch(wanted, text) is not None
    return (text == wanted) == (operator == "=")


def page(items: Sequence[Any], query: Mapping[str, Any], most: int) -> tuple[Sequence[Any], dict[str, str]]:
    """The items of one page, and the token of the next."""
    token = query.get("pageToken", "")
    if token and not re.fullmatch(r"p\d+", token):
        raise Refused(400, "invalid", f"Invalid value for field 'pageToken': '{token}'. Invalid pageToken.")
    wanted = query.get("maxResults", 500)
    if not 0 <= wanted <= 500:
        raise Refused(400, "invalid", f"Invalid value for field 'maxResults': '{wanted}'.")
    start, size = int(token[1:] or 0) if token else 0, min(wanted or 500, most)
    following = {"nextPageToken": f"p{start + size}"} if start + size < len(items) else {}
    return items[start : start + size], following


def listing(kind: str, items: Iterable[Any], query: Mapping[str, Any], most: int, link: str) -> dict[str, Any]:
    """A list of one scope."""
    fits = filtered(query.get("filter", ""))
    shown, following = page([one for one in items if fits(one)], query, most)
    return {"kind": f"compute#{kind}", "id": "list", "selfLink": link, "items": list(shown), **following}


def aggregated(
    kind: str,
    part: str,
    items: Mapping[str, Sequence[Any]],
    query: Mapping[str, Any],
    most: int,
    link: str,
    dark: Iterable[str],
) -> dict[str, Any]:
    """A list of all zones; one that cannot be looked into bears a warning and is among the unreachables."""
    fits = filtered(query.get("filter", ""))
    hidden = set(dark)
    every = [(zone, one) for zone, here in items.items() if zone not in hidden for one in here if fits(one)]
    shown, following = page(every, query, most)
    scopes: dict[str, Any] = {f"zones/{zone}": _nothing(zone) for zone in items}
    for zone, one in shown:
        scopes[f"zones/{zone}"] = {part: [*scopes[f"zones/{zone}"].get(part, ()), one]}
    for zone in hidden & set(items):
        scopes[f"zones/{zone}"] = {"warning": {"code": "UNREACHABLE", "message": f"Zone {zone} is unreachable."}}
    lost = {"unreachables": [f"zones/{zone}" for zone in sorted(hidden & set(items))]} if hidden else {}
    return {"kind": f"compute#{kind}", "id": "list", "selfLink": link, "items": scopes, **following, **lost}


def _nothing(zone: str) -> dict[str, Any]:
    data = [{"key": "scope", "value": f"zones/{zone}"}]
    return {"warning": {"code": "NO_RESULTS_ON_PAGE", "message": "There are no results on this page.", "data": data}}
