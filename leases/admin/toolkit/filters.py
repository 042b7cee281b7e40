"""Filters of lists. Their choices are known without reading a table."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any, ClassVar

from django.contrib import admin
from django.db.models import Exists, F, Q, QuerySet
from django.db.models.functions import Now
from django.http import HttpRequest

from blueprints import registry
from leases.engine.catalogue import poll_schedule
from leases.operations import attention, installation
from leases.operations.attention import OVERDUE
from leases.reasons import Reason


class TypeFilter(admin.SimpleListFilter):
    """Filter by resource type. The choices are the types that installed kinds provide."""

    title = "type"
    parameter_name = "type"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return all resource types."""
        return [(name, name) for name in sorted(registry.resource_types())]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows with the chosen type."""
        return queryset.filter(type=self.value()) if self.value() else queryset


class ExistsFilter(admin.EmptyFieldListFilter):
    """Filter by whether an object still exists, which is the case while `gone_at` is empty."""

    def __init__(self, *given: Any, **named: Any) -> None:
        super().__init__(*given, **named)
        self.title = "existence"

    def choices(self, changelist: Any) -> Iterator[Any]:
        """Return the choices: all, existing and gone."""
        for choice, words in zip(super().choices(changelist), ("All", "Exists", "Gone"), strict=True):
            yield {**choice, "display": words}


class ReasonFilter(admin.SimpleListFilter):
    """Filter by the reason of the status."""

    title = "reason"
    parameter_name = "reason"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return all reasons that rows can have, most urgent first."""
        kept = [reason for reason in Reason if reason not in (Reason.NONE, Reason.NO_WORKER)]
        return [(reason.value, reason.value.replace("_", " ")) for reason in kept]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows with the chosen reason."""
        return queryset.filter(reason=self.value()) if self.value() else queryset


class AttentionFilter(admin.SimpleListFilter):
    """The base class of filters for rows with a problem. `conditions` contains the problems."""

    title = "needs attention"
    parameter_name = "attention"
    conditions: ClassVar[Mapping[str, Q | Exists | Callable[[], Q]]] = {}

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return the names of all conditions."""
        return [(name, name) for name in self.conditions]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows that meet the chosen condition."""
        condition = self.conditions.get(self.value() or "")
        if condition is None:
            return queryset
        return queryset.filter(condition() if callable(condition) else condition)


class LeaseAttention(AttentionFilter):
    """Filter for leases that need attention."""

    conditions = {
        "overdue": OVERDUE,
        "waits long": attention.stuck,
        "held step": Q(runs__waits_for="operator"),
        "held": attention.HELD,
        "no worker": installation.unattended,
        "waiting": Q(state="pending"),
    }


class ResourceAttention(AttentionFilter):
    """Filter for resources that need attention."""

    conditions = {
        "quarantined": attention.QUARANTINED,
        "drained": Q(drained=True, gone_at=None),
        "in maintenance": Q(in_maintenance=True, gone_at=None),
        "must be cleaned": attention.UNCLEAN,
        "cleaning fails": attention.CLEANING_FAILS,
        "outdated": Q(generation__lt=F("blueprint__generation"), gone_at=None),
        "failing checks": attention.SICK,
        "unreachable": attention.UNREACHABLE,
        "degraded": attention.DEGRADED,
        "failed health": attention.FAILED_HEALTH,
        "no reboots": attention.NO_REBOOTS,
        "put aside": attention.PUT_ASIDE,
        "broken and not gone": attention.BROKEN,
    }


class StillRemembered(AttentionFilter):
    """Filter for remembered errors that are still in force."""

    title = "status"
    parameter_name = "standing"
    conditions = {"still remembered": attention.REMEMBERED}


class OfferingKind(admin.SimpleListFilter):
    """Filter by kind. The choices are the installed kinds whose offers are polled."""

    title = "kind"
    parameter_name = "kind"

    def lookups(self, request: HttpRequest, model_admin: Any) -> list[tuple[str, str]]:
        """Return every kind that polls offers."""
        return [(name, name) for name in registry.names() if poll_schedule.reads(name)]

    def queryset(self, request: HttpRequest, queryset: QuerySet[Any]) -> QuerySet[Any]:
        """Return the rows with the chosen kind."""
        return queryset.filter(kind=self.value()) if self.value() else queryset


class OfferSort(AttentionFilter):
    """Filter offers by market and hardware."""

    title = "market and hardware"
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


class DiscoveryAttention(AttentionFilter):
    """Filter for discoveries that need attention."""

    conditions = {
        "failing": attention.NOT_DISCOVERED,
        "found twice": attention.FOUND_TWICE,
        "never succeeded": Q(seen_at=None),
    }


class WatchAttention(AttentionFilter):
    """Filter for watches that need attention."""

    conditions = {"failing": attention.WATCH_FAILING, "without a worker": Q(token=None) | Q(token_until__lt=Now())}


class ReadingAttention(AttentionFilter):
    """Filter for polls that need attention."""

    conditions = {"failing": attention.FAILING, "never succeeded": Q(seen_at=None)}
