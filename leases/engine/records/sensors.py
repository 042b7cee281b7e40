"""Keep what sensors measured, as steps report it."""

from __future__ import annotations

import datetime as dt
import re

from blueprints.records.sensors import SensorReading, SensorReport
from drydock.core import clock
from leases.models import Run
from leases.models import SensorReport as Kept

MOST = 200
"""Maximum number of readings that are kept of one report."""
_HIGHEST_POWER = 1e6
_LONGEST_GAP = 86_400.0
_CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")
_ORDER = {"critical": 0, "warning": 1, "ok": 2, "unknown": 3}


def record(current: Run, report: SensorReport) -> None:
    """Keep a report of the resource of a run, by one statement.

    A trigger adds the energy since the report before to the usage of the lease that holds the whole resource. Call in
    the transaction that applies the answer of the step, with the resource locked.
    """
    Kept.objects.create(
        resource_id=current.resource_id, at=min(report.at, clock.now()), power_watts=_power(report.power_watts),
        longest_gap=longest_gap(report.interval, current.resource.blueprint.check_interval),
        readings=[_columns(one) for one in _chosen(report.readings)],
    )  # fmt: skip


def longest_gap(interval: float, checks: dt.timedelta | None) -> float:
    """Return the time in seconds across which energy is computed: twice the time that reports are apart.

    `interval` is the time in seconds between reports that the kind plans. They are as far apart as the `checks` of the
    blueprint if that is longer.
    """
    longer = max(interval, checks.total_seconds() if checks is not None else 0.0)
    return min(2 * longer, _LONGEST_GAP)


def _power(watts: float | None) -> float | None:
    """Return a power draw, or None for one that no single machine has."""
    return watts if watts is not None and watts <= _HIGHEST_POWER else None


def _chosen(readings: tuple[SensorReading, ...]) -> list[SensorReading]:
    """Return as many readings as are kept, in their order. Those with a problem are kept first."""
    if len(readings) <= MOST:
        return list(readings)
    urgent = sorted(range(len(readings)), key=lambda place: _ORDER[readings[place].state])[:MOST]
    return [readings[place] for place in sorted(urgent)]


def _columns(one: SensorReading) -> list[str | float | None]:
    """Return a reading as it is stored. Texts come from firmware, so they are cut and freed of control characters."""
    return [_text(one.name, 100) or "?", one.value, _text(one.unit, 20), one.state]


def _text(value: str, most: int) -> str:
    whole = value.encode("utf-8", "replace").decode()  # JSON of a BMC may have half characters
    return _CONTROL.sub(" ", whole).strip()[:most].strip()
