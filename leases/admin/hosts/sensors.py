"""The list of sensor reports, and a panel of a resource with small graphs of what its sensors measured, by unit."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from django.contrib import admin
from django.contrib.postgres.expressions import ArraySubquery
from django.db.models import Count, F, IntegerField, OuterRef, Q, Window
from django.db.models.functions import Cast, Ceil, JSONObject, Mod, RowNumber
from django.http import HttpRequest
from django.utils.safestring import SafeString

from leases.admin.toolkit import columns, graphs, html, search
from leases.admin.toolkit.base import RecordAdmin
from leases.admin.toolkit.panels import Panel
from leases.models import Resource, SensorReport

POINTS = 60
"""Maximum number of reports that are drawn, spread evenly over those that are kept."""
GRAPHS = 60
"""Maximum number of sensors with a graph. The others are listed with their values."""
_UNITS = {"W": "W", "Cel": "°C", "RPM": "RPM", "V": "V", "A": "A", "%": "%"}
"""The units that are shown first, in this order, and what people call them."""
_POWER = ("Power of the whole resource", "W", 0)
_Key = tuple[str, str, int]
"""A sensor by its name, its unit, and its place among those with the same name and unit."""
_Times = Sequence[dt.datetime]
_Report = Mapping[str, Any]
"""A report with the fields of `latest`."""


def _power(row: SensorReport) -> Any:
    return html.DASH if row.power_watts is None else f"{row.power_watts:g} W"


@admin.register(SensorReport)
class SensorReportAdmin(RecordAdmin):
    """What the sensors of machines measured at one time, and the power that they drew."""

    related = ("resource",)
    list_display = ("number", "read", "of", "power")
    search_fields = ("=resource__id",)
    search_help_text = "Number of a resource"
    ordering = ("-id",)
    fields = ("read", "of", "power", "longest_gap", "measured")

    number = columns.number()
    read = columns.time("read", "at")
    of = columns.link("resource", "resource")
    power = columns.column("power", _power, "power_watts")
    measured = columns.values("name, value, unit and state", "readings")

    def get_queryset(self, request: HttpRequest) -> Any:
        """Return the reports, in lists without the readings, which would be many."""
        found = super().get_queryset(request)
        return found if getattr(request, "dd_one", False) else found.defer("readings")

    def found(self, words: str) -> Q:
        """Return the condition for reports of the resource with this number."""
        number = search.number(words)
        return Q(pk__in=()) if number is None else Q(resource=number)


def latest() -> ArraySubquery:
    """Return the newest report of a resource and others as an annotation, so that its page reads them without a query.

    They are evenly spread over those that are kept, oldest first.
    """
    step = Cast(Ceil(Window(Count("*")) / float(POINTS)), IntegerField())
    place = Window(RowNumber(), order_by=F("id").desc()) - 1
    found = SensorReport.objects.filter(resource=OuterRef("pk")).annotate(apart=Mod(place, step)).filter(apart=0)
    return ArraySubquery(
        found.order_by("id").values(json=JSONObject(at="at", power_watts="power_watts", readings="readings"))
    )


def of_resource(row: Resource) -> list[Panel]:
    """Show what the sensors of a resource measured, which has the annotation `sensors_`, if there are reports."""
    found: Sequence[_Report] = getattr(row, "sensors_", ())
    if not found:
        return []
    times = [dt.datetime.fromisoformat(one["at"]) for one in found]
    newest = _newest(found[-1])
    measured = _measured(found)
    first, more = _order(newest)[:GRAPHS], _order(newest)[GRAPHS:]
    rows = [_row(key, newest[key], measured[key], times, draws=True) for key in first]
    rows += [_row(key, newest[key], measured[key], times, draws=False) for key in more]
    note = f"{len(times)} reports from {times[0]:%Y-%m-%d %H:%M} to {times[-1]:%Y-%m-%d %H:%M} UTC."
    return [
        Panel(
            title="Sensors", name="sensors", note=f"{note} All of them: drydock hosts sensors {row.pk} --since 48h",
            columns=("Unit", "Sensor", "Over time", "Newest", "Lowest", "Highest", "State"), rows=rows,
        )
    ]  # fmt: skip


def _keys(readings: Sequence[Any]) -> list[_Key]:
    """Return the keys of readings. Several sensors of a machine may have the same name."""
    seen: Counter[tuple[str, str]] = Counter()
    found = []
    for name, _, unit, _ in readings:
        found.append((name, unit, seen[name, unit]))
        seen[name, unit] += 1
    return found


def _newest(report: _Report) -> dict[_Key, str]:
    """Return the state of each sensor of the newest report, and of the power of the whole if that is measured."""
    readings = report["readings"]
    whole = {} if report["power_watts"] is None else {_POWER: ""}
    return whole | {key: one[3] for key, one in zip(_keys(readings), readings, strict=True)}


def _measured(found: Sequence[_Report]) -> Mapping[_Key, list[float | None]]:
    """Return what each sensor measured at each time."""
    values: dict[_Key, list[float | None]] = {}
    for place, report in enumerate(found):
        readings = report["readings"]
        now = {_POWER: report["power_watts"]}
        now |= {key: one[1] for key, one in zip(_keys(readings), readings, strict=True)}
        for key, value in now.items():
            values.setdefault(key, [None] * len(found))[place] = value
    return values


def _order(newest: Mapping[_Key, str]) -> list[_Key]:
    """Return the sensors by unit. The order of the machine is kept within a unit, the power of the whole is first."""
    units = [*_UNITS, *sorted({unit for _, unit, _ in newest if unit not in _UNITS})]
    return sorted(newest, key=lambda key: (key != _POWER, units.index(key[1])))


def _row(key: _Key, state: str, values: Sequence[float | None], times: _Times, *, draws: bool) -> Sequence[Any]:
    name, unit, _ = key
    shown = _UNITS.get(unit, unit)
    known = [value for value in values if value is not None]
    ends = (f"{min(known):g}", f"{max(known):g}") if known else (html.DASH, html.DASH)
    newest = html.DASH if values[-1] is None else f"{values[-1]:g} {shown}".strip()
    picture = _graph(name, shown, values, times) if draws and len(known) > 1 else html.DASH
    return shown or html.DASH, name, picture, newest, *ends, html.badge(state) if state else html.DASH


def _graph(name: str, unit: str, values: Sequence[float | None], times: _Times) -> SafeString:
    start, length = times[0], max((times[-1] - times[0]).total_seconds(), 1.0)
    points = [((at - start).total_seconds() / length, value) for at, value in zip(times, values, strict=True)]
    known = [value for value in values if value is not None]
    return graphs.line(points, f"{name}: {min(known):g} to {max(known):g} {unit}".strip())
