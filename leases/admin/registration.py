"""Pages that register hosts, one by one or from CSV, and correct registrations. A person confirms the host keys."""

from __future__ import annotations

import csv
import dataclasses
import io
from collections.abc import Mapping
from typing import Any, NamedTuple

from django import forms
from django.contrib import messages
from django.core import signing
from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import reverse

from blueprints import registry
from blueprints.contract import Registers, Scans
from blueprints.models import Blueprint
from drydock.core.errors import DrydockError
from leases import hostcalls
from leases.admin.toolkit import equivalent_commands, html
from leases.admin.toolkit.form_fields import inputs_of, settings_in, values_in
from leases.models import Resource
from leases.operations import blueprints, resources
from leases.operations.callers import caller

MAX_HOSTS = 200

"""The maximum number of hosts that can be registered at the same time."""

MAX_CSV = 256 << 10

"""The maximum length of a CSV text, in characters."""

CONFIRM_SECONDS = 3600

"""Time in seconds within which a confirmation page can be submitted."""

_SALT = "drydock.registering"

_NAME = "registration"


class CsvForm(forms.Form):
    """Hosts as CSV, pasted or from a file."""

    text = forms.CharField(
        label="CSV",
        required=False,
        strip=False,
        max_length=MAX_CSV,
        widget=forms.Textarea(attrs={"rows": 6, "spellcheck": "false"}),
    )
    file = forms.FileField(label="CSV file", required=False)

    def clean(self) -> dict[str, Any]:
        """Return the CSV text from the field that was filled in."""
        found = super().clean() or {}
        if (file := found.get("file")) is not None:
            if file.size > MAX_CSV:
                raise forms.ValidationError(f"The file is larger than {MAX_CSV >> 10} KiB.")
            try:
                found["text"] = file.read().decode("utf-8-sig")
            except UnicodeDecodeError:
                raise forms.ValidationError("The file is not UTF-8 text.") from None
        if not found.get("text", "").strip():
            raise forms.ValidationError("Paste CSV text or choose a file.")
        return found


class _Page(NamedTuple):
    """The subject of a page: a blueprint and, for a correction, the registered resource."""

    blueprint: Blueprint
    resource: Resource | None = None


def register(model_admin: Any, request: HttpRequest) -> HttpResponse:
    """Register hosts with the blueprint `?blueprint=`, or else with the first one that accepts registrations."""
    if not model_admin.may_operate(request):
        raise PermissionDenied
    offered = _offered()
    named = request.GET.get("blueprint", "")
    chosen = next((one for one in offered if one.name == named), offered[0] if offered and not named else None)
    if chosen is None:
        messages.error(request, "No blueprint accepts registered hosts. Add a blueprint of kind ssh_host first.")
        return HttpResponseRedirect(reverse("admin:blueprints_blueprint_add"))
    return _answer(model_admin, request, _Page(chosen), offered)


def correct(model_admin: Any, request: HttpRequest, pk: int) -> HttpResponse:
    """Correct the registration of a resource."""
    row = model_admin.get_object(request, str(pk))
    if row is None or not model_admin.may_operate(request):
        raise PermissionDenied
    if row.origin != Resource.Origin.REGISTERED or row.state not in ("pending", "active"):
        messages.error(request, f"{row} is not a registered resource, or is being removed.")
        return HttpResponseRedirect(html.address(row))
    return _answer(model_admin, request, _Page(row.blueprint, row), [])


def _offered() -> list[Blueprint]:
    found = []
    for one in Blueprint.objects.filter(removed_at=None).order_by("order", "id"):
        try:
            kind = registry.kind(one.kind)
        except DrydockError:
            continue
        if isinstance(kind, Registers):
            found.append(one)
    # Those that show their keys are what most people mean by a host.
    return sorted(found, key=lambda one: not isinstance(registry.kind(one.kind), Scans))


def _answer(model_admin: Any, request: HttpRequest, page: _Page, offered: list[Blueprint]) -> HttpResponse:
    if request.method != "POST":
        return _form(model_admin, request, page, offered)
    if "confirmed" in request.POST:
        return _confirmed(request, page)
    problems: Mapping[str, list[str]] = {}
    many = CsvForm(request.POST, request.FILES) if "many" in request.POST else None
    given = [values_in(request.POST, _NAME, _settings(page.blueprint))]
    try:
        if many is not None:
            given = rows_of(many.cleaned_data["text"], page.blueprint) if many.is_valid() else []
        if given:
            return _ask(model_admin, request, page, given)
    except DrydockError as error:
        if many is not None:
            many.add_error(None, str(error))
        else:
            problems = {error.field.partition(".")[0]: [error.message]}
            if error.field.partition(".")[0] not in {one.key for one in _settings(page.blueprint)}:
                messages.error(request, str(error))
    return _form(model_admin, request, page, offered, typed=given[0] if given else {}, problems=problems, many=many)


def _settings(blueprint: Blueprint) -> Any:
    return settings_in(blueprints.schema(blueprint.kind).registration or {})


def rows_of(text: str, blueprint: Blueprint) -> list[dict[str, Any]]:
    """Return the rows of a CSV text. Raises InvalidRequest with the line.

    The first line contains the names of the fields, such as `attributes.region` for a nested field. Multiple values
    of a field are separated by `;`.
    """
    known = {one.key: one for one in _settings(blueprint)}
    reader = csv.reader(io.StringIO(text.lstrip("\ufeff")), skipinitialspace=True)
    try:
        lines = [(reader.line_num, [cell.strip() for cell in line]) for line in reader if any(map(str.strip, line))]
    except csv.Error as error:
        raise resources.unreadable(f"line {reader.line_num}: {error}") from None
    if len(lines) < 2:
        raise resources.unreadable("a header line with field names and one line per host are required")
    if len(lines) > MAX_HOSTS + 1:
        raise resources.unreadable(f"{len(lines) - 1} hosts; at most {MAX_HOSTS} can be registered at once")
    head = lines[0][1]
    for name in head:
        if name.partition(".")[0] not in known:
            raise resources.unreadable(f"unknown field {name!r}. Valid fields: {', '.join(known)}")
    found = []
    for number, cells_ in lines[1:]:
        if len(cells_) > len(head):
            raise resources.unreadable(f"line {number}: {len(cells_)} values for {len(head)} fields")
        found.append(_row(dict(zip(head, cells_, strict=False)), known))
    return found


def _row(line: Mapping[str, str], known: Mapping[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for name, text in line.items():
        if not text:
            continue
        key, _, below = name.partition(".")
        if below:
            given.setdefault(key, {})[below] = text
        else:
            given[key] = known[key].read(text.replace(";", "\n") if known[key].sort == "lines" else text)
    return given


def _form(
    model_admin: Any, request: HttpRequest, page: _Page, offered: list[Blueprint], *,
    typed: Mapping[str, Any] | None = None, problems: Mapping[str, list[str]] | None = None,
    many: CsvForm | None = None,
) -> HttpResponse:  # fmt: skip
    stored = page.resource.registration if page.resource is not None else {}
    value = stored if typed is None else typed
    context = {
        **_context(model_admin, request, page), "offered": offered, "many": many or CsvForm(),
        "settings": inputs_of(_settings(page.blueprint), _NAME, value, problems or {}),
        "widget": {"name": _NAME}, "fields": [one.key for one in _settings(page.blueprint)],
        "scans": isinstance(registry.kind(page.blueprint.kind), Scans),
    }  # fmt: skip
    return TemplateResponse(request, "admin/drydock/register.html", context)


def _ask(model_admin: Any, request: HttpRequest, page: _Page, given: list[dict[str, Any]]) -> HttpResponse:
    """Show each host with its keys, which a person must confirm. Raises DrydockError for invalid fields."""
    who = caller(request.user)
    with hostcalls.calling(who.id, lambda: "A host"):
        found = resources.examine_registrations(who, page.blueprint.name, given)
    if len(found) == 1 and found[0].problem and found[0].field:
        raise resources.wrong(found[0])
    kept = [dataclasses.asdict(one) for one in found]
    context = {
        **_context(model_admin, request, page), "found": list(enumerate(found)),
        "signed": signing.dumps({"rows": kept, "about": _about(page)}, salt=_SALT, compress=True),
        "any": any(not one.problem for one in found),
    }  # fmt: skip
    return TemplateResponse(request, "admin/drydock/register_confirm.html", context)


def _about(page: _Page) -> list[Any]:
    return [page.blueprint.name, page.resource.pk if page.resource is not None else 0]


def _confirmed(request: HttpRequest, page: _Page) -> HttpResponse:
    """Register every host that was selected on the confirmation page, each independently of the others."""
    try:
        signed = signing.loads(request.POST["confirmed"], salt=_SALT, max_age=CONFIRM_SECONDS)
    except signing.BadSignature:
        signed = {}
    if signed.get("about") != _about(page):
        messages.error(request, "This page has expired. Start again.")
        return HttpResponseRedirect(request.get_full_path())
    ticked = {int(one) for one in request.POST.getlist("host") if one.isascii() and one.isdecimal()}
    chosen = [row for number, row in enumerate(signed["rows"]) if number in ticked and not row["problem"]]
    if not chosen:
        messages.error(request, "No host was selected. Select the hosts whose keys are correct.")
    done = [pk for row in chosen if (pk := _write(request, page, row)) is not None]
    if len(done) == 1:
        return HttpResponseRedirect(reverse("admin:leases_resource_change", args=(done[0],)))
    if not done:
        return HttpResponseRedirect(request.get_full_path())
    return HttpResponseRedirect(reverse("admin:leases_resource_changelist"))


def _write(request: HttpRequest, page: _Page, row: Mapping[str, Any]) -> int | None:
    """Register a host or correct its registration. Return the id of the resource, or None after adding a message."""
    who, given = caller(request.user), dict(row["given"])
    if row["keys"]:
        given["host_keys"] = [key["key"] for key in row["keys"]]
    try:
        if page.resource is None:
            info = resources.register(who, page.blueprint.name, given)
        else:
            gone = dict.fromkeys(page.resource.registration.keys() - given.keys())
            before = page.resource.registration
            changed = {name: value for name, value in given.items() if before.get(name) != value}
            info = resources.change_registration(who, page.resource.pk, {**gone, **changed})
    except DrydockError as error:
        messages.error(request, f"{row['name']}: {error}")
        return None
    done = "registered" if page.resource is None else "changed"
    messages.success(request, f"{info.name}: {done}. A check was started.")
    return info.id


def _context(model_admin: Any, request: HttpRequest, page: _Page) -> dict[str, Any]:
    if page.resource is None:
        title = f"Register hosts of {page.blueprint.name}"
        same = [equivalent_commands.line_for(request, "resource.register", {"blueprint": page.blueprint.name})]
    else:
        title = f"Correct {page.resource}"
        same = equivalent_commands.of_action(request, "resource", "change", [page.resource])
    return {
        **model_admin.admin_site.each_context(request), "title": title, "opts": model_admin.opts,
        "blueprint": page.blueprint, "resource": page.resource, "elsewhere": same,
        "back": reverse("admin:leases_resource_changelist") if page.resource is None else html.address(page.resource),
    }  # fmt: skip
