"""Steps that bring the firmware of a host, its BIOS settings and Secure Boot to the baseline of the blueprint.

An update is a task of the BMC, which goes on whoever watches it: its id is stored before it is read, and another
process reads it after a death. If the answer of the BMC is lost, or the process dies before it has stored the id, the
update is not started again. Its task is looked for among those that the BMC did not list before the start.
Settings take effect with the next boot, after which they are read back.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from blueprints.answers import Absent, Answer, Failed, Json, Ready, Scope, Wait
from blueprints.baremetal import hardware
from blueprints.baremetal.config import Baseline, FirmwareVersion
from blueprints.baremetal.power import bring
from blueprints.baremetal.ramdisk import abandoned
from blueprints.baremetal.sessions import bmc_told, sentence_of, session, since, whole
from blueprints.bmc.contract import Bmc, Configures, Upgrades
from blueprints.bmc.errors import (
    BmcAnswerInvalid,
    BmcAnswerLost,
    BmcBusy,
    BmcError,
    BmcLacks,
    BmcRefused,
    BmcUnreachable,
)
from blueprints.bmc.values import BmcTask, Firmware, PowerState
from blueprints.hostshell import NeedsOperator
from blueprints.specs import Spec
from drydock.core import clock

UPDATE = "firmware_update"
"""Code of a failure: the BMC did not bring a component to its version."""
SETTINGS = "firmware_settings"
"""Code of a failure: settings of the firmware did not become those of the baseline."""
PENDING = "baseline_pending"
"""Name of the fact with the time since when changed settings wait for the next boot."""
_LOOK = 5.0
_RESTARTING = (BmcUnreachable, BmcBusy)
"""Errors of a BMC that restarts with its new firmware."""


def outdated(wanted: Sequence[FirmwareVersion], there: Sequence[Firmware]) -> FirmwareVersion | None:
    """Return the first component that has another version than its baseline. Raises NeedsOperator."""
    versions = {one.component.casefold(): one.version for one in there}
    for one in wanted:
        if one.component.casefold() not in versions:
            names = ", ".join(sorted(each.component for each in there)) or "none"
            raise NeedsOperator(
                f"The BMC lists no firmware component {one.component!r}.", hint=f"It lists: {names}."[:1500]
            )
        if versions[one.component.casefold()] != one.version:
            return one
    return None


@bmc_told
def update_firmware(spec: Spec, memo: Json) -> Answer:
    """Update each component whose version differs from the baseline, one after another."""
    baseline: Baseline = spec.config.baseline
    if "task" in memo:
        return _followed(spec, memo)
    with session(spec.resource, whole(spec)) as bmc:
        found = bmc.inspect()
        wanted = outdated(baseline.firmware, found.firmware)
        if wanted is None:
            log = "\n".join(memo.get("done", [])) or "All versions are those of the baseline."
            return Ready(facts=hardware.facts_of(found), attributes=hardware.attributes_of(found), log=log)
        if memo.get("component") != wanted.component:
            begun = {"component": wanted.component, "from": _version(found.firmware, wanted), "tasks": _tasks(bmc)}
            return Wait(
                after=0.0, memo={**begun, "done": memo.get("done", [])}, sentence=f"{wanted.component} is outdated."
            )
        if not isinstance(bmc, Upgrades):
            raise BmcLacks("The BMC of this host cannot update firmware.")
        try:
            task = bmc.start_update(wanted.url, (wanted.component,) if wanted.targeted else ())
        except BmcAnswerLost as error:
            return _lost(memo, sentence_of(spec, error))
    sentence = f"{wanted.component} is being updated to {wanted.version}."
    return Wait(after=_LOOK, memo={**memo, "task": task.id, "began": clock.now().isoformat()}, sentence=sentence)


def find_update(spec: Spec, memo: Json) -> Answer:
    """Go on after a lost answer. An update that may have been started is only waited for, without its task.

    To start it twice could interrupt the first one, and leave the component without firmware that works.
    """
    if "task" in memo or "component" not in memo:
        return Absent()  # nothing but reads
    return _lost(memo, _UNKNOWN)


_UNKNOWN = "It is not known whether the BMC has begun the update, because the answer was lost."
_MOST_TASKS = 20
"""Maximum number of new tasks that are read to find the one of an update."""


def _lost(memo: Json, sentence: str) -> Wait:
    """Go on without the id of the task, as the update may have begun."""
    known = {**memo, "task": "", "began": clock.now().isoformat()}
    return Wait(after=_LOOK, memo=known, sentence=sentence[:500])


def _tasks(bmc: Bmc) -> list[str] | None:
    """Return the ids of the tasks that the BMC lists, or None if it does not list them."""
    if not isinstance(bmc, Upgrades):
        return None
    try:
        found = bmc.tasks()
    except (BmcLacks, BmcRefused, BmcAnswerInvalid):
        return None
    return None if found is None else list(found)


def _found_again(bmc: Bmc, memo: Json) -> str:
    """Return the id of the task that a start whose answer was lost has left, or an empty string if none is found.

    Of several new tasks it is one that runs, as something else may have been started at the BMC at the same time.
    """
    before, now = memo.get("tasks"), _tasks(bmc)
    if before is None or now is None:
        return ""
    new = list(_read(bmc, [one for one in now if one not in before][-_MOST_TASKS:]))
    candidates = [one for one in new if one.updates] or [one for one in new if one.updates is None]
    running = [one for one in candidates if one.state == "running"]
    chosen = running[:1] or (candidates if len(candidates) == 1 else [])
    return chosen[0].id if chosen else ""


def _read(bmc: Bmc, ids: Sequence[str]) -> Iterator[BmcTask]:
    """Yield the tasks that can be read. One of something else must not end the waiting for the update."""
    assert isinstance(bmc, Upgrades)
    for one in ids:
        with contextlib.suppress(BmcLacks, BmcRefused, BmcAnswerInvalid):
            task = bmc.task(one)
            if task.state != "unknown":
                yield task


def _version(there: Sequence[Firmware], wanted: FirmwareVersion) -> str:
    return next(one.version for one in there if one.component.casefold() == wanted.component.casefold())


def _followed(spec: Spec, memo: Json) -> Answer:
    """Follow the task of an update, which may restart the BMC, until the component has its version."""
    baseline: Baseline = spec.config.baseline
    wanted = next((one for one in baseline.firmware if one.component == memo["component"]), None)
    if wanted is None:
        raise NeedsOperator(f"The baseline no longer names {memo['component']}, which is being updated.")
    waited = since(memo["began"])
    try:
        answer = _looked(spec, memo, wanted)
    except _RESTARTING as error:
        if waited >= baseline.update_timeout:
            raise
        return _still(memo, wanted, waited, baseline, f"The BMC does not answer: {_plain(error)}")
    if isinstance(answer, Wait) and waited >= baseline.update_timeout:
        message = f"{wanted.component} did not get version {wanted.version} within {waited:.0f} s: {answer.sentence}"
        return Failed(scope=Scope.OPERATOR, code=UPDATE, message=message)
    return answer


def _plain(error: BmcError) -> str:
    return error.plain.rstrip(".")


def _looked(spec: Spec, memo: Json, wanted: FirmwareVersion) -> Answer:
    waited, baseline = since(memo["began"]), spec.config.baseline
    with session(spec.resource, whole(spec)) as bmc:
        version = _version(bmc.inspect().firmware, wanted)
        if version == wanted.version:
            done = [*memo["done"], f"{wanted.component} was updated from {memo['from']} to {wanted.version}."]
            return Wait(after=0.0, memo={"done": done}, sentence=done[-1])
        if not memo["task"]:
            memo = {**memo, "task": _found_again(bmc, memo)}
        if not memo["task"]:
            return _still(memo, wanted, waited, baseline, f"{_UNKNOWN} It reports version {version}")
        if not memo.get("finished"):
            assert isinstance(bmc, Upgrades)
            task = bmc.task(memo["task"])
            if task.state == "failed":
                said = task.message or "it gave no reason"
                message = f"The BMC could not update {wanted.component} to {wanted.version}: {said}"[:1500]
                return Failed(scope=Scope.OPERATOR, code=UPDATE, message=message)
            if task.state == "unknown":
                cycle = ". The update may lack a power cycle of the host" if wanted.power_cycle else ""
                said = f"The BMC does not know its task. It reports version {version}{cycle}"
                return _still(memo, wanted, waited, baseline, said)
            if task.state == "running":
                return _still(memo, wanted, waited, baseline, task.message, task.percent)
            memo = {**memo, "finished": True, "power": {"stage": "off"} if wanted.power_cycle else None}
        if memo["power"] is not None:
            return _cycled(bmc, spec, memo)
    return _still(memo, wanted, waited, baseline, f"The BMC still reports version {version}")


def _cycled(bmc: Bmc, spec: Spec, memo: Json) -> Answer:
    """Switch the host off and on, with which some components begin to use their new version."""
    stage = memo["power"]["stage"]
    waits = bring(bmc, spec, memo["power"], PowerState.OFF if stage == "off" else PowerState.ON)
    if isinstance(waits, Failed):
        return waits
    if isinstance(waits, Wait):
        return Wait(after=waits.after, memo={**memo, "power": waits.memo}, sentence=waits.sentence)
    then = {"stage": "on"} if stage == "off" else None
    return Wait(after=0.0, memo={**memo, "power": then}, sentence="The host is power-cycled for its firmware.")


def _still(
    memo: Json, wanted: FirmwareVersion, waited: float, baseline: Baseline, said: str, percent: int | None = None
) -> Wait:
    sentence = f"{wanted.component} is being updated to {wanted.version}. {said}".rstrip(". ") + "."
    share = percent if percent is not None else int(100 * waited / baseline.update_timeout)
    return Wait(after=_LOOK, memo=memo, percent=max(0, min(99, share)), sentence=sentence[:500])


def differing(baseline: Baseline, there: Json) -> Json:
    """Return the settings of the baseline that differ from those of the host. Raises NeedsOperator."""
    bios = there.get("bios") or {}
    unknown = sorted(baseline.bios.keys() - bios.keys())
    if unknown:
        raise NeedsOperator(
            f"The BMC knows no BIOS setting {', '.join(unknown)}.",
            hint=f"It knows {len(bios)}, such as {', '.join(sorted(bios)[:20]) or 'none'}.",
        )
    changed: Json = {name: value for name, value in baseline.bios.items() if bios[name] != value}
    wanted: Json = {"bios": changed} if changed else {}
    if baseline.secure_boot is not None and there.get("secure_boot") != baseline.secure_boot:
        if there.get("secure_boot") is None:
            raise NeedsOperator("The baseline sets Secure Boot, which the BMC does not show.")
        wanted["secure_boot"] = baseline.secure_boot
    return wanted


def settings_of(bmc: Bmc) -> Json:
    """Return the BIOS settings and the state of Secure Boot, as far as the BMC shows them."""
    found: Json = {}
    if not isinstance(bmc, Configures):
        return found
    with contextlib.suppress(BmcLacks):
        found["bios"] = {str(name): value for name, value in bmc.settings().items()}
    secure = bmc.secure_boot()
    return found if secure is None else {**found, "secure_boot": secure.enabled}


@bmc_told
def change_settings(spec: Spec, memo: Json) -> Answer:
    """Change the settings that differ from the baseline. They take effect with the next boot."""
    with session(spec.resource, whole(spec)) as bmc:
        wanted = differing(spec.config.baseline, settings_of(bmc))
        if not wanted:
            return Ready(resource_facts={PENDING: None})
        assert isinstance(bmc, Configures)
        if "bios" in wanted:
            bmc.set_settings(wanted["bios"])
        if "secure_boot" in wanted:
            bmc.set_secure_boot(wanted["secure_boot"])
    return Ready(resource_facts={PENDING: clock.now().isoformat()}, log=f"Changed for the next boot: {_named(wanted)}.")


def _named(wanted: Mapping[str, Any]) -> str:
    found = [f"{name} to {value}" for name, value in wanted.get("bios", {}).items()]
    if "secure_boot" in wanted:
        found.append(f"Secure Boot to {'on' if wanted['secure_boot'] else 'off'}")
    return ", ".join(found)[:1500]


@bmc_told
def switch_off_for_settings(spec: Spec, memo: Json) -> Answer:
    """Switch a host off that has an operating system of its own, so that its next start applies the settings."""
    if not spec.resource.facts.get(PENDING):
        return Ready()
    with session(spec.resource, whole(spec)) as bmc:
        return bring(bmc, spec, memo, PowerState.OFF) or Ready(power="off")


@bmc_told
def verify_settings(spec: Spec, memo: Json) -> Answer:
    """Check after a boot that the settings are those of the baseline."""
    if not spec.resource.facts.get(PENDING):
        return Ready()
    with session(spec.resource, whole(spec)) as bmc:
        wrong = differing(spec.config.baseline, settings_of(bmc))
    if wrong:
        message = f"The host has booted, but the firmware has not changed {_named(wrong)}."
        failure = Failed(scope=Scope.OPERATOR, code=SETTINGS, message=message)
        return failure if spec.config.ramdisk is None else abandoned(spec, failure)
    return Ready(resource_facts={PENDING: None}, log="The settings of the firmware are those of the baseline.")


def expected(baseline: Baseline | None, remembered: Json) -> Json:
    """Return the settings that were remembered at the enrolment, with those of the present baseline."""
    if baseline is None:
        return remembered
    found = {**remembered, "bios": {**(remembered.get("bios") or {}), **baseline.bios}}
    return found if baseline.secure_boot is None else {**found, "secure_boot": baseline.secure_boot}
