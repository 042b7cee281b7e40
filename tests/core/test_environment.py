"""Settings: every mistake at once, secrets never shown, and the page that lists them is current."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest
from cryptography.fernet import Fernet

from drydock import environment, keys
from drydock.core.errors import InvalidRequest
from drydock.environment import check_broker_url, parse_database_url
from drydock.reference import settings

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
    with pytest.raises(environment.InvalidSettings, match=r"DRYDOCK_SECRET_KEY.*drydock\.keys"):
        environment.load()
    bare.setenv("DRYDOCK_SECRET_KEY", "x")
    assert environment.load().database == parse_database_url("postgresql://drydock@db/drydock")


def test_one_secret_key_is_enough_on_servers_of_your_own(bare, tmp_path):
    """The others follow from it, the same on every machine; one that is given or was generated before stays."""
    bare.setenv("DATABASE_URL", "postgresql://drydock@db/drydock")
    bare.setenv("DRYDOCK_SECRET_KEY", "one long word")
    loaded = environment.load()
    (derived,) = keys.encryption_keys(loaded)
    assert Fernet(derived).decrypt(Fernet(derived).encrypt(b"x")) == b"x"
    assert keys.ownership_key(loaded) not in (derived, "one long word")
    assert not (loaded.state / "keys").exists()
    bare.setenv("DRYDOCK_STATE", str(tmp_path / "elsewhere"))
    assert keys.encryption_keys(environment.load()) == [derived]
    bare.setenv("DRYDOCK_SECRET_KEY", "another")
    assert keys.encryption_keys(environment.load()) != [derived]
    bare.setenv("DRYDOCK_ENCRYPTION_KEYS", "given")
    bare.setenv("DRYDOCK_OWNERSHIP_KEY", "given too")
    assert keys.encryption_keys(environment.load()) == ["given"]
    assert keys.ownership_key(environment.load()) == "given too"
    for name in ("ENCRYPTION_KEYS", "OWNERSHIP_KEY"):
        bare.delenv(f"DRYDOCK_{name}")
    kept = tmp_path / "elsewhere" / "keys"
    kept.mkdir(parents=True)
    (kept / "encryption_keys").write_text("before")
    assert keys.encryption_keys(environment.load()) == ["before"]


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
    assert (ROOT / "docs" / "settings.md").read_text() == settings.page(), "run: make docs"


def test_every_setting_is_described():
    assert [name for name, field in environment.Environment.model_fields.items() if not field.description] == []
