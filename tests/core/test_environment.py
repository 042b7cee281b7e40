"""Settings: every mistake at once, secrets never shown, and the page that lists them is current."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from drydock import environment, keys
from drydock.addresses import check_broker_url, parse_database_url
from drydock.core.errors import InvalidRequest

ROOT = Path(__file__).parents[2]


@pytest.fixture
def bare(monkeypatch, tmp_path):
    """No setting but the state folder."""
    for name in list(__import__("os").environ):
        if name.startswith("DRYDOCK_") or name in ("DATABASE_URL", "BROKER_URL"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("DRYDOCK_STATE", str(tmp_path / "state"))
    return monkeypatch


def test_defaults_need_nothing(bare):
    loaded = environment.load()
    assert loaded.private_database
    assert loaded.private_broker
    assert loaded.sweep_interval_seconds == 2.0


def test_all_mistakes_are_reported_at_once_without_values(bare):
    bare.setenv("DRYDOCK_WEB_PORT", "http")
    bare.setenv("DRYDOCK_SWEEP_INTERVAL_SECONDS", "-1")
    bare.setenv("DATABASE_URL", "mysql://root:hunter2@db/x")
    bare.setenv("BROKER_URL", "amqp://guest:hunter2@mq//")
    with pytest.raises(environment.InvalidSettings) as caught:
        environment.load()
    text = str(caught.value)
    for name in ("DRYDOCK_WEB_PORT", "DRYDOCK_SWEEP_INTERVAL_SECONDS", "DATABASE_URL", "BROKER_URL"):
        assert name in text
    assert "hunter2" not in text


def test_a_users_database_needs_keys_given(bare):
    bare.setenv("DATABASE_URL", "postgresql://drydock@db/drydock")
    with pytest.raises(environment.InvalidSettings, match=r"DRYDOCK_ENCRYPTION_KEYS.*drydock\.keys"):
        environment.load()
    for name in ("SECRET_KEY", "ENCRYPTION_KEYS", "OWNERSHIP_KEY"):
        bare.setenv(f"DRYDOCK_{name}", "x")
    assert environment.load().database == parse_database_url("postgresql://drydock@db/drydock")


def test_keys_are_made_once_and_for_the_owner_alone(bare):
    loaded = environment.load()
    assert not loaded.state.exists()
    first = (keys.secret_key(loaded), keys.encryption_keys(loaded), keys.ownership_key(loaded))
    assert (keys.secret_key(loaded), keys.encryption_keys(loaded), keys.ownership_key(loaded)) == first
    files = sorted((loaded.state / "keys").iterdir())
    assert [path.name for path in files] == ["encryption_keys", "ownership_key", "secret_key"]
    assert {stat.S_IMODE(path.stat().st_mode) for path in files} == {0o600}
    assert "SecretStr('**" in repr(environment.Environment(secret_key="quiet"))


@pytest.mark.parametrize(
    ("url", "host", "port", "name", "options"),
    [
        ("postgresql://u:p%40ss@h:5433/n?sslmode=require", "h", "5433", "n", {"sslmode": "require"}),
        ("postgres:///n?host=/run/postgresql", "/run/postgresql", "", "n", {}),
        ("postgresql://%2Frun%2Fpg/n", "/run/pg", "", "n", {}),
        ("postgresql://[::1]:5432/n", "::1", "5432", "n", {}),
    ],
)
def test_addresses_of_databases(url, host, port, name, options):
    found = parse_database_url(url)
    assert (found.host, found.port, found.name, found.options) == (host, port, name, options)


@pytest.mark.parametrize("url", ["mysql://h/n", "h:5432/n", "postgresql://h", "postgresql://h:99999/n"])
def test_addresses_that_cannot_work(url):
    with pytest.raises(InvalidRequest):
        parse_database_url(url)


def test_a_password_is_read_decoded():
    assert parse_database_url("postgresql://u:p%40ss@h/n").password == "p@ss"


@pytest.mark.parametrize(
    ("url", "celery"),
    [
        ("redis://h/1", "redis://h/1"),
        ("valkey://h/1", "redis://h/1"),
        ("unix:///run/v.sock", "redis+socket:///run/v.sock"),
    ],
)
def test_addresses_of_brokers(url, celery):
    assert check_broker_url(url) == celery


def test_the_page_of_settings_is_current():
    assert (ROOT / "docs" / "settings.md").read_text() == environment.reference(), "run: make docs"


def test_every_setting_is_described():
    assert [name for name, field in environment.Environment.model_fields.items() if not field.description] == []
