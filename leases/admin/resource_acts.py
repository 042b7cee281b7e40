"""What operators do with resources in the admin."""

from __future__ import annotations

from typing import Any

from django import forms

from blueprints import registry
from blueprints.contract import Checks, Powers
from drydock.core.errors import DrydockError
from leases.admin.acts import Act, Given, NoteNeeded, Plain, Said
from leases.operations import resources
from leases.operations.callers import Caller


class Power(Plain):
    """On, off or both."""

    wanted = forms.ChoiceField(
        choices=[("cycle", "off and on again"), ("on", "on"), ("off", "off")], widget=forms.RadioSelect
    )


class Vouch(forms.Form):
    """Why somebody vouches that a resource is gone."""

    message = forms.CharField(
        label="Reason", max_length=500, help_text="Why it cannot be destroyed, and who made sure that it is gone."
    )


def _there(row: Any) -> bool:
    return row.state in ("pending", "active")


def _can(base: type) -> Any:
    def applies(row: Any) -> bool:
        try:
            return row.state == "active" and isinstance(registry.kind(row.blueprint.kind), base)
        except DrydockError:
            return False

    return applies


def _drain(who: Caller, row: Any, given: Given) -> str:
    resources.drain(who, row.pk, reason=given["message"])
    return "Drained."


def _undrain(who: Caller, row: Any, given: Given) -> str:
    resources.drain(who, row.pk, drained=False, reason=given["message"])
    return "It serves again."


def _quarantine(who: Caller, row: Any, given: Given) -> str:
    resources.quarantine(who, row.pk, message=given["message"])
    return "Quarantined."


def _unquarantine(who: Caller, row: Any, given: Given) -> str:
    resources.unquarantine(who, row.pk)
    return "The quarantine has ended."


def _retire(who: Caller, row: Any, given: Given) -> str:
    resources.retire(who, row.pk)
    return "On its way out."


def _remove(who: Caller, row: Any, given: Given) -> str:
    resources.retire(who, row.pk)
    return "It is being handed back."


def _force(who: Caller, row: Any, given: Given) -> str:
    resources.force_destroy(who, row.pk, reason=given["message"])
    return "Its row is closed."


def _check(who: Caller, row: Any, given: Given) -> str:
    resources.check(who, row.pk)
    return "A check was begun."


def _power(who: Caller, row: Any, given: Given) -> str:
    resources.power(who, row.pk, given["wanted"])
    return f"Power {given['wanted']} was begun."


ACTS = (
    Act(
        name="check", label="Check now", does=_check, applies=_can(Checks),
        sentence="Its health is looked at now. What fails often enough is taken out of service, and its leases are "
        "served elsewhere where they wish it.",
    ),
    Act(
        name="power", label="Power", does=_power, form=Power, applies=_can(Powers), dangerous=True,
        sentence="Its power is switched. Whatever runs on it is cut off, also of the leases that it holds now.",
    ),
    Act(
        name="drain", label="Drain", does=_drain, form=Said, applies=lambda row: _there(row) and not row.drained,
        sentence="It gets no new leases. Its leases stay; it is removed when the last one has ended.",
    ),
    Act(
        name="undrain", label="Undrain", does=_undrain, form=Said, applies=lambda row: _there(row) and row.drained,
        sentence="It serves again, beginning with those who wait.",
    ),
    Act(
        name="quarantine", label="Quarantine", does=_quarantine, form=NoteNeeded,
        applies=lambda row: _there(row) and not row.quarantined,
        sentence="It is taken out of service as it is, to be looked at: nothing is destroyed, and its leases stay.",
    ),
    Act(
        name="unquarantine", label="End quarantine", does=_unquarantine,
        applies=lambda row: _there(row) and row.quarantined,
        sentence="Its note is removed and it is put back into service, beginning with those who wait.",
    ),
    Act(
        name="retire", label="Retire", does=_retire, dangerous=True, applies=_there,
        sentence="If nobody holds it, it is destroyed now, or cleaned and handed back where we have not built it.",
    ),
    Act(
        name="remove", label="Remove", does=_remove, dangerous=True,
        applies=lambda row: _there(row) and row.origin == "registered",
        sentence="If no lease holds it, what is ours on it is removed, and it is handed back and no longer listed. One "
        "that was never reached is gone at once.",
    ),
    Act(
        name="force_destroy", label="Force destroy", does=_force, form=Vouch, dangerous=True, typed=True,
        applies=lambda row: row.gone_at is None,
        sentence="You vouch that it is gone. Its leases are broken and its row is closed at once, whatever its "
        "provider says. What still exists there is left behind, and somebody may have to pay for it.",
    ),
)  # fmt: skip
