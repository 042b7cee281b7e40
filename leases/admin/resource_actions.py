"""Actions on resources and on the machines behind them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django import forms
from django.contrib import messages

from blueprints import registry
from blueprints.contract import Checks, Powers
from drydock.core.errors import DrydockError, InvalidRequest
from leases import hostcalls
from leases.admin.toolkit.actions import Action, ConfirmForm, FormData, MessageForm, NoteForm
from leases.operations import machines, resources
from leases.operations.callers import Caller


class PowerForm(ConfirmForm):
    """The form of the power action."""

    wanted = forms.ChoiceField(
        choices=[("cycle", "off and on again"), ("on", "on"), ("off", "off")], widget=forms.RadioSelect
    )


class ForceDestroyForm(forms.Form):
    """The form that asks why somebody vouches that a resource is gone."""

    message = forms.CharField(
        label="Reason", max_length=500, help_text="Why it cannot be destroyed, and who made sure that it is gone."
    )


def _in_service(row: Any) -> bool:
    return row.state in ("pending", "active")


def _kind_supports(base: type) -> Any:
    def applies(row: Any) -> bool:
        try:
            return row.state == "active" and isinstance(registry.kind(row.blueprint.kind), base)
        except DrydockError:
            return False

    return applies


def _drain(who: Caller, row: Any, given: FormData) -> str:
    resources.drain(who, row.pk, reason=given["message"])
    return "Drained."


def _undrain(who: Caller, row: Any, given: FormData) -> str:
    resources.drain(who, row.pk, drained=False, reason=given["message"])
    return "It serves again."


def _quarantine(who: Caller, row: Any, given: FormData) -> str:
    resources.quarantine(who, row.pk, message=given["message"])
    return "Quarantined."


def _unquarantine(who: Caller, row: Any, given: FormData) -> str:
    resources.unquarantine(who, row.pk)
    return "The quarantine has ended."


def _retire(who: Caller, row: Any, given: FormData) -> str:
    resources.retire(who, row.pk)
    return "It is being removed."


def _remove(who: Caller, row: Any, given: FormData) -> str:
    resources.retire(who, row.pk)
    return "It is being handed back."


def _force(who: Caller, row: Any, given: FormData) -> str:
    resources.force_destroy(who, row.pk, reason=given["message"])
    return "Its row is closed."


def _check(who: Caller, row: Any, given: FormData) -> str:
    resources.check(who, row.pk)
    return "A check was started."


def _power(who: Caller, row: Any, given: FormData) -> str:
    resources.power(who, row.pk, given["wanted"])
    return f"Power {given['wanted']} was begun."


RESOURCE_ACTIONS = (
    Action(
        name="check", label="Check now", does=_check, applies=_kind_supports(Checks),
        sentence="Its health is checked now. A resource that fails often enough is taken out of service, and its leases"
        " are served elsewhere if they asked for that.",
    ),
    Action(
        name="power", label="Power", does=_power, form=PowerForm, applies=_kind_supports(Powers), dangerous=True,
        sentence="Its power is switched. Whatever runs on it is cut off, also of the leases that it holds now.",
    ),
    Action(
        name="drain", label="Drain", does=_drain, form=MessageForm,
        applies=lambda row: _in_service(row) and not row.drained,
        sentence="It gets no new leases. Its leases stay; it is removed when the last one has ended.",
    ),
    Action(
        name="undrain", label="Undrain", does=_undrain, form=MessageForm,
        applies=lambda row: _in_service(row) and row.drained,
        sentence="It serves again, first the pending leases.",
    ),
    Action(
        name="quarantine", label="Quarantine", does=_quarantine, form=NoteForm,
        applies=lambda row: _in_service(row) and not row.quarantined,
        sentence="It is taken out of service unchanged, for investigation: nothing is destroyed, and its leases stay.",
    ),
    Action(
        name="unquarantine", label="End quarantine", does=_unquarantine,
        applies=lambda row: _in_service(row) and row.quarantined,
        sentence="Its note is removed, and it is put back into service, first for pending leases.",
    ),
    Action(
        name="retire", label="Retire", does=_retire, dangerous=True, applies=_in_service,
        sentence="Refused while a lease holds it. Otherwise it is destroyed now or, if Drydock did not build it,"
        " cleaned and handed back.",
    ),
    Action(
        name="remove", label="Remove", does=_remove, dangerous=True,
        applies=lambda row: _in_service(row) and row.origin == "registered",
        sentence="If no lease holds it, what is ours on it is removed, and it is handed back and no longer listed. One "
        "that was never reached is gone at once.",
    ),
    Action(
        name="force_destroy", label="Force destroy", does=_force, form=ForceDestroyForm, dangerous=True, typed=True,
        applies=lambda row: row.gone_at is None,
        sentence="You vouch that it is gone. Its leases are broken and its row is closed at once, whatever its "
        "provider says. What still exists there is left behind, and somebody may have to pay for it.",
    ),
)  # fmt: skip

_SHOWN = 400

"""The number of characters of a console that fit into the message about the result of an action."""


class DiskForm(ConfirmForm):
    """The form of the resize action."""

    disk_gib = forms.IntegerField(label="GiB", min_value=1, max_value=machines.LARGEST_DISK_GIB)


class TypeForm(ConfirmForm):
    """The form of the change-type action."""

    type_name = forms.CharField(
        label="Instance type", max_length=128, help_text="As the offers of its zone have it, such as m6i.large."
    )


class TagsForm(ConfirmForm):
    """The form of the tag action."""

    tags = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 4}), max_length=4000, help_text="One NAME=VALUE a line. Others stay."
    )


def _machine_supports(name: str) -> Callable[[Any], bool]:
    return lambda row: row.state == "active" and name in machines.able(row)


def _reboot(who: Caller, row: Any, given: FormData) -> str:
    machines.act_on_resource(who, row.pk, "reboot")
    return "A reboot was started."


def _resize(who: Caller, row: Any, given: FormData) -> str:
    machines.act_on_resource(who, row.pk, "resize", disk_gib=given["disk_gib"])
    return f"A disk of {given['disk_gib']} GiB was asked for."


def _change_type(who: Caller, row: Any, given: FormData) -> str:
    machines.act_on_resource(who, row.pk, "change-type", type_name=given["type_name"])
    return f"It is to become a {given['type_name']}."


def _tag(who: Caller, row: Any, given: FormData) -> str:
    lines = [line.strip() for line in given["tags"].splitlines() if line.strip()]
    if odd := next((line for line in lines if "=" not in line), ""):
        raise InvalidRequest(f"{odd[:80]!r} must have the form NAME=VALUE.", field="tags")
    pairs = [line.partition("=") for line in lines]
    machines.act_on_resource(who, row.pk, "tags", tags={name.strip(): value.strip() for name, _, value in pairs})
    return "Tags are being set."


def _console(who: Caller, row: Any, given: FormData) -> list[tuple[int, str]]:
    with hostcalls.calling(who.id, partial(hostcalls.of_resource, row.pk)):
        shown = machines.console_of_resource(who, row.pk).text
    end = " ".join(shown.split())[-_SHOWN:] or "(nothing yet)"
    return [
        (messages.INFO, f"It ends so: {end}"),
        (messages.INFO, f"All of it: drydock machine console --resource {row.pk}"),
    ]


MACHINE_ACTIONS = (
    Action(
        name="reboot", label="Reboot", does=_reboot, applies=_machine_supports("reboot"), dangerous=True,
        sentence="It is rebooted. Whatever runs on it ends, also of the leases that it holds now.",
    ),
    Action(
        name="resize", label="Larger disk", does=_resize, form=DiskForm, applies=_machine_supports("resize-volume"),
        sentence="Its boot disk grows, and costs more; no disk ever shrinks. The guest's file system follows at its "
        "next boot.",
    ),
    Action(
        name="change-type", label="Change type", does=_change_type, form=TypeForm,
        applies=_machine_supports("change-type"),
        dangerous=True,
        sentence="It becomes another instance type of its zone, with that one's price: it is stopped for that, and "
        "started again if it was on. Where it cannot be started as the new type it becomes the old one again.",
    ),
    Action(
        name="tags", label="Tags", does=_tag, form=TagsForm, applies=_machine_supports("tags"),
        sentence="Tags are set at its provider. Names that begin with drydock are ours.",
    ),
    Action(
        name="console", label="Console", does=_console, applies=_machine_supports("console-output"),
        sentence="The end of what it wrote on its console is read, without secrets. The reading is recorded.",
    ),
)  # fmt: skip
