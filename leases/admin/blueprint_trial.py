"""The form's "check" button: what a blueprint as it is typed would build, and what is wrong with it."""

from __future__ import annotations

from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.utils.safestring import SafeString

from blueprints.specs import Draft
from drydock.core.errors import DrydockError
from leases.admin import cells, live
from leases.admin.config_widget import ConfigWidget
from leases.admin.panels import Panel
from leases.operations.callers import caller
from leases.operations.trial import trial


def inputs(model_admin: Any, request: HttpRequest) -> HttpResponse:
    """The inputs for the config of `?kind=`, empty: the form asks when another kind is chosen."""
    if not (model_admin.has_add_permission(request) or model_admin.has_change_permission(request)):
        raise PermissionDenied
    widget = ConfigWidget()
    widget.kind = request.GET.get("kind", "")
    return live.answer(request, SafeString(widget.render("config", "{}", {"id": "id_config"})))


def tried(model_admin: Any, request: HttpRequest) -> HttpResponse:
    """What comes of the form as it is typed. Nothing is stored."""
    pk = request.POST.get("dd-id", "")
    row = model_admin.get_object(request, pk) if pk.isdecimal() else None
    if row is None:
        allowed = model_admin.has_add_permission(request)
    else:
        allowed = model_admin.has_change_permission(request, row)
    if request.method != "POST" or not allowed:
        raise PermissionDenied
    form = model_admin.form(request.POST, instance=row)
    form.is_valid()
    panels = _panels(request, form, row)
    return live.answer(request, SafeString(render_to_string("admin/drydock/panels.html", {"panels": panels}, request)))


def _panels(request: HttpRequest, form: Any, row: Any) -> list[Panel]:
    wrong = [(name, problem) for name in ("kind", "config") for problem in form.errors.get(name, ())]
    if wrong:
        return [Panel(title="To mend first", columns=("Field", "What is wrong"), rows=wrong)]
    given = form.cleaned_data
    try:
        found = trial(
            caller(request.user), name=given.get("name") or (row.name if row else "new"), kind=given["kind"],
            config=given["config"], id=row.pk if row else 0,
        )  # fmt: skip
    except DrydockError as error:
        return [Panel(title="Check", rows=[(cells.badge("broken"), str(error))])]
    problems = [(cells.badge("no" if p.fatal else "wait"), p.field or "-", p.message) for p in found.problems]
    return [
        Panel(title="Check", rows=problems or [(cells.badge("ok"), "No problem found. Nothing was stored.")]),
        Panel(
            title="What it would build", always=True, empty=found.says,
            columns=("", "Offer", "Zone", "An hour", "Capacity", "Attributes"),
            rows=[_draft(number, draft) for number, draft in enumerate(found.drafts, 1)],
        ),
    ]  # fmt: skip


def _draft(number: int, draft: Draft) -> tuple[Any, ...]:
    own = draft.capacity
    sizes = {
        "slots": own.slots, "cpu_millicores": own.cpu_millicores, "ram_mib": own.ram_mib, "disk_mib": own.disk_mib
    } | dict(own.extra)  # fmt: skip
    return (
        f"{number}.", draft.offer or "-", draft.zone or "-", "-" if draft.price is None else f"{draft.price:g}",
        cells.amounts({name: value for name, value in sizes.items() if value}), cells.pairs(dict(draft.attributes)),
    )  # fmt: skip
