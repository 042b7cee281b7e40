"""Usage and budgets over HTTP: report, records, CSV, and the same through the client."""

from __future__ import annotations

import csv
import io

import pytest
from django.contrib.auth.models import User

from leases.engine.lifecycle import release
from leases.local import LocalClient
from leases.models import Usage
from leases.operations.callers import caller
from tests.rest.attempts import Attempts
from tests.rest.test_client import client, server

__all__ = ["client", "server"]


@pytest.fixture
def eve(api):
    return api(User.objects.create_user("eve"))


@pytest.fixture
def boss(api, chief):
    return api(chief, "operate")


@pytest.fixture
def spent(blueprint, ask, until):
    """A lease that was, one that is, and a name that begins like a formula."""
    blueprint("shop", config={"offers": [{"offer": "m.0", "price": 2.0}], "capacity": {"slots": 2}})
    over = until(ask(name="=cmd()", allowed_blueprints=["shop"]), state="active")
    release.release(over.pk, actor="ada")
    until(over, state="destroyed")
    until(ask(allowed_blueprints=["shop"]), state="active")
    Usage.objects.update(started_at="2026-01-01T00:00Z")
    Usage.objects.filter(lease_id=over.pk).update(ended_at="2026-01-01T02:00Z")
    return over


SPAN = "since=2026-01-01T00:00:00Z&until=2026-01-01T04:00:00Z"


def table(answer):
    assert answer.headers["Content-Type"].startswith("text/csv")
    return list(csv.reader(io.StringIO(b"".join(answer.streaming_content).decode())))


def test_the_report_and_its_records(ada, spent):
    report = ada("GET", f"usage?{SPAN}&by=lease")
    assert [one["cost"] for one in report["groups"]] == [4.0, 2.0]
    assert report["total"]["cost"] == 6.0
    first = ada("GET", f"usage/records?{SPAN}&limit=1")
    second = ada("GET", f"usage/records?{SPAN}&limit=1&cursor={first['next']}")
    assert [one["cost"] for one in (*first["results"], *second["results"])] == [2.0, 4.0]


def test_a_table_by_parameter_or_by_what_is_accepted(ada, spent):
    headers, *rows = table(ada.raw("GET", f"usage/records?{SPAN}&as=csv"))
    assert [row[headers.index("lease_name")] for row in rows] == ["'=cmd()", ""]
    headers, *rows = table(ada.raw("GET", f"usage?{SPAN}", headers={"Accept": "text/csv"}))
    assert [row[headers.index("cost")] for row in rows] == ["6"]


def test_a_stranger_sees_nothing_of_it(eve, spent):
    assert eve("GET", f"usage?{SPAN}")["groups"] == []
    assert eve("GET", f"usage/records?{SPAN}")["results"] == []
    assert len(table(eve.raw("GET", f"usage/records?{SPAN}&as=csv"))) == 1


def test_budgets_are_set_seen_and_removed(boss, ada, spent):
    assert boss("PUT", "budgets", {"user": "ada", "max_hourly": 2.5})["used"] == 1.0
    (found,) = ada("GET", "budgets")["results"]
    assert (found["max_hourly"], found["left"]) == (2.5, 1.5)
    ada("PUT", "budgets", {"user": "ada", "max_hourly": 9.0}, code=403)
    boss("DELETE", "budgets?user=ada", code=204)
    assert ada("GET", "budgets")["results"] == []


def test_a_wrong_parameter_is_told_by_its_field(ada, boss):
    attempt = Attempts(ada)
    for path, field in (
        ("usage?by=colour", "by"), ("usage?since=2026", "since"), ("usage?as=xls", "as"), ("usage?lease=0", "lease"),
        ("usage/records?limit=0", "limit"), ("usage/records?cursor=x", "cursor"), ("usage?wings=2", "wings"),
    ):  # fmt: skip
        attempt("GET", path, 400, field)
    attempt = Attempts(boss)
    for amount in (-1.0, "much", 1e10, True):
        attempt("PUT", "budgets", 400, "max_hourly", {"user": "ada", "max_hourly": amount})
    attempt("PUT", "budgets", 400, "user", {"user": "ada", "group": "staff", "max_hourly": 1.0})


def test_a_program_elsewhere_gets_the_same(client, owner, spent):
    there, here = client(owner), LocalClient(caller(owner))
    wanted = {"since": "2026-01-01T00:00:00+00:00", "until": "2026-01-01T04:00:00+00:00"}
    assert there.usage(wanted, by="kind") == here.usage(wanted, by="kind")
    assert there.usage_records(wanted, limit=1) == here.usage_records(wanted, limit=1)
    assert there.budgets() == here.budgets() == []
