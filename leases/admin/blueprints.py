"""Blueprints in the console, which operations change. The kind of a blueprint validates its config."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.contrib import admin, messages
from django.db import transaction
from django.db.models import Count, OuterRef, QuerySet, Subquery
from django.db.models.functions import Coalesce
from django.http import HttpRequest, HttpResponse
from django.urls import path, reverse
from django.utils.html import format_html

from blueprints.models import Blueprint, RememberedError
from drydock.core.errors import DrydockError
from drydock_client.values import BlueprintInfo
from leases.admin import blueprint_form, resource_panels
from leases.admin.blueprint_form import BlueprintForm
from leases.admin.toolkit import columns, html, panels
from leases.admin.toolkit.actions import Action, FormData
from leases.admin.toolkit.base import OperatedAdmin
from leases.admin.toolkit.equivalent_commands import declared
from leases.admin.toolkit.panels import Panel
from leases.models import Authorization, Event, Resource
from leases.operations import blueprints
from leases.operations.callers import Caller, caller


def problems(info: BlueprintInfo) -> list[tuple[int, str]]:
    """Return the problems that a check found as (level, message) pairs, or a message of success if there are none."""
    found = [
        (
            messages.ERROR if problem["fatal"] else messages.WARNING,
            f"{problem['field']}: {problem['message']}" if problem["field"] else str(problem["message"]),
        )
        for problem in info.problems
    ]
    return found or [(messages.SUCCESS, "No problems found.")]


def _check(who: Caller, row: Any, given: FormData) -> list[tuple[int, str]]:
    return problems(blueprints.check(who, row.name))


def _enable(who: Caller, row: Any, given: FormData) -> list[tuple[int, str]]:
    info = blueprints.enable(who, row.name)
    said = "Enabled." if info.enabled else "Not enabled: the check found a fatal problem."
    return [(messages.SUCCESS if info.enabled else messages.ERROR, said), *(problems(info) if info.problems else [])]


def _disable(who: Caller, row: Any, given: FormData) -> str:
    blueprints.disable(who, row.name)
    return "Disabled."


def _drain(who: Caller, row: Any, given: FormData) -> str:
    blueprints.drain(who, row.name)
    return "Drained."


def _undrain(who: Caller, row: Any, given: FormData) -> str:
    blueprints.drain(who, row.name, drained=False)
    return "Undrained."


def _remove(who: Caller, row: Any, given: FormData) -> str:
    blueprints.remove(who, row.name)
    return "Removed."


ACTIONS = (
    Action(
        name="check", label="Check", does=_check,
        equivalent=declared("switch_blueprint", "drydock blueprints check {name}", act="check"),
        sentence="Check the configuration. Nothing is created, but the provider may be queried.",
    ),
    Action(
        name="enable", label="Enable", does=_enable, applies=lambda row: not row.enabled,
        equivalent=declared("switch_blueprint", "drydock blueprints enable {name}", act="enable"),
        sentence="The blueprint is checked first, and is enabled unless the check finds a fatal problem.",
    ),
    Action(
        name="disable", label="Disable", does=_disable, applies=lambda row: row.enabled,
        equivalent=declared("switch_blueprint", "drydock blueprints disable {name}", act="disable"),
        sentence="The blueprint serves no new leases. Existing leases are not affected.",
    ),
    Action(
        name="drain", label="Drain", does=_drain, applies=lambda row: not row.drained,
        equivalent=declared("switch_blueprint", "drydock blueprints drain {name}", act="drain"),
        sentence="The blueprint builds no new resources, and its idle resources are removed. Existing leases are not "
        "affected.",
    ),
    Action(
        name="undrain", label="Undrain", does=_undrain, applies=lambda row: row.drained,
        equivalent=declared("switch_blueprint", "drydock blueprints undrain {name}", act="undrain"),
        sentence="The blueprint serves leases again, pending leases first.",
    ),
    Action(
        name="remove", label="Remove", does=_remove, dangerous=True, typed=True, permission="delete",
        equivalent=declared("remove_blueprint", "drydock blueprints remove {name}"),
        sentence="The blueprint and its authorizations are removed permanently. This fails while a resource or lease "
        "uses it.",
    ),
)  # fmt: skip


def panels_of(row: Blueprint) -> list[Panel]:
    """Return all panels of a blueprint."""
    return [
        resource_counts(row), resource_panels.errors(RememberedError.objects.filter(blueprint=row)),
        authorizations(row),
        *kind_panels(row.kind), panels.timeline(panels.latest(Event.objects.filter(blueprint=row)), "Events"),
    ]  # fmt: skip


def resource_counts(row: Blueprint) -> Panel:
    """Count the resources by state."""
    found = Resource.objects.filter(blueprint=row).order_by().values("state").annotate(n=Count("pk"))
    at = reverse("admin:leases_resource_changelist")
    return Panel(
        title="Resources", columns=("State", "Count"), empty="This blueprint has never had a resource.",
        rows=[
            (
                html.badge(one["state"]),
                format_html('<a href="{}?blueprint__id__exact={}&state__exact={}">{}</a>',
                            at, row.pk, one["state"], one["n"]),
            )
            for one in found
        ],
    )  # fmt: skip


def authorizations(row: Blueprint) -> Panel:
    """List the users and groups with their authorizations."""
    found = Authorization.objects.filter(blueprint=row).select_related("user", "group").order_by("id")
    return Panel(
        title="Authorizations", columns=("User or group", "State", "Note", "Requested"),
        empty="All users may use this blueprint." if row.audience == Blueprint.Audience.EVERYONE
        else "No user or group is authorized.",
        rows=[
            (
                html.link(one, str(one.user or one.group)), html.badge(one.state), html.short(one.note),
                html.time(one.created_at),
            )
            for one in found[: panels.LATEST]
        ],
    )  # fmt: skip


def kind_panels(name: str) -> list[Panel]:
    """Show the capabilities of the kind and the fields of its config."""
    try:
        known = blueprints.schema(name)
    except DrydockError as error:
        return [Panel(title="Kind", columns=("Problem",), rows=[(str(error),)])]
    can = [
        ("Resource type", known.type), ("Capabilities", ", ".join(known.capabilities)),
        ("Interfaces", ", ".join(known.interfaces)),
    ]  # fmt: skip
    return [
        Panel(title=f"Kind {name}", columns=("", ""), rows=can, note=known.description),
        Panel(
            title="Config fields", columns=("Field", "Default", "Description"),
            rows=[(key, _default(one), one.get("description", "")) for key, one in _properties(known.config)],
            empty="This kind has no config fields.",
        ),
    ]  # fmt: skip


def _properties(schema: Any) -> list[tuple[str, dict[str, Any]]]:
    return list(schema.get("properties", {}).items())


def _default(one: dict[str, Any]) -> Any:
    return html.values(one["default"]) if "default" in one else ""


def _status(row: Blueprint) -> Any:
    return html.badges("enabled" if row.enabled else "disabled", *(["drained"] if row.drained else []))


def _counted(found: QuerySet[Any]) -> Coalesce:
    """Return a subquery that counts the rows of another table for each blueprint.

    A join of several such tables would multiply the counts.
    """
    each = found.filter(blueprint=OuterRef("pk")).order_by().values("blueprint").annotate(n=Count("pk")).values("n")
    return Coalesce(Subquery(each), 0)


@admin.register(Blueprint)
class BlueprintAdmin(OperatedAdmin):
    """The admin of blueprints. Operations edit them, and actions enable, disable or drain them."""

    acts = ACTIONS
    form = BlueprintForm
    change_form_template = "admin/drydock/blueprint.html"
    list_display = (
        "name",
        "status",
        "kind",
        "resource_type",
        "order",
        "there_",
        "limit",
        "audience",
        "errors_",
        "note_",
    )
    list_filter = ("enabled", "drained", "audience", "resource_type", "kind")
    search_fields = ("name", "kind", "resource_type", "note")
    ordering = ("order", "id")
    readonly_fields = ("status", "resource_type", "generation", "made")
    fieldsets = (
        (None, {"fields": ("name", "status", "kind", "config", "note")}),
        ("Audience and order", {"fields": ("audience", "order")}),
        ("Limits", {"fields": ("max_resources", "min_ready", "max_builds", "max_outdated")}),
        ("Durations", {"fields": blueprints.SPANS}),
        ("Derived", {"fields": ("resource_type", "generation", "made")}),
    )
    add_fieldsets = (
        (None, {"fields": ("name", "kind", "config", "enabled", "note")}),
        *fieldsets[1:4],
    )

    status = columns.column("state", _status)
    there_ = columns.column("resources", lambda row: row.there, "there")
    limit = columns.column(
        "limit", lambda row: "-" if row.max_resources is None else row.max_resources, "max_resources"
    )
    errors_ = columns.column("errors", lambda row: row.remembered, "remembered")
    note_ = columns.text("note", "note")
    made = columns.time("created", "created_at")

    def get_urls(self) -> list[Any]:
        """Add the URLs that the form requests while it is edited."""
        wrap = self.admin_site.admin_view
        return [
            path("inputs/", wrap(partial(blueprint_form.inputs_view, self)), name="blueprints_blueprint_inputs"),
            path("trial/", wrap(self.trial_view), name="blueprints_blueprint_trial"),
            *super().get_urls(),
        ]

    @transaction.non_atomic_requests
    def trial_view(self, request: HttpRequest) -> HttpResponse:
        """Handle the "check" button."""
        return blueprint_form.check_view(self, request)

    def get_queryset(self, request: HttpRequest) -> Any:
        """Annotate each blueprint with the number of its resources and of its remembered errors."""
        there = _counted(Resource.objects.filter(gone_at=None))
        return super().get_queryset(request).annotate(there=there, remembered=_counted(RememberedError.objects.all()))

    def get_fieldsets(self, request: HttpRequest, obj: Any = None) -> Any:
        """Offer `enabled` only when a blueprint is added. Afterwards, actions change it."""
        return self.add_fieldsets if obj is None else self.fieldsets

    def get_readonly_fields(self, request: HttpRequest, obj: Any = None) -> Any:
        """Make the name of an existing blueprint read-only, because operations and configs refer to it."""
        return self.readonly_fields if obj is None else ("name", *self.readonly_fields)

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False, because an action removes blueprints."""
        return False

    def save_model(self, request: HttpRequest, obj: Any, form: Any, change: bool) -> None:
        """Add or change the blueprint by operations, which increment its generation and record the event."""
        who = caller(request.user)
        if change:
            if form.changed_data:
                blueprints.change(who, obj.name, form.change())
            return
        data = form.cleaned_data
        info = blueprints.add(
            who, data["name"], data["kind"], data["config"], change=form.change(), enabled=data["enabled"]
        )
        obj.pk = info.id
        for level, sentence in problems(info) if info.problems else []:
            messages.add_message(request, level, sentence[:500])
        if data["enabled"] and not info.enabled:
            messages.error(request, "Not enabled: the check found a fatal problem.")

    def panels(self, row: Blueprint, request: HttpRequest) -> list[Panel]:
        """Return the panels of resources, errors, authorizations, kind and events."""
        return panels_of(row)
