"""Jobs, workloads and their output in the console."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.contrib import admin
from django.core.exceptions import PermissionDenied
from django.db import transaction
from django.db.models import Q
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import path, reverse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from drydock.core.errors import DrydockError
from interfaces.command.jobs import Stream
from leases import hostcalls
from leases.admin.toolkit import columns, equivalent_commands, live_regions, search
from leases.admin.toolkit.base import RecordAdmin
from leases.models import Job
from leases.models.job import KeptOutput, Watch
from leases.operations import jobs
from leases.operations.callers import caller
from leases.workloads import jobs as mechanism

PART = 64 << 10

"""The maximum number of bytes of output on one page."""


def button(job: Job) -> SafeString:
    """Render the buttons that load the output of a job below the page."""
    buttons = [("Output", ""), ("Standard error", "?stream=stderr")] if job.apart else [("Output", "")]
    where = reverse("admin:leases_job_output", args=(job.pk,))
    return format_html_join(
        " ",
        '<button type="button" class="button" hx-get="{}{}" hx-target="#dd-output" hx-swap="innerHTML"'
        ' hx-disabled-elt="this">{}</button>',
        ((where, query, label) for label, query in buttons),
    )


def view(model_admin: Any, request: HttpRequest, pk: int) -> HttpResponse:
    """Show a part of a job's output, starting at `?from=BYTES`.

    `?stream=stderr` shows standard error if it is kept separately. The last part refreshes itself while the job
    runs.
    """
    job = model_admin.get_object(request, str(pk))
    if job is None or not model_admin.has_view_permission(request, job):
        raise PermissionDenied
    stream: Stream = "stderr" if job.apart and request.GET.get("stream") == "stderr" else "stdout"
    same = equivalent_commands.line_for(request, "job.output", equivalent_commands.names_of(job))
    context: dict[str, Any] = {"job": job, "stream": stream, "elsewhere": [same]}
    context |= _part(caller(request.user), job, _offset(request), stream)
    if context["runs"]:
        return live_regions.answer(
            request, live_regions.region(request, f"dd-job-{pk}", "admin/drydock/job_output.html", context)
        )
    return live_regions.answer(request, SafeString(render_to_string("admin/drydock/job_output.html", context, request)))


def _offset(request: HttpRequest) -> int:
    given = request.GET.get("from", "")
    return int(given) if given.isascii() and given.isdecimal() and len(given) < 16 else 0


def _part(who: Any, job: Job, offset: int, stream: Stream) -> dict[str, Any]:
    if job.state == Job.State.PENDING:
        # To read would start it, and looking starts nothing.
        return {"text": "", "runs": True}
    try:
        with hostcalls.calling(who.id, partial(hostcalls.of_job, job.pk)):
            part = jobs.output(who, job.pk, offset=offset, limit=PART, stream=stream)
    except DrydockError as error:
        return {"problem": str(error), "runs": False}
    end = offset + len(part.content)
    rest = len(part.content) == PART or (job.state not in mechanism.OPEN and not part.over)
    return {
        "text": part.content.decode("utf-8", "replace"), "truncated": part.truncated, "offset": offset, "end": end,
        "next": part.next_offset if rest else None, "before": max(offset - PART, 0) if offset else None,
        "runs": not part.over and not rest,
    }  # fmt: skip


def _seconds(name: str) -> Any:
    def shown(row: Watch) -> str:
        value = getattr(row, name)
        return "-" if value is None else f"{value:,.1f}"

    return shown


@admin.register(Watch)
class WatchAdmin(RecordAdmin):
    """The admin of measured leases, with their workload and usage.

    Arguments and environment variables may be secret, and are not shown.
    """

    related = ("lease", "job")
    list_display = ("lease", "outcome", "says", "job_", "cpu", "memory", "seen", "over")
    list_filter = ("outcome", "complete")
    search_fields = ("=lease__id", "lease__name")
    search_help_text = "Any search term for the lease"
    ordering = ("-id",)
    fields = (
        "lease", "outcome", "message", "job_", "cpu", "memory", "network_in", "network_out", "wall", "seen", "complete",
        "began", "over",
    )  # fmt: skip

    says = columns.text("message", "message")
    job_ = columns.link("job", "job")
    cpu = columns.column("core-seconds", _seconds("cpu_seconds"), "cpu_seconds")
    memory = columns.column("MiB-seconds", _seconds("memory_mib_seconds"), "memory_mib_seconds")
    wall = columns.column("measured time (s)", _seconds("wall_seconds"))
    seen = columns.time("last sample", "sampled_at")
    began = columns.time("first sample", "began_at")
    over = columns.time("completed", "over_at")

    def found(self, words: str) -> Q:
        """Return the condition for watches of leases that match the words."""
        return Q(lease__in=search.lease_ids(words))


@admin.register(KeptOutput)
class KeptOutputAdmin(RecordAdmin):
    """The admin of output kept from workloads. The output is shown on the page of the job."""

    related = ("lease", "job")
    list_display = ("lease", "job_", "said", "left_out")
    search_fields = ("=lease__id", "lease__name")
    search_help_text = "Any search term for the lease"
    ordering = ("-id",)
    fields = ("lease", "job_", "said", "left_out", "written")

    job_ = columns.link("job", "job")
    said = columns.column("bytes", lambda row: f"{row.size:,}", "size")
    written = columns.column("output", lambda row: button(row.job))

    def found(self, words: str) -> Q:
        """Return the condition for output of leases that match the words."""
        return Q(lease__in=search.lease_ids(words))


@admin.register(Job)
class JobAdmin(RecordAdmin):
    """The admin of jobs. Arguments and environment variables may be secret, and are not shown."""

    related = ("lease",)
    list_display = ("number", "status", "lease_", "runs", "exit_code", "says", "asked", "started", "ended")
    list_filter = ("state", "ends_lease")
    search_fields = ("=id", "=lease__id", "lease__name")
    search_help_text = "Job number, or any search term for the lease"
    ordering = ("-id",)
    fields = (
        "status", "lease_", "runs", "exit_code", "message", "cancel_wanted", "ends_lease", "asked", "started", "ended",
        "written",
    )  # fmt: skip

    number = columns.column("job", lambda job: f"job {job.pk}", "id")
    status = columns.state()
    lease_ = columns.link("lease", "lease")
    runs = columns.column("command", lambda job: program(job.command))
    says = columns.text("message", "message")
    asked = columns.time("requested", "created_at")
    started = columns.time("started", "started_at")
    ended = columns.time("ended", "ended_at")
    written = columns.column("output", lambda job: button(job))

    def found(self, words: str) -> Q:
        """Return the condition for the job with this number, or for jobs of leases that match the words."""
        return Q(pk=search.number(words)) | Q(lease__in=search.lease_ids(words))

    def get_urls(self) -> list[Any]:
        """Add the URL of a job's output."""
        at = path("<int:pk>/output/", self.admin_site.admin_view(self.output_view), name="leases_job_output")
        return [at, *super().get_urls()]

    @transaction.non_atomic_requests
    def output_view(self, request: HttpRequest, pk: int) -> HttpResponse:
        """Show the output of a job, read from its host."""
        return view(self, request, pk)


def program(command: Any) -> str:
    """Return the program that a job runs, without its arguments, which may be secret."""
    if isinstance(command, list) and command:
        return f"{command[0]} with {len(command) - 1} arguments" if len(command) > 1 else str(command[0])
    return "a shell command"
