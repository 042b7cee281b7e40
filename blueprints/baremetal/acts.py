"""Acts of bare-metal hosts: inspect, boot, interrupt, attest, validate, and, with a ramdisk, rescue and erasure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

from pydantic import Field

from blueprints.answers import Answer, Failed, Json, Ready, Scope
from blueprints.baremetal import enrolment, hardware, plans, validation
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


class Renewal(Fields):
    """Arguments of the act `attest`."""

    renew: bool = Field(
        default=False,
        description="Record what the host shows now as what it must show from now on, as after an update of its "
        "firmware. What is registered still holds.",
    )


class BareMetalActs(Acts):
    """The acts of every bare-metal host."""

    def acts(self) -> Sequence[DeclaredAct]:
        """Return the acts of all hosts with a BMC, whether or not a config offers them."""
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
            DeclaredAct(
                name="firmware", summary="Bring firmware, BIOS settings and Secure Boot to the blueprint's baseline.",
                plan=plans.firmware_plan, holders="refuse", dangerous=True,
            ),
            DeclaredAct(
                name="rescue", summary="Boot the ramdisk, into which the owner of the lease can log in as root.",
                plan=plans.rescue_plan, by="holder", holders="keep",
            ),
            DeclaredAct(
                name="unrescue", summary="End a rescue, and boot the host from its disk again.",
                plan=plans.end_of_rescue_plan, by="holder", holders="keep",
            ),
            DeclaredAct(
                name="erase", summary="Erase all fixed disks of the host, and prove that nothing is left on them.",
                plan=plans.cleaning, holders="refuse", dangerous=True, quarantines=True,
            ),
            DeclaredAct(
                name="attest", summary="Take attestation evidence from the host, and compare it with what is known.",
                plan=plans.attestation_plan, Arguments=Renewal, holders="refuse",
            ),
            DeclaredAct(
                name="validate", summary="Test whether the BMC and the ramdisk of the host do what Drydock relies on.",
                plan=validation.plan, Arguments=validation.Choice, holders="refuse", dangerous=True, quarantines=True,
            ),
        )  # fmt: skip

    def offered(self, config: Any) -> Sequence[DeclaredAct]:
        """Return the acts that hosts with this config offer. Some need a ramdisk, a baseline, or attestation."""
        missing = {name for field, names in _NEEDED.items() if getattr(config, field) is None for name in names}
        return [act for act in self.acts() if act.name not in missing]


_NEEDED = {"ramdisk": ("rescue", "unrescue", "erase"), "baseline": ("firmware",), "attestation": ("attest",)}
"""The acts that a config offers only if it has this field."""


def inspection() -> Plan:
    """Return the plan that inspects the hardware again."""
    return (Step(name="inspect", act=inspect_again, exclusive=True),)


def boot_choice() -> Plan:
    """Return the plan that sets the boot device, and reads it back."""
    return (Step(name="set", act=set_boot_device, exclusive=True),)


def interruption() -> Plan:
    """Return the plan that sends the interrupt."""
    return (Step(name="send", act=send_interrupt, find=find_interrupt, exclusive=True),)


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
    """Send the interrupt."""
    with session(spec.resource, whole(spec)) as bmc:
        if PowerAction.NMI not in bmc.power_actions():
            raise BmcLacks("The BMC of this host cannot send a non-maskable interrupt.")
        bmc.switch(PowerAction.NMI)
    return Ready(log="The interrupt was sent.")


def find_interrupt(spec: Spec, memo: Json) -> Answer:
    """End the act after a lost answer. A second interrupt would end the crash dump that the first one has begun."""
    return Ready(
        log="The answer was lost, so it is not known whether the interrupt was sent. It was not sent again. Look at "
        "the console of the host, and start the act again if nothing has happened."
    )
