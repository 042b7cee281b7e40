"""What happens, in the admin: events, runs and jobs."""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

from django.contrib import admin
from django.db import transaction
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.urls import path

from leases.admin import cells, columns, finding, job_output, panels
from leases.admin.acts import Act, Given, Said
from leases.admin.base import RecordAdmin
from leases.admin.lease_panels import program
from leases.models import Event, Job, Run
from leases.operations import upkeep
from leases.operations.callers import Caller

RECENT = 20_000
"""So many of the last events are searched for words."""


@admin.register(Event)
class EventAdmin(RecordAdmin):
    """What happened, to what, why and by whom."""

    related = ("lease", "resource", "blueprint")
    list_display = ("when", "what", "kind", "lease_", "resource_", "blueprint_", "lasted", "reason", "says", "actor")
    list_filter = ("to_state", "at")
    search_fields = ("kind", "reason", "message", "actor", "=lease__id", "=resource__id")
    search_help_text = f"The number of a lease or resource; or kind, reason, message, actor in the last {RECENT:,}"
    ordering = ("-id",)
    fields = (
        "when", "what", "kind", "lease_", "resource_", "blueprint_", "reason", "message", "actor", "lasted", "more"
    )  # fmt: skip

    when = columns.moment("when", "at")
    what = columns.column("what", panels.happened)
    lease_ = columns.link("lease", "lease")
    resource_ = columns.link("resource", "resource")
    blueprint_ = columns.link("blueprint", "blueprint")
    lasted = columns.span("after", "duration")
    says = columns.text("message", "message")
    more = columns.values("details", "details")

    def found(self, words: str) -> Q:
        """All events of a lease or resource by its number; words only in the last ones, which cost the same always."""
        if (pk := finding.number(words)) is not None:
            return Q(lease=pk) | Q(resource=pk)
        last = Event.objects.order_by("-id").values_list("id", flat=True).first() or 0
        said = [Q(**{f"{name}__icontains": words}) for name in ("kind", "reason", "message", "actor")]
        return Q(pk__gt=last - RECENT) & reduce(or_, said)


def _resolve(who: Caller, row: Any, given: Given) -> str:
    if row.lease_id is not None:
        upkeep.resolve(who, lease_id=row.lease_id, message=given["message"])
    else:
        upkeep.resolve(who, resource_id=row.resource_id, message=given["message"])
    return "The step goes on."


@admin.register(Run)
class RunAdmin(RecordAdmin):
    """Plans being carried out. Memos are a kind's own and not shown."""

    acts = (
        Act(
            name="resolve", label="Resolve the hold", does=_resolve, form=Said,
            applies=lambda run: run.waits_for == "operator",
            sentence="You say that a person has done what the step waits for, and the step goes on.",
        ),
    )  # fmt: skip
    related = ("lease", "resource")
    list_display = ("number", "resource_", "lease_", "step", "done", "says", "waits_", "tries", "due", "since")
    list_filter = ("phase", "waits_for", "in_call", "cancel_wanted")
    search_fields = ("phase", "step", "sentence", "hold_who", "resource__name", "lease__name")
    ordering = ("-id",)
    fields = (
        "phase", "resource_", "lease_", "step", "position", "done", "sentence", "waits_", "tries", "due", "in_call",
        "uninterruptible", "cancel_wanted", "since", "of_step",
    )  # fmt: skip

    number = columns.column("run", lambda run: f"{run.phase} (#{run.pk})", "id")
    resource_ = columns.link("resource", "resource")
    lease_ = columns.link("lease", "lease")
    done = columns.column("progress", lambda run: cells.progress(run.percent), "percent")
    says = columns.text("it says", "sentence")
    waits_ = columns.column("waits for", panels.waits)
    due = columns.moment("next call", "due_at")
    since = columns.moment("since", "started_at")
    of_step = columns.moment("in this step since", "step_since")


@admin.register(Job)
class JobAdmin(RecordAdmin):
    """Detached commands. Arguments and environments may be secret and are not shown."""

    related = ("lease",)
    list_display = ("number", "status", "lease_", "runs", "exit_code", "says", "asked", "started", "ended")
    list_filter = ("state", "ends_lease")
    search_fields = ("=id", "=lease__id", "lease__name")
    search_help_text = "Its number, or what finds its lease"
    ordering = ("-id",)
    fields = (
        "status", "lease_", "runs", "exit_code", "message", "cancel_wanted", "ends_lease", "asked", "started", "ended",
        "written",
    )  # fmt: skip

    number = columns.column("job", lambda job: f"job {job.pk}", "id")
    status = columns.state()
    lease_ = columns.link("lease", "lease")
    runs = columns.column("runs", lambda job: program(job.command))
    says = columns.text("it says", "message")
    asked = columns.moment("asked", "created_at")
    started = columns.moment("started", "started_at")
    ended = columns.moment("ended", "ended_at")
    written = columns.column("output", lambda job: job_output.button(job))

    def found(self, words: str) -> Q:
        """By its number or through its lease."""
        return Q(pk=finding.number(words)) | Q(lease__in=finding.lease_ids(words))

    def get_urls(self) -> list[Any]:
        """With what a job has written."""
        at = path("<int:pk>/output/", self.admin_site.admin_view(self.output_view), name="leases_job_output")
        return [at, *super().get_urls()]

    @transaction.non_atomic_requests
    def output_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """What a job has written, read on its host."""
        return job_output.view(self, request, pk)
