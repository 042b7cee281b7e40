"""The Django application of leases."""

from typing import Any

from django.apps import AppConfig
from django.core.signals import request_finished, request_started
from django.db.models.signals import post_migrate


class LeasesConfig(AppConfig):
    """The Django application of the engine: leases, resources, and everything that happens to them."""

    name = "leases"
    verbose_name = "Leases"

    def ready(self) -> None:
        """Register the system checks and the signal handlers.

        The handlers create indexes after migrations, and record when this process begins and ends a web request.
        """
        from leases import checks
        from leases.engine.core import database

        post_migrate.connect(_index, sender=self)
        checks.connect()
        request_started.connect(database.request_started)
        request_finished.connect(database.request_finished)


def _index(**_: Any) -> None:
    from leases.engine.placement.constraints import index_numbers

    index_numbers()
