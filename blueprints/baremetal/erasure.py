"""Steps that erase the disks of a host in the ramdisk, with proof, and compare the settings of its firmware."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator, Mapping
from fnmatch import fnmatchcase
from typing import Any

from blueprints.answers import Answer, Failed, Json, Ready, Scope
from blueprints.baremetal import disks, ramdisk_agent
from blueprints.baremetal.baseline import expected, settings_of
from blueprints.baremetal.config import Config
from blueprints.baremetal.ramdisk import abandoned
from blueprints.baremetal.ramdisk_agent import FACT, AgentRefused, follow
from blueprints.baremetal.sessions import bmc_told, session, whole
from blueprints.records.erasures import Erasure
from blueprints.specs import Spec
from drydock.core import clock

NOT_ERASED = "not_erased"
"""Code of a failure: a disk could not be erased, or something was left on it."""
NOT_REMOVED = "not_removed"
"""Code of a failure: the disks were erased, and something outside of them was not removed."""
FIRMWARE = "firmware_changed"
"""Code of a failure: settings of the firmware differ from those at the enrolment."""
SETTINGS = "firmware_settings"
"""Name of the fact with the settings of the firmware at the enrolment."""
_SENTENCE = "The disks are being erased."
_UNSAID = "the ramdisk does not say that it was erased"
_MOST = 20
"""Maximum number of differences that are named."""


@bmc_told
def erase(spec: Spec, memo: Json) -> Answer:
    """Erase all fixed disks, and check the answer: a disk that is not proven to be empty fails the step."""
    config: Config = spec.config
    assert config.ramdisk is not None
    if spec.phase == "build" and not config.ramdisk.first_cleaning:
        return Ready(log="The disks were left as they are, because first_cleaning is off.")
    request: Json = {"samples": config.ramdisk.samples}
    if config.ramdisk.methods:
        request["methods"] = {"allowed": list(config.ramdisk.methods)}
    job = f"erase-{spec.resource.facts[FACT]['boot']}"
    try:
        found = follow(spec, memo, job, lambda: _start(spec, job, request), _SENTENCE)
        if not isinstance(found, dict):
            return abandoned(spec, found) if isinstance(found, Failed) else found
        return _judged(spec, found, disks.read(spec))
    except AgentRefused as error:
        return abandoned(spec, Failed(scope=Scope.OPERATOR, code=error.code, message=error.message))


def _start(spec: Spec, job: str, request: Json) -> None:
    ramdisk_agent.call(spec.resource, "disks", "erase", "--job", job, request=request)


def _judged(spec: Spec, result: Json, found: Json) -> Answer:
    """Return the answer to the result of the job: every fixed disk that is found must be proven to be empty.

    The disks must still be those that were recorded, since one that is not found any more may hold data.
    """
    reports = [one for one in result.get("disks") or [] if isinstance(one, dict)]
    erasures = tuple(_erasure(one) for one in reports)
    proven = {one.disk for one in erasures if one.verified}
    reasons = {one.disk: one.problem for one in erasures}
    wrong = [
        f"{disks.named(one)}: {reasons.get(str(one.get('name'))) or one.get('problem') or _UNSAID}"
        for one in disks.fixed(found)
        if one.get("name") not in proven
    ]
    sanitized = {one.serial for one in erasures if one.verified and one.method.startswith("nvme_sanitize")} - {""}
    wrong += [said for one, said in disks.hidden(found) if one.get("serial") not in sanitized]
    if spec.resource.facts.get(disks.FACT) is not None:
        wrong += disks.differences(spec.resource.facts, found)
    if wrong:
        message = f"These disks are not proven to be empty: {'; '.join(one.rstrip('.') for one in wrong)}."[:2000]
        hint = "Replace the disk or remove it. Until then, the host is not leased."
        failure = Failed(scope=Scope.OPERATOR, code=NOT_ERASED, message=f"{message} {hint}", erasures=erasures)
        return abandoned(spec, failure)
    left = " ".join(_left(result))
    if left and spec.config.ramdisk.outside_disks == "require":
        hint = "Do that in the setup of the firmware, or set outside_disks: report in the ramdisk of the blueprint."
        return abandoned(
            spec,
            Failed(scope=Scope.OPERATOR, code=NOT_REMOVED, message=f"{left} {hint}", erasures=erasures),
        )
    at = {"erased_at": clock.now().isoformat()}
    return Ready(facts=at, resource_facts={**_told(result), **at}, erasures=erasures, log=_log(erasures, result))


def _told(result: Json) -> Json:
    removed = [str(one)[:200] for one in result.get("boot_entries_removed") or []][:100]
    return {"tpm": str(result.get("tpm") or "")[:500], "boot_entries_removed": removed}


def _left(result: Json) -> Iterator[str]:
    """Yield what a tenant may have left outside of the disks, because the ramdisk could not remove it."""
    tpm = str(result.get("tpm") or "")
    if tpm.startswith("failed"):
        yield f"The TPM was not cleared: {tpm.removeprefix('failed').lstrip(': ')[:1000].rstrip('.')}."
    if problem := str(result.get("boot_entries_problem") or ""):
        yield f"Boot entries were not removed: {problem[:1000].rstrip('.')}."


def _log(erasures: tuple[Erasure, ...], result: Json) -> str:
    lines = [f"{one.disk} ({one.serial or 'no serial number'}) was erased by {one.method}." for one in erasures]
    if removed := result.get("boot_entries_removed"):
        lines.append(f"Boot entries removed: {', '.join(map(str, removed))}.")
    lines += _left(result)
    return "\n".join(lines)[:4000] or "The host has no fixed disks."


def _erasure(one: Mapping[str, Any]) -> Erasure:
    began, ended = _moment(one.get("started_at")), _moment(one.get("ended_at"))
    verified = one.get("verified") is True
    tried = "; ".join(
        f"{each.get('method')}: {each.get('error')}" for each in one.get("tried") or [] if isinstance(each, dict)
    )  # fmt: skip
    problem = str(one.get("problem") or "") or ("" if verified else tried or "The ramdisk gave no reason.")
    return Erasure(
        disk=str(one.get("name") or "?"), serial=str(one.get("serial") or ""), wwn=str(one.get("wwn") or ""),
        model=str(one.get("model") or ""), size_bytes=_count(one.get("size_bytes")), verified=verified,
        method=str(one.get("method") or ""), bytes=_count(one.get("bytes")), started_at=began, ended_at=ended,
        problem=problem,
    )  # fmt: skip


def _count(value: object) -> int:
    return value if isinstance(value, int) and not isinstance(value, bool) and value > 0 else 0


def _moment(text: object) -> dt.datetime:
    """Return a time of the ramdisk's clock; now if it says none."""
    try:
        found = dt.datetime.fromisoformat(str(text))
    except ValueError:
        return clock.now()
    return found if found.tzinfo is not None else found.replace(tzinfo=dt.UTC)


@bmc_told
def remember_firmware(spec: Spec, memo: Json) -> Answer:
    """Keep the settings of the firmware at the enrolment, to compare them after each lease.

    Later, only those of the baseline are changed: a tenant may have changed others meanwhile.
    """
    before = spec.resource.facts.get(SETTINGS)
    if spec.phase != "build" and before:
        return Ready(resource_facts={SETTINGS: expected(spec.config.baseline, before)})
    with session(spec.resource, whole(spec)) as bmc:
        found = settings_of(bmc)
    log = "" if found else "The BMC does not show settings of the firmware, so they are not compared after leases."
    return Ready(resource_facts={SETTINGS: found}, log=log)


@bmc_told
def compare_firmware(spec: Spec, memo: Json) -> Answer:
    """Compare the settings of the firmware with those at the enrolment. The host is off meanwhile."""
    ramdisk, before = spec.config.ramdisk, spec.resource.facts.get(SETTINGS)
    if not before:
        return Ready()
    with session(spec.resource, whole(spec)) as bmc:
        now = settings_of(bmc)
    wrong = _differences(before, now, ramdisk.firmware_ignored)
    if not wrong:
        return Ready()
    more = f", and {len(wrong) - _MOST} more" if len(wrong) > _MOST else ""
    message = f"Settings of the firmware differ from those at the enrolment: {'; '.join(wrong[:_MOST])}{more}."[:2000]
    if ramdisk.firmware == "report":
        return Ready(log=message)
    hint = (
        "Set them back, name those that may differ in firmware_ignored of the ramdisk, or set firmware: report. Then "
        "the host is cleaned again."
    )
    return Failed(scope=Scope.OPERATOR, code=FIRMWARE, message=f"{message} {hint}")


def _differences(before: Json, now: Json, ignored: tuple[str, ...]) -> list[str]:
    was, there = before.get("bios") or {}, now.get("bios") or {}
    names = sorted(name for name in was.keys() | there.keys() if was.get(name) != there.get(name))
    found = [
        f"{name} is {_shown(there, name)}, and was {_shown(was, name)}"
        for name in names
        if not any(fnmatchcase(name, each) for each in ignored)
    ]
    if before.get("secure_boot") != now.get("secure_boot"):
        states = {True: "on", False: "off", None: "unknown"}
        now_is, then = states[now.get("secure_boot")], states[before.get("secure_boot")]
        found.append(f"Secure Boot is {now_is}, and was {then}")
    return found


def _shown(values: Mapping[str, Any], name: str) -> str:
    return str(values[name])[:100] if name in values else "missing"
