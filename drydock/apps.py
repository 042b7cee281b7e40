"""The project package as a Django app, so that tasks find our Celery app wherever Django is set up."""

from __future__ import annotations

from django.apps import AppConfig


class DrydockConfig(AppConfig):
    """Registers the Celery app."""

    name = "drydock"

    def ready(self) -> None:
        """Make Drydock's Celery app the current one, without connecting to anything."""
        from drydock import celery  # noqa: F401
