"""What machines ask of a web process."""

from __future__ import annotations

import json
import threading

import pytest
from django.test import Client

from drydock import probes
from drydock.core import clock
from drydock.probes import HealthCheck, HealthMonitor


@pytest.fixture
def web() -> Client:
    return Client(headers={"host": "10.0.0.7:8000"})


def test_a_process_that_answers_lives(web, django_assert_num_queries):
    with django_assert_num_queries(0):
        assert web.get("/healthz").content == b"ok\n"


def test_probes_need_no_known_host_and_no_https(web, settings):
    settings.SECURE_SSL_REDIRECT = True
    assert web.get("/healthz").status_code == 200
    assert web.get("/admin/").status_code == 400


def test_probes_are_only_read(web):
    for probe in ("/healthz", "/readyz", "/metrics"):
        assert web.post(probe).status_code == 405


def test_ready_says_what_was_looked_at(web):
    answer = web.get("/readyz")
    assert answer.json() == {"ready": True, "database": "ok", "migrations": "ok", "disk": "ok", "broker": "ok"}
    assert (answer.status_code, answer["Cache-Control"]) == (200, "no-store")


def test_a_migration_that_is_missing_is_not_ready(web, monkeypatch):
    monkeypatch.setattr(probes, "_wanted", {("leases", "9999_of_tomorrow")})
    answer = web.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["migrations"] == "not applied"


def test_a_database_ahead_of_this_version_is_ready(web, monkeypatch):
    monkeypatch.setattr(probes, "_wanted", {("leases", "0001_initial")})
    assert web.get("/readyz").status_code == 200


def broken() -> str:
    raise OSError("password=hunter2 at 10.1.2.3")


def test_what_does_not_answer_is_said_without_its_reason(web, monkeypatch):
    for needed, status in ((True, 503), (False, 200)):
        monkeypatch.setattr(probes, "_watch", HealthMonitor((HealthCheck(name="broker", see=broken, needed=needed),)))
        answer = web.get("/readyz")
        assert answer.status_code == status
        assert json.loads(answer.content) == {"ready": not needed, "broker": "does not answer"}


def test_what_hangs_costs_its_deadline_and_one_thread():
    gate = threading.Event()
    watch = HealthMonitor(
        (HealthCheck(name="slow", see=lambda: str(gate.wait(30))), HealthCheck(name="quick", see=lambda: ""))
    )
    try:
        before, began = threading.active_count(), clock.monotonic()
        for _ in range(3):
            assert watch.see(0.2) == {"slow": "no answer within 0.2 s", "quick": "ok"}
        assert clock.monotonic() - began < 15
        assert threading.active_count() <= before + 1
    finally:
        gate.set()
    watch.see(20)


def test_two_who_ask_at_once_get_one_look():
    gate, looks = threading.Event(), []

    def see() -> str:
        looks.append(1)
        gate.wait(30)
        return ""

    watch, answers = HealthMonitor((HealthCheck(name="one", see=see),)), []
    asking = [threading.Thread(target=lambda: answers.append(watch.see(30))) for _ in range(2)]
    for thread in asking:
        thread.start()
    while not looks:
        clock.sleep(0.01)
    clock.sleep(0.1)
    gate.set()
    for thread in asking:
        thread.join()
    assert answers == [{"one": "ok"}] * 2


def test_every_answer_has_the_id_of_its_request(client):
    assert client.get("/healthz").headers.get("X-Request-ID") is None
    given = client.get("/admin/login/", headers={"X-Request-ID": "abc-12345"})
    assert given["X-Request-ID"] == "abc-12345"
    hostile = client.get("/admin/login/", headers={"X-Request-ID": "a b\r\nx: y"})
    assert len(hostile["X-Request-ID"]) == 32
