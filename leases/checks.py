"""Django system checks for settings that a project must have before leases can work in it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from django.apps import apps
from django.conf import settings
from django.core.checks import CheckMessage, Error, Tags, Warning, register
from django.db import connections

_KEYS = ("DRYDOCK_ENCRYPTION_KEYS", "DRYDOCK_OWNERSHIP_KEY")


def connect() -> None:
    """Register the checks once Django is set up."""
    register(settings_there, Tags.compatibility)
    register(postgresql, Tags.compatibility)
    register(celery_app, Tags.compatibility)
    register(blueprint_there, Tags.database)


def settings_there(app_configs: Any, **_: Any) -> list[CheckMessage]:
    """Report missing settings."""
    lines = {
        "DRYDOCK": "DRYDOCK = environment.load()", _KEYS[0]: f"{_KEYS[0]} = keys.encryption_keys(DRYDOCK)",
        _KEYS[1]: f"{_KEYS[1]} = keys.ownership_key(DRYDOCK)",
    }  # fmt: skip
    return [
        Error(
            f"The setting {name} is missing.",
            hint=f"Add to your settings: from drydock import environment, keys; {line}", id="leases.E001",
        )
        for name, line in lines.items()
        if not hasattr(settings, name)
    ]  # fmt: skip


def postgresql(app_configs: Any, **_: Any) -> list[CheckMessage]:
    """Report a database other than PostgreSQL, before a migration runs on it."""
    connection = connections["default"]
    if connection.vendor == "postgresql":
        return []
    return [
        Error(
            f"The database 'default' is {connection.display_name}; leases need PostgreSQL 15 or later.",
            hint="DATABASES = {'default': {'ENGINE': 'django.db.backends.postgresql', ...}}", id="leases.E002",
        )
    ]  # fmt: skip


def celery_app(app_configs: Any, **_: Any) -> list[CheckMessage]:
    """Warn if no Celery app with a broker is loaded, because hints would not be delivered."""
    from celery import current_app

    if current_app.conf.broker_url or current_app.conf.task_always_eager:
        return []
    return [
        Warning(
            "No Celery app with a broker is loaded, so messages to workers go nowhere.",
            hint="Import your app in the project's __init__.py (`from .celery import app`), or add 'drydock' to"
            " INSTALLED_APPS to use ours.",
            id="leases.W001",
        )
    ]


def blueprint_there(app_configs: Any, databases: Sequence[str] | None = None, **_: Any) -> list[CheckMessage]:
    """Warn if no blueprint is enabled, so that nothing can be leased.

    Runs only with `check --database default`.
    """
    from blueprints.models import Blueprint

    connection = connections["default"]
    if "default" not in (databases or ()) or connection.vendor != "postgresql" or not apps.is_installed("blueprints"):
        return []
    with connection.cursor() as cursor:
        if Blueprint._meta.db_table not in connection.introspection.table_names(cursor):
            return []
    if Blueprint.objects.filter(enabled=True).exists():
        return []
    return [
        Warning(
            "No blueprint is enabled, so nothing can be leased.",
            hint="To lease this machine: drydock blueprints add this local_host", id="leases.W002",
        )
    ]  # fmt: skip
