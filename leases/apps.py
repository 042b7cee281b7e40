from typing import Any

from django.apps import AppConfig
from django.db.models.signals import post_migrate


class LeasesConfig(AppConfig):
    """Leases, resources and everything that happens to them."""

    name = "leases"
    verbose_name = "Leases"

    def ready(self) -> None:
        """Indexes follow what the installed kinds compare."""
        post_migrate.connect(_index, sender=self)


def _index(**_: Any) -> None:
    from leases.engine.matching import index_numbers

    index_numbers()
