"""The database goes away and comes back: work goes on by itself, and little is logged meanwhile."""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psycopg
import pytest
from django.db import DatabaseError, InternalError, OperationalError, connection, transaction

from drydock.cli.toolkit import exits
from drydock.core import clock
from leases.allocator import Allocator
from leases.engine.core import database
from leases.engine.core.database import rows
from leases.engine.scheduling import request
from leases.models import Lease
from leases.operations import leases
from leases.rest import problems
from leases.validation.requests import read
from tests.leases.pooler import Pooler
from tests.settings import DATABASE
from tests.workers import Worker

OUTAGE = 3.0


@contextmanager
def outage() -> Iterator[None]:
    """All connections to the test's database are cut, and new ones are refused."""
    given = connection.get_connection_params()
    name = given.pop("dbname")
    known = {key: given[key] for key in ("host", "port", "user", "password") if given.get(key)}
    with psycopg.connect(**known, dbname="postgres", autocommit=True) as apart:
        try:
            apart.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS false')
            apart.execute("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = %s", (name,))
            yield
        finally:
            apart.execute(f'ALTER DATABASE "{name}" ALLOW_CONNECTIONS true')
    connection.close()


def test_workers_go_on_when_the_database_is_back(blueprint, owner):
    blueprint(kind="fake_activated", config={"provider": "t", "boot_polls": 2, "poll_seconds": 0.2}, max_resources=5)
    worker = Worker({DATABASE: connection.settings_dict["NAME"]}, beat=True)
    try:
        worker.wait_ready()
        ids = [request.request(read({"type": "fake_activated"}), owner.pk, actor="ada").id for _ in range(5)]
        clock.sleep(0.5)
        before = worker.text()
        with outage():
            clock.sleep(OUTAGE)
            meanwhile = worker.text()[len(before) :]
        until = clock.monotonic() + 40
        while Lease.objects.filter(pk__in=ids, state="active").count() < len(ids):
            assert clock.monotonic() < until, worker.text()[-5000:]
            clock.sleep(0.1)
    finally:
        worker.stop()
    said = [line for line in meanwhile.splitlines() if " ERROR " in line or "Traceback" in line]
    processes = 4  # the main process, two children, beat
    assert len(said) <= processes * (OUTAGE + 2), meanwhile
    assert "Traceback" not in meanwhile


def test_who_waits_for_a_lease_goes_on_waiting(blueprint, owner):
    blueprint()
    lease = Allocator("fake", owner=owner).allocate()
    told: list[str] = []

    def wait() -> None:
        try:
            told.append(lease.wait_until_active(timeout=60).state)
            lease.release()
        finally:
            connection.close()

    waits = threading.Thread(target=wait)
    waits.start()
    clock.sleep(0.3)
    with outage():
        clock.sleep(1.0)
    Lease.objects.filter(pk=lease.id).update(message="still waiting")
    from leases.messaging.inline import settle

    settle()
    waits.join(60)
    assert told == ["active"]


def test_a_lost_connection_ends_a_sweep_at_once_and_is_logged_once(caplog, monkeypatch):
    monkeypatch.setattr(database, "_reported_at", float("-inf"))

    def look() -> None:
        rows("SELECT 1")

    rows("SELECT 1")
    with outage():
        for _ in range(5):
            with pytest.raises(OperationalError) as raised:
                database.attempt(look)
            database.report(raised.value)
    assert [r.levelno for r in caplog.records if r.name == database.__name__] == [logging.ERROR]
    database.attempt(look)


def terminate(pid: int) -> None:
    """End a connection from outside."""
    given = connection.get_connection_params()
    known = {key: given[key] for key in ("host", "port", "user", "password", "dbname") if given.get(key)}
    with psycopg.connect(**known, autocommit=True) as apart:
        apart.execute("SELECT pg_terminate_backend(%s)", (pid,))


def test_a_connection_that_is_replaced_while_a_transaction_is_rolled_back_counts_as_lost():
    def broken() -> None:
        with transaction.atomic():
            terminate(rows("SELECT pg_backend_pid()")[0][0])
            rows("SELECT 1")

    with pytest.raises(OperationalError) as raised:
        broken()
    assert connection.is_usable(), "the end of the transaction has connected again"
    assert database.is_lost(raised.value)


@pytest.fixture
def pooler(monkeypatch: pytest.MonkeyPatch) -> Iterator[Pooler]:
    made = Pooler(connection.get_connection_params())
    connection.close()
    monkeypatch.setitem(connection.settings_dict, "HOST", str(made.folder))
    monkeypatch.setitem(connection.settings_dict, "PORT", "1")
    yield made
    monkeypatch.undo()
    connection.close()
    made.close()


@pytest.mark.parametrize("statement", [b"BEGIN", b"SELECT 7", b"COMMIT"])
def test_a_pooler_that_reports_the_loss_twice_is_waited_for(pooler, statement):
    @database.short
    def work() -> int:
        return int(rows("SELECT 7")[0][0])

    assert work() == 7
    pooler.losing = statement
    assert database.patient(work) == 7
    assert not pooler.losing, "the connection has been lost"


@pytest.mark.parametrize("statement", [b"BEGIN", b"COMMIT"])
def test_a_loss_that_is_reported_twice_is_told_as_one(pooler, statement):
    pooler.losing = statement
    with pytest.raises(InternalError) as raised, transaction.atomic():
        rows("SELECT 7")
    assert database.is_lost(raised.value)
    assert problems.answer(raised.value).status_code == 503
    assert exits.described(raised.value)[0].startswith("The database is not reachable: ")


def test_an_error_inside_of_the_server_is_no_lost_connection():
    with transaction.atomic():
        with pytest.raises(DatabaseError):
            rows("SELECT 1 / 0")
        connection.needs_rollback = False
        with pytest.raises(InternalError) as raised:
            rows("SELECT 1")
        connection.needs_rollback = True
    assert not database.is_lost(raised.value)
    assert problems.answer(raised.value).status_code == 500
    assert exits.described(raised.value)[0].startswith("InternalError: ")


def test_an_error_of_a_statement_is_no_lost_connection():
    def late() -> None:
        with transaction.atomic():
            rows("SET LOCAL statement_timeout = 1")
            rows("SELECT pg_sleep(5)")

    with pytest.raises(OperationalError) as raised:
        late()
    assert not database.is_lost(raised.value)


def test_a_statement_that_is_prepared_raises_what_others_raise(settings):
    assert settings.DRYDOCK.prepared_statements
    with outage():
        connection.close()
        with pytest.raises(OperationalError) as raised:
            rows("SELECT 1", hot=True)
        assert database.is_lost(raised.value)


def test_a_web_request_is_answered_and_not_repeated():
    calls: list[int] = []

    def call() -> None:
        calls.append(1)
        raise OperationalError("gone")

    database.request_started()
    try:
        with pytest.raises(OperationalError):
            database.patient(call)
    finally:
        database.request_finished()
    assert calls == [1]


def test_a_request_whose_answer_was_lost_becomes_one_lease(blueprint, owner, monkeypatch):
    blueprint()
    asked = leases.request
    lost: list[int] = []

    def answer_lost(*args, **kwargs):
        done = asked(*args, **kwargs)
        if not lost:
            lost.append(done)
            raise OperationalError("server closed the connection unexpectedly")
        return done

    monkeypatch.setattr(leases, "request", answer_lost)
    lease = Allocator("fake", owner=owner).allocate()
    assert [lease.id] == lost
    assert Lease.objects.count() == 1
