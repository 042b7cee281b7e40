"""Filters of lists. None of them reads a table to offer its choices."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import F, Q, QuerySet
from django.http import HttpRequest

from blueprints import registry
from leases.operations import attention, readings, workers
from leases.operations.attention import HELD_STEP as HELD_STEP
from leases.operations.attention import OVERDUE as OVERDUE
from leases.reasons import Reason


class TypeFilter(admin.SimpleListFilter):
    """By the type of resource, of those that installed kinds give."""

    title = "type"
    parameter_name = "type"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Every type."""
        return [(name, name) for name in sorted(registry.resource_types())]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Those of the type."""
        return queryset.filter(type=self.value()) if self.value() else queryset


class ExistsFilter(admin.EmptyFieldListFilter):
    """By whether a thing still exists: its `gone_at` is empty."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.title = "existence"

    def choices(self, changelist: Any) -> Iterator[Any]:
        """All, those that exist, and those that are gone."""
        for choice, words in zip(super().choices(changelist), ("All", "Exists", "Gone"), strict=True):
            yield {**choice, "display": words}


class ReasonFilter(admin.SimpleListFilter):
    """By the second part of the status."""

    title = "reason"
    parameter_name = "reason"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Every reason that is kept with a row, in the order of how much attention it needs."""
        kept = [reason for reason in Reason if reason not in (Reason.NONE, Reason.NO_WORKER)]
        return [(reason.value, reason.value.replace("_", " ")) for reason in kept]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Those with the reason."""
        return queryset.filter(reason=self.value()) if self.value() else queryset


class AttentionFilter(admin.SimpleListFilter):
    """Rows in which something may be wrong; `conditions` says when."""

    title = "needs attention"
    parameter_name = "attention"
    conditions: ClassVar[Mapping[str, Q | Callable[[], Q]]] = {}

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Every condition."""
        return [(name, name) for name in self.conditions]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Those for which the condition holds."""
        condition = self.conditions.get(self.value() or "")
        if condition is None:
            return queryset
        return queryset.filter(condition() if callable(condition) else condition)


class LeaseAttention(AttentionFilter):
    """Leases that somebody should look at."""

    conditions = {
        "overdue": OVERDUE,
        "waits long": attention.stuck,
        "held step": Q(runs__waits_for="operator"),
        "held": attention.HELD,
        "no worker": workers.unattended,
        "waiting": Q(state="pending"),
    }


class ResourceAttention(AttentionFilter):
    """Resources that somebody should look at."""

    conditions = {
        "quarantined": attention.QUARANTINED,
        "drained": Q(drained=True, gone_at=None),
        "in maintenance": Q(in_maintenance=True, gone_at=None),
        "outdated": Q(generation__lt=F("blueprint__generation"), gone_at=None),
        "failing checks": attention.SICK,
        "unreachable": attention.UNREACHABLE,
        "put aside": attention.PUT_ASIDE,
        "broken and not gone": attention.BROKEN,
    }


class StillRemembered(AttentionFilter):
    """Errors that still keep something from being tried."""

    title = "standing"
    parameter_name = "standing"
    conditions = {"still remembered": attention.REMEMBERED}


class OfferingKind(admin.SimpleListFilter):
    """By the kind, of those installed that read offers."""

    title = "kind"
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Every such kind."""
        return [(name, name) for name in registry.names() if readings.reads(name)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Those of the kind."""
        return queryset.filter(kind=self.value()) if self.value() else queryset


class OfferSort(AttentionFilter):
    """Offers of one sort."""

    title = "sort"
    parameter_name = "sort"
    conditions = {
        "on demand": Q(market="on_demand"),
        "spot": Q(market="spot"),
        "with GPUs": Q(gpu_count__gt=0),
        "TDX": Q(confidential__contains=["tdx"]),
        "SEV-SNP": Q(confidential__contains=["sev_snp"]),
        "ARM": Q(arch="arm64"),
        "without a price": Q(price=None),
    }


class ReadingAttention(AttentionFilter):
    """Readings that somebody should look at."""

    conditions = {"failing": attention.FAILING, "never succeeded": Q(seen_at=None)}
