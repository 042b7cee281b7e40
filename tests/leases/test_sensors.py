"""What sensors measured is kept for a while, and its energy belongs to the lease that holds the whole resource."""

from __future__ import annotations

import datetime as dt
import math

import pytest
from django.contrib.auth.models import User
from django.db import IntegrityError, connection, transaction
from django.test.utils import CaptureQueriesContext

from blueprints.answers import Ready
from blueprints.contract import Step
from blueprints.fake.kind import Fake
from blueprints.records.sensors import SensorReading, SensorReport
from drydock.core import clock
from drydock.core.errors import InvalidRequest, NotAllowed, NotFound
from leases import sensors
from leases.engine.core.runs import start
from leases.engine.lifecycle import release
from leases.engine.placement import budgets
from leases.engine.records import sensors as engine
from leases.engine.upkeep import pruning, renewals
from leases.messaging.inline import settle
from leases.models import Budget, Lease, Resource, Usage
from leases.models import SensorReport as Kept
from leases.operations import costs
from leases.operations.callers import caller
from tests.leases import kinds

FAN = SensorReading(name="Fan 1", value=4200.0, unit="RPM", state="ok")


def report(watts=None, readings=(FAN,), **more):
    return SensorReport(**{"at": clock.now(), "interval": 300, "power_watts": watts, "readings": readings, **more})


class Metered(Fake):
    """Reports its sensors in a step of its check."""

    name = "metered"
    resource_type = "metered"
    reported: SensorReport | None = None

    def check(self):
        return (*super().check(), Step(name="sensors", act=lambda spec, memo: Ready(sensors=self.reported)))


@pytest.fixture
def metered():
    kind = Metered()
    with kinds.installed(kind):
        yield kind


@pytest.fixture
def operator():
    return caller(User.objects.create_superuser("root"))


@pytest.fixture
def held(blueprint, ask, until):
    """A lease on a whole resource that is metered, with its usage from a given time."""
    blueprint(config={"capacity": {"slots": 2}})
    lease = until(ask(exclusive=True), state="active")
    resource = lease.resource
    Kept.objects.create(resource=resource, at=clock.now() - dt.timedelta(days=1), power_watts=1, longest_gap=1)
    Usage.objects.update(started_at=at(-3600))
    return lease


_NOW = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)


def at(seconds):
    return _NOW + dt.timedelta(seconds=seconds)


def measure(resource, *powers, gap=600):
    """Keep reports: (seconds, watts)."""
    for seconds, watts in powers:
        Kept.objects.create(resource=resource, at=at(seconds), power_watts=watts, longest_gap=gap)


def energy(**of):
    return Usage.objects.get(**of).energy_wh


def check(resource):
    start(resource_id=resource.pk, phase="check")
    settle()


# What steps report


@pytest.mark.parametrize("wrong", [math.nan, math.inf, -math.inf])
def test_a_reading_that_is_not_finite_is_refused(wrong):
    with pytest.raises(ValueError, match="not a finite number"):
        SensorReading(name="Fan", value=wrong)
    with pytest.raises(ValueError, match="impossible"):
        report(wrong)


def test_a_report_needs_a_possible_power_and_interval_a_time_zone_and_names():
    for wrong in ({"power_watts": -1.0}, {"interval": -1.0}, {"interval": math.nan}, {"at": dt.datetime(2026, 1, 1)}):
        with pytest.raises(ValueError, match=r"impossible|every|time zone"):
            SensorReport(**{"at": clock.now(), "interval": 300, **wrong})
    with pytest.raises(ValueError, match="name of its sensor"):
        SensorReading(name="")


@pytest.mark.parametrize(
    ("interval", "checks", "gap"),
    [(300, None, 600), (300, 60, 600), (300, 900, 1800), (0, 60, 120), (0, None, 0), (1e9, None, 86_400)],
)
def test_reports_may_be_two_intervals_apart(interval, checks, gap):
    assert engine.longest_gap(interval, None if checks is None else dt.timedelta(seconds=checks)) == gap


def test_a_check_keeps_what_it_read_by_one_more_statement(metered, blueprint, ask, until, monkeypatch):
    blueprint(kind="metered")
    resource = until(ask("metered"), state="active").resource
    real, sent = engine.record, []

    def record(*given):
        with CaptureQueriesContext(connection) as statements:
            real(*given)
        sent.append([one["sql"] for one in statements.captured_queries])

    monkeypatch.setattr(engine, "record", record)
    check(resource)
    assert (sent, Kept.objects.count()) == ([], 0)
    for watts in (200.0, 210.0):
        metered.reported = report(watts)
        check(resource)
    assert [len(statements) for statements in sent] == [1, 1]
    assert sent[1][0].startswith('INSERT INTO "leases_sensorreport"')
    kept = Kept.objects.first()
    assert (kept.resource_id, kept.power_watts, kept.longest_gap) == (resource.pk, 210.0, 600)
    assert kept.readings == [["Fan 1", 4200.0, "RPM", "ok"]]
    assert kept.at == metered.reported.at
    assert Usage.objects.get().energy_wh > 0


def test_a_report_of_the_future_was_read_now(metered, blueprint, ask, until):
    blueprint(kind="metered")
    resource = until(ask("metered"), state="active").resource
    metered.reported = report(at=clock.now() + dt.timedelta(days=400))
    check(resource)
    assert Kept.objects.get().at <= clock.now()


def test_texts_and_numbers_of_readings_are_bounded_and_problems_are_kept_first(metered, blueprint, ask, until):
    blueprint(kind="metered")
    resource = until(ask("metered"), state="active").resource
    many = [SensorReading(name=f"s{n}", value=1.0, state="ok") for n in range(engine.MOST)]
    grave = SensorReading(name="\x1b[31mT\0emp\ud800" + "x" * 300, value=None, unit="u" * 99, state="critical")
    metered.reported = report(2e6, readings=(*many, grave))
    check(resource)
    kept = Kept.objects.get()
    assert len(kept.readings) == engine.MOST
    assert kept.readings[0][0] == "s0"
    name, value, unit, state = kept.readings[-1]
    assert (len(name), value, unit, state) == (100, None, "u" * 20, "critical")
    assert name.startswith("[31mT emp?")
    assert kept.power_watts is None, "no machine draws two megawatts"


# Energy


REPORTS = {
    "one report": ([(0, 120.0)], 0),
    "constant": ([(0, 120.0), (300, 120.0)], 10),
    "rising": ([(0, 100.0), (300, 140.0)], 10),
    "falling to nothing": ([(0, 120.0), (300, 120.0), (600, 0.0), (900, 0.0)], 15),
    "two intervals apart": ([(0, 120.0), (600, 120.0)], 20),
    "further apart": ([(0, 120.0), (601, 120.0)], 0),
    "after a gap": ([(0, 120.0), (2000, 120.0), (2300, 120.0)], 10),
    "one was missing": ([(0, 120.0), (300, None), (600, 120.0)], 20),
    "two were missing": ([(0, 120.0), (300, None), (700, 120.0)], 0),
    "the clock went back": ([(0, 120.0), (-500, 120.0), (-200, 120.0)], 10),
    "twice at the same time": ([(0, 120.0), (0, 240.0)], 0),
}  # fmt: skip


def test_energy_is_computed_between_reports_and_never_beyond(held):
    found = {}
    for words, (powers, _) in REPORTS.items():
        Kept.objects.all().delete()
        Usage.objects.update(energy_wh=0)
        measure(held.resource, *powers)
        found[words] = energy()
    assert found == {words: pytest.approx(expected) for words, (_, expected) in REPORTS.items()}
    assert Usage.objects.get().price == 0


def test_each_lease_gets_the_energy_of_its_own_time(held, ask, until, operator):
    first = held
    release.release(first.pk, actor="ada")
    until(first, state="destroyed")
    second = until(ask(exclusive=True), state="active")
    assert second.resource_id == first.resource_id
    Usage.objects.filter(lease_id=first.pk).update(started_at=at(-3600), ended_at=at(100))
    Usage.objects.filter(lease_id=second.pk).update(started_at=at(200))
    measure(first.resource, (0, 60.0), (300, 360.0))
    # It rises by a watt each second: 60 to 160 W for the first, 260 to 360 W for the second.
    assert energy(lease_id=first.pk) == pytest.approx(110 * 100 / 3600)
    assert energy(lease_id=second.pk) == pytest.approx(310 * 100 / 3600)


def test_energy_of_a_shared_resource_belongs_to_no_lease(blueprint, ask, until):
    blueprint(config={"capacity": {"slots": 2}}, max_resources=1)
    lease = until(ask(slots=1), state="active")
    measure(lease.resource, (0, 100.0), (300, 100.0))
    assert not Usage.objects.exists()
    priced = blueprint("priced", config={"offers": [{"offer": "m", "price": 0.6}], "capacity": {"slots": 2}})
    paid = until(ask(slots=1, allowed_blueprints=[priced.name]), state="active")
    measure(paid.resource, (0, 100.0), (300, 100.0))
    assert (Usage.objects.get().part, energy()) == (0.5, None)


def test_energy_is_on_record_with_a_price_too_and_each_price_has_its_own(blueprint, ask, until):
    blueprint(config={"offers": [{"offer": "m", "price": 0.6}]})
    lease = until(ask(exclusive=True), state="active")
    assert energy() is None
    measure(lease.resource, (-9999, 100.0))
    assert energy() == 0
    Usage.objects.update(started_at=at(-3600))
    measure(lease.resource, (0, 120.0), (300, 120.0))
    assert energy() == pytest.approx(10)
    Resource.objects.update(price=1.2)
    assert [one.energy_wh for one in Usage.objects.order_by("id")] == [pytest.approx(10), 0]


def test_the_record_ends_with_the_lease_and_changes_with_the_price(held, until):
    Resource.objects.update(price=0.5)
    free, priced = Usage.objects.order_by("id")
    assert (free.price, free.ended_at is not None, priced.price, priced.ended_at) == (0, True, 0.5, None)
    Resource.objects.update(price=None)
    assert [one.ended_at is None for one in Usage.objects.order_by("id")] == [False, False, True]
    release.release(held.pk, actor="ada")
    until(held, state="destroyed")
    assert not Usage.objects.filter(ended_at=None).exists()


@pytest.mark.parametrize("watts", [-0.1, 1e7, math.nan, math.inf])
def test_the_database_refuses_an_impossible_power(held, watts):
    with pytest.raises(IntegrityError, match="sensor_power_possible"), transaction.atomic():
        measure(held.resource, (0, watts))


def test_energy_costs_nothing_and_no_budget_ends_a_lease_for_it(held, owner):
    Budget.objects.create(user=owner, max_hourly=0)
    Usage.objects.update(started_at=clock.now() - dt.timedelta(hours=5))
    assert renewals.renew() == 0
    assert budgets.overspent(held.pk) == ""
    assert budgets.spent(owner.pk, None) == 0
    assert set(budgets.short_since([Budget.objects.get().pk]).values()) == {None}
    held.refresh_from_db()
    assert held.state == "active"


def test_the_report_of_usage_has_the_energy_of_its_span(held, owner, operator):
    hour = dt.timedelta(hours=1)
    now = clock.now()
    Usage.objects.update(started_at=now - 4 * hour, ended_at=now - 2 * hour, energy_wh=500)
    found = costs.usage_report(operator, by="lease")
    assert (found.total.energy_wh, found.groups[0].energy_wh) == (pytest.approx(500), pytest.approx(500))
    assert (found.total.cost, found.groups[0].id) == (0, held.pk)
    half = costs.usage_report(caller(owner), {"since": now - 3 * hour})
    assert half.total.energy_wh == pytest.approx(250, rel=1e-3)
    (record,) = costs.usage_records(caller(owner), {"lease": held.pk})
    assert (record.energy_wh, record.price, record.part) == (pytest.approx(500), 0, 1)
    assert costs.usage_report(caller(User.objects.create_user("bob"))).total.energy_wh is None


# Reading and pruning


def test_the_newest_report_or_all_since_a_time_are_shown(held, operator):
    Kept.objects.all().delete()
    measure(held.resource, (0, 1.0), (60, 2.0), (120, 3.0))
    pk = held.resource_id
    assert [one.power_watts for one in sensors.sensors(operator, pk)] == [3.0]
    assert [one.power_watts for one in sensors.sensors(operator, pk, since=at(60))] == [2.0, 3.0]
    first = sensors.sensors(operator, pk, since=at(0), limit=1)[0]
    assert [one.power_watts for one in sensors.sensors(operator, pk, since=at(0), after=first.id)] == [2.0, 3.0]
    for wrong in ({"limit": 0}, {"limit": 1001}, {"since": dt.datetime(2026, 1, 1)}):
        with pytest.raises(InvalidRequest):
            sensors.sensors(operator, pk, **wrong)
    with pytest.raises(NotFound):
        sensors.sensors(operator, 987654)


def test_owners_see_the_sensors_of_a_whole_resource_since_their_lease_began(held, owner, ask, blueprint, until):
    ada, bob = caller(owner), caller(User.objects.create_user("bob"))
    acquired = Lease.objects.get(pk=held.pk).acquired_at
    for seconds in (-1, 1):
        Kept.objects.create(
            resource=held.resource, at=acquired + dt.timedelta(seconds=seconds), power_watts=50 + seconds,
            longest_gap=1,
        )  # fmt: skip
    assert [one.power_watts for one in sensors.sensors(ada, held.resource_id)] == [51]
    assert [one.power_watts for one in sensors.sensors(ada, held.resource_id, since=at(-9e6))] == [51]
    with pytest.raises(NotFound):
        sensors.sensors(bob, held.resource_id)
    blueprint("shared", config={"capacity": {"slots": 2}})
    part = until(ask(slots=1, allowed_blueprints=["shared"]), state="active")
    with pytest.raises(NotAllowed, match="all of it"):
        sensors.sensors(ada, part.resource_id)
    release.release(held.pk, actor="ada")
    until(held, state="destroyed")
    with pytest.raises(NotFound):
        sensors.sensors(ada, held.resource_id)


def test_reports_are_deleted_after_their_retention_and_the_energy_stays(held, settings):
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"sensor_retention_hours": 1.0})
    Kept.objects.all().delete()
    Usage.objects.update(started_at=clock.now() - dt.timedelta(days=1))
    for minutes in (70, 65, 1):
        moment = clock.now() - dt.timedelta(minutes=minutes)
        Kept.objects.create(resource=held.resource, at=moment, power_watts=120, longest_gap=600)
    assert energy() == pytest.approx(10, rel=0.01)
    pruning.SENSORS.until = 0.0
    assert pruning.prune_sensors() == 2
    assert Kept.objects.count() == 1
    assert energy() == pytest.approx(10, rel=0.01)


def test_a_resource_is_pruned_with_its_reports(held, until):
    release.release(held.pk, actor="ada")
    until(held, state="destroyed")
    Lease.objects.all().delete()
    Resource.objects.update(gone_at=clock.now() - dt.timedelta(days=400))
    walk = next(one for one in pruning.WALKS if one.model is Resource)
    assert pruning.forget(walk, [held.resource_id]) == 1
    assert not Kept.objects.exists()
    assert Usage.objects.exists()
