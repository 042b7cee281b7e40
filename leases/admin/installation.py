"""The installation and its workers in the console, and the confirmation after a restore or move."""

from __future__ import annotations

from typing import Any

from django.contrib import admin

from leases.admin.toolkit import columns
from leases.admin.toolkit.actions import Action, FormData, MessageForm
from leases.admin.toolkit.base import RecordAdmin
from leases.admin.toolkit.equivalent_commands import Equivalent
from leases.engine.core import installation as engine
from leases.models import Installation, Worker
from leases.operations import installation
from leases.operations.callers import Caller


def _confirm(who: Caller, row: Any, given: FormData) -> str:
    return f"Confirmed; epoch {installation.confirm(who).epoch} begins."


def _suspend(who: Caller, row: Any, given: FormData) -> str:
    installation.suspend(who, given["message"])
    return "Suspended."


def _suspended(row: Any) -> bool:
    return bool(engine.current().problem)


@admin.register(Installation)
class InstallationAdmin(RecordAdmin):
    """The admin of the installation, which is a single row."""

    list_display = ("uuid", "epoch", "stands", "made")
    fields = ("uuid", "epoch", "stands", "confirmed", "confirmed_by", "swept", "made")
    acts = (
        Action(
            name="confirm", label="Confirm", does=_confirm, applies=_suspended, dangerous=True, typed=True,
            equivalent=Equivalent(what="", command="drydock confirm-installation"),
            sentence="From now on only this database manages the installation. Pending work outside the database is "
            "carried out, including destruction. Confirm only if no other copy of the database is in use. "
            "`drydock installation` lists the pending work.",
        ),
        Action(
            name="suspend", label="Suspend", does=_suspend, applies=lambda row: not _suspended(row), form=MessageForm,
            equivalent=Equivalent(what="", command="drydock suspend-installation"),
            sentence="Drydock builds, cleans, checks and destroys nothing until an operator confirms the installation.",
        ),
    )  # fmt: skip

    stands = columns.column("status", lambda row: engine.current().problem or "working")
    confirmed = columns.time("confirmed", "confirmed_at")
    swept = columns.time("last sweep", "swept_at")
    made = columns.time("created", "created_at")


@admin.register(Worker)
class WorkerAdmin(RecordAdmin):
    """The admin of workers, with the time at which each was last seen."""

    list_display = ("name", "queues", "seen", "started")
    search_fields = ("name",)
    ordering = ("-seen_at",)
    fields = ("name", "queues", "seen", "started")

    seen = columns.time("last seen", "seen_at")
    started = columns.time("started", "started_at")
