"""The check of the virtual drives: each takes an image, shows it, and gives it up."""

from __future__ import annotations

from collections.abc import Sequence

from blueprints.answers import Answer, Failed, Json, Ready, Wait
from blueprints.baremetal import ramdisk, ramdisk_agent
from blueprints.baremetal.sessions import bmc_told, session, since, whole
from blueprints.baremetal.validation.values import impossible, unmet
from blueprints.bmc.contract import Mounts
from blueprints.bmc.errors import BmcLacks
from blueprints.bmc.values import Medium
from blueprints.specs import Spec
from drydock.core import clock

_LOOK = 1.5  # as in `power`: less than the interval of the sweep


def keys(spec: Spec, memo: Json) -> Answer:
    """Make the medium that Drydock serves for this host, unless an address was given."""
    if spec.arguments.medium:
        return Ready()
    if spec.config.ramdisk is None:
        return impossible(
            "Drydock serves media only for hosts with a ramdisk. Name the address of an image (--medium)."
        )
    return ramdisk.new_boot(spec, memo)


@bmc_told
def drives(spec: Spec, memo: Json) -> Answer:
    """Insert an image into each drive, read it back, and eject it again: one drive after another."""
    with session(spec.resource, whole(spec)) as bmc:
        if not isinstance(bmc, Mounts):
            raise BmcLacks("The BMC cannot insert virtual media.")
        there = bmc.media()
        if not there:
            raise BmcLacks("The BMC has no virtual drives.")
        number = int(memo.get("drive", 0))
        if number >= len(there):
            return Ready(log=f"{', '.join(one.slot for one in there)}: inserted, read back, and empty again.")
        return _turn(bmc, spec, there[number], {"drive": number, **memo})


def _turn(bmc: Mounts, spec: Spec, drive: Medium, memo: Json) -> Answer:
    """Return the answer to the next turn with one drive."""
    stage = memo.get("stage", "insert")
    if stage == "insert":
        if drive.inserted:
            bmc.eject(drive.slot)
        bmc.insert(drive.slot, _address(spec, drive))
        return _next(memo, "inserted")
    if stage == "inserted":
        return _seen(spec, memo, drive, wanted=True, then="eject")
    if stage == "eject":  # a stage of its own: after a death here, an empty drive is not taken for a lie
        if drive.inserted:
            bmc.eject(drive.slot)
        return _next(memo, "ejected")
    return _seen(spec, memo, drive, wanted=False, then="")


def _address(spec: Spec, drive: Medium) -> str:
    if spec.arguments.medium:
        return str(spec.arguments.medium)
    token = spec.resource.secrets[ramdisk_agent.FACT]["token"]
    return spec.resource.medium_url("boot.iso" if drive.cd else "boot.img", token)


def _next(memo: Json, stage: str) -> Wait:
    since_now = clock.now().isoformat()
    if not stage:
        return Wait(after=0.0, memo={"drive": memo["drive"] + 1})
    return Wait(after=0.0, memo={"drive": memo["drive"], "stage": stage, "since": since_now})


def _seen(spec: Spec, memo: Json, drive: Medium, *, wanted: bool, then: str) -> Wait | Failed:
    """Wait until a drive shows that it holds an image, or none, and go on with it."""
    if drive.inserted is wanted:
        return _next(memo, then)
    done, shown = ("insert an image into", "empty") if wanted else ("eject the image from", "full")
    if since(memo["since"]) >= spec.config.power_timeout:
        return unmet(f"The BMC accepted to {done} {drive.slot}, but reports the drive as {shown}.")
    return Wait(after=_LOOK, memo=memo, sentence=f"{drive.slot} is {shown}.")


def inserted(there: Sequence[Medium]) -> list[str]:
    """Return the names of the drives that hold an image."""
    return [one.slot for one in there if one.inserted]
