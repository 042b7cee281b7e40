"""The health check of a host: power and hardware by the BMC, and over SSH if the host should be on."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence

from blueprints.accounts import actions as accounts
from blueprints.answers import Answer, Failed, Health, Json, Ready, Scope
from blueprints.baremetal import hardware
from blueprints.baremetal.power import boot, bring, is_meant_on
from blueprints.baremetal.sessions import SWITCHED_OFF, bmc_told, patience, session, since, whole
from blueprints.bmc.contract import Bmc, Logs, Measures
from blueprints.bmc.errors import BmcError
from blueprints.bmc.values import Inventory, LogEntry, PowerState, Sensor
from blueprints.specs import Spec
from drydock.core import clock

_RECENT = 3600.0
"""Seconds for which a critical entry of the event log makes a host degraded."""
_MOST = 20
"""Maximum number of log entries or sensors that are told at once."""
_LIES = "The BMC reports the host as off, although it answers over SSH."


@bmc_told
def read_power(spec: Spec, memo: Json) -> Answer:
    """Read the power. A BMC that does not answer fails the check, or is a problem if leases use the host meanwhile."""
    try:
        with session(spec.resource, patience(spec)) as bmc:
            state = bmc.power()
    except BmcError as error:
        if not spec.resource.lease_facts():
            raise
        return Ready(facts={"bmc_problem": f"The BMC cannot be used: {error.message}", "power": ""})
    if state is PowerState.OFF and is_meant_on(spec.resource) and isinstance(accounts.reach(spec, {}), Ready):
        return Ready(facts={"power": "on", "bmc_problem": _LIES})
    known = state.value if state in (PowerState.ON, PowerState.OFF) else ""
    return Ready(facts={"power": known, "bmc_problem": ""})


@bmc_told
def read_hardware(spec: Spec, memo: Json) -> Answer:
    """Inspect the hardware, sensors and event log if that is due, and report the health."""
    facts: Json = {}
    due = since(spec.resource.facts.get("inspected_at") or "1970-01-01T00:00:00+00:00") >= spec.config.inspect_interval
    if due and not spec.resource.facts.get("bmc_problem"):
        try:
            with session(spec.resource, whole(spec)) as bmc:
                facts = _read(bmc, spec)
        except BmcError as error:
            facts = {"hardware_problem": f"The hardware could not be read: {error.message}"}
    swapped = facts.pop("swapped", "")
    if swapped:
        return Failed(scope=Scope.OPERATOR, code="other_machine", message=swapped)
    told = facts.pop("log", "")
    return Ready(facts=facts, health=judged(spec.resource.facts | facts, bool(spec.resource.lease_facts())), log=told)


def _read(bmc: Bmc, spec: Spec) -> Json:
    """Return what the BMC says now, as facts, with the differences since the last inspection in `log`."""
    found, before = bmc.inspect(), spec.resource.facts
    facts = hardware.facts_of(found) | {"inspected_at": clock.now().isoformat(), "hardware_problem": ""}
    changes = hardware.differences(before["hardware"], facts["hardware"]) if "hardware" in before else []
    facts["swapped"] = _swapped(before.get("hardware", {}), found)
    facts["sensor_problems"] = _problems(bmc.sensors()) if isinstance(bmc, Measures) else []
    if isinstance(bmc, Logs):
        at = before.get("log_read_at")
        read = bmc.entries(dt.datetime.fromisoformat(at) if at else None)
        entries = [one for one in read if one.id not in before.get("log_ids", [])]
        facts |= _entries(entries, before)
        changes += [f"event log: {one.message}" for one in entries if one.severity != "ok"][-_MOST:] if at else []
    return {**facts, "log": "\n".join(changes)}


def _swapped(before: Json, found: Inventory) -> str:
    was = before.get("serial")
    if not was or not found.serial or str(was).casefold() in hardware.serials(found):
        return ""
    return f"The BMC now belongs to the machine {found.serial}, but {was} was enrolled. Register the new machine anew."


def _problems(sensors: Sequence[Sensor]) -> list[str]:
    wrong = [one for one in sensors if one.state in ("warning", "critical")]
    return [f"{one.name} is {one.state}{_reading(one)}" for one in wrong][:_MOST]


def _reading(sensor: Sensor) -> str:
    return "" if sensor.value is None else f" ({sensor.value:g} {sensor.unit})"


def _entries(new: Sequence[LogEntry], before: Json) -> Json:
    """Return the facts about the event log: what was read last, and critical entries of the last hour."""
    times = [one.at for one in new if one.at is not None]
    kept = [one for one in before.get("critical", []) if since(one["at"]) < _RECENT]
    grave = [one for one in new if one.severity == "critical" and "log_read_at" in before]
    now = clock.now().isoformat()
    return {
        "log_read_at": max(times).isoformat() if times else before.get("log_read_at", now),
        "log_ids": [one.id for one in new][-200:] or before.get("log_ids", []),
        "critical": [*kept, *({"at": now, "message": one.message[:300]} for one in grave)][-_MOST:],
    }


def judged(facts: Json, leased: bool) -> Health:
    """Return the health that follows from what was read last.

    A machine that its BMC reports as failed gets no new leases. Present leases keep it while it works for them, so it
    is then reported as degraded. Owners of leases read the reason, so it has no addresses and accounts of BMCs.
    """
    problem = facts.get("bmc_problem", "")
    summary = facts.get("hardware", {}).get("health", "")
    reasons = [
        problem if problem in ("", _LIES) else "The BMC cannot be used",
        "The hardware could not be read" if facts.get("hardware_problem") else "",
        f"The BMC reports the machine as {summary}." if summary in ("degraded", "failed") else "",
        *facts.get("sensor_problems", []),
        *(f"Event log: {one['message']}" for one in facts.get("critical", []) if since(one["at"]) < _RECENT),
    ]
    reason = " ".join(f"{one.rstrip('.')}." for one in reasons if one)
    if summary == "failed" and not leased:
        return Health(state="failed", reason=reason)
    return Health(state="degraded" if reason else "ok", reason=reason)


@bmc_told
def judge_power(spec: Spec, memo: Json) -> Answer:
    """Fail if the host is off although it should be on, or switch it on again if the blueprint says so."""
    is_off = spec.resource.facts.get("power") == "off"
    if not memo and not (is_off and is_meant_on(spec.resource)):
        return Ready()
    if not spec.config.start_stopped:
        message = "The host is off, although it should be on. It was switched off outside Drydock, or lost its power."
        return Failed(scope=Scope.STEP, code=SWITCHED_OFF, message=message)
    with session(spec.resource, patience(spec)) as bmc:
        waits = bring(bmc, spec, memo, PowerState.ON)
    answer = waits or boot(spec, memo)
    if isinstance(answer, Ready):
        return Ready(facts={"power": "on"}, log="It was off, although it should be on, and was switched on again.")
    return answer


def reach(spec: Spec, memo: Json) -> Answer:
    """Check that a host that should be on answers over SSH."""
    return accounts.reach(spec, memo) if is_meant_on(spec.resource) else Ready()


def look(spec: Spec, memo: Json) -> Answer:
    """Check the operating system of a host that should be on."""
    return accounts.check_health(spec, memo) if is_meant_on(spec.resource) else Ready()
