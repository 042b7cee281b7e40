"""This installation: whether it may touch anything outside, and confirming that it may."""

from __future__ import annotations

from typing import Any

from django.contrib import admin

from leases.admin import columns
from leases.admin.acts import Act, Given, Said
from leases.admin.base import RecordAdmin
from leases.engine.core import installation as engine
from leases.models import Installation
from leases.operations import installation
from leases.operations.callers import Caller


def _confirm(who: Caller, row: Any, given: Given) -> str:
    return f"Confirmed; epoch {installation.confirm(who).epoch} begins."


def _suspend(who: Caller, row: Any, given: Given) -> str:
    installation.suspend(who, given["message"])
    return "Suspended."


def _suspended(row: Any) -> bool:
    return bool(engine.current().problem)


@admin.register(Installation)
class InstallationAdmin(RecordAdmin):
    """The one row, and how it stands."""

    list_display = ("uuid", "epoch", "stands", "made")
    fields = ("uuid", "epoch", "stands", "confirmed", "confirmed_by", "swept", "made")
    acts = (
        Act(
            name="confirm", label="Confirm", does=_confirm, applies=_suspended, dangerous=True, typed=True,
            sentence="This database alone speaks for the installation from now on: what it waits for is done outside, "
            "destroying included. Confirm only when no other copy of it is in use; `drydock installation` lists "
            "what will be done.",
        ),
        Act(
            name="suspend", label="Suspend", does=_suspend, applies=lambda row: not _suspended(row), form=Said,
            sentence="Nothing outside is built, cleaned, checked or destroyed until an operator confirms.",
        ),
    )  # fmt: skip

    stands = columns.column("stands", lambda row: engine.current().problem or "at work")
    confirmed = columns.moment("confirmed", "confirmed_at")
    swept = columns.moment("last sweep", "swept_at")
    made = columns.moment("made", "created_at")
