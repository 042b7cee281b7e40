"""The acts of a resource in the console: a panel that lists them, and a page with a form for the arguments of one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib import messages
from django.core.exceptions import PermissionDenied
from django.http import Http404, HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse
from django.utils.html import format_html

from drydock.core.errors import DrydockError
from drydock_client.values import ActInfo
from leases.admin.toolkit import equivalent_commands, html
from leases.admin.toolkit.form_fields import inputs_of, settings_in, values_in
from leases.admin.toolkit.panels import Panel
from leases.models import Event, Resource
from leases.operations import machines
from leases.operations.callers import caller

_NAME = "arguments"
_HOLDERS = {
    "keep": "It runs beside leases.",
    "refuse": "It is refused while leases hold the resource.",
    "wait": "It waits until the leases on the resource have ended.",
}


def panel(row: Resource, request: HttpRequest, events: Sequence[Event]) -> list[Panel]:
    """Return a panel with the acts of a resource and their outcomes in its latest events, if its kind declares acts."""
    if row.state not in ("pending", "active"):
        return []
    try:
        found = machines.declared_acts(row, events)
    except DrydockError:
        return []
    return [
        Panel(
            title="Acts", name="acts", columns=("Act", "What it does", "Leases", "Last"),
            rows=[(_link(row, one, request), one.summary, _HOLDERS[one.holders], _last(one)) for one in found],
        )
    ] if found else []  # fmt: skip


def _link(row: Resource, one: ActInfo, request: HttpRequest) -> Any:
    """Return a link to the form of the act, which says why it cannot be started now."""
    if not request.user.has_perm("leases.change_resource"):
        return one.name
    there = reverse("admin:leases_resource_start_act", args=(row.pk, one.name))
    return format_html('<a href="{}">{}</a>', there, one.name)


def _last(one: ActInfo) -> str:
    return f"{one.outcome}: {one.message}" if one.outcome else "-"


def start(model_admin: Any, request: HttpRequest, pk: int, name: str) -> HttpResponse:
    """Show the form of an act on GET. Start the act on POST."""
    row = model_admin.get_object(request, str(pk))
    if row is None or not model_admin.may_operate(request):
        raise PermissionDenied
    who = caller(request.user)
    act = next((one for one in machines.acts(who, pk) if one.name == name), None)
    if act is None:
        raise Http404
    known = settings_in(act.arguments)
    given = values_in(request.POST, _NAME, known) if request.method == "POST" else {}
    problems: Mapping[str, list[str]] = {}
    if request.method == "POST":
        try:
            machines.start_act(who, pk, name, arguments=given)
        except DrydockError as error:
            problems = _at_fields(error, {one.key for one in known})
            if not problems:
                messages.error(request, str(error))
        else:
            model_admin.log_change(request, row, f"Started {name}.")
            messages.success(request, f"{row}: {name} was started.")
            return HttpResponseRedirect(html.address(row))
    context = {
        **model_admin.admin_site.each_context(request), "title": f"{name}: {row}", "opts": model_admin.opts,
        "act": act, "resource": row, "says": _HOLDERS[act.holders], "back": html.address(row),
        "settings": inputs_of(known, _NAME, given, problems), "widget": {"name": _NAME},
        "elsewhere": [equivalent_commands.line_for(request, "resource.act", {"id": pk, "name": name})],
    }  # fmt: skip
    return TemplateResponse(request, "admin/drydock/start_act.html", context)


def _at_fields(error: DrydockError, known: set[str]) -> dict[str, list[str]]:
    """Return the problems of arguments by their field, or an empty mapping if any has none."""
    found: dict[str, list[str]] = {}
    for one in getattr(error, "problems", ()):
        name = one.field.removeprefix(f"{_NAME}.").partition(".")[0]
        if name not in known:
            return {}
        found.setdefault(name, []).append(one.message)
    return found
