"""Checks that switch the machine: each action of power that its BMC offers, and the boot device of one start.

Power is read back until it is the requested one (`power.bring`). That a machine has restarted cannot be read from its
power, which stays on; it is seen by a boot override for one start, which is gone after the start.
"""

from __future__ import annotations

from blueprints.answers import Answer, Failed, Json, Ready, Wait
from blueprints.baremetal.power import boot, bring
from blueprints.baremetal.sessions import bmc_told, session, since, whole
from blueprints.baremetal.validation.record import verdict_of
from blueprints.baremetal.validation.values import Verdict, impossible, unmet
from blueprints.bmc.contract import Bmc, Boots
from blueprints.bmc.errors import BmcLacks
from blueprints.bmc.values import BootDevice, BootOverride, PowerAction, PowerState
from blueprints.contract import Act
from blueprints.specs import Spec
from drydock.core import clock

_LOOK = 1.5  # as in `power`: less than the interval of the sweep
_DEVICES = (BootDevice.DISK, BootDevice.NETWORK)
BOOT_ONCE = "boot-once"


def _offers(bmc: Bmc, action: PowerAction) -> None:
    if action not in bmc.power_actions():
        raise BmcLacks(f"The BMC does not offer the action {action}.")


@bmc_told
def power_on(spec: Spec, memo: Json) -> Answer:
    """Switch the machine off, by its operating system if it has one, and then on."""
    with session(spec.resource, whole(spec)) as bmc:
        _offers(bmc, PowerAction.ON)
        if memo.get("stage") != "on":
            waits = bring(bmc, spec, memo, PowerState.OFF)
            return _first(waits, "off") or Wait(after=0.0, memo={"stage": "on"}, sentence="The host is off.")
        waits = bring(bmc, spec, memo, PowerState.ON)
    return waits or Ready(log="It was off, and was read back as on.")


@bmc_told
def power_off(spec: Spec, memo: Json) -> Answer:
    """Cut the power of a machine that is on."""
    with session(spec.resource, whole(spec)) as bmc:
        _offers(bmc, PowerAction.OFF)
        if memo.get("stage") != "off":
            waits = bring(bmc, spec, memo, PowerState.ON)
            return _first(waits, "on") or Wait(after=0.0, memo={"stage": "off"}, sentence="The host is on.")
        waits = bring(bmc, spec, memo, PowerState.OFF, at_once=True)
    return waits or Ready(log="It was on, and was read back as off.")


def _first(waits: Answer | None, word: str) -> Answer | None:
    """Return what to answer while the machine is brought to the power in which a check begins."""
    if isinstance(waits, Failed):
        return unmet(f"The host could not be switched {word} first: {waits.message}")
    return waits


@bmc_told
def boot_once(spec: Spec, memo: Json) -> Answer:
    """Choose a boot device for one start, read it back, start the machine, and wait until the choice is gone."""
    stage = memo.get("stage", "off")
    with session(spec.resource, whole(spec)) as bmc:
        if not isinstance(bmc, Boots):
            raise BmcLacks("The BMC cannot choose what the machine boots from.")
        if stage == "off":
            waits = _first(bring(bmc, spec, memo, PowerState.OFF, at_once=True), "off")
            return waits or _chosen(bmc)
        if stage == "on":
            waits = bring(bmc, spec, memo, PowerState.ON)
            return waits or _watch(memo["device"])
        gone = bmc.boot() is None
    if gone:
        return Ready(
            log=f"{memo['device']} was chosen, read back, and gone {since(memo['since']):.0f} s after the start."
        )
    return _still(spec, memo, f"{memo['device']} is still chosen")


def _chosen(bmc: Boots) -> Answer:
    device = _choose(bmc)
    if isinstance(device, Failed):
        return device
    return Wait(after=0.0, memo={"stage": "on", "device": device.value}, sentence=f"It boots from {device} next.")


def _choose(bmc: Boots) -> BootDevice | Failed:
    """Choose a boot device for one start, and read it back. Return the device, or a failure."""
    for device in _DEVICES:
        try:
            bmc.set_boot(BootOverride(device=device))
        except BmcLacks:
            continue
        found = bmc.boot()
        if found is not None and found.device is device:
            return device
        there = "no boot device" if found is None else found.device.value
        return unmet(f"The BMC accepted {device} as the boot device of the next start, but reports {there}.")
    raise BmcLacks(f"The BMC offers neither of the boot devices {' and '.join(_DEVICES)}.")


def _watch(device: str = "") -> Wait:
    memo = {"stage": "gone", "device": device, "since": clock.now().isoformat()}
    return Wait(after=_LOOK, memo=memo, sentence="The host starts.")


def _still(spec: Spec, memo: Json, what: str) -> Answer:
    waited, limit = since(memo["since"]), spec.config.boot_timeout
    if waited >= limit:
        return unmet(f"{what} {waited:.0f} s after the start.")
    percent = min(99, int(100 * waited / limit))
    return Wait(after=_LOOK, memo=memo, percent=percent, sentence=f"{what} {waited:.0f} s after the start.")


def restarts(action: PowerAction) -> Act:
    """Return the check of an action that restarts a machine: after it, the machine is on, and its override is gone."""

    @bmc_told
    def restart(spec: Spec, memo: Json) -> Answer:
        with session(spec.resource, whole(spec)) as bmc:
            _offers(bmc, action)
            if memo.get("stage") != "gone":
                return _begun(bmc, spec, memo, action)
            assert isinstance(bmc, Boots)  # as the check that it depends on has found
            waits, state = bmc.boot() is not None, bmc.power()
        if waits or state is not PowerState.ON:
            return _still(
                spec, memo, f"Its boot device is not used up, and it is {state}" if waits else f"It is {state}"
            )
        return Ready(log=f"It restarted, and was read back as on after {since(memo['since']):.0f} s.")

    return restart


def _begun(bmc: Bmc, spec: Spec, memo: Json, action: PowerAction) -> Answer:
    waits = _first(bring(bmc, spec, memo, PowerState.ON), "on")
    if waits is not None:
        return waits
    assert isinstance(bmc, Boots)
    chosen = _choose(bmc)
    if isinstance(chosen, Failed):
        return chosen
    bmc.switch(action)
    return _watch(chosen.value)


@bmc_told
def shutdown(spec: Spec, memo: Json) -> Answer:
    """Shut the machine down by its operating system."""
    if not spec.config.shutdown_timeout:
        return impossible("The blueprint cuts the power at once (shutdown_timeout is 0).")
    if spec.config.ramdisk is not None and verdict_of(spec, "disk-boot") != Verdict.OK:
        return impossible("The host has no operating system that could shut it down. With --erase, one is deployed.")
    stage = memo.get("stage", "on")
    if stage == "boot":
        return _booted(spec, memo)
    with session(spec.resource, whole(spec)) as bmc:
        _offers(bmc, PowerAction.SHUTDOWN)
        if stage == "on":
            waits = _first(bring(bmc, spec, memo, PowerState.ON), "on")
            return waits or Wait(after=0.0, memo={"stage": "boot"}, sentence="The host is on.")
        if stage == "ask":
            bmc.switch(PowerAction.SHUTDOWN)
            return Wait(after=0.0, memo={"stage": "off", "since": clock.now().isoformat()}, sentence="It shuts down.")
        state = bmc.power()
    waited = since(memo["since"])
    if state is PowerState.OFF:
        return Ready(log=f"It was shut down by its operating system within {waited:.0f} s.")
    if waited >= spec.config.shutdown_timeout + spec.config.power_timeout:
        return unmet(f"It is {state}, {waited:.0f} s after its operating system was asked to shut it down.")
    return Wait(after=_LOOK, memo=memo, sentence=f"It is {state} {waited:.0f} s after the request.")


def _booted(spec: Spec, memo: Json) -> Answer:
    """Wait until the operating system accepts our login, before which it would ignore the request."""
    answer = boot(spec, memo)
    if isinstance(answer, Failed):
        return impossible(f"The host accepts no login, so its operating system cannot shut it down: {answer.message}")
    if isinstance(answer, Ready):
        return Wait(after=0.0, memo={"stage": "ask"}, sentence="Its operating system runs.")
    return answer
