"""What sensors measured, and energy, over HTTP and on the command line."""

from __future__ import annotations

import csv
import datetime as dt
import io
import json

import pytest
from django.contrib.auth.models import User
from typer.testing import CliRunner

from drydock.cli.program import app
from drydock.cli.toolkit import options
from drydock.core import clock
from leases.local import LocalClient
from leases.models import Resource, SensorReport, Usage
from leases.operations.callers import caller


@pytest.fixture
def host(blueprint, ask, until):
    """A resource that one lease of ada holds whole, with three reports."""
    blueprint()
    lease = until(ask(exclusive=True), state="active")
    Resource.objects.update(name="alpha")
    for number in range(3):
        SensorReport.objects.create(
            resource=lease.resource, at=clock.now() - dt.timedelta(milliseconds=3 - number), longest_gap=600,
            power_watts=200 + number,
            readings=[["CPU", 40.0 + number, "Cel", "ok"], ["Fan 1", None, "RPM", "critical"]],
        )  # fmt: skip
    Usage.objects.update(energy_wh=1234.5, started_at=clock.now() - dt.timedelta(days=1))
    return lease.resource


@pytest.fixture
def drydock(monkeypatch, chief):
    def run(*words: object, who=chief, code: int = 0) -> str:
        monkeypatch.setattr(options, "client", lambda *_: LocalClient(caller(who)))
        done = CliRunner().invoke(app, [str(word) for word in words])
        assert done.exit_code == code, done.output
        return done.output

    return run


def test_reports_are_read_by_operators_and_the_holder_of_the_whole_host(host, owner, chief, api):
    ada, operator, bob = api(owner, "read"), api(chief, "operate"), api(User.objects.create_user("bob"), "read")
    at = f"resources/{host.pk}/sensors"
    newest = operator("GET", at)
    (one,) = newest["results"]
    assert (one["power_watts"], newest["next"]) == (202, None)
    assert one["readings"] == [
        {"name": "CPU", "value": 42.0, "unit": "Cel", "state": "ok"},
        {"name": "Fan 1", "value": None, "unit": "RPM", "state": "critical"},
    ]
    page = operator("GET", f"{at}?since=2020-01-01T00:00:00Z&limit=2")
    rest = operator("GET", f"{at}?since=2020-01-01T00:00:00Z&limit=2&cursor={page['next']}")
    assert [one["power_watts"] for one in (*page["results"], *rest["results"])] == [200, 201, 202]
    assert rest["next"] is None
    assert ada("GET", at)["results"] == [one]
    bob("GET", at, code=404)
    operator("GET", "resources/987654/sensors", code=404)
    for wrong in ("limit=0", "since=now", "since=2030-01-01T00:00:00", "cursor=x", "name=CPU"):
        operator("GET", f"{at}?{wrong}", code=400)
    operator("POST", at, {}, code=405)


def test_the_holder_of_a_part_is_refused(blueprint, ask, until, owner, api):
    blueprint(config={"capacity": {"slots": 2}})
    part = until(ask(slots=1), state="active")
    api(owner, "read")("GET", f"resources/{part.resource_id}/sensors", code=403)


def test_energy_is_part_of_usage(host, owner, api):
    ada = api(owner, "read")
    (record,) = ada("GET", "usage/records")["results"]
    assert (record["energy_wh"], record["price"], record["cost"]) == (pytest.approx(1234.5), 0, 0)
    report = ada("GET", "usage?by=lease")
    assert report["total"]["energy_wh"] == report["groups"][0]["energy_wh"] == pytest.approx(1234.5)
    table = ada.raw("GET", "usage/records?as=csv")
    (line,) = csv.DictReader(io.StringIO(b"".join(table.streaming_content).decode()))
    assert float(line["energy_wh"]) == pytest.approx(1234.5)


def test_the_command_shows_the_newest_values_and_their_range(host, drydock, owner):
    said = drydock("hosts", "sensors", "alpha")
    assert [line.split() for line in said.splitlines()[:3]] == [
        ["SENSOR", "VALUE", "UNIT", "STATE"], ["CPU", "42", "°C", "ok"], ["Fan", "1", "RPM", "critical"],
    ]  # fmt: skip
    assert "The host draws 202 W." in said
    said = drydock("hosts", "sensors", host.pk, "--since", "1h", who=owner)
    assert said.splitlines()[1].split() == ["CPU", "42", "°C", "40", "42", "ok"]
    found = json.loads(drydock("hosts", "sensors", host.pk, "--since", "1h", "--json"))
    assert [one["power_watts"] for one in found] == [200, 201, 202]
    assert "'yesterday' is not a valid time" in drydock("hosts", "sensors", host.pk, "--since", "yesterday", code=2)
    SensorReport.objects.all().delete()
    assert "No sensors were read." in drydock("hosts", "sensors", host.pk)


def test_the_command_usage_shows_kilowatt_hours(host, drydock):
    said = drydock("usage", "--by", "lease")
    assert said.splitlines()[0].split()[-1] == "KWH"
    assert said.splitlines()[1].split()[-1].startswith("1.23")
    assert "$0.00 and 1.23" in said
