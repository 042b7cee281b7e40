"""Base classes of admins: for records that only the engine writes, and for rows that users edit."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from django.contrib import admin, messages
from django.core.paginator import Page, Paginator
from django.db import transaction
from django.db.models import Model, Q, QuerySet, Subquery
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.utils.functional import cached_property

from drydock.core.errors import DrydockError
from drydock.core.fields import EncryptedTextField
from leases.admin.toolkit import equivalent_commands, live_regions, search
from leases.admin.toolkit.actions import ActionAdmin
from leases.admin.toolkit.panels import Head, Panel
from leases.engine.core import installation
from leases.engine.core.database import rows
from leases.models import Installation


class BoundedPaginator(Paginator):  # type: ignore[type-arg]
    """A paginator that counts rows up to a limit. Beyond the limit, it estimates the size of an unfiltered table."""

    most = 1_000

    @cached_property
    def count(self) -> int:
        """Count the rows exactly up to `most`. Beyond that, estimate a whole table, or return `most`."""
        found: Any = self.object_list
        number = int(found.order_by()[: self.most + 1].count())
        if number <= self.most:
            return number
        return max(self.most, 0 if found.query.where else estimated_rows(found.model._meta.db_table))

    def page(self, number: int | str) -> Any:
        """Return the rows of a page.

        Only ids are sorted. Whole rows with their relations are read for this page alone.
        """
        found: Any = self.object_list
        first = (self.validate_number(number) - 1) * self.per_page
        ids = list(found.values_list("pk", flat=True)[first : first + self.per_page])
        rows = {row.pk: row for row in found.order_by().filter(pk__in=ids)}
        return Page([rows[pk] for pk in ids if pk in rows], int(number), self)

    @property
    def said(self) -> str:
        """The number of rows as text, which says whether it is an estimate or a lower bound."""
        if self.count < self.most:
            return f"{self.count:,}"
        return f"more than {self.most:,}" if self.count == self.most else f"about {self.count:,}"


def estimated_rows(table: str) -> int:
    """Return the number of rows in a table according to the database's statistics, or 0 if there are none."""
    found = rows("SELECT reltuples::bigint FROM pg_class WHERE oid = %s::regclass", (table,))
    return max(int(found[0][0]), 0) if found else 0


class ConsoleAdmin(ActionAdmin):
    """The base class of all admins of the console: actions, lists searched by index, and panels of related rows."""

    related: ClassVar[Sequence[str]] = ()
    """The relations that are read together with every row."""
    change_form_template = "admin/drydock/record.html"
    live_template = "admin/drydock/panels_live.html"
    """The template of the region that refreshes itself on the page of a record."""
    change_list_template = "admin/drydock/list.html"
    list_per_page = 25
    show_full_result_count = False
    show_facets = admin.ShowFacets.NEVER
    paginator = BoundedPaginator

    def head(self, row: Any) -> Head | None:
        """Return the headline of a record, or None if it has none."""
        return None

    def panels(self, row: Any, request: HttpRequest) -> list[Panel]:
        """Return the panels below a record."""
        return []

    def get_queryset(self, request: HttpRequest) -> QuerySet[Any]:
        """Return rows with their relations, without the secrets of either."""
        found = super().get_queryset(request)
        found = found.select_related(*self.related) if self.related else found
        if getattr(request, "dd_one", False):
            standing = Installation.objects.filter(pk=1).values("problem")[:1]
            found = found.annotate(installation_problem=Subquery(standing))
        return found.defer(*_secret_columns(self.model, self.related))

    def get_object(self, request: HttpRequest, *args: Any, **kwargs: Any) -> Any:
        """Return a row. The status of the installation, which every page shows, is read together with it."""
        request.dd_one = True  # type: ignore[attr-defined]
        row = super().get_object(request, *args, **kwargs)
        request.dd_one = False  # type: ignore[attr-defined]
        if row is not None:
            installation.seen(row.installation_problem or "")
        return row

    def found(self, words: str) -> Q | None:
        """Return the condition that finds rows by an index, or None to search `search_fields` as Django does."""
        return None

    def get_search_results(self, request: HttpRequest, queryset: Any, search_term: str) -> tuple[Any, bool]:
        """Return the rows that match a search, and whether a row may occur twice. Uses the condition of `found`."""
        words = search.clean(search_term)
        condition = self.found(words) if words else None
        if condition is None:
            return super().get_search_results(request, queryset, words)
        return queryset.filter(condition), False

    def lookup_allowed(self, lookup: str, value: str, request: HttpRequest) -> bool:
        """Allow only the filters of the list. Other lookups could reveal a hidden column bit by bit."""
        return lookup in _filter_parameters(self)

    def changelist_view(self, request: HttpRequest, extra_context: dict[str, Any] | None = None) -> HttpResponse:
        """Show the list, whose rows refresh themselves. A request from htmx receives only the rows."""
        others = {"elsewhere": equivalent_commands.of_list(request, str(self.opts.model_name))}
        response = super().changelist_view(request, {**others, **(extra_context or {})})
        context = getattr(response, "context_data", None)
        if not context or "cl" not in context:
            return response
        context["live"] = live_regions.region(request, "dd-rows", "admin/drydock/list_live.html", context)
        return live_regions.answer(request, context["live"]) if live_regions.wanted(request) == "dd-rows" else response

    def render_change_form(self, request: HttpRequest, context: dict[str, Any], *args: Any, **kwargs: Any) -> Any:
        """Show a record with its actions and the region that refreshes itself. htmx receives only the region."""
        row = context.get("original")
        if row is None:
            context["elsewhere"] = equivalent_commands.of_action(request, str(self.opts.model_name), "add", [])
        else:
            offered = [act for act in self.acts if act.applies(row) and self.may(request, act)]
            context["acts"] = [(act, self.act_address(act, [row.pk])) for act in offered]
            context["head"], context["panels"] = self.head(row), self.panels(row, request)
            context["empty"] = [one for one in context["panels"] if not (one.rows or one.lead or one.always)]
            context["elsewhere"] = equivalent_commands.of_row(request, row)
            context["columns_are_live"] = self.live_template != ConsoleAdmin.live_template
            context["live"] = live_regions.region(request, "dd-record", self.live_template, context)
            if live_regions.wanted(request) == "dd-record":
                return live_regions.answer(request, context["live"])
        return super().render_change_form(request, context, *args, **kwargs)

    def render_delete_form(self, request: HttpRequest, context: dict[str, Any]) -> Any:
        """Show the confirmation of a deletion, with the equivalent commands."""
        others = equivalent_commands.of_action(request, str(self.opts.model_name), "delete", [context["object"]])
        return super().render_delete_form(request, {**context, "elsewhere": others})

    def history_view(
        self, request: HttpRequest, object_id: str, extra_context: dict[str, Any] | None = None
    ) -> HttpResponse:
        """Show the history of a row, with the equivalent commands."""
        others = {"elsewhere": equivalent_commands.of_history(request, str(self.opts.model_name), object_id)}
        return super().history_view(request, object_id, {**others, **(extra_context or {})})


_LOOKUPS = ("", "__exact", "__id__exact", "__isnull", "__isempty", "__gte", "__lt", "__year", "__month", "__day")

"""The suffixes of the query parameters that Django's list filters use."""


def _filter_parameters(model_admin: ConsoleAdmin) -> set[str]:
    """Return the query parameters of the filters of a list."""
    filters = [one[0] if isinstance(one, tuple) else one for one in model_admin.list_filter]
    named = {one if isinstance(one, str) else str(getattr(one, "parameter_name", "")) for one in filters}
    dates = {model_admin.date_hierarchy} if model_admin.date_hierarchy else set()
    return {f"{name}{way}" for name in named | dates for way in _LOOKUPS}


def _secret_columns(model: type[Model], related: Sequence[str]) -> list[str]:
    """Return the columns of a model and its related models that contain secrets. The console never reads them."""
    found = [field.name for field in model._meta.fields if isinstance(field, EncryptedTextField)]
    for name in related:
        if "__" not in name:
            below = model._meta.get_field(name).related_model
            found += [f"{name}__{column}" for column in _secret_columns(below, ())]  # type: ignore[arg-type]
    return found


class RecordAdmin(ConsoleAdmin):
    """The base class for admins of rows that only the engine writes. Everything is shown, and nothing can be edited."""

    live_template = "admin/drydock/record_live.html"

    def has_add_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False, because only the engine adds rows."""
        return False

    def has_change_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False, because rows are changed only by actions, which check their own permissions."""
        return False

    def has_delete_permission(self, request: HttpRequest, obj: Any = None) -> bool:
        """Return False, because only the engine deletes rows."""
        return False


class OperatedAdmin(ConsoleAdmin):
    """The base class for admins of rows that users edit.

    Operations make the changes, and must not run inside a transaction.
    """

    @transaction.non_atomic_requests
    def add_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Show or process the form of a new row, without a transaction."""
        return super().add_view(request, *args, **kwargs)

    @transaction.non_atomic_requests
    def change_view(self, request: HttpRequest, *args: Any, **kwargs: Any) -> HttpResponse:
        """Show or process the form of a row, without a transaction."""
        return super().change_view(request, *args, **kwargs)

    def changeform_view(
        self, request: HttpRequest, object_id: str | None = None, form_url: str = "",
        extra_context: dict[str, Any] | None = None,
    ) -> HttpResponse:  # fmt: skip
        """Show or process a form without the transaction of Django's admin.

        Checking a blueprint may call its provider, which must not happen in a transaction.
        """
        try:
            answer: HttpResponse = self._changeform_view(  # type: ignore[attr-defined]
                request, object_id, form_url, extra_context
            )
            return answer
        except DrydockError as error:
            messages.error(request, str(error))
            return HttpResponseRedirect(request.get_full_path())
