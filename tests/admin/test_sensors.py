"""Sensors and energy in the console: graphs that are drawn by the server, bounded and escaped."""

from __future__ import annotations

import datetime as dt
import re

import pytest

from drydock.core import clock
from leases.admin.hosts import sensors
from leases.admin.toolkit import graphs
from leases.models import SensorReport, Usage
from tests.admin.conftest import page, rows_of


def keep(resource, minutes, watts, *readings):
    at = clock.now() - dt.timedelta(minutes=minutes)
    SensorReport.objects.create(
        resource=resource, at=at, power_watts=watts, longest_gap=600, readings=[list(one) for one in readings]
    )


def panel(site, resource):
    """The panel with the sensors of a resource, or None."""
    found = site.get(page(resource))
    assert found.status_code == 200
    return next((one for one in found.context["panels"] if one.name == "sensors"), None)


def test_values_are_drawn_by_unit_with_their_range_in_words(site, lease, django_assert_max_num_queries):
    assert panel(site, lease.resource) is None
    for minutes, degrees, fan in ((10, 40.5, 4000), (5, 44.0, 0), (0, 42.0, None)):
        keep(
            lease.resource, minutes, 200 + minutes, ("Fan 1", fan, "RPM", "critical"), ("Temp", degrees, "Cel", "ok"),
            ("Temp", 20.0, "Cel", "ok"), ("Odd", 1.5, "furlongs", "unknown"),
        )  # fmt: skip
    found = panel(site, lease.resource)
    rows = [[re.sub(r"<[^>]+>", "", str(cell)).strip() for cell in row] for row in found.rows]
    assert [(row[0], row[1], *row[3:6]) for row in rows] == [
        ("W", "Power of the whole resource", "200 W", "200", "210"),
        ("°C", "Temp", "42 °C", "40.5", "44"),
        ("°C", "Temp", "20 °C", "20", "20"),
        ("RPM", "Fan 1", "-", "0", "4000"),
        ("furlongs", "Odd", "1.5 furlongs", "1.5", "1.5"),
    ]
    assert rows[3][6].endswith("critical")
    assert 'aria-label="Temp: 40.5 to 44 °C"' in str(found.rows[1][2])
    assert found.note.startswith("3 reports from ")
    with django_assert_max_num_queries(12):
        site.get(page(lease.resource))


def test_texts_of_sensors_are_escaped_and_no_script_or_style_is_needed(site, lease):
    for minutes in (5, 0):
        keep(lease.resource, minutes, None, ('<script>"x"</script>', float(minutes), "<b>", "ok"))
    shown = site.get(page(lease.resource)).content.decode()
    assert '<script>"x"' not in shown
    assert "<b>" not in shown
    assert "&lt;script&gt;" in shown
    (svg,) = re.findall(r'<svg class="dd-graph".*?</svg>', shown, re.DOTALL)
    assert "style=" not in svg
    assert svg.count("<polyline") == 1


def test_however_much_is_kept_a_bounded_part_is_drawn(site, lease):
    many = [(f"s{n}", float(n), "V", "ok") for n in range(200)]
    at = clock.now()
    SensorReport.objects.bulk_create(
        SensorReport(
            resource=lease.resource, at=at - dt.timedelta(minutes=400 - n), longest_gap=600, power_watts=n,
            readings=many if n >= 395 else many[:1],
        )
        for n in range(400)
    )  # fmt: skip
    found = panel(site, lease.resource)
    assert len(found.rows) == 201
    assert sum("<svg" in str(row[2]) for row in found.rows) <= sensors.GRAPHS
    drawn = re.search(r'points="([^"]+)"', str(found.rows[0][2]))[1].split()
    assert 40 <= len(drawn) <= sensors.POINTS
    assert str(found.rows[0][3]) == "399 W", "the newest report is among them"


def test_a_line_is_interrupted_where_nothing_was_measured():
    drawn = graphs.line([(0.0, 1.0), (0.2, 3.0), (0.4, None), (0.6, 2.0), (1.0, None)], 'a"b')
    assert drawn.count("<polyline") == 2
    assert 'aria-label="a&quot;b"' in drawn
    assert 'points="3.0,33.0 49.8,3.0"' in drawn
    assert graphs.line([(0.0, None)], "x") == ""
    assert "18.0" in graphs.line([(0.0, 5.0), (1.0, 5.0)], "x"), "values that do not change are in the middle"
    assert "nan" not in graphs.line([(0.0, -1.7e308), (1.0, 1.7e308)], "x")


@pytest.mark.parametrize("model", [SensorReport, Usage])
def test_reports_and_energy_are_listed(site, lease, model):
    keep(lease.resource, 0, 123.5, ("Fan 1", 1.0, "RPM", "ok"))
    Usage.objects.create(
        lease_id=lease.pk, blueprint_id=1, blueprint="pool", kind="fake", resource_id=lease.resource_id, type="fake",
        price=0, part=1, energy_wh=123_500, started_at=clock.now(), ended_at=clock.now(),
    )  # fmt: skip
    shown = site.get(rows_of(model), {"q": lease.resource_id}).content.decode()
    assert {SensorReport: "123.5 W", Usage: "123.500"}[model] in shown
    assert "123.5" in site.get(page(model.objects.first())).content.decode()
