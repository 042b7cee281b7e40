"""Admins with acts: the page that asks, the POST that does it, and what is told of it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from django.contrib import admin, messages
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Model, QuerySet
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.template.response import TemplateResponse
from django.urls import path, reverse
from django.utils.http import urlencode

from leases.admin import cells, elsewhere
from leases.admin.acts import Act, Outcome, carry_out
from leases.operations.callers import caller

# Django's own class takes no parameters at run time; its stubs do.
if TYPE_CHECKING:
    _ModelAdmin = admin.ModelAdmin[Any]
else:
    _ModelAdmin = admin.ModelAdmin

MOST = 200
"""So many rows can be acted on at once."""


class Acting(_ModelAdmin):
    """An admin whose actions are `acts`."""

    acts: ClassVar[Sequence[Act]] = ()

    def may(self, request: HttpRequest, act: Act) -> bool:
        """Whether the user has the permission that the action needs."""
        opts = self.opts
        return request.user.has_perm(f"{opts.app_label}.{act.permission}_{opts.model_name}")

    def get_urls(self) -> list[Any]:
        """One address for the page that asks."""
        name = f"{self.opts.app_label}_{self.opts.model_name}_act"
        return [path("act/<slug:name>/", self.admin_site.admin_view(self.act_view), name=name), *super().get_urls()]

    def get_actions(self, request: HttpRequest) -> dict[str, Any]:
        """The acts that the user may use, as actions of the list; nothing is deleted in bulk."""
        if "_popup" in request.GET:
            return {}
        allowed = [act for act in self.acts if self.may(request, act)]
        return {act.name: (partial(_ask, act), act.name, f"{act.label}…") for act in allowed}

    def act_address(self, act: Act, ids: Iterable[Any]) -> str:
        """The page that asks whether to act on these rows."""
        at = reverse(f"{self.admin_site.name}:{self.opts.app_label}_{self.opts.model_name}_act", args=(act.name,))
        return f"{at}?{urlencode({'ids': ','.join(str(pk) for pk in ids)})}"

    @transaction.non_atomic_requests
    def act_view(self, request: HttpRequest, name: str) -> HttpResponse:
        """GET asks, naming the rows and what will happen to them; POST does it."""
        act = next((act for act in self.acts if act.name == name), None)
        if act is None or not self.may(request, act):
            raise PermissionDenied
        rows = self._chosen(request)
        if not rows or (act.typed and len(rows) > 1):
            messages.error(request, f"{act.label}: choose one at a time." if rows else "Nothing was chosen.")
            return HttpResponseRedirect(self._list())
        form = act.form_for(rows, request.POST if request.method == "POST" else None)
        if request.method == "POST" and form.is_valid():
            for outcome in carry_out(act, caller(request.user), rows, form.cleaned_data):
                self._tell(request, act, outcome)
            return HttpResponseRedirect(self._after(act, rows))
        context = {
            **self.admin_site.each_context(request), "title": act.label, "act": act, "form": form, "opts": self.opts,
            "rows": [(cells.numbered(row), self.line(row), act.applies(row)) for row in rows], "back": self._back(rows),
            "elsewhere": elsewhere.of_act(request, str(self.opts.model_name), act.name, rows),
        }  # fmt: skip
        return TemplateResponse(request, "admin/drydock/act.html", context)

    def line(self, row: Any) -> Any:
        """What is said of a row on the page that asks."""
        return cells.badge(row.state) if hasattr(row, "state") else ""

    def _chosen(self, request: HttpRequest) -> list[Any]:
        ids = [pk for pk in request.GET.get("ids", "").split(",") if pk.isdecimal()][:MOST]
        # Beyond a bigint there is nothing, and the database would refuse to look.
        return list(self.get_queryset(request).filter(pk__in=[pk for pk in ids if len(pk) < 19]).order_by("pk"))

    def _tell(self, request: HttpRequest, act: Act, outcome: Outcome) -> None:
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
        return cells.address(rows[0]) if len(rows) == 1 else self._list()

    def _after(self, act: Act, rows: Sequence[Model]) -> str:
        there = len(rows) == 1 and self.model._default_manager.filter(pk=rows[0].pk).exists()
        return self._back(rows) if there else self._list()


def _ask(act: Act, model_admin: Acting, request: HttpRequest, chosen: QuerySet[Any]) -> HttpResponse | None:
    ids = list(chosen.order_by("pk").values_list("pk", flat=True)[: MOST + 1])
    if len(ids) > MOST:
        messages.error(request, f"At most {MOST} at once.")
        return None
    return HttpResponseRedirect(model_admin.act_address(act, ids))
