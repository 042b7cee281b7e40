"""Conversion of Redfish resources to sensors, log entries and tasks. Pure functions that call no BMC."""

from __future__ import annotations

import datetime as dt
import math
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Literal
from urllib.parse import urlsplit, urlunsplit

from blueprints.bmc.inspection import flat, name_of, text, whole
from blueprints.bmc.values import BmcTask, LogEntry, Medium, Sensor

Json = Mapping[str, Any]

_STATES: Mapping[str, Literal["ok", "warning", "critical"]] = {"OK": "ok", "Warning": "warning", "Critical": "critical"}
_UNITS = {"Percent": "%", "Celsius": "Cel"}
_OLD_READINGS = (
    ("Temperatures", "ReadingCelsius", "Cel"),
    ("Fans", "Reading", ""),
    ("Voltages", "ReadingVolts", "V"),
    ("PowerControl", "PowerConsumedWatts", "W"),
)
"""The lists in the resources Thermal and Power that sensors replace, with the key and the unit of a reading."""
_MACHINE = ("", "Chassis", "SystemBoard")
"""Physical contexts of a PowerControl for the whole machine. Others are for its processors or its memory."""
_LOGS = ("sel", "iml", "eventlog", "log", "log1")
"""Ids of event logs, the best first: those of Dell, OpenBMC and others, of HPE, and of Supermicro."""
_TASK_STATES: Mapping[str, Literal["running", "done", "failed"]] = {
    "Completed": "done", "Exception": "failed", "Killed": "failed", "Cancelled": "failed",
}  # fmt: skip
"""States of a task in which it has ended. In all others it goes on, Suspended and Interrupted included."""


def sensor(one: Json, *, of_machine: bool = False) -> Sensor | None:
    """Return a sensor, None if nothing is there to be measured.

    `of_machine` says that the chassis with the sensor is that of one whole machine.
    """
    unit = text(one.get("ReadingUnits"))
    whole = of_machine and one.get("ReadingType") == "Power" and one.get("PhysicalContext") == "Chassis"
    return _sensor(one, one.get("Reading"), _UNITS.get(unit, unit), whole=whole)


def old_sensors(resource: Json, *, of_machine: bool = False) -> Iterator[Sensor]:
    """Return the sensors in a resource Thermal or Power."""
    draw_of = _control(resource) if of_machine else None
    for key, reading, unit in _OLD_READINGS:
        found = resource.get(key)
        for one in found if isinstance(found, list) else []:
            if not isinstance(one, dict) or not one:
                continue
            named = text(one.get("ReadingUnits"))
            made = _sensor(one, one.get(reading), unit or _UNITS.get(named, named) or "RPM", whole=one is draw_of)
            if made is not None:
                yield made


def _control(power: Json) -> Json | None:
    """Return the PowerControl that measures the whole machine: the first one that says how much it draws."""
    found = power.get("PowerControl")
    return next(
        (
            one
            for one in (found if isinstance(found, list) else [])
            if isinstance(one, Mapping)
            and text(one.get("PhysicalContext")) in _MACHINE
            and _number(one.get("PowerConsumedWatts"))
        ),
        None,
    )


def draw(resource: Json) -> Sensor | None:
    """Return the power that a machine draws, from its EnvironmentMetrics or Power; None if it does not say so."""
    control = _control(resource)
    if control is not None:
        made = _sensor(control, control["PowerConsumedWatts"], "W", whole=True)
    else:
        found = resource.get("PowerWatts")
        excerpt = found if isinstance(found, Mapping) else {}
        made = _sensor({"Name": "Power", "Status": excerpt.get("Status")}, excerpt.get("Reading"), "W", whole=True)
    return made if made is not None and made.whole else None


def _number(reading: Any) -> bool:
    return isinstance(reading, int | float) and not isinstance(reading, bool) and math.isfinite(reading)


def _sensor(one: Json, reading: Any, unit: str, *, whole: bool = False) -> Sensor | None:
    found = one.get("Status")
    status = found if isinstance(found, Mapping) else {}
    if status.get("State") == "Absent":
        return None
    value = float(reading) if _number(reading) else None
    name = text(one.get("Name")) or text(one.get("FanName")) or text(one.get("MemberId")) or name_of(one)
    return Sensor(
        name=name,
        value=value,
        unit=unit,
        state=_STATES.get(str(status.get("Health")), "unknown"),
        whole=whole and unit == "W" and value is not None and value >= 0,
    )


def log_rank(service: Json) -> int | None:
    """Return how suitable a log is as the system event log, the lowest first; None if it is another log."""
    id = text(service.get("Id")).lower()
    if service.get("LogEntryType") == "SEL":
        return 0
    return _LOGS.index(id) + 1 if id in _LOGS else None


def entry(one: Json) -> LogEntry:
    """Return an entry of an event log."""
    said = text(one.get("Message")) or text(one.get("Description")) or text(one.get("MessageId")) or "no message"
    severity = _STATES.get(str(one.get("Severity") or one.get("MessageSeverity")), "ok")
    id = text(one.get("Id")) or name_of(one)
    return LogEntry(id=id, message=said, severity=severity, at=when(one.get("Created")))


def when(value: Any) -> dt.datetime | None:
    """Return a time with its zone, which is UTC if there is none; None if it is no time."""
    try:
        found = dt.datetime.fromisoformat(value)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo else found.replace(tzinfo=dt.UTC)


def newest(entries: Iterable[LogEntry], since: dt.datetime | None, most: int) -> list[LogEntry]:
    """Return the newest entries, oldest first, without those before a time. Entries without a time are kept."""
    numbered = list(entries)
    if len(numbered) > 1 and _newest_first(numbered):
        numbered.reverse()
    return [one for one in numbered if since is None or one.at is None or one.at >= since][-most:]


def _newest_first(entries: list[LogEntry]) -> bool:
    first, last = entries[0], entries[-1]
    if first.at and last.at and first.at != last.at:
        return first.at > last.at
    a, b = whole(first.id), whole(last.id)
    return a is not None and b is not None and a > b


def task(body: Json, path: str, status: int) -> BmcTask:
    """Return a task by the resource that describes it, or by the answer of a monitor that has ended."""
    state = body.get("TaskState")
    found: Literal["running", "done", "failed"] = "running" if status == 202 else "done"
    if isinstance(state, str):
        found = _TASK_STATES.get(state, "running")
    if found == "done" and body.get("TaskStatus") == "Critical":
        found = "failed"
    percent = whole(body.get("PercentComplete"))
    return BmcTask(
        id=path, state=found, percent=min(percent, 100) if percent is not None else None, message=_messages(body),
        updates=_updates(body),
    )  # fmt: skip


def _updates(body: Json) -> bool | None:
    """Return whether the request that started a task is one for the update service; None if the task has none."""
    payload = body.get("Payload")
    target = payload.get("TargetUri") if isinstance(payload, dict) else None
    return "/UpdateService" in target if isinstance(target, str) and target else None


def _messages(body: Json) -> str:
    found = body.get("Messages")
    texts = [text(one.get("Message")) for one in found if isinstance(one, dict)] if isinstance(found, list) else []
    return " ".join(dict.fromkeys(filter(None, texts[-3:])))[:300]


def medium(one: Json) -> Medium:
    """Return a virtual drive."""
    types = flat(one.get("MediaTypes"))
    cd = any(kind in ("CD", "DVD") for kind in types) if types else "cd" in name_of(one).lower()
    return Medium(slot=name_of(one), cd=cd, image=without_secrets(image(one)), inserted=is_inserted(one))


def image(one: Json) -> str:
    """Return the address of the inserted image as the BMC has it."""
    found = one.get("Image")
    return found.strip() if isinstance(found, str) else ""


def is_inserted(one: Json) -> bool:
    """Return whether a virtual drive has an image. BMCs that do not say so at least name it."""
    said = one.get("Inserted")
    return said if isinstance(said, bool) else bool(image(one))


def without_secrets(uri: str) -> str:
    """Return an address without user, password and query, as queries may have signatures; empty if it is none."""
    try:
        parts = urlsplit(uri)
    except ValueError:
        return ""
    return urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2], query="", fragment=""))
