"""The list of erasure records, and panels with the records of a resource and of a lease."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Any

from django.contrib import admin
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import OuterRef, Q
from django.db.models.functions import JSONObject
from django.urls import reverse

from leases.admin.toolkit import columns, html, search
from leases.admin.toolkit.base import RecordAdmin
from leases.admin.toolkit.panels import LATEST, Panel
from leases.models import ErasureRecord, Lease, Resource
from leases.states import LeaseState

_SHOWN = (
    "ended_at", "disk", "serial", "model", "size_bytes", "method", "verified", "phase", "act", "requested_by", "problem"
)  # fmt: skip
_ENDED = (LeaseState.RELEASED, LeaseState.DESTROYED, LeaseState.BROKEN)


def _host(row: ErasureRecord) -> str:
    """Return the host by name and number, without a link, because it may be pruned."""
    return f"{row.resource_name or 'resource'} (#{row.resource_id})"


def _result(row: ErasureRecord) -> Any:
    return html.badge("erased", row.method) if row.verified else html.badge("failed", row.problem)


def _how(row: ErasureRecord) -> str:
    return " ".join(filter(None, (row.phase, row.act, f"by {row.requested_by}")))


@admin.register(ErasureRecord)
class ErasureRecordAdmin(RecordAdmin):
    """Erasure records: which disks were erased, how, and after which lease. `drydock hosts records` exports them."""

    list_display = (
        "number", "recorded", "host", "disk", "serial", "model", "size", "method", "result", "lease_", "owner", "how",
        "says",
    )  # fmt: skip
    list_filter = ("verified", "method", "recorded_at")
    search_fields = ("serial", "wwn", "resource_name", "owner", "=resource__id", "=lease__id")
    search_help_text = "Number of a lease or resource, serial number or WWN of a disk, name of a host or an owner"
    date_hierarchy = None
    ordering = ("-id",)
    fields = (
        "recorded", "host", "blueprint", "kind", "identities_", "lease_", "owner", "disk", "serial", "wwn", "model",
        "size", "method", "erased", "started", "ended", "result", "problem", "how", "step", "run_id",
    )  # fmt: skip

    number = columns.number()
    recorded = columns.time("recorded", "recorded_at")
    started = columns.time("began", "started_at")
    ended = columns.time("ended", "ended_at")
    host = columns.column("host", _host, "resource")
    lease_ = columns.column("lease", lambda row: f"#{row.lease_id}" if row.lease_id else html.DASH, "lease")
    size = columns.column("size", lambda row: _bytes(row.size_bytes), "size_bytes")
    erased = columns.column("erased", lambda row: _bytes(row.bytes), "bytes")
    result = columns.column("result", _result, "verified")
    how = columns.column("requested", _how, "requested_by")
    says = columns.text("problem", "problem")
    identities_ = columns.values("identities", "identities")

    def found(self, words: str) -> Q:
        """Return the condition for records of a lease or resource by number, or by the words of a disk or a host."""
        said = Q(serial=words) | Q(wwn=words) | Q(resource_name=words) | Q(owner=words)
        number = search.number(words)
        return said if number is None else said | Q(resource=number) | Q(lease=number)


def _bytes(count: int) -> str:
    return f"{count / 1e9:,.1f} GB" if count >= 10**8 else f"{count:,} B"


def latest() -> ArraySubquery:
    """Return the newest erasures of a resource as an annotation, so that its page reads them in its first statement."""
    found = ErasureRecord.objects.filter(resource=OuterRef("pk")).order_by("-id")
    return ArraySubquery(found.values(json=JSONObject(**{name: name for name in _SHOWN}))[:LATEST])


def of_resource(row: Resource) -> list[Panel]:
    """Show the newest erasures of the disks of a resource, which has the annotation `erasures_`, if there are any."""
    found: Sequence[dict[str, Any]] = getattr(row, "erasures_", ())
    rows = [ErasureRecord(**{**one, "ended_at": datetime.fromisoformat(one["ended_at"])}) for one in found]
    return _panel(rows, row.pk, f"drydock hosts records --host {row.pk}")


def of_lease(row: Lease) -> list[Panel]:
    """Show the erasures of disks after a lease, or nothing if there are none or it has not ended."""
    if row.state not in _ENDED:
        return []
    found = ErasureRecord.objects.filter(lease=row).order_by("-id")[:LATEST]
    return _panel(list(found), row.pk, f"drydock hosts records --lease {row.pk}")


def _panel(rows: Sequence[ErasureRecord], pk: int, command: str) -> list[Panel]:
    if not rows:
        return []
    return [
        Panel(
            title="Erasures", name="erasures", note=f"Export them: {command} --csv",
            columns=("Ended", "Disk", "Serial", "Model", "Size", "Method", "Result", "Requested", "Problem"),
            rows=[
                (
                    html.time(one.ended_at), one.disk, one.serial or html.DASH, one.model or html.DASH,
                    _bytes(one.size_bytes), one.method or html.DASH, _result(one), _how(one),
                    html.short(one.problem, 200),
                )
                for one in rows
            ],
            more=("All records", f"{reverse('admin:leases_erasurerecord_changelist')}?q={pk}"),
        )
    ]  # fmt: skip
