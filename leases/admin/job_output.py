"""What a job has written, read on its host when somebody asks for it, and again while the job runs."""

from __future__ import annotations

from functools import partial
from typing import Any

from django.core.exceptions import PermissionDenied
from django.http import HttpRequest, HttpResponse
from django.template.loader import render_to_string
from django.urls import reverse
from django.utils.html import format_html_join
from django.utils.safestring import SafeString

from drydock.core.errors import DrydockError
from interfaces.command.jobs import Stream
from leases import hostcalls
from leases import jobs as mechanism
from leases.admin import elsewhere, live
from leases.models import Job
from leases.operations import jobs
from leases.operations.callers import caller

PART = 64 << 10
"""Bytes shown at once."""


def button(job: Job) -> SafeString:
    """Shows what the job has written, below the page's other content."""
    buttons = [("Output", ""), ("Standard error", "?stream=stderr")] if job.apart else [("Output", "")]
    where = reverse("admin:leases_job_output", args=(job.pk,))
    return format_html_join(
        " ",
        '<button type="button" class="button" hx-get="{}{}" hx-target="#dd-output" hx-swap="innerHTML"'
        ' hx-disabled-elt="this">{}</button>',
        ((where, query, label) for label, query in buttons),
    )


def view(model_admin: Any, request: HttpRequest, pk: int) -> HttpResponse:
    """A part of the output from `?from=BYTES`, of `?stream=stderr` where that is kept apart; it renews itself while
    the job runs and this is its last part."""
    job = model_admin.get_object(request, str(pk))
    if job is None or not model_admin.has_view_permission(request, job):
        raise PermissionDenied
    stream: Stream = "stderr" if job.apart and request.GET.get("stream") == "stderr" else "stdout"
    same = elsewhere.same(request, "job.output", elsewhere.names_of(job))
    context: dict[str, Any] = {"job": job, "stream": stream, "elsewhere": [same]}
    context |= _part(caller(request.user), job, _offset(request), stream)
    if context["runs"]:
        return live.answer(request, live.region(request, f"dd-job-{pk}", "admin/drydock/job_output.html", context))
    return live.answer(request, SafeString(render_to_string("admin/drydock/job_output.html", context, request)))


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
