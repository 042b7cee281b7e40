"""What stands below a blueprint: its resources, errors, authorizations, what its kind understands, its events."""

from __future__ import annotations

from typing import Any

from django.db.models import Count
from django.urls import reverse
from django.utils.html import format_html

from blueprints.models import Blueprint, RememberedError
from drydock.core.errors import DrydockError
from leases.admin import cells, panels, resource_panels
from leases.admin.panels import Panel
from leases.models import Authorization, Event, Resource
from leases.operations import blueprints


def of(row: Blueprint) -> list[Panel]:
    """All panels of a blueprint."""
    return [
        resources(row), resource_panels.errors(RememberedError.objects.filter(blueprint=row)), authorizations(row),
        *kind(row.kind), panels.timeline(panels.latest(Event.objects.filter(blueprint=row)), "Events"),
    ]  # fmt: skip


def resources(row: Blueprint) -> Panel:
    """How many resources are in which state."""
    found = Resource.objects.filter(blueprint=row).order_by().values("state").annotate(n=Count("pk"))
    at = reverse("admin:leases_resource_changelist")
    return Panel(
        title="Resources", columns=("State", "How many"), empty="It never had one.",
        rows=[
            (
                cells.badge(one["state"]),
                format_html('<a href="{}?blueprint__id__exact={}&state__exact={}">{}</a>',
                            at, row.pk, one["state"], one["n"]),
            )
            for one in found
        ],
    )  # fmt: skip


def authorizations(row: Blueprint) -> Panel:
    """Who may use it."""
    found = Authorization.objects.filter(blueprint=row).select_related("user", "group").order_by("id")
    return Panel(
        title="Authorizations", columns=("Whose", "State", "Note", "Asked"),
        empty="Every owner may use it." if row.audience == Blueprint.Audience.EVERYONE else "Nobody may use it.",
        rows=[
            (
                cells.link(one, str(one.user or one.group)), cells.badge(one.state), cells.short(one.note),
                cells.moment(one.created_at),
            )
            for one in found[: panels.LATEST]
        ],
    )  # fmt: skip


def kind(name: str) -> list[Panel]:
    """What the kind can do, and the names that its config may have."""
    try:
        known = blueprints.schema(name)
    except DrydockError as error:
        return [Panel(title="Kind", columns=("Problem",), rows=[(str(error),)])]
    can = [
        ("Gives", known.type), ("Can do", ", ".join(known.capabilities)), ("Interfaces", ", ".join(known.interfaces)),
    ]  # fmt: skip
    return [
        Panel(title=f"Kind {name}", columns=("", ""), rows=can, note=known.description),
        Panel(
            title="What its config may say", columns=("Name", "Default", "What it means"),
            rows=[(key, _default(one), one.get("description", "")) for key, one in _properties(known.config)],
            empty="Nothing.",
        ),
    ]  # fmt: skip


def _properties(schema: Any) -> list[tuple[str, dict[str, Any]]]:
    return list(schema.get("properties", {}).items())


def _default(one: dict[str, Any]) -> Any:
    return cells.values(one["default"]) if "default" in one else ""
