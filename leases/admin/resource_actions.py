"""Actions on resources and on machines."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django import forms
from django.contrib import messages

from blueprints import registry
from blueprints.contract import Checks, Powers, Updates
from drydock.core.errors import DrydockError, InvalidRequest, NotFound
from leases import hostcalls
from leases.admin.toolkit.actions import Action, ConfirmForm, FormData, MessageForm, NoteForm
from leases.admin.toolkit.equivalent_commands import Equivalent, declared
from leases.admin.toolkit.form_fields import SecretsField
from leases.operations import credentials, machines, resources
from leases.operations.callers import Caller


class PowerForm(ConfirmForm):
    """The form of the power action."""

    wanted = forms.ChoiceField(
        choices=[("cycle", "power-cycle"), ("on", "on"), ("off", "off")], widget=forms.RadioSelect
    )


class ForceDestroyForm(forms.Form):
    """The form that asks for the reason when a user declares that a resource is gone."""

    message = forms.CharField(
        label="Reason",
        max_length=500,
        help_text="Why it cannot be destroyed, and who verified that it no longer exists.",
    )


class CredentialForm(ConfirmForm):
    """The form of the credential action."""

    secrets = SecretsField(
        required=False, help_text='A JSON object such as {"password": "..."}. Leave it empty to remove the credential.'
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
    return "Undrained."


def _quarantine(who: Caller, row: Any, given: FormData) -> str:
    resources.quarantine(who, row.pk, message=given["message"])
    return "Quarantined."


def _unquarantine(who: Caller, row: Any, given: FormData) -> str:
    resources.unquarantine(who, row.pk)
    return "The quarantine has ended."


def _forbid_reboots(who: Caller, row: Any, given: FormData) -> str:
    resources.forbid_reboots(who, row.pk, reason=given["message"])
    return "Maintenance does not reboot it any more."


def _allow_reboots(who: Caller, row: Any, given: FormData) -> str:
    resources.allow_reboots(who, row.pk)
    return "Maintenance may reboot it again."


def _update(who: Caller, row: Any, given: FormData) -> str:
    resources.update(who, row.pk, reason=given["message"])
    return "The update was started."


def _needs_update(row: Any) -> bool:
    return _kind_supports(Updates)(row) and bool(row.generation < row.blueprint.generation)


def _has_own_credential(row: Any) -> bool:
    try:
        return _in_service(row) and registry.kind(row.blueprint.kind).OwnCredential is not None
    except DrydockError:
        return False


def _credential(who: Caller, row: Any, given: FormData) -> str:
    info = credentials.set_resource_credential(who, row.pk, secrets=given["secrets"])
    return "The credential was stored." if info.credential_fields else "The credential was removed."


def _retire(who: Caller, row: Any, given: FormData) -> str:
    resources.retire(who, row.pk)
    return "The resource is being removed."


def _force(who: Caller, row: Any, given: FormData) -> str:
    resources.force_destroy(who, row.pk, reason=given["message"])
    return "Marked as destroyed."


def _check(who: Caller, row: Any, given: FormData) -> str:
    resources.check(who, row.pk)
    return "A check was started."


def _power(who: Caller, row: Any, given: FormData) -> str:
    resources.power(who, row.pk, given["wanted"])
    return f"Power {given['wanted']} was requested."


def _has_act(row: Any) -> bool:
    known = getattr(row, "has_act", None)
    return machines.running_act(row.pk) is not None if known is None else bool(known)


def _cancel_act(who: Caller, row: Any, given: FormData) -> str:
    name = machines.running_act(row.pk)
    if name is None:
        raise NotFound(f"{row} has no running act.")
    return machines.cancel_act(who, row.pk, name).message


RESOURCE_ACTIONS = (
    Action(
        name="check", label="Check now", does=_check, applies=_kind_supports(Checks),
        equivalent=declared("change_resource", "drydock resources check {id}", act="check"),
        sentence="The resource is checked now. After several failed checks it is taken out of service, and leases that"
        " requested it are replaced on another resource.",
    ),
    Action(
        name="power", label="Power", does=_power, form=PowerForm, applies=_kind_supports(Powers), dangerous=True,
        equivalent=declared("change_resource", "drydock resources power {id} cycle", act="power", wanted="cycle"),
        sentence="The power is switched. Everything that runs on the machine is interrupted, including its leases.",
    ),
    Action(
        name="drain", label="Drain", does=_drain, form=MessageForm,
        equivalent=declared("change_resource", "drydock resources drain {id}", act="drain"),
        applies=lambda row: _in_service(row) and not row.drained,
        sentence="The resource gets no new leases, and is removed when its last lease ends.",
    ),
    Action(
        name="undrain", label="Undrain", does=_undrain, form=MessageForm,
        equivalent=declared("change_resource", "drydock resources undrain {id}", act="undrain"),
        applies=lambda row: _in_service(row) and row.drained,
        sentence="The resource serves leases again, pending leases first.",
    ),
    Action(
        name="quarantine", label="Quarantine", does=_quarantine, form=NoteForm,
        equivalent=declared(
            "change_resource", "drydock resources quarantine {id} NOTE", act="quarantine", message="NOTE",
        ),
        applies=lambda row: _in_service(row) and not row.quarantined,
        sentence="The resource is taken out of service for investigation. It is not changed, and its leases continue.",
    ),
    Action(
        name="unquarantine", label="End quarantine", does=_unquarantine,
        equivalent=declared("change_resource", "drydock resources unquarantine {id}", act="unquarantine"),
        applies=lambda row: _in_service(row) and row.quarantined,
        sentence="The resource is put back into service, pending leases first, and its note is removed.",
    ),
    Action(
        name="no-reboots", label="Forbid reboots", does=_forbid_reboots, form=NoteForm,
        equivalent=declared(
            "change_resource", "drydock resources no-reboots {id} REASON", act="no_reboots", reason="REASON",
        ),
        applies=lambda row: _in_service(row) and not row.no_reboots,
        sentence="Maintenance does not reboot or power-cycle the resource, or what is part of it. Builds that need that"
        " wait.",
    ),
    Action(
        name="allow-reboots", label="Allow reboots", does=_allow_reboots,
        equivalent=declared("change_resource", "drydock resources allow-reboots {id}", act="allow_reboots"),
        applies=lambda row: _in_service(row) and bool(row.no_reboots),
        sentence="Maintenance may reboot the resource again, and does what waits for that.",
    ),
    Action(
        name="update", label="Update now", does=_update, form=NoteForm, applies=_needs_update, dangerous=True,
        equivalent=declared(
            "change_resource", "drydock resources update {id} REASON", act="update", reason="REASON",
        ),
        sentence="The resource is updated to the config of its blueprint now, which disturbs its leases. Their owners"
        " are told the reason. Afterwards the leases are set up again.",
    ),
    Action(
        name="credential", label="Set credential", does=_credential, form=CredentialForm, applies=_has_own_credential,
        equivalent=declared(
            "set_resource_credential", "drydock resources credential {id} password", secrets={"password": "SECRET"},
        ),
        sentence="The secrets are encrypted, never shown again, and used for this resource only. They replace earlier "
        "ones.",
    ),
    Action(
        name="cancel-act", label="Cancel act", does=_cancel_act, applies=_has_act,
        equivalent=Equivalent(
            what="", command="drydock resources cancel {id} ACT", method="POST", path="resources/{id}/acts/ACT/cancel",
        ),
        sentence="The act of its kind that runs on the resource is cancelled at once or, if the current step cannot be "
        "interrupted, after that step.",
    ),
    Action(
        name="retire", label="Retire", does=_retire, dangerous=True, applies=_in_service,
        equivalent=declared("change_resource", "drydock resources retire {id}", act="retire"),
        sentence="The resource is destroyed or, if Drydock did not build it, cleaned and handed back. This fails while"
        " a lease holds it.",
    ),
    Action(
        name="remove", label="Remove", does=_retire, dangerous=True,
        equivalent=declared("change_resource", "drydock resources remove {id}", act="retire"),
        applies=lambda row: _in_service(row) and row.origin == "registered",
        sentence="Drydock removes its files from the host and no longer lists it. This fails while a lease holds it. A "
        "host that was never reached is removed at once.",
    ),
    Action(
        name="force_destroy", label="Force destroy", does=_force, form=ForceDestroyForm, dangerous=True, typed=True,
        equivalent=declared(
            "change_resource", "drydock resources destroy {id} --force --reason WHY", act="force_destroy", reason="WHY",
        ),
        applies=lambda row: row.gone_at is None,
        sentence="Confirm that the resource no longer exists. It is marked as destroyed and its leases as broken at "
        "once, regardless of the provider. Anything that still exists there remains and may cost money.",
    ),
)  # fmt: skip

_SHOWN = 400

"""The maximum length of console output in the result of an action, in characters."""


class DiskForm(ConfirmForm):
    """The form of the resize action."""

    disk_gib = forms.IntegerField(label="GiB", min_value=1, max_value=machines.LARGEST_DISK_GIB)


class TypeForm(ConfirmForm):
    """The form of the change-type action."""

    type_name = forms.CharField(
        label="Instance type", max_length=128, help_text="An instance type offered in its zone, such as m6i.large."
    )


class TagsForm(ConfirmForm):
    """The form of the tag action."""

    tags = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 4}),
        max_length=4000,
        help_text="One NAME=VALUE per line. Other tags are kept.",
    )


def _machine_supports(name: str) -> Callable[[Any], bool]:
    return lambda row: row.state == "active" and name in machines.able(row)


def _reboot(who: Caller, row: Any, given: FormData) -> str:
    machines.act_on_resource(who, row.pk, "reboot")
    return "A reboot was started."


def _resize(who: Caller, row: Any, given: FormData) -> str:
    machines.act_on_resource(who, row.pk, "resize", disk_gib=given["disk_gib"])
    return f"A disk of {given['disk_gib']} GiB was requested."


def _change_type(who: Caller, row: Any, given: FormData) -> str:
    machines.act_on_resource(who, row.pk, "change-type", type_name=given["type_name"])
    return f"Instance type {given['type_name']} was requested."


def _tag(who: Caller, row: Any, given: FormData) -> str:
    lines = [line.strip() for line in given["tags"].splitlines() if line.strip()]
    if odd := next((line for line in lines if "=" not in line), ""):
        raise InvalidRequest(f"The tag {odd[:80]!r} must have the form NAME=VALUE.", field="tags")
    pairs = [line.partition("=") for line in lines]
    machines.act_on_resource(who, row.pk, "tags", tags={name.strip(): value.strip() for name, _, value in pairs})
    return "Tags were requested."


def _console(who: Caller, row: Any, given: FormData) -> list[tuple[int, str]]:
    with hostcalls.calling(who.id, partial(hostcalls.of_resource, row.pk)):
        shown = machines.console_of_resource(who, row.pk).text
    end = " ".join(shown.split())[-_SHOWN:] or "(no output yet)"
    return [
        (messages.INFO, f"End of the output: {end}"),
        (messages.INFO, f"Full output: drydock machine console --resource {row.pk}"),
    ]


MACHINE_ACTIONS = (
    Action(
        name="reboot", label="Reboot", does=_reboot, applies=_machine_supports("reboot"), dangerous=True,
        equivalent=declared("change_resource_machine", "drydock machine reboot --resource {id}", act="reboot"),
        sentence="The machine is rebooted. Everything that runs on it ends, including its leases' processes.",
    ),
    Action(
        name="resize", label="Resize disk", does=_resize, form=DiskForm, applies=_machine_supports("resize-volume"),
        equivalent=declared(
            "change_resource_machine", "drydock machine resize --resource {id} 100", act="resize", disk_gib=100,
        ),
        sentence="The boot disk is enlarged, which costs more. Disks cannot be shrunk. The guest's file system grows "
        "at the next boot.",
    ),
    Action(
        name="change-type", label="Change type", does=_change_type, form=TypeForm,
        equivalent=declared(
            "change_resource_machine", "drydock machine change-type --resource {id} TYPE", act="change-type",
            type_name="TYPE",
        ),
        applies=_machine_supports("change-type"),
        dangerous=True,
        sentence="The machine is changed to another instance type of its zone, at that type's price. It is stopped, "
        "and started again if it was running. If it cannot be started with the new type, it gets its old type back.",
    ),
    Action(
        name="tags", label="Tags", does=_tag, form=TagsForm, applies=_machine_supports("tags"),
        equivalent=declared(
            "change_resource_machine", "drydock machine tag --resource {id} NAME=VALUE", act="tags",
            tags={"NAME": "VALUE"},
        ),
        sentence="Tags are set at the provider. Names that begin with drydock are reserved.",
    ),
    Action(
        name="console", label="Console", does=_console, applies=_machine_supports("console-output"),
        equivalent=declared("resource_console", "drydock machine console --resource {id}"),
        sentence="Shows the end of the console output, with secrets removed. The access is recorded.",
    ),
)  # fmt: skip
