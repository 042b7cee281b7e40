"""Search by number, name, owner or label. Only indexes are read, so the cost does not grow with the tables."""

from __future__ import annotations

from typing import Any

from django.contrib.auth import get_user_model
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse

from blueprints.models import Blueprint
from leases.admin.toolkit import equivalent_commands, html, panels
from leases.admin.toolkit.panels import Panel
from leases.engine.core.database import begins_with, rows
from leases.models import Lease, Resource

MOST = 500

"""The maximum number of matches of each type. Users can search for more specific words."""

_BIGGEST = (1 << 63) - 1


def number(words: str) -> int | None:
    """Return the number in a search (`12`, `#12`, `lease 12`), or None if the search is not a valid number of a row."""
    last = words.split()[-1].removeprefix("#") if words.split() else ""
    value = int(last) if last.isascii() and last.isdecimal() and len(last) < 20 else None
    return value if value is not None and value <= _BIGGEST else None


def clean(words: str) -> str:
    """Return the search without characters that PostgreSQL cannot store in text."""
    return words.replace("\x00", "").strip()[:200]


_USERS = get_user_model()._meta

_USER = get_user_model().USERNAME_FIELD

# ruff: noqa: S608 - made of names of our own; what was typed is a parameter.
_LEASES = f"""
    SELECT id FROM leases_lease WHERE id = %(number)s
    UNION (SELECT id FROM leases_lease WHERE name <> '' AND lower(name) LIKE %(prefix)s LIMIT {MOST})
    UNION (SELECT id FROM leases_lease WHERE labels <> '{{}}'
        AND jsonb_path_query_array(labels, '$.*') @> jsonb_build_array(%(words)s::text) LIMIT {MOST})
    UNION (SELECT id FROM leases_lease WHERE labels <> '{{}}' AND %(key)s <> ''
        AND jsonb_path_query_array(labels, '$.*') @> jsonb_build_array(%(value)s::text)
        AND labels ->> %(key)s = %(value)s LIMIT {MOST})
    UNION (SELECT id FROM leases_lease WHERE note <> '' AND to_tsvector('simple'::regconfig, COALESCE(note, ''))
        @@ plainto_tsquery('simple'::regconfig, %(words)s) LIMIT {MOST})
    UNION (SELECT l.id FROM
        (SELECT {_USERS.pk.column} AS id FROM {_USERS.db_table} WHERE {_USER} LIKE %(owner)s LIMIT 20) u
        CROSS JOIN LATERAL (SELECT id FROM leases_lease WHERE owner_id = u.id ORDER BY id DESC LIMIT {MOST}) l)
    UNION (SELECT l.id FROM
        (SELECT id FROM leases_resource WHERE name <> '' AND lower(name) LIKE %(prefix)s LIMIT 50) r
        CROSS JOIN LATERAL (SELECT id FROM leases_lease WHERE resource_id = r.id LIMIT {MOST}) l)
    ORDER BY id DESC LIMIT {MOST}"""

_RESOURCES = f"""
    SELECT id FROM leases_resource WHERE id = %(number)s
    UNION (SELECT id FROM leases_resource WHERE name <> '' AND lower(name) LIKE %(prefix)s LIMIT {MOST})
    UNION (SELECT id FROM leases_resource WHERE identity IS NOT NULL AND lower(identity) LIKE %(prefix)s LIMIT {MOST})
    ORDER BY id DESC LIMIT {MOST}"""


def _parameters(words: str) -> dict[str, Any]:
    key, _, value = words.partition("=")
    return {
        "number": number(words), "prefix": begins_with(words.lower()), "words": words, "owner": begins_with(words),
        "key": key if value else "", "value": value,
    }  # fmt: skip


def lease_ids(words: str) -> list[int]:
    """Return the ids of leases by number, name, owner, label, resource or words of a note, newest first.

    A label is `blue` or `team=blue`.
    """
    return [pk for (pk,) in rows(_LEASES, _parameters(words))] if words else []


def resource_ids(words: str) -> list[int]:
    """Return the ids of resources by number, name or identity, newest first."""
    return [pk for (pk,) in rows(_RESOURCES, _parameters(words))] if words else []


def page(site: Any, request: HttpRequest) -> HttpResponse:
    """Show the results that the user may see. If there is exactly one, redirect to its page."""
    words = clean(request.GET.get("q", ""))
    may = request.user.has_perm
    leases = _leases(words) if may("leases.view_lease") else []
    resources = _resources(words) if may("leases.view_resource") else []
    blueprints = _blueprints(words) if may("blueprints.view_blueprint") else []
    found: list[Any] = [*leases, *resources, *blueprints]
    if len(found) == 1:
        return HttpResponseRedirect(html.address(found[0]))
    shown = [
        panels.leases("Leases", leases, empty="No leases found."),
        Panel(
            title="Resources", columns=("Resource", "State", "Type", "Identity"), empty="No resources found.",
            rows=[(html.link_with_number(r), html.badge(r.state), r.type, r.identity or "-") for r in resources],
        ),
        Panel(
            title="Blueprints", columns=("Blueprint", "Kind"), empty="No blueprints found.",
            rows=[(html.link(b), b.kind) for b in blueprints],
        ),
    ]  # fmt: skip
    context = {
        **site.each_context(request), "title": f"Search: {words}" if words else "Search", "searched": words,
        "panels": shown if words else [],
        "elsewhere": [equivalent_commands.line_for(request, key, {}) for key in ("leases", "resources", "blueprints")],
    }  # fmt: skip
    return TemplateResponse(request, "admin/drydock/search.html", context)


def _leases(words: str) -> list[Lease]:
    found = Lease.objects.filter(pk__in=lease_ids(words)[: panels.LATEST]).select_related("owner", "resource")
    return list(found.defer("secrets", "resource__secrets").order_by("-id"))


def _resources(words: str) -> list[Resource]:
    return list(Resource.objects.filter(pk__in=resource_ids(words)[: panels.LATEST]).defer("secrets").order_by("-id"))


def _blueprints(words: str) -> list[Blueprint]:
    return list(Blueprint.objects.filter(name__istartswith=words).order_by("name")[: panels.LATEST]) if words else []
