"""What operators do to machines in the admin, beside switching them. What one cannot do, its page does not offer."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from django import forms
from django.contrib import messages

from drydock.core.errors import InvalidRequest
from leases import hostcalls
from leases.admin.acts import Act, Given, Plain
from leases.operations import machines
from leases.operations.callers import Caller

_SHOWN = 400
"""Letters of a console that fit where the console tells what came of an act."""


class Disk(Plain):
    """How large."""

    disk_gib = forms.IntegerField(label="GiB", min_value=1, max_value=machines.LARGEST_DISK_GIB)


class Type(Plain):
    """Which type."""

    type_name = forms.CharField(
        label="Instance type", max_length=128, help_text="As the offers of its zone have it, such as m6i.large."
    )


class Tags(Plain):
    """Which tags."""

    tags = forms.CharField(
        widget=forms.Textarea(attrs={"rows": 4}), max_length=4000, help_text="One NAME=VALUE a line. Others stay."
    )


def _able(name: str) -> Callable[[Any], bool]:
    return lambda row: row.state == "active" and name in machines.able(row)


def _reboot(who: Caller, row: Any, given: Given) -> str:
    machines.act_on_resource(who, row.pk, "reboot")
    return "A reboot was begun."


def _resize(who: Caller, row: Any, given: Given) -> str:
    machines.act_on_resource(who, row.pk, "resize", disk_gib=given["disk_gib"])
    return f"A disk of {given['disk_gib']} GiB was asked for."


def _change_type(who: Caller, row: Any, given: Given) -> str:
    machines.act_on_resource(who, row.pk, "change-type", type_name=given["type_name"])
    return f"It is to become a {given['type_name']}."


def _tag(who: Caller, row: Any, given: Given) -> str:
    lines = [line.strip() for line in given["tags"].splitlines() if line.strip()]
    if odd := next((line for line in lines if "=" not in line), ""):
        raise InvalidRequest(f"{odd[:80]!r} is not NAME=VALUE.", field="tags")
    pairs = [line.partition("=") for line in lines]
    machines.act_on_resource(who, row.pk, "tags", tags={name.strip(): value.strip() for name, _, value in pairs})
    return "Tags are being set."


def _console(who: Caller, row: Any, given: Given) -> list[tuple[int, str]]:
    with hostcalls.calling(who.id, partial(hostcalls.of_resource, row.pk)):
        shown = machines.console_of_resource(who, row.pk).text
    end = " ".join(shown.split())[-_SHOWN:] or "(nothing yet)"
    return [
        (messages.INFO, f"It ends so: {end}"),
        (messages.INFO, f"All of it: drydock machine console --resource {row.pk}"),
    ]


ACTS = (
    Act(
        name="reboot", label="Reboot", does=_reboot, applies=_able("reboot"), dangerous=True,
        sentence="It is rebooted. Whatever runs on it ends, also of the leases that it holds now.",
    ),
    Act(
        name="resize", label="Larger disk", does=_resize, form=Disk, applies=_able("resize-volume"),
        sentence="Its boot disk grows, and costs more; no disk ever shrinks. The guest's file system follows at its "
        "next boot.",
    ),
    Act(
        name="change-type", label="Change type", does=_change_type, form=Type, applies=_able("change-type"),
        dangerous=True,
        sentence="It becomes another instance type of its zone, with that one's price: it is stopped for that, and "
        "started again if it was on. Where it cannot be started as the new type it becomes the old one again.",
    ),
    Act(
        name="tags", label="Tags", does=_tag, form=Tags, applies=_able("tags"),
        sentence="Tags are set at its provider. Names that begin with drydock are ours.",
    ),
    Act(
        name="console", label="Console", does=_console, applies=_able("console-output"),
        sentence="The end of what it wrote on its console is read, without secrets. The reading is recorded.",
    ),
)  # fmt: skip
