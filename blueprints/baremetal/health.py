"""The health check of a host: power and hardware by the BMC, and over SSH if the host should be on."""

from __future__ import annotations

import datetime as dt
import logging
import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from blueprints.accounts import actions as accounts
from blueprints.answers import Answer, Failed, Health, Json, Ready, Scope
from blueprints.baremetal import hardware
from blueprints.baremetal.power import boot, bring, has_system, is_meant_on
from blueprints.baremetal.registration import Controller, controller_of
from blueprints.baremetal.sessions import SWITCHED_OFF, bmc_told, patience, session, since, whole
from blueprints.bmc.contract import Bmc, Logs, Measures, Polled, PollsPower
from blueprints.bmc.errors import BmcError, BmcLoginRefused
from blueprints.bmc.values import Inventory, LogEntry, PowerState, Sensor
from blueprints.contract import BulkChecked
from blueprints.hostshell import NeedsOperator
from blueprints.records.sensors import SensorReading, SensorReport
from blueprints.specs import ResourceView, Spec
from drydock.core import clock
from interfaces.deadline import Deadline

logger = logging.getLogger(__name__)

_RECENT = 3600.0
"""Seconds for which a critical entry of the event log makes a host degraded."""
_MOST = 20
"""Maximum number of log entries or sensors that are told at once."""
_LIES = "The BMC reports the host as off, although it answers over SSH."


_POLL = "power_poll"
"""Fact: the BMC, and what its driver needs to read the power with one request. Only operators see it."""
_POLL_SECONDS = 5.0
"""Seconds within which a BMC must answer a poll. A whole check allows it `bmc_timeout`."""
_AT_ONCE = 16
"""BMCs that are polled at the same time."""


def poll(resources: Sequence[ResourceView], *, deadline: float) -> BulkChecked:
    """Find the hosts that are off as they should be, with one request to the BMC of each.

    A host whose inspection is due, or whose BMC does not answer as it did, is left to the plan of `check`.
    """
    ends = Deadline(deadline)
    asked = {one.id: found for one in resources if is_off_as_it_should(one) and (found := _polled(one))}
    with ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="power-poll") as threads:
        states = dict(zip(asked, threads.map(partial(_power_of, ends=ends), asked.values()), strict=True))
    # A refused login counts at BMCs that lock accounts, so this one is not tried again before the next inspection.
    refused = {pk: {_POLL: None} for pk, state in states.items() if isinstance(state, BmcLoginRefused)}
    return BulkChecked(sound=[pk for pk, state in states.items() if state is PowerState.OFF], facts=refused)


def is_off_as_it_should(resource: ResourceView) -> bool:
    """Return whether the last check found a host at rest, and nothing else is due."""
    return _rests(resource) and not resource.facts.get("bmc_problem") and not _inspection_is_due(resource)


def _polled(resource: ResourceView) -> tuple[Controller, str] | None:
    """Return the BMC, and how its power is polled; None if it cannot be polled, or if that is not known yet."""
    known = resource.facts.get(_POLL) or {}
    try:
        found = controller_of(resource)
    except NeedsOperator:
        return None
    path = known.get("path", "")
    return (found, path) if path and known.get("bmc") == found.driver.identity(found.access) else None


def _power_of(asked: tuple[Controller, str], ends: Deadline) -> PowerState | BmcError:
    found, path = asked
    seconds = min(_POLL_SECONDS, ends.remaining)
    if seconds <= 0 or not isinstance(found.driver, PollsPower):
        return PowerState.UNKNOWN
    try:
        return found.driver.poll_power(found.access, found.credential, path, deadline=seconds)
    except BmcError as error:
        return error
    except Exception:  # an answer that nobody foresaw must not cost the others a check of their own
        logger.exception("The power at %s could not be read.", found.identity)
        return PowerState.UNKNOWN


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
    rests = state is PowerState.OFF and not is_meant_on(spec.resource)
    if state is PowerState.OFF and not rests and isinstance(accounts.reach(spec, {}), Ready):
        return Ready(facts={"power": "on", "bmc_problem": _LIES})
    known = state.value if state in (PowerState.ON, PowerState.OFF) else ""
    facts = {"power": known, "bmc_problem": ""}
    if _inspection_is_due(spec.resource):
        return Ready(facts=facts)
    # The system of a host that is off as it should be, and its switches, are not to be asked.
    return Ready(facts=facts, health=_judged_with(spec, facts), ends_phase=rests and not spec.config.switches_networks)


@bmc_told
def read_hardware(spec: Spec, memo: Json) -> Answer:
    """Inspect the hardware, sensors and event log if that is due, and report the health."""
    facts: Json = {}
    report = None
    if _inspection_is_due(spec.resource) and not spec.resource.facts.get("bmc_problem"):
        try:
            with session(spec.resource, whole(spec)) as bmc:
                facts, sensors = _read(bmc, spec)
            report = reported(sensors, _interval(spec.resource))
        except BmcError as error:
            facts = {"hardware_problem": f"The hardware could not be read: {error.message}"}
    swapped = facts.pop("swapped", "")
    if swapped:
        return Failed(scope=Scope.OPERATOR, code="other_machine", message=swapped)
    told = facts.pop("log", "")
    return Ready(facts=facts, health=_judged_with(spec, facts), log=told, sensors=report)


def _inspection_is_due(resource: ResourceView) -> bool:
    before = resource.facts.get("inspected_at") or "1970-01-01T00:00:00+00:00"
    return since(before) >= _interval(resource)


def _interval(resource: ResourceView) -> float:
    """Return the seconds between two inspections. Little changes in a host at rest, so it is inspected less often."""
    config = resource.blueprint.config
    calm = _rests(resource) and not _reason(resource.facts)
    return float(config.idle_inspect_interval if calm else config.inspect_interval)


def _rests(resource: ResourceView) -> bool:
    return resource.facts.get("power") == "off" and not is_meant_on(resource)


def _judged_with(spec: Spec, facts: Json) -> Health:
    known = spec.resource.facts | facts
    failed = known.get("hardware", {}).get("health") == "failed"
    return judged(known, failed and bool(spec.resource.lease_facts()))


def reported(sensors: Sequence[Sensor], interval: float) -> SensorReport | None:
    """Return what sensors measured, for the engine to keep; None if there are no sensors.

    Values that are not finite count as unknown, because JSON and averages cannot have them.
    """
    if not sensors:
        return None
    readings = [
        SensorReading(name=one.name or "?", value=_finite(one.value), unit=one.unit, state=one.state) for one in sensors
    ]
    draw = next((_finite(one.value) for one in sensors if one.whole and one.unit == "W"), None)
    watts = draw if draw is not None and draw >= 0 else None
    return SensorReport(at=clock.now(), readings=tuple(readings), power_watts=watts, interval=interval)


def _finite(value: float | None) -> float | None:
    return value if value is not None and math.isfinite(value) else None


def _read(bmc: Bmc, spec: Spec) -> tuple[Json, Sequence[Sensor]]:
    """Return what the BMC says now, as facts, with the differences since the last inspection in `log`, and sensors."""
    found, before = bmc.inspect(), spec.resource.facts
    facts = hardware.facts_of(found) | {"inspected_at": clock.now().isoformat(), "hardware_problem": ""}
    changes = hardware.differences(before["hardware"], facts["hardware"]) if "hardware" in before else []
    facts["swapped"] = _swapped(before.get("hardware", {}), found)
    sensors = bmc.sensors() if isinstance(bmc, Measures) else ()
    facts["sensor_problems"] = _problems(sensors)
    if isinstance(bmc, Logs):
        at = before.get("log_read_at")
        read = bmc.entries(dt.datetime.fromisoformat(at) if at else None)
        entries = [one for one in read if one.id not in before.get("log_ids", [])]
        facts |= _entries(entries, before)
        changes += [f"event log: {one.message}" for one in entries if one.severity != "ok"][-_MOST:] if at else []
    if isinstance(bmc, Polled) and spec.config.idle_power == "off":
        facts |= _how_to_poll(bmc, spec.resource)
    return {**facts, "log": "\n".join(changes)}, sensors


def _how_to_poll(bmc: Polled, resource: ResourceView) -> Json:
    """Return the fact about polls of the power. A BMC that refuses them is not asked again."""
    found = controller_of(resource)
    name = found.driver.identity(found.access)
    known = resource.facts.get(_POLL) or {}
    if known.get("bmc") == name:
        return {}
    try:
        return {_POLL: {"bmc": name, "path": bmc.power_poll()}}
    except BmcError:  # the next inspection finds out
        return {}


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
    reason = _reason(facts)
    if facts.get("hardware", {}).get("health", "") == "failed" and not leased:
        return Health(state="failed", reason=reason)
    return Health(state="degraded" if reason else "ok", reason=reason)


def _reason(facts: Json) -> str:
    """Return what is wrong with a machine, or an empty string."""
    problem = facts.get("bmc_problem", "")
    summary = facts.get("hardware", {}).get("health", "")
    reasons = [
        problem if problem in ("", _LIES) else "The BMC cannot be used",
        "The hardware could not be read" if facts.get("hardware_problem") else "",
        f"The BMC reports the machine as {summary}." if summary in ("degraded", "failed") else "",
        *facts.get("sensor_problems", []),
        *(f"Event log: {one['message']}" for one in facts.get("critical", []) if since(one["at"]) < _RECENT),
    ]
    return " ".join(f"{one.rstrip('.')}." for one in reasons if one)


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
    return accounts.reach(spec, memo) if _should_answer(spec) else Ready()


def look(spec: Spec, memo: Json) -> Answer:
    """Check the operating system of a host that should be on."""
    return accounts.check_health(spec, memo) if _should_answer(spec) else Ready()


def _should_answer(spec: Spec) -> bool:
    """Return whether an operating system should run: on a host that is meant to be on, and has one."""
    return has_system(spec) and is_meant_on(spec.resource)
