"""What is watched of leases, in the admin; their pages show more of it."""

from __future__ import annotations

from typing import Any

from django.contrib import admin
from django.db.models import Q

from leases.admin import columns, finding, job_output
from leases.admin.base import RecordAdmin
from leases.models.job import KeptOutput, Watch


def _seconds(name: str) -> Any:
    def shown(row: Watch) -> str:
        value = getattr(row, name)
        return "-" if value is None else f"{value:,.1f}"

    return shown


@admin.register(Watch)
class WatchAdmin(RecordAdmin):
    """Workloads and what leases use. Arguments and environments may be secret and are not shown."""

    related = ("lease", "job")
    list_display = ("lease", "outcome", "says", "job_", "cpu", "memory", "seen", "over")
    list_filter = ("outcome", "complete")
    search_fields = ("=lease__id", "lease__name")
    search_help_text = "What finds its lease"
    ordering = ("-id",)
    fields = (
        "lease", "outcome", "message", "job_", "cpu", "memory", "network_in", "network_out", "wall", "seen", "complete",
        "began", "over",
    )  # fmt: skip

    says = columns.text("it says", "message")
    job_ = columns.link("job", "job")
    cpu = columns.column("core-seconds", _seconds("cpu_seconds"), "cpu_seconds")
    memory = columns.column("MiB-seconds", _seconds("memory_mib_seconds"), "memory_mib_seconds")
    wall = columns.column("measured for, in seconds", _seconds("wall_seconds"))
    seen = columns.moment("last look", "sampled_at")
    began = columns.moment("first look", "began_at")
    over = columns.moment("over", "over_at")

    def found(self, words: str) -> Q:
        """Through its lease."""
        return Q(lease__in=finding.lease_ids(words))


@admin.register(KeptOutput)
class KeptOutputAdmin(RecordAdmin):
    """What is kept of the output of workloads; it is read on the page of their job."""

    related = ("lease", "job")
    list_display = ("lease", "job_", "said", "left_out")
    search_fields = ("=lease__id", "lease__name")
    search_help_text = "What finds its lease"
    ordering = ("-id",)
    fields = ("lease", "job_", "said", "left_out", "written")

    job_ = columns.link("job", "job")
    said = columns.column("bytes", lambda row: f"{row.size:,}", "size")
    written = columns.column("output", lambda row: job_output.button(row.job))

    def found(self, words: str) -> Q:
        """Through its lease."""
        return Q(lease__in=finding.lease_ids(words))
