"""What operators do with blueprints in the admin."""

from __future__ import annotations

from typing import Any

from django.contrib import messages

from leases.admin.acts import Act, Given
from leases.client.values import BlueprintInfo
from leases.operations import blueprints
from leases.operations.callers import Caller


def problems(info: BlueprintInfo) -> list[tuple[int, str]]:
    """What a check found, as messages."""
    found = [
        (
            messages.ERROR if problem["fatal"] else messages.WARNING,
            f"{problem['field']}: {problem['message']}" if problem["field"] else str(problem["message"]),
        )
        for problem in info.problems
    ]
    return found or [(messages.SUCCESS, "No problem found.")]


def _check(who: Caller, row: Any, given: Given) -> list[tuple[int, str]]:
    return problems(blueprints.check(who, row.name))


def _enable(who: Caller, row: Any, given: Given) -> list[tuple[int, str]]:
    info = blueprints.enable(who, row.name)
    said = "Enabled." if info.enabled else "It stays disabled, because its check found something fatal."
    return [(messages.SUCCESS if info.enabled else messages.ERROR, said), *(problems(info) if info.problems else [])]


def _disable(who: Caller, row: Any, given: Given) -> str:
    blueprints.disable(who, row.name)
    return "Disabled."


def _drain(who: Caller, row: Any, given: Given) -> str:
    blueprints.drain(who, row.name)
    return "Drained."


def _undrain(who: Caller, row: Any, given: Given) -> str:
    blueprints.drain(who, row.name, drained=False)
    return "It serves again."


def _remove(who: Caller, row: Any, given: Given) -> str:
    blueprints.remove(who, row.name)
    return "Removed."


ACTS = (
    Act(
        name="check", label="Check", does=_check,
        sentence="Its kind looks whether it could work. Nothing is created; a provider may be asked.",
    ),
    Act(
        name="enable", label="Enable", does=_enable, applies=lambda row: not row.enabled,
        sentence="It is checked, and serves unless something fatal is found.",
    ),
    Act(
        name="disable", label="Disable", does=_disable, applies=lambda row: row.enabled,
        sentence="It serves nobody any more. What is leased stays leased.",
    ),
    Act(
        name="drain", label="Drain", does=_drain, applies=lambda row: not row.drained,
        sentence="It builds nothing new, and its idle resources are removed. What is leased stays leased.",
    ),
    Act(
        name="undrain", label="Undrain", does=_undrain, applies=lambda row: row.drained,
        sentence="It serves again, beginning with those who wait.",
    ),
    Act(
        name="remove", label="Remove", does=_remove, dangerous=True, typed=True, permission="delete",
        sentence="It is removed for good, with its authorizations; not while a resource or a lease needs it.",
    ),
)  # fmt: skip
