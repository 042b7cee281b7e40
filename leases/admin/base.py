"""The two sorts of admin that ours are made of: records that only the engine writes, and rows that people edit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.db import transaction
from django.db.models import Model, Q, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect

from drydock.core.errors import DrydockError
from drydock.core.fields import EncryptedTextField
from leases.admin import elsewhere, finding, live, pages
from leases.admin.acting import Acting
from leases.admin.panels import Head, Panel
from leases.engine.core import installation
from leases.models import Installation


class ActingAdmin(Acting):
    """An admin with acts, lists that are found by index, and panels of related rows with the record."""

    related: ClassVar[Sequence[str]] = ()
    """Relations that are read with every row."""
    change_form_template = "admin/drydock/record.html"
    live_template = "admin/drydock/panels_live.html"
    """What of a record's page renews itself."""
    change_list_template = "admin/drydock/list.html"
    list_per_page = 25
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    paginator = pages.Bounded

    def head(self, row: Any) -> Head | None:
        """What stands above a record: its state in one line."""
        return None

    def panels(self, row: Any, request: HttpRequest) -> list[Panel]:
        """Tables to show with a record."""
        return []

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Rows with their relations and without their secrets."""
        found = super().get_queryset(request)
        found = found.select_related(*self.related) if self.related else found
        if getattr(request, "dd_one", False):
            standing = Installation.objects.filter(pk=1).values("problem")[:1]
            found = found.annotate(installation_problem=Subquery(standing))
        return found.defer(*_secret(self.model, self.related))

    def get_object(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """A row; with it is read whether the installation is suspended, which every page says."""
        request.dd_one = True  # type: ignore[attr-defined]
        row = super().get_object(request, *args, **kwargs)
        request.dd_one = False  # type: ignore[attr-defined]
        if row is not None:
            installation.seen(row.installation_problem or "")
        return row

    def found(self, words: str) -> Q | None:
        """The rows that a search means, by indexes; None: the stock search over `search_fields`."""
        return None

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """By indexes where the table is long."""
        words = finding.clean(search_term)
        condition = self.found(words) if words else None
        if condition is None:
            return super().get_search_results(request, queryset, words)
        return queryset.filter(condition), False

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Only what a filter of the list offers: by any column, what is never shown could be guessed bit by bit."""
        return lookup in _offered(self)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """The list, whose rows renew themselves; htmx is given only those."""
        others = {"elsewhere": elsewhere.of_list(request, str(self.opts.model_name))}
        response = super().changelist_view(request, {**others, **(extra_context or {})})
        context = getattr(response, "context_data", None)
        if not context or "cl" not in context:
            return response
        context["live"] = live.region(request, "dd-rows", "admin/drydock/list_live.html", context)
        return live.answer(request, context["live"]) if live.wanted(request) == "dd-rows" else response

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Adds the actions that apply, and the region that renews itself; htmx is given only that."""
        row = context.get("original")
        if row is None:
            context["elsewhere"] = elsewhere.of_act(request, str(self.opts.model_name), "add", [])
        else:
            offered = [act for act in self.acts if act.applies(row) and self.may(request, act)]
            context["acts"] = [(act, self.act_address(act, [row.pk])) for act in offered]
            context["head"], context["panels"] = self.head(row), self.panels(row, request)
            context["empty"] = [one for one in context["panels"] if not (one.rows or one.lead or one.always)]
            context["elsewhere"] = elsewhere.of_row(request, row)
            context["columns_are_live"] = self.live_template != ActingAdmin.live_template
            context["live"] = live.region(request, "dd-record", self.live_template, context)
            if live.wanted(request) == "dd-record":
                return live.answer(request, context["live"])
        return super().render_change_form(request, context, *args, **kwargs)

    def render_delete_form(self, request: HttpRequest, context: dict[str, Any]) -> Any:
        """With what does the same elsewhere."""
        others = elsewhere.of_act(request, str(self.opts.model_name), "delete", [context["object"]])
        return super().render_delete_form(request, {**context, "elsewhere": others})

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """With what tells as much elsewhere."""
        others = {"elsewhere": elsewhere.of_history(request, str(self.opts.model_name), object_id)}
        return super().history_view(request, object_id, {**others, **(extra_context or {})})


_WAYS = ("", "__exact", "__id__exact", "__isnull", "__isempty", "__gte", "__lt", "__year", "__month", "__day")
"""How the stock filters ask."""


def _offered(model_admin: ActingAdmin) -> set[str]:
    """The parameters of the filters of a list."""
    filters = [one[0] if isinstance(one, tuple) else one for one in model_admin.list_filter]
    named = {one if isinstance(one, str) else str(getattr(one, "parameter_name", "")) for one in filters}
    dates = {model_admin.date_hierarchy} if model_admin.date_hierarchy else set()
    return {f"{name}{way}" for name in named | dates for way in _WAYS}


def _secret(model: type[Model], related: Sequence[str]) -> list[str]:
    """The columns, also of directly related rows, that are not even read."""
    found = [field.name for field in model._meta.fields if isinstance(field, EncryptedTextField)]
    for name in related:
        if "__" not in name:
            below = model._meta.get_field(name).related_model
            found += [f"{name}__{column}" for column in _secret(below, ())]  # type: ignore[arg-type]
    return found


class RecordAdmin(ActingAdmin):
    """Rows that only the engine writes: everything is shown, nothing can be typed over."""

    live_template = "admin/drydock/record_live.html"

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody adds one here."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody changes a column here; actions ask for the permission themselves."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Nobody deletes one here."""
        return False


class OperatedAdmin(ActingAdmin):
    """Rows that may be edited; what is typed goes through operations, which want no transaction around them."""

    @transaction.non_atomic_requests
    def add_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Without a transaction around it."""
        return super().add_view(request, *args, **kwargs)

    @transaction.non_atomic_requests
    def change_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Without a transaction around it."""
        return super().change_view(request, *args, **kwargs)

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:  # fmt: skip
        """Without the transaction of the stock admin: kinds may call their provider while a blueprint is checked."""
        try:
            answer: HttpResponse = self._changeform_view(  # type: ignore[attr-defined]
                request, object_id, form_url, extra_context
            )
            return answer
        except DrydockError as error:
            messages.error(request, str(error))
            return HttpResponseRedirect(request.get_full_path())
