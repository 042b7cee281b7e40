"""Acts of bare-metal hosts: inspect, choose the boot device, and send a non-maskable interrupt."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from pydantic import Field

from blueprints.answers import Answer, Failed, Json, Ready, Scope
from blueprints.baremetal import enrolment, hardware
from blueprints.baremetal.sessions import bmc_told, session, whole
from blueprints.bmc.contract import Boots
from blueprints.bmc.errors import BmcLacks
from blueprints.bmc.values import BootDevice, BootOverride, PowerAction
from blueprints.contract import Acts, DeclaredAct, Fields, Plan, Step
from blueprints.specs import Spec


class BootChoice(Fields):
    """Arguments of the act `boot-device`."""

    device: Literal["disk", "network", "http", "medium", "setup", "default"] = Field(
        description="disk, network (PXE), http (UEFI HTTP boot), medium (virtual CD), setup (menu of the firmware), or "
        "default: the order of the firmware."
    )
    once: bool = Field(default=True, description="The choice ends with the next boot.")


class BareMetalActs(Acts):
    """The acts of every bare-metal host."""

    def acts(self) -> Sequence[DeclaredAct]:
        """Return the acts `inspect`, `boot-device` and `nmi`."""
        return (
            DeclaredAct(
                name="inspect", summary="Read the hardware by the BMC again, and record what has changed.",
                plan=inspection, holders="keep",
            ),
            DeclaredAct(
                name="boot-device", summary="Choose what the host boots from next.", plan=boot_choice,
                Arguments=BootChoice, holders="keep",
            ),
            DeclaredAct(
                name="nmi",
                summary="Send a non-maskable interrupt, with which the operating system stops and writes a crash dump.",
                plan=interruption, by="holder", holders="refuse", power="on", dangerous=True,
            ),
        )  # fmt: skip


def inspection() -> Plan:
    """Return the plan that inspects the hardware again."""
    return (Step(name="inspect", act=inspect_again, exclusive=True),)


def boot_choice() -> Plan:
    """Return the plan that sets the boot device, and reads it back."""
    return (Step(name="set", act=set_boot_device, exclusive=True),)


def interruption() -> Plan:
    """Return the plan that sends the interrupt."""
    return (Step(name="send", act=send_interrupt, exclusive=True),)


@bmc_told
def inspect_again(spec: Spec, memo: Json) -> Answer:
    """Inspect the hardware, and compare it with what was known."""
    before, answer = spec.resource.facts.get("hardware"), enrolment.inspect(spec, memo)
    if not isinstance(answer, Ready):
        return answer
    changes = hardware.differences(before, answer.facts["hardware"]) if before else []
    log = "\n".join(filter(None, (*changes, answer.log))) or "Nothing has changed."
    return Ready(facts=answer.facts, attributes=answer.attributes, identities=answer.identities, log=log)


@bmc_told
def set_boot_device(spec: Spec, memo: Json) -> Answer:
    """Set the boot device, or remove the override."""
    wanted = BootOverride(device=BootDevice(spec.arguments.device), once=spec.arguments.once)
    with session(spec.resource, whole(spec)) as bmc:
        if not isinstance(bmc, Boots):
            raise BmcLacks("The BMC of this host cannot choose the boot device.")
        bmc.set_boot(wanted)
        now = bmc.boot()
    there = BootDevice.DEFAULT if now is None else now.device
    if there is not wanted.device:
        message = f"The BMC accepted {wanted.device} as the boot device, but reports {there}."
        return Failed(scope=Scope.STEP, code="boot_device", message=message)
    return Ready(facts={"boot_device": there.value}, log=f"The host boots from {there.value} next.")


@bmc_told
def send_interrupt(spec: Spec, memo: Json) -> Answer:
    """Send the interrupt, once for each call."""
    with session(spec.resource, whole(spec)) as bmc:
        if PowerAction.NMI not in bmc.power_actions():
            raise BmcLacks("The BMC of this host cannot send a non-maskable interrupt.")
        bmc.switch(PowerAction.NMI)
    return Ready(log="The interrupt was sent.")
