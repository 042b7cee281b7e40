"""What `/metrics` tells, and to whom."""

from __future__ import annotations

from pathlib import Path

import pytest
from django.db import Error
from prometheus_client.parser import text_string_to_metric_families
from pydantic import SecretStr

from drydock import keys
from drydock.environment import load
from drydock.reference import metrics
from leases.messaging.inline import settle
from leases.models import Resource
from leases.reports import figures
from tests.operation.rows import ended


@pytest.fixture
def told(client, settings):
    """Name -> {labels: number} of a scrape."""

    def scrape():
        token = str(settings.DRYDOCK_METRICS_TOKEN)
        answer = client.get("/metrics", headers={"Authorization": f"Bearer {token}"})
        assert answer.status_code == 200
        families = text_string_to_metric_families(answer.content.decode())
        return {
            (sample.name, *(f"{name}={value}" for name, value in sorted(sample.labels.items()))): sample.value
            for family in families
            for sample in family.samples
        }

    return scrape


def test_it_counts_what_there_is(told, blueprint, ask):
    blueprint(config={"capacity": {"slots": 2, "cpu_millicores": 4000}}, max_resources=1)
    ask(cpu_millicores=1000), ask()
    settle()
    ask(), ask()
    settle()
    found = told()
    assert found["drydock_database_up",] == 1
    assert found["drydock_leases", "state=active", "type=fake"] == 2
    assert found["drydock_leases", "state=pending", "type=fake"] == 2
    assert sum(n for key, n in found.items() if key[0] == "drydock_waiting_leases") == 2
    assert 0 < found["drydock_queue_age_seconds", "type=fake"] < 100
    assert found["drydock_resources", "blueprint=pool", "state=active"] == 1
    assert found["drydock_capacity_total", "blueprint=pool", "class=slots"] == 2
    assert found["drydock_capacity_used", "blueprint=pool", "class=slots"] == 2
    assert found["drydock_capacity_total", "blueprint=pool", "class=cpu_millicores"] == 4000
    assert found["drydock_capacity_used", "blueprint=pool", "class=cpu_millicores"] == 1000
    assert 0 < found["drydock_build_seconds", "blueprint=pool", "quantile=1.0"] < 100
    assert 0 < found["drydock_claim_seconds", "quantile=0.5"] <= found["drydock_claim_seconds", "quantile=1.0"] < 100
    assert found["drydock_transitions", "of=resource", "reason=ready", "to=active"] == 1
    assert 0 <= found["drydock_sweep_lag_seconds",] < 100
    assert found["drydock_suspended",] == 0
    assert found["drydock_workers",] == 0


def test_failures_and_what_is_set_apart(told, blueprint, ask):
    blueprint(config={"faults": [{"does": "fail", "at": "build.create", "scope": "blueprint"}]})
    ask()
    settle()
    Resource.objects.update(quarantined=True)
    found = told()
    assert found["drydock_transitions", "of=resource", "reason=build_failed", "to=broken"] == 1
    assert found["drydock_remembered_errors", "blueprint=pool", "scope=blueprint"] == 1


def test_further_classes_of_capacity_are_told(told, blueprint, ask):
    blueprint(config={"capacity": {"slots": 4, "extra": {"gpu_mib": 80}}})
    ask(extra={"gpu_mib": 30})
    settle()
    found = told()
    assert found["drydock_capacity_total", "blueprint=pool", "class=gpu_mib"] == 80
    assert found["drydock_capacity_used", "blueprint=pool", "class=gpu_mib"] == 30


def test_a_few_statements_and_none_reads_ended_leases(blueprint, ask, django_assert_max_num_queries):
    blueprint()
    ask()
    settle()
    ended(5_000)
    with django_assert_max_num_queries(len(figures.FIGURES) + 8):
        figures.measure(60)
    for figure in figures.FIGURES:
        if isinstance(figure.sql, str) and "leases_lease" in figure.sql:
            assert "Seq Scan on leases_lease" not in plan(figure), figure.name


def plan(figure: figures.Figure) -> str:
    from leases.engine.core.database import rows, run

    run("ANALYZE leases_lease")
    return "\n".join(line for (line,) in rows(f"EXPLAIN {figure.sql}", None))


def test_without_a_database_it_says_so(told, monkeypatch):
    def fails(seconds):
        raise Error("no connection")

    monkeypatch.setattr(figures, "measure", fails)
    found = told()
    assert found["drydock_database_up",] == 0
    assert not [key for key in found if key[0] == "drydock_leases"]


def test_nobody_reads_it_without_the_token_on_this_machine_neither(client):
    for address in ("127.0.0.1", "::1", "10.0.0.9", ""):
        answer = client.get("/metrics", REMOTE_ADDR=address)
        assert answer.status_code == 403
        assert b"DRYDOCK_METRICS_TOKEN" in answer.content
        assert b"drydock_" not in answer.content


def test_a_token_is_generated_once_for_the_owner_of_the_state_folder_alone(tmp_path):
    environment = load().model_copy(update={"state": tmp_path / "state", "metrics_token": SecretStr("")})
    token = keys.metrics_token(environment)
    kept = tmp_path / "state" / "keys" / "metrics_token"
    assert len(token) > 40
    assert keys.metrics_token(environment) == token == kept.read_text().strip()
    assert (kept.stat().st_mode & 0o777, kept.parent.stat().st_mode & 0o777) == (0o600, 0o700)
    given = environment.model_copy(update={"metrics_token": SecretStr("mine")})
    assert keys.metrics_token(given) == "mine"


def test_who_knows_the_token_reads_it_from_anywhere(client, settings):
    settings.DRYDOCK_METRICS_TOKEN = "open sesame"
    good = {"Authorization": "Bearer open sesame"}
    assert client.get("/metrics", headers=good, REMOTE_ADDR="10.0.0.9").status_code == 200
    for bad in ("", "Bearer", "Bearer ", "Bearer open", "open sesame", "Bearer öpen"):
        assert client.get("/metrics", headers={"Authorization": bad}).status_code == 403


def test_the_page_of_metrics_is_current():
    assert (Path(__file__).parents[2] / "docs" / "metrics.md").read_text() == metrics.page(), "run: make docs"
