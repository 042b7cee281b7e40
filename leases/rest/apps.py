"""REST as a Django app of its own, so that a project that installs only the engine need not have it."""

from django.apps import AppConfig


class RestConfig(AppConfig):
    """The REST API and its tokens."""

    name = "leases.rest"
    label = "rest"
    verbose_name = "REST API"
