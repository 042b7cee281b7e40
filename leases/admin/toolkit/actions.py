"""Actions of the console, each of which is confirmed on a page of its own and calls `leases.operations`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias

from django import forms
from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.http import urlencode

from drydock.core.errors import DrydockError
from leases.admin.toolkit import equivalent_commands, html
from leases.admin.toolkit.equivalent_commands import Equivalent
from leases.operations.callers import Caller, caller

# Django's own class takes no parameters at run time; its stubs do.
if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = admin.ModelAdmin

FormData: TypeAlias = dict[str, Any]


class ConfirmForm(forms.Form):
    """The form of an action that needs only confirmation."""


class MessageForm(forms.Form):
    """A form with an optional reason, which is stored with the event."""

    message = forms.CharField(max_length=500, required=False, help_text="Recorded in the event.")


class NoteForm(forms.Form):
    """A form with a required note."""

    message = forms.CharField(label="Note", max_length=500, help_text="The reason, shown on the page of the resource.")


@dataclass(frozen=True, kw_only=True)
class Action:
    """An action on rows of a model.

    `does(who, row, given)` carries out the action on one row by an operation, and may return one or several
    messages.
    """

    name: str
    label: str
    sentence: str
    """The effect of the action, shown on the confirmation page."""
    does: Callable[[Caller, Any, FormData], str | Sequence[tuple[int, str]] | None]
    applies: Callable[[Any], bool] = lambda _: True
    """Returns whether the page of a row offers the action. Operations check this again."""
    form: type[forms.Form] = ConfirmForm
    permission: str = "change"
    dangerous: bool = False
    typed: bool = False
    """True if the action takes a single row, whose name must be typed to confirm."""
    equivalent: Equivalent
    """The command and the REST call that do the same as the action."""

    def form_for(self, rows: Sequence[Model], posted: Any = None) -> forms.Form:
        """Return the form of the confirmation page for these rows."""
        form = self.form(posted)
        if self.typed:
            name = str(rows[0])
            form.fields["typed"] = forms.CharField(
                label="Name", help_text=f"Type {name} to confirm.", validators=[_exactly(name)],
                widget=forms.TextInput(attrs={"autocomplete": "off"}),
            )  # fmt: skip
        return form


def _exactly(name: str) -> Callable[[str], None]:
    def check(typed: str) -> None:
        if typed != name.strip():
            raise forms.ValidationError("The name does not match.")

    return check


@dataclass(frozen=True, kw_only=True)
class ActionResult:
    """The result of an action on one row: a message, or the reason for the failure."""

    row: Any
    said: str | Sequence[tuple[int, str]] | None = None
    problem: str = ""


def perform(act: Action, who: Caller, rows: Iterable[Any], given: FormData) -> list[ActionResult]:
    """Carry out the action on each row. If it fails for one row, it continues with the others."""
    return [_one(act, who, row, given) for row in rows]


def _one(act: Action, who: Caller, row: Any, given: FormData) -> ActionResult:
    try:
        return ActionResult(row=row, said=act.does(who, row, given))
    except DrydockError as error:
        return ActionResult(row=row, problem=str(error))


MOST = 200

"""The maximum number of rows that an action accepts at once."""


class ActionAdmin(_ModelAdmin):
    """The base class of admins with actions, which are listed in `acts`."""

    acts: ClassVar[Sequence[Action]] = ()

    def __init__(self, model: type[Model], admin_site: admin.AdminSite) -> None:
        super().__init__(model, admin_site)
        for act in self.acts:
            equivalent_commands.add(f"{self.opts.model_name}.{act.name}", replace(act.equivalent, what=act.label))

    def may(self, request: HttpRequest, act: Action) -> bool:
        """Return whether the user has the permission that the action requires."""
        opts = self.opts
        return request.user.has_perm(f"{opts.app_label}.{act.permission}_{opts.model_name}")

    def get_urls(self) -> list[Any]:
        """Add the URL of the confirmation page."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_act"
        return [path("act/<slug:name>/", self.admin_site.admin_view(self.act_view), name=name), *super().get_urls()]

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """Return the actions that the user may take in the list. Rows are never deleted in bulk."""
        if "_popup" in request.GET:
            return {}
        allowed = [act for act in self.acts if self.may(request, act)]
        return {act.name: (partial(_ask, act), act.name, f"{act.label}…") for act in allowed}

    def act_address(self, act: Action, ids: Iterable[Any]) -> str:
        """Return the address of the confirmation page for these rows."""
        at = reverse(f"{self.admin_site.name}:{self.opts.app_label}_{self.opts.model_name}_act", args=(act.name,))
        return f"{at}?{urlencode({'ids': ','.join(str(pk) for pk in ids)})}"

    @transaction.non_atomic_requests
    def act_view(self, request: HttpRequest, name: str) -> HttpResponse:
        """Show the rows and the effect of the action on GET. Carry out the action on POST."""
        act = next((act for act in self.acts if act.name == name), None)
        if act is None or not self.may(request, act):
            raise PermissionDenied
        rows = self._chosen(request)
        if not rows or (act.typed and len(rows) > 1):
            messages.error(request, f"{act.label}: select a single row." if rows else "No row was selected.")
            return HttpResponseRedirect(self._list())
        form = act.form_for(rows, request.POST if request.method == "POST" else None)
        if request.method == "POST" and form.is_valid():
            for outcome in perform(act, caller(request.user), rows, form.cleaned_data):
                self._tell(request, act, outcome)
            return HttpResponseRedirect(self._after(act, rows))
        context = {
            **self.admin_site.each_context(request), "title": act.label, "act": act, "form": form, "opts": self.opts,
            "rows": [(html.link_with_number(row), self.line(row), act.applies(row)) for row in rows],
            "back": self._back(rows),
            "elsewhere": equivalent_commands.of_action(request, str(self.opts.model_name), act.name, rows),
        }  # fmt: skip
        return TemplateResponse(request, "admin/drydock/act.html", context)

    def line(self, row: Any) -> Any:
        """Return the HTML that follows the name of a row on the confirmation page."""
        return html.badge(row.state) if hasattr(row, "state") else ""

    def _chosen(self, request: HttpRequest) -> list[Any]:
        ids = [pk for pk in request.GET.get("ids", "").split(",") if pk.isdecimal()][:MOST]
        # Beyond a bigint there is nothing, and the database would refuse to look.
        return list(self.get_queryset(request).filter(pk__in=[pk for pk in ids if len(pk) < 19]).order_by("pk"))

    def _tell(self, request: HttpRequest, act: Action, outcome: ActionResult) -> None:
        if outcome.problem:
            messages.error(request, f"{outcome.row}: {outcome.problem}")
            return
        self.log_change(request, outcome.row, f"{act.label}.")
        if outcome.said is None or isinstance(outcome.said, str):
            messages.success(request, f"{outcome.row}: {outcome.said or act.label}.".replace("..", "."))
            return
        for level, sentence in outcome.said:
            messages.add_message(request, level, f"{outcome.row}: {sentence}"[:500])

    def _list(self) -> str:
        return reverse(f"{self.admin_site.name}:{self.opts.app_label}_{self.opts.model_name}_changelist")

    def _back(self, rows: Sequence[Model]) -> str:
        return html.address(rows[0]) if len(rows) == 1 else self._list()

    def _after(self, act: Action, rows: Sequence[Model]) -> str:
        there = len(rows) == 1 and self.model._default_manager.filter(pk=rows[0].pk).exists()
        return self._back(rows) if there else self._list()


def _ask(act: Action, model_admin: ActionAdmin, request: HttpRequest, chosen: QuerySet[Any]) -> HttpResponse | None:
    ids = list(chosen.order_by("pk").values_list("pk", flat=True)[: MOST + 1])
    if len(ids) > MOST:
        messages.error(request, f"Select at most {MOST} rows.")
        return None
    return HttpResponseRedirect(model_admin.act_address(act, ids))
