"""The checks as data, and the plan that carries them out in their order."""

from __future__ import annotations

from collections.abc import Collection
from typing import Annotated, Literal

from pydantic import AfterValidator, Field

from blueprints.baremetal import deployment, ramdisk
from blueprints.baremetal.images import Url
from blueprints.baremetal.plans import BOOT, ERASE, SWITCH, into_network, out_of_network
from blueprints.baremetal.validation import deploying, leaving, media, reading, switching
from blueprints.baremetal.validation.deploying import deploys, unless_running
from blueprints.baremetal.validation.record import recorded, verdict_of
from blueprints.baremetal.validation.values import Check, Stage, Verdict
from blueprints.bmc.values import PowerAction
from blueprints.contract import Act, Fields, Plan, Step
from blueprints.specs import Spec


def _one(name: str, act: Act, deadline: float = 600.0) -> tuple[Stage, ...]:
    return (Stage(name=name, act=act, deadline=deadline),)


CHECKS = (
    Check(
        name="certificate", stages=_one("certificate", reading.certificate),
        proves="Nothing is sent to a BMC whose certificate is neither pinned nor signed by a trusted authority.",
    ),
    Check(
        name="wrong-password", stages=_one("wrong_password", reading.wrong_password),
        proves="The BMC refuses a wrong password, which is tried once, and does not lock the account for it.",
    ),
    Check(
        name="privileges", stages=_one("privileges", reading.privileges),
        proves="The account may log in, switch the machine, choose its boot device and insert media.",
    ),
    Check(
        name="inventory", stages=_one("inventory", reading.inventory, 1800.0),
        proves="The BMC knows serial number, UUID, MAC addresses and disks, and says the same twice.",
    ),
    Check(name="event-log", stages=_one("event_log", reading.event_log), proves="The event log can be read."),
    Check(name="sensors", stages=_one("sensors", reading.sensors), proves="The sensors can be read."),
    Check(
        name="console", stages=_one("console", reading.serial_console),
        proves="The serial console opens, and is free again once it is closed.",
    ),
    Check(
        name="sessions", stages=_one("sessions", reading.sessions, 1800.0),
        proves=f"After {reading.SESSIONS} calls, the BMC has no more open sessions than before.",
    ),
    Check(
        name="power-on", stages=_one("power_on", switching.power_on, SWITCH),
        proves="A machine that is off is switched on in time, as its BMC reports.",
    ),
    Check(
        name="power-off", stages=_one("power_off", switching.power_off, SWITCH), after=("power-on",),
        proves="The power of a machine that is on is cut in time, as its BMC reports.",
    ),
    Check(
        name=switching.BOOT_ONCE, stages=_one("boot_once", switching.boot_once, BOOT), after=("power-on", "power-off"),
        proves="A boot device that is chosen for one start is read back, and gone after this start.",
    ),
    Check(
        name="power-reset", stages=_one("power_reset", switching.restarts(PowerAction.RESET), BOOT),
        after=(switching.BOOT_ONCE,), proves="A reset starts the machine again.",
    ),
    Check(
        name="power-cycle", stages=_one("power_cycle", switching.restarts(PowerAction.CYCLE), BOOT),
        after=(switching.BOOT_ONCE,), proves="A power cycle starts the machine again.",
    ),
    Check(
        name="media", stages=(Stage(name="media_keys", act=media.keys), *_one("media", media.drives, SWITCH)),
        proves="Each virtual drive takes an image, reports it, and is empty after it was ejected.",
    ),
    Check(
        name="ramdisk", ramdisk=True, after=("power-on", "power-off"),
        stages=(
            Stage(name="ramdisk_keys", act=ramdisk.new_boot),
            Stage(name="ramdisk_boot", act=ramdisk.boot, deadline=SWITCH),
            Stage(name="ramdisk_reach", act=ramdisk.reach, deadline=BOOT),
        ),
        proves="The machine boots the ramdisk, which presents the host key that was made for this boot.",
    ),
    Check(
        name=deploying.IN_BAND, stages=_one("in_band", deploying.in_band), ramdisk=True, after=("ramdisk",),
        proves="The machine itself and its BMC agree on what machine it is.",
    ),
    Check(
        name="deploy", ramdisk=True, erases=True, after=(deploying.IN_BAND,),
        stages=(
            Stage(name="deploy_choose", act=deploys(deployment.choose)),
            Stage(name="deploy_write", act=deploys(deployment.write), deadline=BOOT),
        ),
        proves="The image is downloaded, has its SHA-256, is written to the disk and read back.",
    ),
    Check(
        name="disk-boot", ramdisk=True, erases=True, after=("deploy",),
        stages=(
            Stage(name="disk_pin", act=deploys(deployment.pin)),
            Stage(name="disk_boot", act=ramdisk.to_disk, deadline=SWITCH),
            Stage(name="disk_reach", act=deploys(deployment.first_boot), deadline=BOOT),
        ),
        proves="The machine boots the deployed system, which presents the host key that was made for it.",
    ),
    Check(
        name="power-shutdown", stages=_one("power_shutdown", switching.shutdown, BOOT), after=("power-on",),
        proves="The operating system shuts the machine down when its BMC asks for it.",
    ),
    Check(
        name=deploying.ERASE, ramdisk=True, erases=True, after=(deploying.IN_BAND,),
        stages=(
            Stage(name="erase_keys", act=unless_running(ramdisk.new_boot)),
            Stage(name="erase_boot", act=unless_running(ramdisk.boot), deadline=SWITCH),
            Stage(name="erase_reach", act=unless_running(ramdisk.reach), deadline=BOOT),
            Stage(name="erase", act=deploying.erase, deadline=ERASE),
        ),
        proves="Canaries on every fixed disk are gone after its erasure, and samples of it are empty.",
    ),
    Check(
        name=leaving.LEFT,
        stages=(
            Stage(name="left_restore", act=leaving.restore, deadline=BOOT),
            Stage(name="left_read", act=leaving.read_back),
        ),
        proves="The host has its power of before, or is off if it has a ramdisk; no medium and no override is left.",
    ),
)  # fmt: skip
NAMES = tuple(one.name for one in CHECKS)


def _exists(name: str) -> str:
    if name not in NAMES:
        raise ValueError(f"Check {name!r} does not exist. Choose one of: {', '.join(NAMES)}.")
    return name


Name = Annotated[str, AfterValidator(_exists)]


class Choice(Fields):
    """Arguments of the act `validate`."""

    only: tuple[Name, ...] = Field(
        default=(), max_length=len(NAMES), description="Only these checks, and those that they depend on. Empty: all."
    )
    skip: tuple[Name, ...] = Field(default=(), max_length=len(NAMES), description="Not these checks.")
    erase: bool = Field(
        default=False, description="Also deploy an image, and erase all fixed disks of the host. Their content is lost."
    )
    medium: Url | Literal[""] = Field(
        default="",
        description="Address of an image for the check of virtual drives. Empty: the medium that Drydock serves for "
        "hosts with a ramdisk.",
    )


def chosen(only: Collection[str] = (), skip: Collection[str] = ()) -> frozenset[str]:
    """Return the names of the wanted checks and of those that they depend on. The last one is always carried out."""
    wanted = set(only or NAMES) - set(skip)
    for one in reversed(CHECKS):
        if one.name in wanted:
            wanted |= set(one.after)
    return frozenset(wanted | {leaving.LEFT})


def _reason(check: Check, spec: Spec) -> str | None:
    """Return why a check is not carried out: None if it is, and an empty text if nobody wants it."""
    choice: Choice = spec.arguments
    if check.name not in chosen(choice.only, choice.skip):
        return ""
    if check.ramdisk and spec.config.ramdisk is None:
        return "The blueprint has no ramdisk."
    if check.erases and not choice.erase:
        return "It erases all fixed disks of the host, which was not asked for (--erase)."
    before = next((one for one in check.after if verdict_of(spec, one) != Verdict.OK), None)
    if before is None:
        return None
    return f"It depends on {before}, whose result is: {verdict_of(spec, before) or 'none'}."


def plan() -> Plan:
    """Return the plan of the act `validate`."""
    steps = [
        Step(name=stage.name, act=recorded(check, stage, _reason), deadline=stage.deadline, exclusive=True)
        for check in CHECKS
        for stage in check.stages
    ]
    return (
        Step(name="begin", act=leaving.begin, exclusive=True),
        *into_network("provisioning", "isolate"), *steps, out_of_network(),
        Step(name="conclude", act=leaving.conclude),
    )  # fmt: skip
